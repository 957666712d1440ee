"""What one sequence's keys look like from outside, all layers: axes, packed sketch, value balls, and the certified choice.

One object for both uses: the live engine has one a request (`head_rules`), `workbench prune` one for a text's prefix. Groups of
`GROUP_BLOCKS` blocks have a sketch once they are full; the blocks after them are always read. Axes and, for each KV head, the set
of levels that reads the fewest bytes (or none: the head is read densely, its sketch not at all) are chosen once, from dense
queries of the sequence, and hold from then on.

Bytes, over the KV bytes of the head at bf16: planes looked at, a group's scales, its values' ball.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from kernels.reference.axis_sketch import AxisSketch, SketchAxes, fit_axes, make_sketch, sketched_keys
from kernels.reference.certified_cascade import BlockValues, certified_cascade, output_bound

GROUP_BLOCKS = 8
ESTIMATE_BITS = 1.0  # what an estimate reads of each key, a channel
LEVEL_BITS = ((0.0, 1.0, 2.0, 3.0), (0.0, 1.5, 3.0, 4.5, 6.0, 7.5))  # a channel, at each level
NUM_PLAN_QUERIES = 8  # dense queries on which the level sets are compared
NUM_FIT_SPREAD, NUM_FIT_LAST = 48, 32  # dense queries for the axes: from all over a prompt, and its last


def fit_positions(num_tokens: int) -> list[int]:
    """Places of a prompt whose queries the axes are fitted to, rising."""
    last = max(num_tokens - NUM_FIT_LAST, 0)
    first = num_tokens // 16
    spread = torch.linspace(first, max(last - 1, first), NUM_FIT_SPREAD).long().unique().tolist() if last else []
    return [*(p for p in spread if p < last), *range(last, num_tokens)]


def box_frac(head_size: int, block_size: int) -> float:
    """Bytes of a group's scales (two bf16 vectors and a norm) over its KV bytes."""
    return (2 * head_size + 1) / (2 * head_size * GROUP_BLOCKS * block_size)


def value_frac(head_size: int, block_size: int) -> float:
    """Bytes of the ball of a group's values (a vector and a radius) over its KV bytes."""
    return (head_size + 1) / (2 * head_size * GROUP_BLOCKS * block_size)


class Choice(NamedTuple):
    """What queries of one layer read, and what they know of what they do not."""

    keep: torch.Tensor  # bool [kv_heads, rows, blocks]
    dropped_bound: torch.Tensor  # [kv_heads, rows, group] of the dropped mass
    output_bound: torch.Tensor  # [kv_heads, rows, group] of the change of the head's output, Euclidean
    sketch_frac: torch.Tensor  # [kv_heads, rows] bytes beside the blocks, over the KV bytes of the head


@dataclass
class LayerSketch:
    axes: SketchAxes
    sketch: AxisSketch
    near: dict[int, torch.Tensor]  # sketched keys by planes, where they are held decoded
    centre: torch.Tensor  # [kv_heads, groups, d] of the values
    radius: torch.Tensor  # [kv_heads, groups], rounded up
    plan_q: torch.Tensor  # [rows, heads, d] the dense queries that level sets are compared on
    plan_exact: torch.Tensor  # [kv_heads, rows, group, blocks]
    plan_tokens: torch.Tensor  # [rows] context of each


class SequenceSketch:
    """`decoded`: hold every sketched key as floats, for many queries of one sequence (memory for speed, same numbers)."""

    def __init__(
        self, num_layers: int, kv_heads: int, head_size: int, scale: float, block_size: int, ops: Any, decoded: bool = False
    ) -> None:  # fmt: skip
        self.layers, self.kv_heads, self.d = num_layers, kv_heads, head_size
        self.scale, self.block_size, self.ops, self.decoded = scale, block_size, ops, decoded

        def planes(bits: float) -> int:
            return 8 * math.ceil(bits * head_size / 8)

        self.level_sets = tuple(tuple(planes(bits) for bits in levels) for levels in LEVEL_BITS)
        self.estimate_planes = planes(ESTIMATE_BITS)
        self.every_planes = tuple(sorted({p for levels in self.level_sets for p in levels}))
        self.covered = 0  # blocks with a sketch
        self._at: dict[int, LayerSketch] = {}
        self._plans: dict[tuple[int, float], torch.Tensor] = {}

    @property
    def group_tokens(self) -> int:
        return GROUP_BLOCKS * self.block_size

    def fit(
        self, layer: int, q: torch.Tensor, position: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> None:
        """q [n, heads, d] dense queries at `position` (rising); keys, values [kv_heads, tokens, d] of the sequence so far."""
        covered = keys.shape[1] // self.group_tokens * GROUP_BLOCKS
        q = q.float()
        grouped = q.view(q.shape[0], self.kv_heads, -1, self.d).transpose(0, 1).flatten(1, 2)
        full = keys[:, : covered * self.block_size].float()
        axes = fit_axes(grouped, full, self.group_tokens, self.every_planes[-1], torch.float32)
        context = position[-NUM_PLAN_QUERIES:] + 1
        exact = block_log_sums(q[-NUM_PLAN_QUERIES:], keys.float(), context, self.scale, self.block_size)
        kv, d = self.kv_heads, self.d
        empty = AxisSketch(
            full.new_zeros(kv, 0, d), full.new_zeros(kv, 0, d),
            torch.zeros(kv, 0, self.every_planes[-1] // 8, self.group_tokens, dtype=torch.uint8, device=full.device),
            full.new_zeros(kv, 0),
        )  # fmt: skip
        self._at[layer] = LayerSketch(
            axes, empty, {}, full.new_zeros(kv, 0, d), full.new_zeros(kv, 0), q[-NUM_PLAN_QUERIES:], exact, context
        )
        self._append(layer, full, values[:, : covered * self.block_size].float())

    def extend(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """keys, values [kv_heads, tokens, d] of whole groups that follow those known at this layer."""
        self._append(layer, keys.float(), values.float())

    def _append(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        at = self._at[layer]
        new = make_sketch(keys, at.axes, self.group_tokens)
        at.sketch = AxisSketch(*(torch.cat(pair, dim=1) for pair in zip(at.sketch, new, strict=True)))
        if self.decoded:
            near = {p: sketched_keys(new, at.axes, p) for p in {*self.every_planes, self.estimate_planes} if p}
            at.near = {p: torch.cat([at.near[p], near[p]], dim=1) if p in at.near else near[p] for p in near}
        grouped = values.unflatten(1, (-1, self.group_tokens))
        centre = grouped.mean(dim=2)
        radius = (grouped - centre[:, :, None]).norm(dim=3).amax(dim=2) * (1.0 + 2.0**-20)
        at.centre, at.radius = torch.cat([at.centre, centre], dim=1), torch.cat([at.radius, radius], dim=1)
        self.covered = at.centre.shape[1] * GROUP_BLOCKS

    def value_balls(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """(centre [kv_heads, groups, d], radius [kv_heads, groups]) of the values of each group."""
        return self._at[layer].centre, self._at[layer].radius

    def sums(
        self, layer: int, q: torch.Tensor, planes: int, head: int | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(estimate, bound) of covered blocks, [kv_heads, rows, group, covered]; q [rows, heads, d] of all KV heads, or of one."""
        at = self._at[layer]
        axes, sketch, near = at.axes, at.sketch, at.near.get(planes)
        if head is not None:
            axes, sketch = axes.of_heads(head, head + 1), sketch.of_heads(head, head + 1)
            near = None if near is None else near[head : head + 1]
        return self.ops.sketch_sums(q.float(), sketch, axes, planes, self.block_size, scale=self.scale, keys=near)

    def always(self, context_tokens: torch.Tensor, blocks: int, sinks: torch.Tensor | int, recent: torch.Tensor | int) -> torch.Tensor:  # fmt: skip
        """bool [rows, blocks]: sinks, recent blocks (at least the newest), and blocks without a sketch."""
        index = torch.arange(blocks, device=context_tokens.device)[None, :]
        filled = (-(-context_tokens // self.block_size))[:, None]
        sinks = torch.as_tensor(sinks, device=index.device).reshape(-1, 1)
        recent = torch.as_tensor(recent, device=index.device).reshape(-1, 1).clamp_min(1)
        return ((index < sinks) | (index >= filled - recent) | (index >= self.covered)) & (index < filled)

    def certify(
        self, layer: int, q: torch.Tensor, exact: torch.Tensor, mean: torch.Tensor, always: torch.Tensor,
        context_tokens: torch.Tensor, mass_budget: Sequence[float], output_budget: Sequence[float] | None = None,
    ) -> Choice:  # fmt: skip
        """q [rows, heads, d]; exact, mean: what `block_attention` gave; always: [rows, blocks]; budgets: one a row.

        Blocks may end before those covered, with a whole group.

        With `output_budget` reading stops by the bound on the output, as a share of the output; `mass_budget` then only chooses
        the levels of the sketch.
        """
        kv_heads, rows, group, blocks = exact.shape
        plan = torch.stack([self._plan(layer, float(budget)) for budget in mass_budget], dim=1)  # [kv_heads, rows]
        keep = (exact[:, :, 0] > -math.inf).clone()
        dropped = torch.zeros(kv_heads, rows, group, dtype=torch.float64, device=exact.device)
        moved, cost = dropped.clone(), torch.zeros(kv_heads, rows, device=exact.device)
        at, groups = self._at[layer], min(self.covered, blocks) // GROUP_BLOCKS
        for number, planes in enumerate(self.level_sets):
            head, row = (plan == number).nonzero(as_tuple=True)
            if head.numel() == 0:
                continue
            some = exact[head, row][:, None]  # pairs of (KV head, row) take the place of KV heads
            balls = at.centre[head, :groups], at.radius[head, :groups]
            values = BlockValues(mean[head, row][:, None], *balls, GROUP_BLOCKS)

            def of(given: Sequence[float], row: torch.Tensor = row) -> torch.Tensor:
                return torch.tensor([given[r] for r in row.tolist()], dtype=torch.float64, device=exact.device)[
                    :, None, None
                ]

            made = certified_cascade(
                self._levels(layer, q, planes, head, row, some), some, always[row][:, None], of(mass_budget).to(exact.dtype),
                values, None if output_budget is None else of(output_budget),
            )  # fmt: skip
            keep[head, row], dropped[head, row] = made.keep[:, 0], made.dropped_mass_bound[:, 0]
            moved[head, row] = output_bound(made, some, values)[:, 0]
            cost[head, row] = self._cost(made.planes[:, 0], context_tokens[row])
        return Choice(keep, dropped, moved, cost)

    def _levels(
        self, layer: int, q: torch.Tensor, planes: Sequence[int], head: torch.Tensor, row: torch.Tensor, exact: torch.Tensor
    ) -> list[tuple[int, torch.Tensor, torch.Tensor]]:  # fmt: skip
        """Levels [pairs, 1, group, blocks] for (KV head, row) pairs, KV heads rising; the truth where there is no sketch."""
        grouped = q.view(q.shape[0], self.kv_heads, -1, self.d)
        levels = []
        for p in planes:
            found = [
                self.sums(layer, grouped[row[head == h], h], p, h) for h in head.unique().tolist()
            ]  # each [1, rows of it, group, covered]
            wide = []
            for side in range(2):
                full, count = exact.clone(), min(self.covered, exact.shape[3])
                known = torch.cat([pair[side][0] for pair in found])[:, None, :, :count]
                full[..., :count] = torch.where(full[..., :count] > -math.inf, known, -math.inf)
                wide.append(full)
            levels.append((p, *wide))
        return levels

    def _cost(self, planes: torch.Tensor, context_tokens: torch.Tensor) -> torch.Tensor:
        """[pairs]: planes [pairs, blocks] and scales, over the KV bytes of the head."""
        bits = planes.sum(dim=1).float() * self.block_size
        covered = context_tokens.clamp_max(self.covered * self.block_size) / context_tokens
        scales = box_frac(self.d, self.block_size) + value_frac(self.d, self.block_size)
        return bits / (context_tokens * 32.0 * self.d) + covered * scales

    def _plan(self, layer: int, mass_budget: float) -> torch.Tensor:
        """[kv_heads] index into `level_sets` of the cheapest on the plan queries; their number where none saves bytes: dense."""
        if (layer, mass_budget) in self._plans:
            return self._plans[layer, mass_budget]
        at = self._at[layer]
        exact, context = at.plan_exact, at.plan_tokens
        kv_heads, rows, _, blocks = exact.shape
        known = min(self.covered, blocks)
        always = self.always(context, blocks, 1, 1)
        start = torch.arange(blocks, device=exact.device) * self.block_size
        tokens = (context[:, None] - start).clamp(0, self.block_size)
        row = torch.arange(rows).repeat(kv_heads)
        costs = []
        for planes in self.level_sets:
            levels = []
            for p in planes:
                pair = []
                for side in self.sums(layer, at.plan_q, p):
                    full = exact.clone()
                    full[..., :known] = torch.where(exact[..., :known] > -math.inf, side[..., :known], -math.inf)
                    pair.append(full)
                levels.append((p, *pair))
            made = certified_cascade(levels, exact, always[None], mass_budget)
            read = (made.keep * tokens).sum(dim=2) / context
            cost = self._cost(made.planes.flatten(0, 1), context[row]).view(kv_heads, rows)
            costs.append((read + cost).mean(dim=1))
        costs.append(torch.ones(kv_heads, device=exact.device))
        self._plans[layer, mass_budget] = torch.stack(costs).argmin(dim=0)
        return self._plans[layer, mass_budget]


def block_attention(
    q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, context_tokens: torch.Tensor, scale: float, block_size: int,
    blocks: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """What reading each block gives: (ln sum exp(s q.k) [kv_heads, rows, group, blocks], -inf beyond a row's context; the mean
    of its values under its own softmax [.., d]).

    q [rows, heads, d]; keys, values [kv_heads, tokens, d], one sequence.
    """
    score = _block_scores(q, keys, context_tokens, scale, block_size, blocks)
    exact = score.logsumexp(dim=4)
    weight = (score - torch.where(exact > -math.inf, exact, 0.0)[..., None]).exp()
    count = score.shape[3]
    padded = torch.nn.functional.pad(values, (0, 0, 0, count * block_size - values.shape[1]))
    mean = weight.flatten(1, 2).transpose(1, 2) @ padded.unflatten(1, (count, block_size))
    return exact, mean.transpose(1, 2).unflatten(1, exact.shape[1:3])  # from [kv_heads, blocks, rows group, d]


def block_log_sums(
    q: torch.Tensor, keys: torch.Tensor, context_tokens: torch.Tensor, scale: float, block_size: int, blocks: int | None = None
) -> torch.Tensor:  # fmt: skip
    """The first half of `block_attention`."""
    return _block_scores(q, keys, context_tokens, scale, block_size, blocks).logsumexp(dim=4)


def _block_scores(
    q: torch.Tensor, keys: torch.Tensor, context_tokens: torch.Tensor, scale: float, block_size: int, blocks: int | None
) -> torch.Tensor:
    """[kv_heads, rows, group, blocks, block]"""
    kv_heads, tokens, d = keys.shape
    rows = q.shape[0]
    grouped = q.view(rows, kv_heads, -1, d).transpose(0, 1)
    score = (grouped.flatten(1, 2) @ keys.mT).view(kv_heads, rows, -1, tokens) * scale
    score = torch.where(torch.arange(tokens, device=q.device) < context_tokens[:, None, None], score, -math.inf)
    blocks = -(-tokens // block_size) if blocks is None else blocks
    score = torch.nn.functional.pad(score, (0, blocks * block_size - tokens), value=-math.inf)
    return score.unflatten(3, (blocks, block_size))
