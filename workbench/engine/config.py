"""The engine's own settings: slots, batch limits, KV blocks, delay."""

from dataclasses import dataclass

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
        if self.num_slots is not None and self.num_slots < 1:
            raise InputError(f"engine.num_slots must be at least 1, got {self.num_slots}")
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
