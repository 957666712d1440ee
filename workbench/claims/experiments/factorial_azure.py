"""The simulated factorial on an H100 with Llama-3-8B under the Azure 2023 conversation trace (mean 1,155 + 211 tokens)."""

from collections.abc import Mapping

from workbench.claims.claim import Measured
from workbench.claims.setting import Setting
from workbench.claims.simulated import Case, measure_case
from workbench.main_job import find_trace


def case() -> Case:
    return Case(
        name="H100, Llama-3-8B, Azure conversation",
        trace=find_trace(None),
        num_rows=19_366,
        requests=(180, 180),
        seeds=(24, 24),
        cells=(
            (("tight", 1.2),),
            tuple((memory, load) for memory in ("ample", "tight") for load in (0.6, 0.95, 1.2)),
        ),
    )


def measure(setting: Setting) -> Mapping[str, Measured]:
    return measure_case(case(), setting)
