"""One decode step of all arms whose rules read keys: their choice at each layer, what it costs, and the proof of what it claims.

Arms with one kind of rule are handled together. Every certified choice is checked against the truth where it is made, in float64:
bound and true dropped mass, bound and true change of the head's output, for every query head.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from workbench.live.sequence_sketch import Choice, block_attention, box_frac
from workbench.protocols import KeepAction, KeepRule
from workbench.pruning.key_rules import KeyRules, keep_by_score
from workbench.pruning.prefix import BLOCK_SIZE
from workbench.signals import FloatArray

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


class KeyStep:
    """`choose` is called at each layer, completes `masks` [layers, arms, kv_heads, blocks] in place and keeps accounts."""

    def __init__(
        self, rules: KeyRules, actions: Sequence[KeepAction], masks: torch.Tensor, table: torch.Tensor, context_tokens: int
    ) -> None:  # fmt: skip
        self.rules, self.actions, self.masks, self.table, self.context = rules, actions, masks, table, context_tokens
        # The rule of an arm is one for all its heads, but for heads that read everything.
        rule = np.stack([action.rule for action in actions]).reshape(len(actions), rules.layers, rules.kv_heads)
        self.rule = torch.from_numpy(rule)
        self.rows = {kind: [r for r in range(len(actions)) if (rule[r] == int(kind)).any()] for kind in KEY_RULES}
        by_output = [r for r in self.rows[KeepRule.CERTIFIED] if self._output_budget(r) is not None]
        by_mass = [r for r in self.rows[KeepRule.CERTIFIED] if r not in by_output]
        self._certified = [rows for rows in (by_mass, by_output) if rows]
        self._frac = np.zeros((rules.layers, len(actions), rules.kv_heads))
        self._claims: dict[int, list[list[torch.Tensor]]] = {}

    def choose(self, layer: int, q: torch.Tensor) -> torch.Tensor:
        """q [arms, heads, d] -> bool [arms, kv_heads, blocks]."""
        if rows := self.rows[KeepRule.TOP_BOUND]:
            self._top_bound(layer, rows, q[rows].float())
        if rows := self.rows[KeepRule.LEAST_ESTIMATE]:
            self._least_estimate(layer, rows, q[rows].float())
        for rows in self._certified:
            self._certify(layer, rows, q[rows].float())
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

    def _number(self, name: str, rows: Sequence[int], layer: int) -> torch.Tensor:
        """[rows, kv_heads]"""
        kv = self.rules.kv_heads
        return torch.from_numpy(np.stack([getattr(self.actions[r], name)[layer * kv : (layer + 1) * kv] for r in rows]))

    def _output_budget(self, r: int) -> float | None:
        given = self.actions[r].output_budget
        return None if given is None or math.isnan(given[0]) else float(given[0])

    def _apply(self, layer: int, rows: Sequence[int], kind: KeepRule, keep: torch.Tensor) -> None:
        """keep [rows, kv_heads, blocks], where this is the head's rule."""
        mine = self.rule[rows, layer] == int(kind)
        self.masks[layer, rows] = torch.where(mine[:, :, None], keep, self.masks[layer, rows])

    def _by_score(self, layer: int, rows: Sequence[int], score: torch.Tensor, rule: KeepRule) -> torch.Tensor:
        """score [rows, kv_heads, blocks]"""
        names = ("mass_budget", "block_budget_frac", "sink_blocks", "recent_blocks")
        numbers = [self._number(name, rows, layer).flatten() for name in names]
        return keep_by_score(score.flatten(0, 1), int(rule), self.context, *numbers).view_as(score)

    def _wide(self, covered: torch.Tensor) -> torch.Tensor:
        """[kv_heads, rows, covered] -> [rows, kv_heads, blocks], NaN where there is no score: such blocks stay."""
        kv_heads, rows, width = covered.shape
        score = torch.full((rows, kv_heads, self.masks.shape[3]), torch.nan, dtype=torch.float64)
        score[..., :width] = covered.transpose(0, 1)
        return score

    def _top_bound(self, layer: int, rows: list[int], q: torch.Tensor) -> None:
        score = self._wide(self.rules.top_bound(layer, q))
        self._frac[layer, rows] = self.rules.covered / self.context  # a block's box is worth one of its tokens
        self._apply(layer, rows, KeepRule.TOP_BOUND, self._by_score(layer, rows, score, KeepRule.TOP_BLOCKS))

    def _least_estimate(self, layer: int, rows: list[int], q: torch.Tensor) -> None:
        rules = self.rules
        estimate = rules.estimate(layer, q)
        tail = torch.stack([self._tail(layer, r)[0] for r in rows], dim=1)  # [kv_heads, rows, tokens, d]
        grouped = q.view(len(rows), rules.kv_heads, -1, rules.d).transpose(0, 1)
        rest = (grouped @ tail.mT * rules.scale).logsumexp(dim=3, keepdim=True)
        mass = torch.cat([estimate, rest], dim=3).softmax(dim=3).mean(dim=2)[..., : rules.covered]
        score = self._wide(mass)
        covered = rules.covered * BLOCK_SIZE / self.context
        bits = rules.sketch.estimate_planes / rules.d
        self._frac[layer, rows] = covered * (bits / 32.0 + box_frac(rules.d, BLOCK_SIZE))
        least = self._by_score(layer, rows, score, KeepRule.LEAST_MASS)
        share = self._by_score(layer, rows, score, KeepRule.TOP_BLOCKS)
        self._apply(layer, rows, KeepRule.LEAST_ESTIMATE, least | share)

    def _tail(self, layer: int, r: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values that have no sketch, [kv_heads, tokens, d]."""
        first = self.rules.covered
        blocks = self.table[r, first : -(-self.context // BLOCK_SIZE)].long()
        cache, count = self.rules.prefix.cache, self.context - first * BLOCK_SIZE
        keys, values = (
            pool[layer][blocks].flatten(0, 1)[:count].transpose(0, 1).float() for pool in (cache.keys, cache.values)
        )
        return keys, values

    def _certify(self, layer: int, rows: list[int], q: torch.Tensor) -> None:
        rules, n = self.rules, len(rows)
        covered, blocks = rules.covered, self.masks.shape[3]
        known = torch.full((n,), covered * BLOCK_SIZE)
        exact, mean = block_attention(
            q, rules.keys[layer], rules.values[layer], known, rules.scale, BLOCK_SIZE, covered
        )
        tails = [self._tail(layer, r) for r in rows]
        count = torch.tensor([self.context - covered * BLOCK_SIZE])
        ends = [
            block_attention(q[i : i + 1], *tails[i], count, rules.scale, BLOCK_SIZE, blocks - covered) for i in range(n)
        ]
        exact = torch.cat([exact, torch.cat([e for e, _ in ends], dim=1)], dim=3)
        mean = torch.cat([mean, torch.cat([m for _, m in ends], dim=1)], dim=3)
        context = torch.full((n,), self.context)
        always = rules.sketch.always(
            context, blocks, self._number("sink_blocks", rows, layer)[:, 0], self._number("recent_blocks", rows, layer)[:, 0]
        )  # fmt: skip
        budgets = self._number("mass_budget", rows, layer)[:, 0].tolist()
        moves = [self._output_budget(r) for r in rows]
        by_output = [m for m in moves if m is not None]
        chosen = rules.sketch.certify(layer, q, exact, mean, always, context, budgets, by_output or None)
        self._frac[layer, rows] = chosen.sketch_frac.T.numpy()
        self._apply(layer, rows, KeepRule.CERTIFIED, chosen.keep.transpose(0, 1))
        self._check(layer, rows, q, tails, chosen)

    def _check(
        self, layer: int, rows: list[int], q: torch.Tensor, tails: list[tuple[torch.Tensor, torch.Tensor]], chosen: Choice
    ) -> None:  # fmt: skip
        """Claims against the truth. Everything [kv_heads, rows, group, ..]."""
        rules, kept = self.rules, chosen.keep
        grouped = q.view(len(rows), rules.kv_heads, -1, rules.d).transpose(0, 1)
        last = torch.stack([k for k, _ in tails], dim=1)  # [kv_heads, rows, tokens, d]
        far = (grouped.flatten(1, 2) @ rules.keys[layer].mT).view(*grouped.shape[:3], -1)
        p = (torch.cat([far, grouped @ last.mT], dim=3).double() * rules.scale).softmax(dim=3)
        token_kept = kept.repeat_interleave(BLOCK_SIZE, dim=2)[:, :, None, : p.shape[3]]
        dropped = torch.where(token_kept, 0.0, p).sum(dim=3)
        inside = p * token_kept
        both = torch.stack([p, inside / inside.sum(dim=3, keepdim=True)], dim=3)  # [.., 2, tokens]
        split = far.shape[3]
        value = (both[..., :split].flatten(1, 3) @ rules.values64[layer]).view(*both.shape[:4], -1)
        value = value + both[..., split:].flatten(2, 3).matmul(
            torch.stack([v for _, v in tails], dim=1).double()
        ).view_as(value)
        dense, output = value[..., 0, :], value[..., 1, :]
        moved, size = (output - dense).norm(dim=3), dense.norm(dim=3)
        tokens = (self.context - torch.arange(kept.shape[2]) * BLOCK_SIZE).clamp(0, BLOCK_SIZE)
        read = (kept * tokens).sum(dim=2) / self.context + chosen.sketch_frac
        whole = kept[..., : rules.covered].all(dim=2)
        for i, r in enumerate(rows):
            self._claims.setdefault(r, []).append(
                [
                    chosen.dropped_bound[:, i], dropped[:, i], chosen.output_bound[:, i], moved[:, i], size[:, i], whole[:, i],
                    read[:, i],
                ]
            )  # fmt: skip
