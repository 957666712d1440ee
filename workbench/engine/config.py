"""The engine's own settings: slots, batch limits, KV blocks, delay."""

from dataclasses import dataclass
from typing import Literal

from workbench.errors import InputError


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """Raises `InputError` where a value makes no sense."""

    num_blocks: int  # physical KV blocks
    block_size: int = 16  # tokens
    max_context_tokens: int = 8192  # prompt + output beyond this is refused
    num_slots: int | None = None  # requests visible to controllers; None: twice `max_running`. Others wait in a
    #                               backlog, first come first served, and the step table says how many
    max_running: int = 256  # sequences in one batch
    token_budget: int = 2048  # tokens in one batch, decode and prefill together
    max_chunk_tokens: int = 2048  # prefill tokens of one request in one batch
    watermark_frac: float = 0.01  # blocks an admission must leave free while others run
    preemption_quantum_tokens: int = 16  # a request is preempted only after this many tokens since its admission,
    #                                      unless nothing else can run: bounds preemptions. 0: strict order
    preemption: Literal["recompute", "swap"] = "recompute"  # what becomes of a victim's KV: dropped, or copied to
    #                                                        host memory and back
    swap_blocks: int | None = (
        None  # host memory for swapped KV, in blocks; a victim beyond it is recomputed. None: ample
    )
    swap_block_s: float = 0.0  # seconds to copy a block one way, in which nothing else runs; set by the simulated plant
    prefix_caching: bool = False  # full prompt blocks are kept for later prompts that begin alike
    max_queue: int | None = None  # an arrival that finds so many waiting is refused. None: no limit
    ttft_timeout_s: float = float("inf")  # a request without its first token by then is given up
    timeout_s: float = float("inf")  # one that has not ended by then as well
    delay_steps: int = 0
    temperature: float = 1.0  # where no temperature controller is present
    entropy_target_nats: float | None = None  # only to report |H - H*|
    horizon_s: float = float("inf")  # arrivals and steps stop here

    def __post_init__(self) -> None:
        for name, low in (
            ("num_blocks", 1),
            ("block_size", 1),
            ("max_context_tokens", 2),
            ("max_running", 1),
            ("token_budget", 1),
            ("max_chunk_tokens", 1),
            ("preemption_quantum_tokens", 0),
            ("delay_steps", 0),
        ):
            value = getattr(self, name)
            if value < low:
                raise InputError(f"engine.{name} must be at least {low}, got {value}")
        for name, low in (("num_slots", 1), ("max_queue", 1), ("swap_blocks", 0)):
            value = getattr(self, name)
            if value is not None and value < low:
                raise InputError(f"engine.{name} must be at least {low}, got {value}")
        if self.preemption not in ("recompute", "swap"):
            raise InputError(f"engine.preemption must be recompute or swap, got {self.preemption!r}")
        for name in ("ttft_timeout_s", "timeout_s"):
            if not getattr(self, name) > 0.0:
                raise InputError(f"engine.{name} must be above 0, got {getattr(self, name)}; leave it out for no limit")
        if not 0.0 <= self.swap_block_s < float("inf"):
            raise InputError(f"engine.swap_block_s must be in [0, inf), got {self.swap_block_s}")
        if not 0.0 <= self.watermark_frac < 1.0:
            raise InputError(f"engine.watermark_frac must be in [0, 1), got {self.watermark_frac}")
        if not 0.0 <= self.temperature < float("inf"):
            raise InputError(f"engine.temperature must be in [0, inf), got {self.temperature}; 0 is greedy")
        if not self.horizon_s > 0.0:
            raise InputError(f"engine.horizon_s must be above 0, got {self.horizon_s}")

    @property
    def max_blocks_per_request(self) -> int:
        return -(-self.max_context_tokens // self.block_size)

    @property
    def watermark_blocks(self) -> int:
        return int(self.watermark_frac * self.num_blocks)

    def slots_for(self, num_requests: int) -> int:
        return max(1, min(num_requests, 2 * self.max_running if self.num_slots is None else self.num_slots))
