"""One arm of a scenario in vLLM: its own workload, served by a vLLM of another environment, recorded, collected.

What the scenario says of the engine is given to vLLM (running requests, tokens a batch, prefix caching, temperature); what
vLLM has no counterpart for is refused. The record says what the engine really had, block size and KV blocks among it.
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench.errors import InputError
from workbench.live.build import DEFAULT_MAX_TOKENS, live_requests, loaded_model, prompt_specs, refuse_simulated_only
from workbench.live.engines.collect import collect_arm
from workbench.live.engines.deployment import check_offered
from workbench.live.weights import cache_directory, model_directory
from workbench.protocols import DecisionPoint
from workbench.scenario import Scenario
from workbench.scenario_text import scenario_toml

RESTARTS = 3  # engines that may die under one arm
OWN = {"preemption": "recompute", "max_queue": None, "ttft_timeout_s": float("inf"), "timeout_s": float("inf"),
       "horizon_s": float("inf")}  # fmt: skip


@dataclass(frozen=True)
class ServedArm:
    """What was served. A second directory holds what a second engine served, after the first had died."""

    directories: tuple[Path, ...]
    counters: Mapping[str, int]
    losses: Mapping[str, int] = field(default_factory=dict)


def serve_arm(
    scenario: Scenario, seed: int, directory: Path, python: Path, *, arm: Mapping[str, Any] | None = None,
    extra: Mapping[str, Any] | None = None, options: Mapping[str, Any] | None = None,
    compared: bool = False,
) -> ServedArm:  # fmt: skip
    """Serve and collect. `python`: of an environment with vLLM; `options`: more for `vllm.LLM`. Raises `InputError`."""
    check_offered(scenario, "vllm")
    refuse_simulated_only(scenario)
    settings = scenario.engine_config(1)
    for name, only in OWN.items():
        if getattr(settings, name) != only:
            raise InputError(f"engine.{name} has no counterpart in vLLM; leave it out, or run in the own engine")
    requests = _requests(scenario, seed)
    with tempfile.TemporaryDirectory(prefix="vllm-arm-") as name:
        work = Path(name)
        (work / "scenario.toml").write_text(scenario_toml(scenario), encoding="utf-8")
        task = {
            "model": str(model_directory(scenario.live.model, scenario.live.dtype)),
            "scenario": str(work / "scenario.toml"), "record": str(work / "spool"), "answer": str(work / "answer.json"),
            "seed": seed, "restarts": RESTARTS, "requests": requests,
            "engine": {
                "dtype": {"bf16": "bfloat16", "fp32": "float32"}[scenario.live.dtype],
                "max_num_seqs": settings.max_running, "max_num_batched_tokens": settings.token_budget,
                "enable_prefix_caching": settings.prefix_caching, "async_scheduling": settings.delay_steps > 0,
                **(options or {}),
            },
        }  # fmt: skip
        answer = _run(task, work, python)
        losses = {k: answer[k] for k in ("engine_losses", "requests_resumed", "tokens_drawn_again")}
        folders = sorted(work.glob("spool*"), key=lambda path: (len(path.name), path.name))
        made = []
        for life, folder in enumerate(folders):
            to = directory if life == 0 else directory.with_name(f"{directory.name}-after-loss-{life}")
            notes = {"counters": answer["counters"], **losses}
            made.append(collect_arm(folder, to, arm=arm, extra=extra, notes=notes, compared=compared and life == 0))
    return ServedArm(tuple(made), answer["counters"], losses)


def _requests(scenario: Scenario, seed: int) -> list[dict[str, Any]]:
    live = loaded_model(scenario.live.model, scenario.live.dtype, "torch")
    specs, _ = prompt_specs(scenario.workload, seed)
    settings = scenario.engine_config(1)
    sampling = {"temperature": settings.temperature}
    if DecisionPoint.TEMPERATURE in scenario.controllers:
        sampling = {"temperature": 1.0}
    cap = scenario.workload.max_tokens or DEFAULT_MAX_TOKENS
    return [
        {
            "token_ids": list(r.prompt.token_ids), "max_tokens": min(r.max_tokens, cap), "arrival_s": r.arrival_s,
            "kind": r.kind, "priority": r.priority, "stop_ids": list(live.stop_ids), "sampling": sampling,
        }
        for r in live_requests(live, specs, scenario.workload)
    ]  # fmt: skip


def vllm_environment() -> dict[str, str]:
    """Of a vLLM process: offline, this package first, a Numba cache of its own version's."""
    return {
        "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1",
        "NUMBA_CACHE_DIR": str(cache_directory() / "numba-vllm"),
        **{name: value for name, value in os.environ.items() if not name.startswith("ENTROPIC_")},
        "PYTHONPATH": os.pathsep.join(
            [str(Path(__file__).resolve().parents[3]), *filter(None, [os.environ.get("PYTHONPATH")])]
        ),
    }  # fmt: skip


def _run(task: Mapping[str, Any], work: Path, python: Path) -> dict[str, Any]:
    (work / "task.json").write_text(json.dumps(task), encoding="utf-8")
    log = work / "vllm.log"
    with log.open("w", encoding="utf-8") as file:
        try:
            ended = subprocess.run(
                [str(python), "-m", "workbench.live.engines.vllm_run", str(work / "task.json")],
                env=vllm_environment(), stdout=file, stderr=subprocess.STDOUT, check=False,
            )  # fmt: skip
        except OSError as error:
            raise InputError(
                f"{python}: {error.strerror or error}; give the Python of an environment with vLLM"
            ) from None
    if ended.returncode == 0:
        return json.loads((work / "answer.json").read_text(encoding="utf-8"))
    kept = Path(tempfile.gettempdir()) / f"vllm-{os.getpid()}.log"
    kept.write_bytes(log.read_bytes())
    lines = [line for line in log.read_text(errors="replace").splitlines() if "rror: " in line] or ["no word"]
    raise InputError(f"vLLM ended with {ended.returncode}: {lines[-1].strip()}; its output is in {kept}")
