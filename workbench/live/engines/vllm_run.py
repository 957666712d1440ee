"""Runs inside an environment with vLLM: serves a task's requests in vLLM with the plug-in, and says how it went.

    python -m workbench.live.engines.vllm_run TASK.json        writes its answer to the path the task names

A task is JSON: model (a directory), scenario (a file; null: plain vLLM), record (a folder or null), engine (options of
`vllm.LLM`), requests (token ids, max_tokens, arrival_s, kind, priority, extra), rounds, paced, restarts, answer. Requests are
added to the engine at their arrival times, measured from the start of a round; a round ends when all have ended.

An engine whose worker dies is dead as a whole: vLLM keeps no request. Up to `restarts` times a new engine is started here,
unfinished requests are given to it again from their prompts, and the loss is counted in the answer (`engine_losses`,
`requests_resumed`, `tokens_drawn_again`). Each engine records into a folder of its own: RECORD, RECORD-1, ...
"""

import json
import os
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench.live.engines.signal_board import board_path, read_board

SCHEDULER = "workbench.live.engines.vllm_scheduler.entropy_scheduler"


def engine_options(task: dict[str, Any]) -> dict[str, Any]:
    """Options of `vllm.LLM` for a task; our scheduler only where there is a scenario."""
    options = {
        "model": task["model"], "dtype": "bfloat16", "max_model_len": 1024, "max_num_seqs": 64,
        "enable_prefix_caching": False, "disable_log_stats": True, "generation_config": "vllm", **task.get("engine", {}),
    }  # fmt: skip
    if task.get("scenario"):
        options |= {"scheduler_cls": SCHEDULER}
        if task.get("processors"):
            options |= {"logits_processors": task["processors"]}
    return options


@dataclass
class Engines:
    """The engine that serves now, and what those before it left behind."""

    task: dict[str, Any]
    llm: Any = None
    losses: int = 0
    requests_resumed: int = 0
    tokens_drawn_again: int = 0
    counters: dict[str, int] = field(default_factory=dict)

    def start(self) -> None:
        import vllm

        if record := self.task.get("record"):
            os.environ["ENTROPIC_RECORD"] = record + (f"-{self.losses}" if self.losses else "")
        self.llm = vllm.LLM(**engine_options(self.task))
        core = self.llm.llm_engine.engine_core
        if hasattr(core, "outputs_queue"):  # an engine in a process of its own
            threading.Thread(target=_tell_of_death, args=(core.resources, core.outputs_queue), daemon=True).start()

    def lost(self) -> None:
        """Raises the engine's own error when it may not be replaced any more."""
        self._take_counters()
        self.losses += 1
        self.llm.llm_engine.engine_core.shutdown()
        self.start()

    def stop(self) -> None:
        self._take_counters()
        self.llm.llm_engine.engine_core.shutdown()

    def _take_counters(self) -> None:
        board = board_path(f"{self.llm.llm_engine.vllm_config.instance_id}-0")
        if board.is_file():
            for name, count in read_board(board).counters().items():
                self.counters[name] = self.counters.get(name, 0) + count

    def figures(self) -> dict[str, Any]:
        return {
            "counters": self.counters, "engine_losses": self.losses, "requests_resumed": self.requests_resumed,
            "tokens_drawn_again": self.tokens_drawn_again,
        }  # fmt: skip


def _tell_of_death(resources: Any, outputs_queue: Any) -> None:
    """vLLM notices an engine that was killed but its waiting client is not woken: give it the error vLLM has for this."""
    from vllm.v1.engine.exceptions import EngineDeadError

    while not resources.engine_dead:
        time.sleep(0.2)
    outputs_queue.put(EngineDeadError())


def main() -> None:
    task = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    for name, value in (("ENTROPIC_SCENARIO", task.get("scenario")), ("ENTROPIC_SEED", task.get("seed"))):
        if value is not None:
            os.environ[name] = str(value)
    import vllm

    engines = Engines(task)
    engines.start()
    answer: dict[str, Any] = {"vllm": vllm.__version__, "rounds": []}
    for _ in range(int(task.get("rounds", 1))):
        if task.get("paced"):  # a line on standard input starts each round
            print("ready", file=sys.stderr, flush=True)
            sys.stdin.readline()
        answer["rounds"].append(serve(engines, task["requests"]))
        Path(task["answer"]).write_text(json.dumps(answer), encoding="utf-8")
    engines.stop()
    Path(task["answer"]).write_text(json.dumps(answer | engines.figures()), encoding="utf-8")


def serve(engines: Engines, requests: list[dict[str, Any]]) -> dict[str, Any]:
    """One round: open-loop arrivals, until every request has ended."""
    from vllm import SamplingParams
    from vllm.v1.engine.exceptions import EngineDeadError

    began_s, epoch_s = time.monotonic(), time.time()
    waiting = sorted(range(len(requests)), key=lambda i: requests[i].get("arrival_s", 0.0))
    drawn: dict[int, int] = {}  # tokens so far of requests in the engine
    outputs: dict[int, Any] = {}
    ended_s: dict[int, float] = {}
    while waiting or drawn:
        try:
            engine = engines.llm.llm_engine
            now_s = time.monotonic() - began_s
            while waiting and requests[waiting[0]].get("arrival_s", 0.0) <= now_s:
                number = waiting[0]
                _add(engine, SamplingParams, number, requests[number], epoch_s)
                drawn[waiting.pop(0)] = 0
            if not drawn:
                time.sleep(max(0.0, requests[waiting[0]].get("arrival_s", 0.0) - (time.monotonic() - began_s)))
                continue
            for output in engine.step():
                number = int(output.request_id.split("-")[0])
                drawn[number] = len(output.outputs[0].token_ids)
                if output.finished:
                    del drawn[number]
                    outputs[number] = output.outputs[0]
                    ended_s[number] = time.monotonic() - began_s
        except EngineDeadError:
            if engines.losses >= int(engines.task.get("restarts", 0)):
                raise
            print(f"the engine died; {len(drawn)} requests start again in a new one", file=sys.stderr, flush=True)
            engines.requests_resumed += len(drawn)
            engines.tokens_drawn_again += sum(drawn.values())
            waiting = [*sorted(drawn), *waiting]
            drawn = {}
            engines.lost()
    return {
        "seconds": time.monotonic() - began_s,
        "token_ids": [list(outputs[i].token_ids) for i in range(len(requests))],
        "finish_reasons": [outputs[i].finish_reason for i in range(len(requests))],
        "ended_s": [ended_s[i] for i in range(len(requests))],
    }


def _add(engine: Any, params_type: Any, number: int, request: dict[str, Any], epoch_s: float) -> None:
    extra = {**request.get("extra", {}), "entropic_kind": request.get("kind", "any"),
             "entropic_arrival_s": epoch_s + request.get("arrival_s", 0.0)}  # fmt: skip
    params = params_type(
        max_tokens=request["max_tokens"], extra_args=extra, stop_token_ids=request.get("stop_ids"),
        **{"temperature": 1.0, **request.get("sampling", {})},
    )  # fmt: skip
    engine.add_request(
        str(number), {"prompt_token_ids": request["token_ids"]}, params, priority=request.get("priority", 0)
    )


if __name__ == "__main__":
    main()
