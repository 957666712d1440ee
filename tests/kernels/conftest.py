"""Every backend that runs on a CPU without the interpreter, each C++ instruction set on its own."""

from collections.abc import Iterator

import pytest
import torch

from kernels import dispatch
from kernels.cpu.build import extension

INSTRUCTION_SETS = ("amx", "avx512bf16", "avx2", "portable")


@pytest.fixture(params=("torch", *INSTRUCTION_SETS))
def ops(request: pytest.FixtureRequest) -> Iterator[dispatch.Ops]:
    if request.param == "torch":
        yield dispatch.backend("torch")
        return
    module = extension()
    if module is None:
        pytest.skip("no C++ compiler: the cpu backend is the torch backend")
    if request.param not in module.instruction_sets():
        pytest.skip(f"this CPU does not run {request.param}")
    best = module.instruction_set()
    module.set_instruction_set(request.param)
    yield dispatch.backend("cpu")
    module.set_instruction_set(best)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)
