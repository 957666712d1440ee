"""Runs inside an environment with vLLM: serves a task's requests in vLLM with the plug-in, and says how it went.

    python -m workbench.live.engines.vllm_run TASK.json        writes its answer to the path the task names

A task is JSON: model (a directory), scenario (a file; null: plain vLLM), record (a folder or null), engine (options of
`vllm.LLM`), requests (token ids, max_tokens, arrival_s, kind, priority, extra), rounds, paced, answer. Requests are added to the
engine at their arrival times, measured from the start of a round; a round ends when all have ended.
"""

import json
import os
import sys
import time
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


def main() -> None:
    task = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    for name, value in (("ENTROPIC_SCENARIO", task.get("scenario")), ("ENTROPIC_RECORD", task.get("record")),
                        ("ENTROPIC_SEED", task.get("seed"))):  # fmt: skip
        if value is not None:
            os.environ[name] = str(value)
    import vllm

    llm = vllm.LLM(**engine_options(task))
    answer: dict[str, Any] = {"vllm": vllm.__version__, "rounds": []}
    for _ in range(int(task.get("rounds", 1))):
        if task.get("paced"):  # a line on standard input starts each round
            print("ready", file=sys.stderr, flush=True)
            sys.stdin.readline()
        answer["rounds"].append(serve(llm, vllm.SamplingParams, task["requests"]))
        Path(task["answer"]).write_text(json.dumps(answer), encoding="utf-8")
    board = board_path(f"{llm.llm_engine.vllm_config.instance_id}-0")
    if board.is_file():
        answer["counters"] = read_board(board).counters()
        Path(task["answer"]).write_text(json.dumps(answer), encoding="utf-8")
    llm.llm_engine.engine_core.shutdown()


def serve(llm: Any, params_type: Any, requests: list[dict[str, Any]]) -> dict[str, Any]:
    """One round: open-loop arrivals, until every request has ended."""
    engine = llm.llm_engine
    began_s, epoch_s = time.monotonic(), time.time()
    waiting = sorted(range(len(requests)), key=lambda i: requests[i].get("arrival_s", 0.0))
    outputs: dict[str, Any] = {}
    ended_s: dict[str, float] = {}
    while waiting or engine.has_unfinished_requests():
        now_s = time.monotonic() - began_s
        while waiting and requests[waiting[0]].get("arrival_s", 0.0) <= now_s:
            number = waiting.pop(0)
            request = requests[number]
            arrival_s = epoch_s + request.get("arrival_s", 0.0)
            extra = {**request.get("extra", {}), "entropic_kind": request.get("kind", "any"),
                     "entropic_arrival_s": arrival_s}  # fmt: skip
            params = params_type(
                max_tokens=request["max_tokens"], extra_args=extra, stop_token_ids=request.get("stop_ids"),
                **{"temperature": 1.0, **request.get("sampling", {})},
            )  # fmt: skip
            prompt = {"prompt_token_ids": request["token_ids"]}
            engine.add_request(str(number), prompt, params, priority=request.get("priority", 0))
        if not engine.has_unfinished_requests():
            time.sleep(max(0.0, requests[waiting[0]].get("arrival_s", 0.0) - (time.monotonic() - began_s)))
            continue
        for output in engine.step():
            if output.finished:
                outputs[output.request_id.split("-")[0]] = output
                ended_s[output.request_id.split("-")[0]] = time.monotonic() - began_s
    return {
        "seconds": time.monotonic() - began_s,
        "token_ids": [list(outputs[str(i)].outputs[0].token_ids) for i in range(len(requests))],
        "finish_reasons": [outputs[str(i)].outputs[0].finish_reason for i in range(len(requests))],
        "ended_s": [ended_s[str(i)] for i in range(len(requests))],
    }


if __name__ == "__main__":
    main()
