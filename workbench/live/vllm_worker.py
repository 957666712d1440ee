"""Runs inside an environment with vLLM, never imported here: answers one JSON line for each on standard input.

    python vllm_worker.py MODEL_DIRECTORY eager|compiled
    {"prompts": [[ids], ...], "max_tokens": 128, "seed": 0}  ->  {"seconds": 1.23, "tokens": 4096}

The first line it writes is {"ready": true, "version": ...}. vLLM's own output goes to standard error.
"""

import json
import os
import sys
import time


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever vLLM prints
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    import vllm

    directory, mode = sys.argv[1:3]
    engine = vllm.LLM(
        model=directory,
        dtype="bfloat16",
        max_model_len=1024,
        max_num_seqs=64,
        enforce_eager=mode == "eager",
        enable_prefix_caching=False,
        disable_log_stats=True,
    )
    answers.write(json.dumps({"ready": True, "version": vllm.__version__}) + "\n")
    for line in sys.stdin:
        task = json.loads(line)
        settings = vllm.SamplingParams(temperature=1.0, max_tokens=task["max_tokens"], ignore_eos=True, seed=None)
        prompts = [{"prompt_token_ids": ids} for ids in task["prompts"]]
        began_s = time.perf_counter()
        outputs = engine.generate(prompts, settings, use_tqdm=False)
        seconds = time.perf_counter() - began_s
        tokens = sum(len(output.outputs[0].token_ids) for output in outputs)
        answers.write(json.dumps({"seconds": seconds, "tokens": tokens}) + "\n")


if __name__ == "__main__":
    main()
