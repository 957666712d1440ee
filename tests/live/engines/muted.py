"""Importing this cuts the signal mid-run: the processor goes on sampling, but nothing reaches the scheduler any more."""

import os
from typing import Any

from workbench.live.engines.vllm_processor import EntropyProcessor

_apply = EntropyProcessor.apply


def apply(self: EntropyProcessor, logits: Any, ctx: Any = None) -> Any:
    side = self.side
    if side is not None and side.step_index == int(os.environ["ENTROPIC_TEST_MUTE_AFTER"]):
        side.board = None
    return _apply(self, logits, ctx)


EntropyProcessor.apply = apply  # type: ignore[method-assign]


class MutedProcessor(EntropyProcessor):
    """Named on the command line so that vLLM imports this module in the process that samples."""
