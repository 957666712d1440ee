"""What the plug-in costs in vLLM: `python -m tests.live.engines.overhead [PAIRS]`, alternating plain and steered rounds.

Two vLLM processes on the same weights, 32 requests of 16 prompt and 24 output tokens a round; pairs of rounds, each pair in
the other order than the one before, the first pair to warm up. Prints one JSON line: the median over pairs of
steered / plain - 1, in wall-clock time and in processor time of the process, each with a 95 % bootstrap interval. Other
work on the machine moves wall-clock times by tens of per cent from round to round, and both rounds of a pair alike.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil

from tests.live.engines.vllm_env import IN_PROCESS, environment, toml, vllm_python
from workbench.live.weights import model_directory

SCENARIO = {
    "engine": {"delay_steps": 1},
    "controllers": {"order": {"kind": "entropy-aging"}, "temperature": {"kind": "pi", "target_entropy_nats": 1.5}},
}
REQUESTS, PROMPT_TOKENS, TOKENS = 32, 16, 24


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
        environ = environment(**IN_PROCESS)
        for name in ("OMP_NUM_THREADS", "VLLM_CPU_OMP_THREADS_BIND"):
            del environ[name]
        self.process = subprocess.Popen(
            [str(vllm_python()), "-m", "workbench.live.engines.vllm_run", str(folder / "task.json")],
            env=environ, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=self.log.open("w"), text=True,
        )  # fmt: skip

    def ready(self) -> None:
        while "\nready" not in self.log.read_text(errors="replace"):
            if self.process.poll() is not None:
                raise SystemExit(self.log.read_text()[-2000:])
            time.sleep(0.2)

    def round(self, number: int) -> tuple[float, float]:
        """(wall-clock, processor) seconds."""
        process = psutil.Process(self.process.pid)
        before = process.cpu_times()
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
                after = process.cpu_times()
                cpu_s = after.user + after.system - before.user - before.system
                return float(rounds[number]["seconds"]), cpu_s


def main(pairs: int = 40) -> None:
    folder = Path(tempfile.mkdtemp(prefix="overhead-"))
    (folder / "scenario.toml").write_text(toml(SCENARIO))
    engines = {
        "plain": Engine(folder / "plain", None, pairs + 1),
        "steered": Engine(folder / "steered", folder / "scenario.toml", pairs + 1),
    }
    took: dict[str, list[tuple[float, float]]] = {name: [] for name in engines}
    try:
        for engine in engines.values():
            engine.ready()
        for number in range(pairs + 1):
            for name in list(engines) if number % 2 else reversed(list(engines)):
                seconds = engines[name].round(number)
                print(number, name, *(f"{x:.2f} s" for x in seconds), file=sys.stderr, flush=True)
                if number:
                    took[name].append(seconds)
    finally:
        for engine in engines.values():
            engine.process.kill()
    plain, steered = (np.array(took[name]) for name in engines)
    ratio = steered / plain - 1.0
    rng = np.random.default_rng(0)
    medians = np.median(ratio[rng.integers(0, pairs, (4000, pairs))], axis=1)
    low, high = np.quantile(medians, [0.025, 0.975], axis=0)
    figures = {
        f"{clock}_overhead_frac": [round(float(x), 4) for x in (np.median(ratio[:, i]), low[i], high[i])]
        for i, clock in enumerate(("wall", "cpu"))
    }
    print(json.dumps({"pairs": pairs, **figures, "plain_wall_s": plain[:, 0].tolist(),
                      "steered_wall_s": steered[:, 0].tolist()}))  # fmt: skip


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40)
