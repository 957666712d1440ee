"""A text model without a network: replies, entropies and scores are functions of the prompt. For tests."""

import hashlib

import numpy as np

from workbench.routing.text_model import BranchScore, Reply


class ScriptedModel:
    """Token ids are character codes. A question with an even digest falls in entropy and is answered right by CoT only."""

    def __init__(self, fail_after=None):
        self.calls, self.fail_after = 0, fail_after

    def settings(self):
        return {"model": "scripted", "dtype": "none"}

    def prompt(self, messages):
        text = messages[-1]["content"] + "\n"
        return self.encode(text), text

    def encode(self, text):
        return [ord(c) for c in text]

    def generate(self, prompts, max_tokens, temperature, seeds):
        self.calls += 1
        if self.fail_after is not None and self.calls > self.fail_after:
            raise KeyboardInterrupt
        return [self._reply("".join(map(chr, p)), max_tokens) for p in prompts]

    def _reply(self, prompt, max_tokens):
        digest = hashlib.sha256(prompt.split("\n")[0].encode()).digest()
        falls = digest[0] % 2 == 0
        if "nothing else" in prompt:
            text = "7" if falls else "42"
        elif "step by step" in prompt:
            text = "First this, then that. The answer is 42" if falls else "Hmm. The answer is 41"
        else:
            text = "Let me see: it may be 42 in the end, as far as I can tell, or so I would say now"
        text = text[: max_tokens - 1]
        n = len(text) + 1
        noise = np.random.default_rng(list(digest)).normal(0.0, 0.05, n)
        slope = np.linspace(1.0, 0.1, n) if falls else np.linspace(0.1, 1.0, n)
        entropy = np.maximum(0.4 * slope + noise, 0.0)
        return Reply((*self.encode(text), 0), text, "stop", entropy, entropy + 0.1)

    def score(self, text_ids, branches):
        scores = []
        for branch in branches:
            nats = np.array([(token * 7 + branch.at) % 13 / 4.0 for token in branch.ids])
            scores.append(BranchScore(nats, nats / 2.0, 1.0))
        return scores
