"""What processor and scheduler of the vLLM plug-in must agree on, each from its own copy of vLLM's configuration."""

import os
from pathlib import Path
from typing import Any

from workbench.live.engines.deployment import RECORD_VARIABLE
from workbench.live.engines.signal_board import SignalBoard, board_path
from workbench.live.engines.spool import Spool


def slots_of(vllm_config: Any) -> int:
    """Requests visible to controllers: running ones and as many waiting. Others wait first come first served."""
    return 2 * int(vllm_config.scheduler_config.max_num_seqs)


def vocabulary_of(vllm_config: Any) -> int:
    return int(vllm_config.model_config.get_vocab_size())


def open_board(vllm_config: Any, num_slots: int, delay_steps: int) -> SignalBoard | None:
    """The board of this engine; None on a rank that does not speak for it (tensor parallel ranks all sample alike)."""
    if not speaks(vllm_config):
        return None
    parallel = vllm_config.parallel_config
    rank = int(getattr(parallel, "data_parallel_rank", 0) or 0)
    return SignalBoard(board_path(f"{vllm_config.instance_id}-{rank}"), num_slots, delay_steps + 4)


def speaks(vllm_config: Any) -> bool:
    """True in the scheduler's process and on the first tensor parallel rank."""
    if int(vllm_config.parallel_config.tensor_parallel_size) == 1:
        return True
    from vllm.distributed.parallel_state import get_tensor_model_parallel_rank, model_parallel_is_initialized

    return not model_parallel_is_initialized() or get_tensor_model_parallel_rank() == 0


def open_spool() -> Spool | None:
    folder = os.environ.get(RECORD_VARIABLE)
    return Spool(Path(folder).expanduser()) if folder else None
