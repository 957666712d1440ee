"""Oscillation of entropy on the real model: the temperature loop against the constant temperature of equal mean entropy.

The study of `workbench temper` with the PI law only: the same prompts and random numbers under seven constants and under the
law, texts of equal length. The constant is interpolated to the law's own mean entropy, over the same prompts.

tracking_saved    1 - mean |H - H*| of the law over that of the constant
variation_saved   1 - total variation of H a token over that of the constant
nll_lost_nats     NLL at T = 1 of the law minus that of the constant, nats a token
"""

from collections.abc import Callable, Mapping

import numpy as np

from workbench.claims.claim import Measured
from workbench.claims.interval import jackknife
from workbench.claims.setting import Setting
from workbench.signals import FloatArray, IntArray

TARGET_NATS, STEP_NATS = 1.5, (1.0, 2.0)  # those of `workbench temper`
LAW = "pi"


def measure(setting: Setting) -> Mapping[str, Measured]:
    from workbench.live.session import LiveModel
    from workbench.temper.laws import chosen_laws
    from workbench.temper.live import live_generate
    from workbench.temper.study import run_study

    prompts, tokens = setting.size((6, 20), (16, 128))
    model = LiveModel.load("smollm2", seed=setting.seed)
    generate = live_generate(model, prompts, tokens, setting.seed)
    study = run_study(
        generate, chosen_laws([LAW]), TARGET_NATS, STEP_NATS, tokens, model.config.vocab_size, setting.tell
    )
    return quantities(study)


def quantities(study) -> dict[str, Measured]:
    """From the runs of a `workbench.temper.study.Study` that holds the law."""
    from workbench.temper.measures import ConstantGrid, tracking_nats, variation_nats

    law, runs = study.constant[LAW], list(study.grid.values())
    mean_h = law.entropy_nats.mean(axis=1)
    grid = ConstantGrid(np.log(np.array(list(study.grid))), np.array([r.entropy_nats.mean(axis=1) for r in runs]))

    def pair(of: Callable) -> tuple[FloatArray, FloatArray]:
        return of(law), np.array([of(run) for run in runs])

    def constant(grid_values: FloatArray, chosen: IntArray) -> float:
        u = grid.matched(mean_h, chosen)
        return float(np.interp(u, grid.log_temperature, grid_values[:, chosen].mean(axis=1)))

    def saved(of: Callable) -> Measured:
        mine, theirs = pair(of)
        return jackknife(lambda c: 1.0 - mine[c].mean() / constant(theirs, c), mean_h.size, "prompts")

    nll, nll_grid = pair(lambda r: r.surprisal_raw_nats.mean(axis=1))
    return {
        "tracking_saved": saved(lambda r: tracking_nats(r.entropy_nats, study.target_nats)),
        "variation_saved": saved(lambda r: variation_nats(r.entropy_nats)),
        "nll_lost_nats": jackknife(lambda c: float(nll[c].mean()) - constant(nll_grid, c), mean_h.size, "prompts"),
    }
