"""What the plug-in costs in vLLM: `python -m tests.live.engines.overhead`, alternating runs of plain and steered engines.

Two vLLM processes on the same weights, 32 requests of 64 prompt and 64 output tokens; rounds alternate, the first of each
warms up. Prints one JSON line: seconds of every round, and the median over rounds of steered / plain - 1.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.live.engines.vllm_env import environment, toml, vllm_python
from workbench.live.weights import model_directory

SCENARIO = {
    "engine": {"delay_steps": 1},
    "controllers": {"order": {"kind": "entropy-aging"}, "temperature": {"kind": "pi", "target_entropy_nats": 1.5}},
}
REQUESTS, PROMPT_TOKENS, TOKENS = 32, 64, 64


class Engine:
    """One paced `vllm_run`; its answer file tells how long each round took."""

    def __init__(self, folder: Path, scenario: Path | None, rounds: int) -> None:
        folder.mkdir()
        self.answer, self.log = folder / "answer.json", folder / "log.txt"
        prompts = [[(31 * i + 7 * k) % 45000 + 100 for k in range(PROMPT_TOKENS)] for i in range(REQUESTS)]
        task = {
            "model": str(model_directory("smollm2", "bf16")), "scenario": scenario and str(scenario), "rounds": rounds,
            "paced": True, "engine": {"enforce_eager": True, "max_num_seqs": 32}, "answer": str(self.answer),
            "requests": [{"token_ids": p, "max_tokens": TOKENS, "sampling": {"ignore_eos": True}} for p in prompts],
        }  # fmt: skip
        (folder / "task.json").write_text(json.dumps(task))
        environ = environment(VLLM_ENABLE_V1_MULTIPROCESSING="0")
        environ.pop("OMP_NUM_THREADS")
        self.process = subprocess.Popen(
            [str(vllm_python()), "-m", "workbench.live.engines.vllm_run", str(folder / "task.json")],
            env=environ, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=self.log.open("w"), text=True,
        )  # fmt: skip

    def ready(self) -> None:
        while "\nready" not in self.log.read_text(errors="replace"):
            if self.process.poll() is not None:
                raise SystemExit(self.log.read_text()[-2000:])
            time.sleep(0.2)

    def round(self, number: int) -> float:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        while True:
            time.sleep(0.05)
            try:
                rounds = json.loads(self.answer.read_text())["rounds"]
            except (OSError, ValueError):
                continue
            if len(rounds) > number:
                return float(rounds[number]["seconds"])


def main(rounds: int = 8) -> None:
    folder = Path(tempfile.mkdtemp(prefix="overhead-"))
    (folder / "scenario.toml").write_text(toml(SCENARIO))
    engines = {
        "plain": Engine(folder / "plain", None, rounds + 1),
        "steered": Engine(folder / "steered", folder / "scenario.toml", rounds + 1),
    }
    seconds: dict[str, list[float]] = {name: [] for name in engines}
    try:
        for engine in engines.values():
            engine.ready()
        for number in range(rounds + 1):
            for name in list(engines) if number % 2 else reversed(list(engines)):
                took_s = engines[name].round(number)
                if number:
                    seconds[name].append(took_s)
    finally:
        for engine in engines.values():
            engine.process.kill()
    ratios = [b / a - 1.0 for a, b in zip(seconds["plain"], seconds["steered"], strict=True)]
    print(json.dumps({"overhead_frac": statistics.median(ratios), "ratios": ratios, **seconds}))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 8)
