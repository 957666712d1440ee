"""Run by the Python of another environment that holds kvpress: the same prompts and budgets there. Imports nothing of ours.

    python kvpress_worker.py JOB.json OUT.json

JOB: {"model": directory, "texts": [{"name", "ids", "num_tail"}], "targets": [share of KV kept]}. A press prunes the prefix once,
in the prefill, token by token and head by head; then the tail is read in one teacher-forced pass at its true positions.
"""

import json
import sys

import torch
from kvpress import ExpectedAttentionPress, KnormPress, PyramidKVPress, SnapKVPress, StreamingLLMPress, TOVAPress
from transformers import AutoModelForCausalLM, DynamicCache

PRESSES = {
    "streaming-llm": StreamingLLMPress,
    "snapkv": SnapKVPress,
    "pyramid": PyramidKVPress,
    "tova": TOVAPress,
    "knorm": KnormPress,
    "expected-attention": ExpectedAttentionPress,
}


@torch.inference_mode()
def tail_log_p(model, ids, num_tail, press):
    """Log-probabilities [num_tail - 1, vocab] of the tokens after the first of the tail, and the share of KV kept."""
    tokens = torch.tensor(ids)[None]
    prefix = tokens[:, :-num_tail]
    cache = DynamicCache()
    if press is None:
        model(prefix, past_key_values=cache, logits_to_keep=1)
    else:
        with press(model):
            model(prefix, past_key_values=cache, logits_to_keep=1)
    lengths = [layer.keys.shape[2] for layer in cache.layers]
    positions = torch.arange(prefix.shape[1], tokens.shape[1] - 1)[None]
    logits = model(tokens[:, -num_tail:-1], past_key_values=cache, position_ids=positions).logits
    return logits[0].double().log_softmax(dim=-1), sum(lengths) / len(lengths) / prefix.shape[1]


def main(job_path: str, out_path: str) -> None:
    with open(job_path) as file:
        job = json.load(file)
    model = AutoModelForCausalLM.from_pretrained(job["model"], dtype=torch.float32)
    rows = []
    for number, text in enumerate(job["texts"]):
        target = torch.tensor(text["ids"][-text["num_tail"] + 1 :])[:, None]
        dense, _ = tail_log_p(model, text["ids"], text["num_tail"], None)
        for share in job["targets"]:
            for name, press in PRESSES.items():
                try:
                    pruned, kept = tail_log_p(
                        model, text["ids"], text["num_tail"], press(compression_ratio=1.0 - share)
                    )
                except Exception as problem:  # a press that refuses this model or length is a result, too
                    rows.append(
                        {"text": text["name"], "press": name, "target_frac": share, "error": f"{problem}"[:200]}
                    )
                    continue
                loss = (dense.gather(1, target) - pruned.gather(1, target)).mean()
                kl = (dense.exp() * (dense - pruned)).sum(dim=1).mean()
                rows.append(
                    {
                        "text": text["name"], "press": name, "target_frac": share, "kept_frac": kept,
                        "kl_nats": float(kl), "nll_loss_nats": float(loss),
                    }
                )  # fmt: skip
        print(f"{(number + 1) / len(job['texts']):.3f}", flush=True)
    with open(out_path, "w") as file:
        json.dump(rows, file)


if __name__ == "__main__":
    main(*sys.argv[1:3])
