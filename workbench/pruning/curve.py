"""What the certified rule reads against its target and against context, on queries it was not set up on."""

import numpy as np
import torch

from kernels.reference.certified_cascade import certified_cascade
from workbench.live.sequence_sketch import GROUP_BLOCKS, block_attention
from workbench.pruning.arms import OUTPUT_GUIDE
from workbench.pruning.key_rules import KeyRules
from workbench.pruning.prefix import BLOCK_SIZE, dense_queries

MASS_BUDGETS = (0.003, 0.01, 0.03, 0.1)
OUTPUT_BUDGETS = (0.01, 0.03, 0.1, 0.3)
NUM_QUERIES = 6  # at each context length
GROUP_TOKENS = GROUP_BLOCKS * BLOCK_SIZE
SHARES = (0.25, 0.5, 1.0)  # of the prefix


def certificate_curve(rules: KeyRules, rng: np.random.Generator) -> list[dict[str, object]]:
    """A row for each (context, rule, budget, layer): all budgets at the full prefix, a dropped mass of 0.01 at its halves
    and quarters.

    stops_by: "mass" (`budget` of dropped mass) or "output" (`budget` of |change| over |output|). bytes_frac counts blocks,
    planes and scales once a KV head; the oracle knows every mass before it reads, for nothing (NaN for the output rule).
    """
    rows: list[dict[str, object]] = []
    for share in SHARES:
        n = rules.prefix.num_tokens
        high = int(n * share) - (0 if share < 1.0 else 40)  # the last tokens of the prefix set the rule up
        position = np.sort(rng.choice(np.arange(int(0.9 * high), high), NUM_QUERIES, replace=False))
        queries = dense_queries(rules.prefix, position.tolist())
        asked = [("mass", budget) for budget in (MASS_BUDGETS if share == 1.0 else (0.01,))]
        asked += [("output", budget) for budget in OUTPUT_BUDGETS] if share == 1.0 else []
        for layer in range(rules.layers):
            blocks = min(-(-high // GROUP_TOKENS) * GROUP_BLOCKS, -(-n // BLOCK_SIZE))
            told = _LayerTruth(rules, layer, queries.q[layer], queries.position + 1, blocks)
            for stops_by, budget in asked:
                rows.append(
                    {"query_context": int(n * share), "stops_by": stops_by, "budget": budget, "layer": layer}
                    | told.at(stops_by, budget)
                )
    return rows


class _LayerTruth:
    """One layer's dense attention of a few queries, and what the rule says of it."""

    def __init__(self, rules: KeyRules, layer: int, q: torch.Tensor, context: torch.Tensor, blocks: int) -> None:
        self.rules, self.layer, self.q, self.context = rules, layer, q, context
        cache = rules.prefix.cache
        keys, values = (
            pool[layer][:blocks].flatten(0, 1).transpose(0, 1).float() for pool in (cache.keys, cache.values)
        )
        self.exact, self.mean = block_attention(q, keys, values, context, rules.scale, BLOCK_SIZE)
        self.inside = self.exact[:, :, 0] > -torch.inf
        self.p = self.exact.double().softmax(dim=3)
        self.dense = (self.p[..., None] * self.mean).sum(dim=3)
        self.always = rules.sketch.always(context, blocks, 1, 1)
        self.tokens = (context[:, None] - torch.arange(blocks) * BLOCK_SIZE).clamp(0, BLOCK_SIZE)

    def at(self, stops_by: str, budget: float) -> dict[str, object]:
        by_output = stops_by == "output"
        mass = OUTPUT_GUIDE * budget if by_output else budget
        n, context = self.q.shape[0], self.context
        chosen = self.rules.sketch.certify(
            self.layer, self.q, self.exact, self.mean, self.always, context, [mass] * n, [budget] * n if by_output else None
        )  # fmt: skip
        keep = chosen.keep[:, :, None]
        read = (chosen.keep * self.tokens).sum(dim=2) / context
        dropped = torch.where(keep, 0.0, self.p).sum(dim=3)
        inside = torch.where(keep, self.p, 0.0)
        output = ((inside / inside.sum(dim=3, keepdim=True))[..., None] * self.mean).sum(dim=3)
        moved, size = (output - self.dense).norm(dim=3), output.norm(dim=3)
        lies = (dropped > chosen.dropped_bound * (1.0 + 1e-6) + 1e-9) | (
            moved > chosen.output_bound * (1.0 + 1e-6) + 1e-6 * size
        )
        oracle = np.nan
        if not by_output:
            best = certified_cascade([(0, self.exact, self.exact)], self.exact, self.always[None] & False, mass).keep
            oracle = float(((best * self.tokens).sum(dim=2) / context).mean())
        return {
            "bytes_frac": float((read + chosen.sketch_frac).mean()),
            "blocks_frac": float(read.mean()),
            "oracle_blocks_frac": oracle,
            "vacuous_frac": float((chosen.keep == self.inside).all(dim=2).double().mean()),
            "dropped_mass": float(dropped.mean()),
            "dropped_bound": float(chosen.dropped_bound.mean()),
            "output_change": float((moved / size).mean()),
            "output_bound": float((chosen.output_bound / size).mean()),
            "violations": int(lies.sum()),
            "num_claims": lies.numel(),
        }
