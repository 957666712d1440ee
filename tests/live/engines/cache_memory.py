"""Resident memory of a process whose `generate` has just ended, its cache still held: `python -m ... keep-all | evict`.

SmolLM2 in fp32 on one prompt of 1,536 tokens, 24 tokens drawn. Prints one JSON line: resident bytes before and after, and
what the cache says it holds. Freed tensors go back to the system at once when MALLOC_MMAP_THRESHOLD_ is small.
"""

import ctypes
import gc
import json
import sys

import psutil
import torch
from transformers import AutoModelForCausalLM

from workbench.live.engines.transformers_run import steered
from workbench.live.weights import model_directory

PROMPT_TOKENS, TOKENS = 1536, 24
RULES = {
    "keep-all": {"kind": "keep-all"},
    "evict": {"kind": "least-mass", "mass_budget": 0.1, "evict": True, "sink_blocks": 1, "recent_blocks": 2},
}


def resident_bytes() -> int:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return psutil.Process().memory_info().rss


def main(rule: str) -> None:
    model = AutoModelForCausalLM.from_pretrained(model_directory("smollm2", "fp32"), dtype=torch.float32).eval()
    model.generation_config.eos_token_id, model.generation_config.pad_token_id = None, 0
    inputs = {
        "input_ids": torch.tensor([[(31 * k) % 45000 + 100 for k in range(PROMPT_TOKENS)]]),
        "attention_mask": torch.ones(1, PROMPT_TOKENS, dtype=torch.int64),
    }
    scenario = {"engine": {"block_size": 16}, "controllers": {"keep": RULES[rule]}}
    short = {name: value[:, :16] for name, value in inputs.items()}
    with torch.inference_mode():
        with steered(model, scenario, short["attention_mask"]) as run:  # what is loaded once is loaded
            model.generate(**short, **run.options, max_new_tokens=4)
        del run
        before = resident_bytes()
        with steered(model, scenario, inputs["attention_mask"]) as run:
            model.generate(**inputs, **run.options, max_new_tokens=TOKENS)
        assert run.pruner is not None
        print(json.dumps({"before": before, "after": resident_bytes(), "cache": run.pruner.cache.nbytes}))


if __name__ == "__main__":
    main(sys.argv[1])
