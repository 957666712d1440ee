"""Compiles every kernel ahead of time at the configurations it ships with, without a GPU.

    python -m kernels.aot --check [--target sm_90 ...]

Prints registers, spills and shared memory per kernel and target; exits 1 when a kernel spills or does not compile.
Registers and spills of NVIDIA code come from the `cuobjdump` bundled with Triton (STACK above 0 is a spill), those of AMD
code from the assembler's own notes.
"""

import argparse
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Must be unset before the kernel modules are imported: the interpreter replaces what `triton.jit` returns.
os.environ.pop("TRITON_INTERPRET", None)

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kernels import (
    axis_sketch,
    block_bounds,
    chunk_attention,
    gelu,
    kv_write,
    layer_norm,
    logit_stats,
    paged_attention,
    reveal_prefix,
    rms_norm,
    rotary,
    sampling_laws,
    swiglu,
    topk_entropy,
)
from kernels.launch import Shipped

MODULES = (
    logit_stats,
    sampling_laws,
    topk_entropy,
    paged_attention,
    chunk_attention,
    axis_sketch,
    block_bounds,
    kv_write,
    rms_norm,
    layer_norm,
    rotary,
    swiglu,
    gelu,
    reveal_prefix,
)
TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "sm_100": GPUTarget("cuda", 100, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}


@dataclass(frozen=True)
class Compiled:
    """What one configuration compiled to. `spills`: bytes of stack on NVIDIA, spilled registers on AMD."""

    name: str
    target: str
    registers: int
    spills: int
    shared_bytes: int


def _nvidia_usage(cubin: bytes) -> tuple[int, int]:
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        text = subprocess.run(
            [str(tool), "--dump-resource-usage", file.name], capture_output=True, text=True, check=True
        ).stdout
    registers, stack = re.search(r"REG:(\d+)", text), re.search(r"STACK:(\d+)", text)
    if registers is None or stack is None:
        raise RuntimeError(f"cuobjdump printed no resource usage: {text[:200]!r}")
    return int(registers[1]), int(stack[1])


def _amd_usage(assembly: str) -> tuple[int, int]:
    counts = {name: int(value) for name, value in re.findall(r"\.(vgpr_count|vgpr_spill_count):\s*(\d+)", assembly)}
    return counts["vgpr_count"], counts["vgpr_spill_count"]


def compile_one(shipped: Shipped, target: str) -> Compiled:
    """Compile one configuration; raises what the compiler raises."""
    names = shipped.kernel.arg_names
    constants = dict(shipped.constants)
    if target.startswith("gfx") and constants.get("PRECISION") == "tf32x3":
        constants["PRECISION"] = "ieee"  # as the launcher chooses on AMD
    signature = {name: "constexpr" if name in constants else shipped.signature[name] for name in names}
    # Pointers from torch are 16-byte aligned, and the compiler is told so, as at a real launch.
    attributes: dict[Any, Any] = {
        (i,): [["tt.divisibility", 16]] for i, name in enumerate(names) if signature[name].startswith("*")
    }
    source = ASTSource(
        fn=shipped.kernel,
        signature=signature,
        constexprs={(names.index(name),): value for name, value in constants.items()},
        attrs=attributes,
    )
    options = {"num_warps": shipped.num_warps, **shipped.options}
    kernel = triton.compile(source, target=TARGETS[target], options=options)
    nvidia = target.startswith("sm_")
    registers, spills = _nvidia_usage(kernel.asm["cubin"]) if nvidia else _amd_usage(kernel.asm["amdgcn"])
    return Compiled(shipped.name, target, registers, spills, kernel.metadata.shared)


def _compile_numbered(task: tuple[int, int, str]) -> Compiled:
    module, number, target = task
    return compile_one(MODULES[module].shipped()[number], target)


def compile_all(targets: list[str]) -> Iterator[Compiled]:
    """Every configuration of every kernel for every target, in that order, on all cores."""
    tasks = [
        (module, number, target)
        for module in range(len(MODULES))
        for number in range(len(MODULES[module].shipped()))
        for target in targets
    ]
    with ProcessPoolExecutor(max_workers=os.cpu_count(), mp_context=multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(_compile_numbered, tasks, chunksize=2)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m kernels.aot", description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="compile everything and exit 1 on a spill (the default)")
    parser.add_argument("--target", action="append", choices=list(TARGETS), help="only this target; may be repeated")
    arguments = parser.parse_args()

    from rich.console import Console
    from rich.table import Table

    targets = arguments.target or list(TARGETS)
    table = Table("kernel", *(f"{t}\nregs / spill / shared" for t in targets))
    spilled: list[str] = []
    row: list[str] = []
    number = 0
    for compiled in compile_all(targets):
        number += 1
        row.append(f"{compiled.registers} / {compiled.spills} / {compiled.shared_bytes}")
        if compiled.spills:
            spilled.append(f"{compiled.name} on {compiled.target}: {compiled.spills}")
        if len(row) == len(targets):
            table.add_row(compiled.name, *row)
            row = []
    Console(width=None if sys.stdout.isatty() else 140).print(table)
    print(f"{number} kernels compiled, {len(spilled)} spill" + "".join(f"\n  {line}" for line in spilled))
    return 1 if spilled else 0


if __name__ == "__main__":
    sys.exit(main())
