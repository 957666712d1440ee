"""The continuation of one text under many policies at once, token by token, teacher-forced, errors left to compound.

All arms share the blocks of the dense prefix; each has blocks of its own for what it writes. One slot of a policy is one
KV head of one layer: the same controller object that steers requests in the plants sees `block_mass` per head here,
and its rule is carried out per head. Before the first step it is shown the dense masses of the last `WARMUP_TOKENS`
tokens of the prefix, as a plant would show it those of tokens already decoded, and with the first of them the sum over all
tokens before. So H2O has its sum over the whole prompt, and SnapKV its window at the prompt's end, as their papers have.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from kernels import selection_numpy
from workbench.live.decoder import ForwardInput
from workbench.protocols import KeepAction, KeepObservation, KeepRule, blank_like
from workbench.pruning.key_rules import KeyRules
from workbench.pruning.key_step import KeyStep, Touched
from workbench.pruning.prefix import BLOCK_SIZE, Prefix, Queries
from workbench.signals import BoolArray, FloatArray

WARMUP_TOKENS = 32
MEASURE_EVERY = 8  # steps between measurements of what was dropped, which read every block again
SCORE_RULES = (KeepRule.ALL, KeepRule.LEAST_MASS, KeepRule.TOP_BLOCKS, KeepRule.WINDOW)


@dataclass(frozen=True)
class Arm:
    """One policy at one budget. `target_frac`: the share of bytes it was set up for, None where it has none."""

    name: str
    target_frac: float | None
    controller: Any


@dataclass(frozen=True)
class Decoded:
    """[steps, arms] each. The first arm reads everything, and is what the others are compared with."""

    kl_nats: FloatArray  # KL(dense || pruned) of the next token's distribution
    nll_nats: FloatArray  # of the reference token
    entropy_nats: FloatArray
    right: BoolArray  # the reference token is the most likely one
    blocks_frac: FloatArray  # KV tokens read over all, mean over layers and KV heads
    sketch_frac: FloatArray  # bytes of boxes and sketches over all KV bytes
    dropped_mass: FloatArray  # mean over layers and query heads, every `MEASURE_EVERY` steps, NaN between
    touched: list[list[Touched | None]]  # what certified arms know of each step

    @property
    def bytes_frac(self) -> FloatArray:
        return self.blocks_frac + self.sketch_frac


class HeadSlots:
    """A controller with one slot a (layer, KV head), and what it has been told."""

    def __init__(self, controller: Any, num_slots: int, width: int) -> None:
        self.controller, self.num_slots, self.width = controller, num_slots, width
        self.state = controller.init(num_slots)
        self.step = 0

    def ask(
        self, block_mass: FloatArray, context_tokens: int, entropy_nats: float, prompt_mass: FloatArray | None = None
    ) -> KeepAction:
        """block_mass: [num_slots, width], NaN where not read."""
        arrays = blank_like(KeepObservation, self.num_slots, block_mass=self.width)
        arrays["active"][:] = arrays["measured"][:] = True
        arrays["joined"][:] = self.step == 0
        arrays["request_id"] = np.arange(self.num_slots)
        arrays["context_tokens"][:] = context_tokens
        arrays["num_blocks"][:] = -(-context_tokens // BLOCK_SIZE)
        arrays["entropy_raw_nats"][:] = entropy_nats
        arrays["block_mass"] = block_mass
        observation = KeepObservation(step=self.step, prompt_mass=prompt_mass, **arrays)
        self.state, action = self.controller.step(self.state, observation)
        self.step += 1
        return action


def layer_share(action: KeepAction, num_layers: int) -> FloatArray:
    """`block_budget_frac` per slot after the taper; slots are layers times KV heads."""
    share = action.block_budget_frac
    if action.layer_taper is None:
        return share
    layer = np.arange(share.size) // (share.size // num_layers)
    return np.clip(share * (1.0 + action.layer_taper * (1.0 - 2.0 * layer / max(num_layers - 1, 1))), 1e-9, 1.0)


def score_keep(action: KeepAction, num_blocks: int, num_layers: int) -> BoolArray:
    """[slots, width]: what the rules that read scores keep; every block where the rule reads keys."""
    rule = np.where(np.isin(action.rule, SCORE_RULES), action.rule, int(KeepRule.ALL))
    return selection_numpy.keep_blocks(
        action.score, None, np.full(rule.size, num_blocks), rule=rule, mass_budget=action.mass_budget,
        block_budget_frac=layer_share(action, num_layers), sink_blocks=np.minimum(action.sink_blocks, num_blocks),
        recent_blocks=np.clip(action.recent_blocks, 1, num_blocks),
    )  # fmt: skip


def decode(
    prefix: Prefix, warmup: Queries, arms: Sequence[Arm], key_rules: KeyRules, progress: Callable[[float], None]
) -> Decoded:
    """`warmup`: dense queries of the last tokens of the prefix; the first arm must keep everything."""
    decoder, config = prefix.decoder, prefix.decoder.config
    layers, kv_heads, rows = config.num_layers, config.num_kv_heads, len(arms)
    total, size = prefix.ids.numel(), BLOCK_SIZE
    shared, width = prefix.num_tokens // size, -(-total // size)
    own = width - shared
    table = torch.arange(width, dtype=torch.int32).expand(rows, width).contiguous()
    table[:, shared:] = shared + torch.arange(rows * own, dtype=torch.int32).view(rows, own)
    for pool in (*prefix.cache.keys, *prefix.cache.values):  # the last block of the prefix may be part full
        pool[table[1:, shared].long()] = pool[shared].clone()
    slots = [HeadSlots(arm.controller, layers * kv_heads, width) for arm in arms]
    actions: list[KeepAction] = []
    summed = np.full((layers * kv_heads, width), np.nan)
    before = -(-(prefix.num_tokens - warmup.position.numel()) // size)
    summed[:, :before] = prefix.summed_mass.reshape(layers * kv_heads, -1)[:, :before]
    for slot in slots:
        for w in range(warmup.position.numel()):
            mass = np.full((layers * kv_heads, width), np.nan)
            seen = int(warmup.position[w]) // size + 1
            mass[:, :seen] = warmup.mass[:, w, :, :seen].reshape(layers * kv_heads, seen)
            action = slot.ask(
                mass, int(warmup.position[w]) + 1, float(warmup.entropy_nats[w]), summed if w == 0 else None
            )
        actions.append(action)
    columns: dict[str, list[FloatArray]] = {name: [] for name in Decoded.__annotations__ if name != "touched"}
    touched: list[list[Touched | None]] = []
    for position in range(prefix.num_tokens, total - 1):
        num_blocks = position // size + 1
        masks = torch.from_numpy(
            np.stack([score_keep(a, num_blocks, layers).reshape(layers, kv_heads, width) for a in actions], axis=1)
        )  # [layers, rows, kv_heads, width]
        measures = (position - prefix.num_tokens) % MEASURE_EVERY == 0
        step = KeyStep(key_rules, actions, masks, table, position + 1)
        here = torch.full((rows,), position)
        out = decoder.forward(
            ForwardInput(
                token_ids=prefix.ids[here], positions=here,
                slot_index=table[:, position // size].long() * size + position % size, num_decode=rows,
                block_table=table, context_tokens=(here + 1).int(), chunks=(), logit_rows=torch.arange(rows),
            ),
            prefix.cache,
            step.choose,
            want_mass_by_head=True,
            measure_dropped=measures,
        )  # fmt: skip
        log_p = out.logits.double().log_softmax(dim=-1)
        target = int(prefix.ids[position + 1])
        p = log_p.exp()
        entropy = -(p * log_p).sum(dim=1).numpy()
        filled = (position + 1 - torch.arange(width) * size).clamp(0, size).double()
        columns["kl_nats"].append((p[0] * (log_p[0] - log_p)).sum(dim=1).clamp_min(0.0).numpy())
        columns["nll_nats"].append(-log_p[:, target].numpy())
        columns["entropy_nats"].append(entropy)
        columns["right"].append((log_p.argmax(dim=1) == target).numpy())
        columns["blocks_frac"].append(((masks * filled).sum(dim=3).mean(dim=(0, 2)) / (position + 1)).numpy())
        columns["sketch_frac"].append(step.sketch_frac())
        dropped = torch.full((rows,), torch.nan) if out.dropped_mass is None else out.dropped_mass
        columns["dropped_mass"].append(dropped.double().numpy())
        touched.append(step.touched())
        by_head = torch.where(masks, out.mass_by_head, torch.nan).double().numpy()
        for r, slot in enumerate(slots):
            mass = by_head[:, r].reshape(layers * kv_heads, width)
            actions[r] = slot.ask(mass, position + 1, float(entropy[r]))
        progress((position + 1 - prefix.num_tokens) / max(total - 1 - prefix.num_tokens, 1))
    return Decoded(**{name: np.stack(values) for name, values in columns.items()}, touched=touched)
