"""KV traffic and quality together on the real model: the study of `workbench prune` at three quarters of the bytes.

Texts of grade-school mathematics and of code; the continuation is decoded under every policy, errors left to compound.
Replicates are texts.

POLICY_bytes_saved    1 - (keys and values of blocks read, boxes, sketches) over all KV bytes
POLICY_flops_saved    1 - attention operations (blocks read) over all
POLICY_nll_lost_nats  NLL of the reference token minus that of the dense model, nats a token
"""

from collections.abc import Mapping
from dataclasses import replace

from workbench.claims.claim import Measured
from workbench.claims.interval import over_seeds
from workbench.claims.setting import Setting

POLICIES = ("least-mass", "sketch-mass")
TARGET = 0.75


def measure(setting: Setting) -> Mapping[str, Measured]:
    from workbench.live.session import LiveModel
    from workbench.pruning.figures import arm_figures
    from workbench.pruning.study import Settings, run_study
    from workbench.pruning.texts import tasks_folder

    settings = Settings(
        contexts=setting.size((512,), (2048,)),
        kinds=setting.size(("gsm8k",), ("gsm8k", "code")),
        texts_per_kind=3,
        targets=(TARGET,),
        tail_tokens=setting.size(4, 16),
        seed=setting.seed * 100,
        only=POLICIES,
        curves=False,
    )
    tables = run_study(
        settings, setting.directory, tasks_folder(None), setting.tell,
        lambda dtype: LiveModel.load("smollm2", dtype, seed=setting.seed),
    )  # fmt: skip
    found: dict[str, Measured] = {}
    for arm in arm_figures(tables["steps"]):
        if arm.arm in POLICIES:
            found[f"{arm.arm}_bytes_saved"] = over_seeds(1.0 - arm.by_text["bytes_frac"])
            found[f"{arm.arm}_flops_saved"] = over_seeds(1.0 - arm.by_text["blocks_frac"])
            found[f"{arm.arm}_nll_lost_nats"] = over_seeds(arm.by_text["nll_loss_nats"])
    return {name: replace(one, method=f"t over {one.num_replicates} texts") for name, one in found.items()}
