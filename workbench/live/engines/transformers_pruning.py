"""KV-block pruning in transformers: an attention function that reads kept blocks only, and a cache that gives blocks up.

At the first layer of a decoding step the keep rule is asked, exactly as in our own engine: it sees the attention mass of
each row's blocks in the step before (mean over layers and query heads) and answers with a rule and numbers; `choose_blocks`
turns those into a keep-list. Masked blocks stay in the cache and may come back; evicted ones are taken out of its tensors,
so that its memory falls. Positions are those of the tokens, whatever has been evicted: rotary angles are applied before
the cache, and the count the model sees goes on.

Works for a decoder whose attention goes through transformers' attention interface with keys and values of one length in
all layers (grouped queries, sliding windows and soft caps included; attention sinks per head are refused).
"""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import numpy as np
import torch
from transformers import AttentionInterface
from transformers.cache_utils import Cache, DynamicLayer
from transformers.masking_utils import AttentionMaskInterface, eager_mask

from workbench.errors import InputError
from workbench.live.engines.steering import Steering
from workbench.live.keep_list import choose_blocks
from workbench.protocols import Controller, KeepAction, KeepObservation
from workbench.signals import BoolArray, FloatArray

IMPLEMENTATION = "entropic_pruned"
_pruner: ContextVar["Pruner | None"] = ContextVar("pruner", default=None)


class PrunedLayer(DynamicLayer):
    """Keys and values of one layer: physically as many as are held, `seen` as many as there have ever been."""

    def __init__(self, on_decode: Callable[[], None]) -> None:
        super().__init__()
        self.seen = 0
        self._on_decode = on_decode

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if self.seen and key_states.shape[-2] == 1:
            self._on_decode()
        self.seen += key_states.shape[-2]
        return super().update(key_states, value_states, *args, **kwargs)

    def get_seq_length(self) -> int:
        return self.seen

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.seen + query_length, 0

    def take(self, index: torch.Tensor) -> None:
        """Keep these physical positions [rows, held] of each row."""
        assert self.keys is not None
        assert self.values is not None
        where = index[:, None, :, None].expand(-1, self.keys.shape[1], -1, self.keys.shape[3])
        self.keys = self.keys.gather(2, where)
        self.values = self.values.gather(2, where[..., :1].expand(-1, -1, -1, self.values.shape[3]))


class PrunedCache(Cache):
    """The cache to give to `generate` as `cache`; `nbytes` is what its tensors hold."""

    def __init__(self, num_layers: int, on_decode: Callable[[], None]) -> None:
        first, *others = (PrunedLayer(on_decode if layer == 0 else _nothing) for layer in range(num_layers))
        super().__init__(layers=[first, *others])

    @property
    def nbytes(self) -> int:
        held = (t for layer in self.layers for t in (layer.keys, layer.values) if t is not None)
        return sum(t.numel() * t.element_size() for t in held)


def _nothing() -> None:
    pass


class Pruner:
    """One `generate` call's pruning. Rows are slots; `steering` gives the raw entropies the rule may look at."""

    def __init__(
        self,
        model: Any,
        rule: Controller[KeepObservation, Any, KeepAction],
        attention_mask: torch.Tensor,
        ops: Any,
        *,
        block_size: int = 16,
        steering: Callable[[], Steering | None] = lambda: None,
        alive: Callable[[], BoolArray | None] = lambda: None,
        delay_steps: int = 0,
        on_decision: Callable[[KeepObservation, KeepAction, KeepAction], None] | None = None,
    ) -> None:
        text = model.config.get_text_config() if hasattr(model.config, "get_text_config") else model.config
        self.num_layers, self.ops, self.rule = int(text.num_hidden_layers), ops, rule
        self.block_size, self.delay_steps = block_size, delay_steps
        self.steering, self.alive, self.on_decision = steering, alive, on_decision
        device, rows = attention_mask.device, attention_mask.shape[0]
        self.cache = PrunedCache(self.num_layers, self._decode_begins)
        self.padding = (attention_mask == 0).sum(dim=1)
        if not bool((attention_mask.diff(dim=1) >= 0).all()):
            raise InputError("prompts of a batch must be padded on the left: set tokenizer.padding_side = 'left'")
        width = attention_mask.shape[1]
        self.position = torch.arange(width, device=device).expand(rows, -1).clone()  # [rows, held] of the sequence
        self.valid = attention_mask.bool().clone()  # [rows, held] a token of the row, not padding
        self.context = attention_mask.sum(dim=1).cpu().numpy().astype(np.int64)  # tokens fed so far
        self.state = rule.init(rows)
        self.block_mass = np.full((rows, 0), np.nan)
        self.evicted = np.zeros((rows, 0), np.bool_)
        self.spent = np.zeros(rows)  # score of blocks evicted before
        self.read_tokens, self.dense_tokens = [], []  # sums over rows of each decoding step, as Python numbers
        self.step_index = 0
        self._mass: torch.Tensor | None = None
        self._readable: torch.Tensor | None = None  # [rows, held] what this step may read
        self._keep: BoolArray | None = None
        self._joined = np.ones(rows, np.bool_)
        self._seen_token = np.full(rows, -1, np.int64)
        self._next_token = np.zeros(rows, np.int64)

    # A decoding step, from the cache's first layer to the attention of the last

    def _decode_begins(self) -> None:
        self._measured()
        rows = self.context.size
        self.context += 1
        self._next_token += 1
        newest = self.position[:, -1:].amax(dim=1, keepdim=True) + 1
        self.position = torch.cat([self.position, newest], dim=1)
        self.valid = torch.cat([self.valid, torch.ones_like(newest, dtype=torch.bool)], dim=1)
        num_blocks = -(-self.context // self.block_size)
        width = int(num_blocks.max())
        self.block_mass = _wider(self.block_mass, width, np.nan)
        self.evicted = _wider(self.evicted, width, False)
        held = (np.arange(width) < num_blocks[:, None]) & ~self.evicted
        kept = self._decide(num_blocks, held)
        self._keep = kept.keep
        keep = torch.from_numpy(kept.keep).to(self.position.device)
        self._readable = self.valid & keep.gather(1, self._blocks())
        self._mass = torch.zeros(rows, width, device=self.position.device)
        self.read_tokens.append(int(self._readable.sum()))
        self.dense_tokens.append(int(self.context.sum()))
        self._to_evict = kept.evict
        self.spent += kept.evicted_score
        self.step_index += 1

    def _blocks(self) -> torch.Tensor:
        """[rows, held] logical block of each held position, 0 for padding."""
        return ((self.position - self.padding[:, None]).clamp_min(0)) // self.block_size

    def _decide(self, num_blocks: np.ndarray, held: BoolArray) -> Any:
        alive = self.alive()
        active = np.ones(self.context.size, np.bool_) if alive is None else alive.copy()
        entropy, step, new = self._entropy(active)
        observation = KeepObservation(
            step=self.step_index, active=active, joined=self._joined & active,
            request_id=np.where(active, np.arange(active.size), -1), measured=new, measured_step=step,
            context_tokens=self.context.copy(), num_blocks=num_blocks, entropy_raw_nats=entropy,
            block_mass=self.block_mass.copy(),
        )  # fmt: skip
        self._joined &= ~active
        self.state, action = self.rule.step(self.state, observation)
        if self.on_decision is not None:
            self.on_decision(observation, action, action)
        some = np.flatnonzero(active)
        kept = choose_blocks(action, some, num_blocks[some], held[some], self.spent[some], self.ops)
        return _spread(kept, some, held)

    def _entropy(self, active: BoolArray) -> tuple[FloatArray, np.ndarray, BoolArray]:
        """H_raw of the token `delay_steps` before the last one, where it is known; and whether it is new here."""
        wanted = self._next_token - 1 - self.delay_steps
        new = active & (wanted > self._seen_token)
        self._seen_token[new] = wanted[new]
        steering = self.steering()
        if steering is None:
            return np.full(active.size, np.nan), np.where(new, self.step_index, 0), new
        entropy, step, known = steering.measured("entropy_raw_nats", wanted)
        return np.where(known, entropy, np.nan), np.where(new & known, step, 0), new

    def attend(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float, window: int | None,
        softcap: float | None,
    ) -> torch.Tensor:  # fmt: skip
        """query [rows, heads, 1, d], key and value [rows, KV heads, held, d]. Returns [rows, 1, heads, d]."""
        assert self._readable is not None
        assert self._mass is not None
        groups = query.shape[1] // key.shape[1]
        rows, heads, _, d = query.shape
        grouped = query.view(rows, key.shape[1], groups, d)
        scores = torch.einsum("bkgd,bktd->bkgt", grouped, key).float() * scaling
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        readable = self._readable
        if window is not None:
            readable = readable & (self.position > self.position[:, -1:] - window)
        scores = scores.masked_fill(~readable[:, None, None], float("-inf"))
        weights = scores.softmax(dim=-1)
        out = torch.einsum("bkgt,bktd->bkgd", weights.to(value.dtype), value)
        mean = weights.mean(dim=(1, 2))
        self._mass.scatter_add_(1, self._blocks(), mean / self.num_layers)
        return out.reshape(rows, 1, heads, d)

    def _measured(self) -> None:
        """Close the step before: its masses, and the blocks it gave up."""
        if self._mass is None or self._keep is None:
            return
        mass = self._mass.cpu().numpy().astype(np.float64)
        width = mass.shape[1]
        inside = np.arange(width) < (-(-self.context // self.block_size))[:, None]
        self.block_mass = np.full((self.context.size, width), np.nan)
        read = self._keep & inside
        self.block_mass[read] = mass[read]
        if self._to_evict.any():
            self.evicted = self.evicted | self._to_evict
            self._compact()

    def _compact(self) -> None:
        """Take what is evicted out of every layer; rows that hold fewer positions are filled up, marked as not theirs."""
        gone = torch.from_numpy(self.evicted).to(self.position.device)
        held = self.valid & ~gone.gather(1, self._blocks())
        count = int(held.sum(dim=1).max())
        if count == held.shape[1]:
            return
        # Held positions last and in order, so that the newest stays at the end.
        index = held.to(torch.int8).argsort(dim=1, stable=True)[:, -count:]
        self.position, self.valid = self.position.gather(1, index), held.gather(1, index)
        for layer in self.cache.layers:
            layer.take(index)  # type: ignore[attr-defined]


def _wider(array: np.ndarray, width: int, fill: Any) -> np.ndarray:
    if array.shape[1] >= width:
        return array
    out = np.full((array.shape[0], width), fill, array.dtype)
    out[:, : array.shape[1]] = array
    return out


def _spread(kept: Any, some: np.ndarray, held: BoolArray) -> Any:
    """A keep-list for all rows: those without a decision keep what they hold."""
    keep, evict, score = held.copy(), np.zeros_like(held), np.zeros(held.shape[0])
    keep[some], evict[some], score[some] = kept.keep, kept.evict, kept.evicted_score
    return type(kept)(keep=keep, evict=evict, evicted_score=score)


def pruned_attention(
    module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attention_mask: Any, scaling: float,
    dropout: float = 0.0, sliding_window: int | None = None, softcap: float | None = None, s_aux: Any = None,
    **others: Any,
) -> tuple[torch.Tensor, None]:  # fmt: skip
    """The registered attention function: dense while the prompt is read, through the pruner afterwards."""
    if s_aux is not None:
        raise InputError(f"{type(module).__name__} has attention sinks per head; pruning does not offer that")
    pruner = _pruner.get()
    if pruner is None:
        raise InputError("pruned attention outside of its `with` block; reset the model's attention implementation")
    if query.shape[2] == 1 and key.shape[2] == pruner.position.shape[1] and pruner._readable is not None:
        return pruner.attend(query, key, value, scaling, sliding_window, softcap), None
    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
    scores = query @ key.transpose(2, 3) * scaling
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if attention_mask is not None:
        scores = scores + attention_mask[..., : key.shape[2]]
    weights = scores.softmax(dim=-1, dtype=torch.float32).to(value.dtype)
    return (weights @ value).transpose(1, 2).contiguous(), None


class pruning:
    """`with pruning(model, pruner):` the model's attention is the pruned one; its own is put back afterwards."""

    def __init__(self, model: Any, pruner: Pruner) -> None:
        self.model, self.pruner = model, pruner

    def __enter__(self) -> Pruner:
        AttentionInterface.register(IMPLEMENTATION, pruned_attention)
        AttentionMaskInterface.register(IMPLEMENTATION, eager_mask)
        self._own = self.model.config._attn_implementation
        self.model.set_attn_implementation(IMPLEMENTATION)
        self._token = _pruner.set(self.pruner)
        return self.pruner

    def __exit__(self, *problem: Any) -> None:
        _pruner.reset(self._token)
        self.model.set_attn_implementation(self._own)
