"""Rules that read keys, over one text: the sketch of its prefix, one choice for each arm, layer and KV head, and the proof.

The axes and the levels of each KV head are chosen once, from the dense queries of the prefix: the set of levels that
read the fewest bytes on them, or none (the head is read densely, and its sketch not at all) where no set saves anything.
That choice is remembered for the continuation. Keys written after the prefix, and those that do not fill a group of
`GROUP_BLOCKS`, have no sketch: their blocks are always read.

Every certified choice is checked against the truth where it is made: bound and true dropped mass, bound and true change
of the head's output, for every query head.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from kernels import reference
from kernels.reference.axis_sketch import (
    AxisSketch,
    Cascade,
    SketchAxes,
    block_sums,
    certified_cascade,
    fit_axes,
    make_sketch,
    sketch_scores,
    sketched_keys,
)
from workbench.protocols import KeepAction, KeepRule
from workbench.pruning.prefix import BLOCK_SIZE, Prefix, Queries
from workbench.signals import FloatArray

GROUP_BLOCKS = 8
GROUP_TOKENS = GROUP_BLOCKS * BLOCK_SIZE
ESTIMATE_BITS = 1.0  # what LEAST_ESTIMATE reads of each key, a channel
LEVEL_BITS = ((0.0, 1.0, 2.0, 3.0), (0.0, 1.5, 3.0, 4.5, 6.0, 7.5))  # a channel, at each level
NUM_FIT_QUERIES = 8  # dense queries on which the level sets are compared
Levels = dict[int, tuple[torch.Tensor, torch.Tensor]]
KEY_RULES = (KeepRule.TOP_BOUND, KeepRule.LEAST_ESTIMATE, KeepRule.CERTIFIED)


@dataclass(frozen=True)
class Touched:
    """What one certified arm claims and what is true, one step; [layers, kv_heads, group] unless said otherwise."""

    bound: FloatArray  # of the dropped mass
    dropped: FloatArray  # true
    output_bound: FloatArray  # of the change of the head's output, Euclidean
    output_change: FloatArray  # true
    output_norm: FloatArray  # of the dense output
    vacuous: np.ndarray  # [layers, kv_heads] every sketched block was read back
    bytes_frac: FloatArray  # [layers, kv_heads]


def box_frac(head_size: int) -> float:
    """Bytes of a group's scales (two bf16 vectors and a norm) over its KV bytes."""
    return (2 * head_size + 1) / (2 * head_size * GROUP_TOKENS)


def value_frac(head_size: int) -> float:
    """Bytes of the ball of a group's values (a vector and a radius) over its KV bytes."""
    return (head_size + 1) / (2 * head_size * GROUP_TOKENS)


@dataclass(frozen=True)
class LayerSketch:
    axes: SketchAxes
    sketch: AxisSketch
    near: dict[int, torch.Tensor]  # sketched keys by planes
    keys: torch.Tensor  # [kv_heads, covered tokens, d]
    values: torch.Tensor
    value_centre: torch.Tensor  # [kv_heads, groups, d]
    value_radius: torch.Tensor  # [kv_heads, groups]
    lower: torch.Tensor  # [kv_heads, blocks, d] key boxes of full blocks, for Quest
    upper: torch.Tensor


class KeyRules:
    """Everything that is known of the prefix's keys. `fit`: dense queries of the prefix, the last of them most recent."""

    def __init__(self, prefix: Prefix, fit: Queries) -> None:
        self.prefix, self.scale = prefix, prefix.decoder.scale
        config = prefix.decoder.config
        self.layers, self.kv_heads, self.d = config.num_layers, config.num_kv_heads, config.head_dim
        self.level_sets = tuple(tuple(int(bits * self.d) for bits in levels) for levels in LEVEL_BITS)
        self.every_planes = tuple(sorted({p for levels in self.level_sets for p in levels}))
        self.estimate_planes = int(ESTIMATE_BITS * self.d)
        self.groups = prefix.num_tokens // GROUP_TOKENS
        self.covered = self.groups * GROUP_BLOCKS  # blocks with a sketch
        self.sketches = [self._sketch(layer, fit.q[layer]) for layer in range(self.layers)]
        # [layers, kv_heads] index into self.level_sets, len(self.level_sets) for dense; by mass budget
        self.plans: dict[float, np.ndarray] = {}
        self._fit = fit
        self._fit_levels: dict[int, Levels] = {}

    def _flat(self, pool: torch.Tensor) -> torch.Tensor:
        """[kv_heads, covered tokens, d]; the prefix lies in the first blocks."""
        return pool[: self.covered].flatten(0, 1).transpose(0, 1).float()

    def _sketch(self, layer: int, q: torch.Tensor) -> LayerSketch:
        keys = self._flat(self.prefix.cache.keys[layer]).contiguous()
        grouped = q.view(q.shape[0], self.kv_heads, -1, self.d).transpose(0, 1).flatten(1, 2)
        axes = fit_axes(grouped, keys, GROUP_TOKENS, self.every_planes[-1], torch.float32)
        sketch = make_sketch(keys, axes, GROUP_TOKENS)
        planes = {*self.every_planes, self.estimate_planes}
        near = {p: sketched_keys(sketch, axes, p) for p in planes}
        values = self._flat(self.prefix.cache.values[layer]).contiguous().unflatten(1, (-1, GROUP_TOKENS))
        centre = values.mean(dim=2)
        radius = (values - centre[:, :, None]).norm(dim=3).amax(dim=2) * (1.0 + 2.0**-20)
        blocks = keys.unflatten(1, (-1, BLOCK_SIZE))
        return LayerSketch(
            axes, sketch, near, keys, values.flatten(1, 2), centre, radius, blocks.amin(dim=2), blocks.amax(dim=2)
        )

    def levels(self, layer: int, q: torch.Tensor, planes: Sequence[int]) -> Levels:
        """Planes to (estimate, bound) of covered blocks, [kv_heads, rows, group, covered]."""
        at = self.sketches[layer]
        return {
            p: block_sums(sketch_scores(q, at.sketch, at.axes, p, scale=self.scale, keys=at.near[p]), BLOCK_SIZE)
            for p in planes
        }

    def certify(
        self, layer: int, levels: Levels, exact: torch.Tensor, always: torch.Tensor, budget: float,
        context_tokens: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
        """(keep, bound, sketch bytes over the KV bytes of the head): keep [kv_heads, rows, blocks].

        levels: at `every_planes`; exact: [kv_heads, rows, group, blocks] true log-sums; always: bool [rows, blocks];
        context_tokens: [rows].
        """
        plan = self._plan(budget)[layer]
        keep = always.expand(self.kv_heads, *always.shape).clone()
        bound = torch.zeros(exact.shape[:3], dtype=torch.float64)
        cost = torch.zeros(self.kv_heads, exact.shape[1])
        for chosen in np.unique(plan):
            heads = torch.from_numpy(np.flatnonzero(plan == chosen))
            if chosen == len(self.level_sets):
                keep[heads] = exact[heads, :, 0] > -math.inf
                continue
            some = {p: (e[heads], b[heads]) for p, (e, b) in levels.items()}
            made = self._cascade(some, exact[heads], always, budget, self.level_sets[chosen])
            keep[heads], bound[heads] = made.keep, made.dropped_mass_bound
            cost[heads] = self._sketch_cost(made.planes, context_tokens)
        return keep, bound, cost

    def _cascade(
        self, levels: Levels, exact: torch.Tensor, always: torch.Tensor, budget: float, planes: Sequence[int]
    ) -> Cascade:
        def padded(x: torch.Tensor) -> torch.Tensor:
            """Blocks without a sketch are always read, so theirs is the truth."""
            wide = exact.clone()
            wide[..., : self.covered] = torch.where(exact[..., : self.covered] > -math.inf, x, -math.inf)
            return wide

        return certified_cascade([(p, *map(padded, levels[p])) for p in planes], exact, always[None], budget)

    def _sketch_cost(self, planes: torch.Tensor, context_tokens: torch.Tensor) -> torch.Tensor:
        """[kv_heads, rows]: planes [kv_heads, rows, blocks] and scales, over the KV bytes of the head."""
        bits = planes.sum(dim=2).float() * BLOCK_SIZE
        covered = torch.minimum(context_tokens, torch.tensor(self.covered * BLOCK_SIZE)) / context_tokens
        return bits / (context_tokens * 32.0 * self.d) + covered * (box_frac(self.d) + value_frac(self.d))

    def _plan(self, budget: float) -> np.ndarray:
        if budget not in self.plans:
            self.plans[budget] = np.stack([self._plan_layer(layer, budget) for layer in range(self.layers)])
        return self.plans[budget]

    def _plan_layer(self, layer: int, budget: float) -> np.ndarray:
        """The cheapest level set of each KV head on the last dense queries of the prefix; dense where none saves bytes."""
        position = self._fit.position[-NUM_FIT_QUERIES:]
        q = self._fit.q[layer, -NUM_FIT_QUERIES:]
        blocks = -(-self.prefix.num_tokens // BLOCK_SIZE)
        keys = self.prefix.cache.keys[layer][:blocks].flatten(0, 1).transpose(0, 1).float()
        exact = block_log_sums(q, keys, position + 1, self.scale)
        always = self.always(position + 1, blocks, 1, 1)
        tokens = (position[:, None] + 1 - torch.arange(blocks) * BLOCK_SIZE).clamp(0, BLOCK_SIZE)
        if layer not in self._fit_levels:
            self._fit_levels[layer] = self.levels(layer, q, self.every_planes)
        costs = []
        for planes in self.level_sets:
            made = self._cascade(self._fit_levels[layer], exact, always, budget, planes)
            read = (made.keep * tokens).sum(dim=2) / (position + 1)
            costs.append((read + self._sketch_cost(made.planes, position + 1)).mean(dim=1))
        costs.append(torch.ones(self.kv_heads))
        return torch.stack(costs).argmin(dim=0).numpy()

    def always(self, context_tokens: torch.Tensor, blocks: int, sinks: int, recent: int) -> torch.Tensor:
        """bool [rows, blocks]: sinks, recent blocks, and blocks without a sketch."""
        index = torch.arange(blocks)[None, :]
        filled = (-(-context_tokens // BLOCK_SIZE))[:, None]
        return ((index < sinks) | (index >= filled - max(recent, 1)) | (index >= self.covered)) & (index < filled)

    def step(
        self, actions: Sequence[KeepAction], masks: torch.Tensor, table: torch.Tensor, context_tokens: int
    ) -> "KeyStep":
        return KeyStep(self, actions, masks, table, context_tokens)


class KeyStep:
    """One decode step of all arms: `choose` is called at each layer, completes `masks` in place and keeps accounts."""

    def __init__(
        self,
        rules: KeyRules,
        actions: Sequence[KeepAction],
        masks: torch.Tensor,
        table: torch.Tensor,
        context_tokens: int,
    ) -> None:
        self.rules, self.actions, self.masks, self.table, self.context = rules, actions, masks, table, context_tokens
        self.rule = np.stack([action.rule for action in actions]).reshape(len(actions), rules.layers, rules.kv_heads)
        self.rows = [r for r in range(len(actions)) if np.isin(self.rule[r], [int(k) for k in KEY_RULES]).any()]
        self._frac = np.zeros((rules.layers, len(actions), rules.kv_heads))
        self._claims: dict[int, list[list[torch.Tensor]]] = {}

    def choose(self, layer: int, q: torch.Tensor) -> torch.Tensor:
        """q [arms, heads, d] -> bool [arms, kv_heads, blocks]."""
        for r in self.rows:
            kinds = {int(k) for k in self.rule[r, layer]}
            for kind in kinds:
                heads = torch.from_numpy(np.flatnonzero(self.rule[r, layer] == kind))
                if kind == KeepRule.TOP_BOUND:
                    self.masks[layer, r, heads] = self._top_bound(layer, r, q[r : r + 1].float())[heads]
                elif kind == KeepRule.LEAST_ESTIMATE:
                    self.masks[layer, r, heads] = self._least_estimate(layer, r, q[r : r + 1].float())[heads]
                elif kind == KeepRule.CERTIFIED:
                    self.masks[layer, r] = self._certified(layer, r, q[r : r + 1].float())
        return self.masks[layer].contiguous()

    def sketch_frac(self) -> FloatArray:
        """[arms] bytes of boxes and sketches over all KV bytes."""
        return self._frac.mean(axis=(0, 2))

    def touched(self) -> list[Touched | None]:
        """[arms] what certified arms claim."""
        out: list[Touched | None] = []
        for r in range(len(self.actions)):
            parts = self._claims.get(r)
            if parts is None:
                out.append(None)
                continue
            columns = [torch.stack(column).double().numpy() for column in zip(*parts, strict=True)]
            out.append(Touched(*columns[:5], columns[5].astype(bool), columns[6]))
        return out

    def _number(self, name: str, r: int, layer: int) -> FloatArray:
        kv = self.rules.kv_heads
        return getattr(self.actions[r], name)[layer * kv : (layer + 1) * kv]

    def _always(self, r: int, layer: int) -> torch.Tensor:
        sinks, recent = self._number("sink_blocks", r, layer)[0], self._number("recent_blocks", r, layer)[0]
        return self.rules.always(torch.tensor([self.context]), self.masks.shape[3], int(sinks), int(recent))

    def _top_bound(self, layer: int, r: int, q: torch.Tensor) -> torch.Tensor:
        """Quest: boxes of full blocks; the rest is always read. [kv_heads, blocks]"""
        rules, at = self.rules, self.rules.sketches[layer]
        query = q.view(rules.kv_heads, -1, rules.d)
        bound = query.clamp_min(0.0) @ at.upper.mT + query.clamp_max(0.0) @ at.lower.mT
        self._frac[layer, r] = at.upper.shape[1] * BLOCK_SIZE / self.context / BLOCK_SIZE
        score = torch.full((rules.kv_heads, self.masks.shape[3]), torch.nan, dtype=torch.float64)
        score[:, : rules.covered] = bound.amax(dim=1)
        return self._by_score(layer, r, score, KeepRule.TOP_BLOCKS, self._number("block_budget_frac", r, layer))

    def _least_estimate(self, layer: int, r: int, q: torch.Tensor) -> torch.Tensor:
        rules = self.rules
        estimate = rules.levels(layer, q, (rules.estimate_planes,))[rules.estimate_planes][0][
            :, 0
        ]  # [kv_heads, group, covered]
        tail = self._tail_keys(layer, r)
        scores = torch.einsum("hgd,htd->hgt", q.view(rules.kv_heads, -1, rules.d), tail) * rules.scale
        rest = scores.logsumexp(dim=2, keepdim=True)
        mass = torch.cat([estimate, rest], dim=2).softmax(dim=2).mean(dim=1)[:, : rules.covered]
        covered = rules.covered * BLOCK_SIZE / self.context
        self._frac[layer, r] = covered * (ESTIMATE_BITS / 32.0 + box_frac(rules.d))
        score = torch.full((rules.kv_heads, self.masks.shape[3]), torch.nan, dtype=torch.float64)
        score[:, : rules.covered] = mass
        floor = self._number("block_budget_frac", r, layer)
        least = self._by_score(layer, r, score, KeepRule.LEAST_MASS, floor)
        return least | self._by_score(layer, r, score, KeepRule.TOP_BLOCKS, floor)

    def _by_score(self, layer: int, r: int, score: torch.Tensor, rule: KeepRule, share: FloatArray) -> torch.Tensor:
        n = score.shape[0]
        filled = -(-self.context // BLOCK_SIZE)
        return reference.keep_blocks(
            score, None, torch.full((n,), filled), rule=torch.full((n,), int(rule)),
            mass_budget=torch.from_numpy(self._number("mass_budget", r, layer)),
            block_budget_frac=torch.from_numpy(np.asarray(share)),
            sink_blocks=torch.from_numpy(self._number("sink_blocks", r, layer)),
            recent_blocks=torch.from_numpy(self._number("recent_blocks", r, layer)),
        )  # fmt: skip

    def _tail_keys(self, layer: int, r: int, values: bool = False) -> torch.Tensor:
        """Keys (or values) that have no sketch, [kv_heads, tokens, d]."""
        pool = (self.rules.prefix.cache.values if values else self.rules.prefix.cache.keys)[layer]
        own = pool[self.table[r, self.rules.covered : -(-self.context // BLOCK_SIZE)].long()]
        return own.flatten(0, 1)[: self.context - self.rules.covered * BLOCK_SIZE].transpose(0, 1).float()

    def _certified(self, layer: int, r: int, q: torch.Tensor) -> torch.Tensor:
        rules = self.rules
        at = rules.sketches[layer]
        keys = torch.cat([at.keys, self._tail_keys(layer, r)], dim=1)
        values = torch.cat([at.values, self._tail_keys(layer, r, values=True)], dim=1)
        context = torch.tensor([self.context])
        exact = block_log_sums(q, keys, context, rules.scale, self.masks.shape[3])
        always = self._always(r, layer)
        budget = float(self._number("mass_budget", r, layer)[0])
        levels = rules.levels(layer, q, rules.every_planes)
        keep, bound, cost = rules.certify(layer, levels, exact, always, budget, context)
        self._frac[layer, r] = cost[:, 0].numpy()
        self._check(layer, r, q, keys, values, exact, keep, bound, cost)
        return keep[:, 0]

    def _check(self, layer: int, r: int, q, keys, values, exact, keep, bound, cost) -> None:
        """Claims against the truth, in float64."""
        rules, at = self.rules, self.rules.sketches[layer]
        kept = keep[:, 0]
        score = torch.einsum("hgd,htd->hgt", q.view(rules.kv_heads, -1, rules.d), keys).double() * rules.scale
        p = score.softmax(dim=2)
        token_kept = kept.repeat_interleave(BLOCK_SIZE, dim=1)[:, None, : p.shape[2]]
        dropped = torch.where(token_kept, 0.0, p).sum(dim=2)
        dense = p @ values.double()
        inside = torch.where(token_kept, p, 0.0)
        output = (inside / inside.sum(dim=2, keepdim=True)) @ values.double()
        reach = (at.value_centre[:, None].double() - output[:, :, None]).norm(dim=3) + at.value_radius[:, None].double()
        some = ~kept[:, : rules.covered].unflatten(1, (-1, GROUP_BLOCKS)).all(dim=2)
        spread = torch.where(some[:, None], reach, 0.0).amax(dim=2) if rules.groups else torch.zeros_like(dropped)
        sketched = kept[:, : rules.covered]
        tokens = (self.context - torch.arange(kept.shape[1]) * BLOCK_SIZE).clamp(0, BLOCK_SIZE)
        self._claims.setdefault(r, []).append(
            [
                bound[:, 0], dropped, bound[:, 0] * spread * (1.0 + 1e-9), (output - dense).norm(dim=2), dense.norm(dim=2),
                sketched.all(dim=1), (kept * tokens).sum(dim=1) / self.context + cost[:, 0],
            ]
        )  # fmt: skip


def block_log_sums(
    q: torch.Tensor, keys: torch.Tensor, context_tokens: torch.Tensor, scale: float, blocks: int | None = None
) -> torch.Tensor:
    """ln sum exp(s q.k) over each block, [kv_heads, rows, group, blocks], -inf beyond a row's context.

    q [rows, heads, d]; keys [kv_heads, tokens, d], one sequence.
    """
    kv_heads, tokens, d = keys.shape
    rows = q.shape[0]
    grouped = q.view(rows, kv_heads, -1, d).transpose(0, 1)
    score = (grouped.flatten(1, 2) @ keys.mT).view(kv_heads, rows, -1, tokens) * scale
    score = torch.where(torch.arange(tokens) < context_tokens[:, None, None], score, -math.inf)
    blocks = -(-tokens // BLOCK_SIZE) if blocks is None else blocks
    score = torch.nn.functional.pad(score, (0, blocks * BLOCK_SIZE - tokens), value=-math.inf)
    return score.unflatten(3, (blocks, BLOCK_SIZE)).logsumexp(dim=4)
