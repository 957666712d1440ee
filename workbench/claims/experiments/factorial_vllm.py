"""The same comparison from records of vLLM, where they are at hand: `workbench claims --vllm RUN`.

RUN holds arms that `workbench deploy SCENARIO --run PYTHON` or `--collect` wrote, with and without controllers, under equal seeds.
vLLM's hooks carry order and temperature, not pruning, so the whole is scheduler and temperature together.
Quantities as in `paired`: vllm_ARM_NAME, over the seeds that an arm shares with the baseline.
"""

from collections.abc import Mapping

import numpy as np

from workbench.claims.claim import Measured
from workbench.claims.not_at_hand import NotAtHand
from workbench.claims.paired import arm_values, gains
from workbench.claims.setting import Setting
from workbench.metrics.arm import BASELINE
from workbench.metrics.leaf import find_leaves
from workbench.signals import FloatArray

HOW = "arms served by vLLM with and without controllers (`workbench deploy SCENARIO --run PYTHON --out RUN`), given as `--vllm RUN`"


def measure(setting: Setting) -> Mapping[str, Measured]:
    if setting.vllm is None:
        raise NotAtHand(HOW)
    leaves, _ = find_leaves(setting.vllm)
    arms: dict[str, dict[int, FloatArray]] = {}
    for leaf in leaves:
        notes = leaf.manifest.get("notes")
        if isinstance(notes, dict) and notes.get("engine") == "vllm":
            arms.setdefault(leaf.code, {})[leaf.seed] = arm_values(leaf.records(with_token_times=False))
    base = arms.get(BASELINE, {})
    shared = {code: sorted(base.keys() & of.keys()) for code, of in arms.items() if code != BASELINE}
    if not any(shared.values()):
        raise NotAtHand(f"{HOW}; {setting.vllm} holds no vLLM arm that shares a seed with a baseline")
    found: dict[str, Measured] = {}
    for code, seeds in shared.items():
        if seeds:
            values = {c: np.array([arms[c][seed] for seed in seeds]) for c in (BASELINE, code)}
            found |= {f"vllm_{name}": one for name, one in gains(values).items()}
    return found
