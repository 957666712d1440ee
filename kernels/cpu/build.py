"""Builds the C++ extension once and caches it; the folder is named by everything the binary depends on.

The build runs in a scratch folder and is renamed into place when complete, so that a killed build leaves nothing that a
later one could wait for or load.
"""

import fcntl
import hashlib
import importlib.util
import logging
import os
import platform
import shutil
import tempfile
import warnings
from functools import cache
from pathlib import Path
from types import ModuleType

import torch

log = logging.getLogger(__name__)

MODULE = "workbench_cpu_kernels"
HERE = Path(__file__).parent
SOURCES = ("compute.cpp", "bindings.cpp")
# No fast-math: it would switch on flush-to-zero for the whole process. The two flags below only drop errno and traps.
FLAGS = ("-O3", "-fopenmp", "-fno-math-errno", "-fno-trapping-math", "-Wno-psabi")


def cache_folder() -> Path:
    """Where this build belongs: one folder per source text, flags, torch and machine type."""
    digest = hashlib.sha256()
    for path in sorted([*HERE.glob("*.cpp"), *HERE.glob("*.h")]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    digest.update(repr((FLAGS, torch.__version__, platform.machine(), platform.python_version())).encode())
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return root / "entropic-workbench" / f"{MODULE}-{digest.hexdigest()[:16]}"


def _build(folder: Path) -> None:
    from torch.utils import cpp_extension

    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        raise OSError(f"no compiler {compiler!r}; install g++ and ninja, or name one in CXX")
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="build-", dir=folder.parent))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            cpp_extension.load(
                MODULE,
                [str(HERE / name) for name in SOURCES],
                extra_cflags=list(FLAGS),
                extra_ldflags=["-fopenmp"],
                build_directory=str(scratch),
                is_python_module=False,
                verbose=False,
            )
        try:
            scratch.rename(folder)
        except OSError:  # another process finished first; its build is the same
            if not (folder / f"{MODULE}.so").exists():
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


@cache
def extension() -> ModuleType | None:
    """The compiled module, built on first use (about half a minute); None, said once, where it cannot be built."""
    folder = cache_folder()
    library = folder / f"{MODULE}.so"
    try:
        if not library.exists():
            folder.parent.mkdir(parents=True, exist_ok=True)
            # One builder at a time: the others wait and find it built. The lock ends with its process.
            with (folder.parent / "build.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not library.exists():
                    log.info("building the CPU kernels, once, in %s", folder)
                    _build(folder)
        spec = importlib.util.spec_from_file_location(MODULE, library)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    except (OSError, RuntimeError, ImportError) as problem:
        lines = str(problem).strip().splitlines() or [type(problem).__name__]
        reason = next((line for line in lines if "error:" in line), lines[0])
        log.warning("no C++ kernels (%s); the cpu backend uses torch instead: slower, same results", reason[:200])
        return None


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    extension()
