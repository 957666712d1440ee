"""What the certified rule reads against dropped mass and against context, on queries it was not set up on."""

import numpy as np
import torch

from kernels.reference.axis_sketch import certified_cascade
from workbench.pruning.key_rules import KeyRules, block_log_sums
from workbench.pruning.prefix import BLOCK_SIZE, dense_queries

MASS_BUDGETS = (0.003, 0.01, 0.03, 0.1)
NUM_QUERIES = 6  # at each context length


def certificate_curve(rules: KeyRules, rng: np.random.Generator) -> list[dict[str, object]]:
    """A row for each (context, mass budget, layer): all budgets at the full prefix, 0.01 at its halves and quarters.

    bytes_frac counts blocks, planes and scales once a KV head; the oracle knows every mass before it reads, for nothing.
    """
    n = rules.prefix.num_tokens
    rows: list[dict[str, object]] = []
    for share in (0.25, 0.5, 1.0):
        high = int(n * share) - (0 if share < 1.0 else 40)  # the last tokens of the prefix set the rule up
        position = np.sort(rng.choice(np.arange(int(0.9 * high), high), NUM_QUERIES, replace=False))
        queries = dense_queries(rules.prefix, position.tolist())
        context = queries.position + 1
        blocks = -(-n // BLOCK_SIZE)
        always = rules.always(context, blocks, 1, 1)
        tokens = (context[:, None] - torch.arange(blocks) * BLOCK_SIZE).clamp(0, BLOCK_SIZE)
        budgets = MASS_BUDGETS if share == 1.0 else (0.01,)
        for layer in range(rules.layers):
            q = queries.q[layer]
            keys = rules.prefix.cache.keys[layer][:blocks].flatten(0, 1).transpose(0, 1).float()
            exact = block_log_sums(q, keys, context, rules.scale)
            p = exact.double().softmax(dim=3)
            levels = rules.levels(layer, q, rules.every_planes)
            for budget in budgets:
                keep, bound, cost = rules.certify(layer, levels, exact, always, budget, context)
                read = (keep * tokens).sum(dim=2) / context
                dropped = torch.where(keep[:, :, None], 0.0, p).sum(dim=3)
                oracle = certified_cascade([(0, exact, exact)], exact, always[None] & False, budget).keep
                inside = exact[:, :, 0] > -torch.inf
                rows.append(
                    {
                        "query_context": int(n * share),
                        "mass_budget": budget,
                        "layer": layer,
                        "bytes_frac": float((read + cost).mean()),
                        "blocks_frac": float(read.mean()),
                        "oracle_blocks_frac": float(((oracle * tokens).sum(dim=2) / context).mean()),
                        "vacuous_frac": float((keep == inside).all(dim=2).double().mean()),
                        "violations": int((dropped > bound * (1.0 + 1e-6) + 1e-9).sum()),
                        "num_claims": dropped.numel(),
                    }
                )
    return rows
