"""What rules that read keys know of one text: the sketch of its prefix (the live engine's own object) and Quest's boxes.

The prefix is sketched once; what each arm writes after it has no sketch, and its blocks are always read.
"""

import torch

from kernels import reference
from workbench.live.sequence_sketch import GROUP_BLOCKS, SequenceSketch
from workbench.pruning.prefix import BLOCK_SIZE, Prefix, Queries


class KeyRules:
    """Everything that is known of the prefix's keys. `fit`: dense queries of the prefix, the last of them most recent."""

    def __init__(self, prefix: Prefix, fit: Queries) -> None:
        self.prefix, decoder = prefix, prefix.decoder
        config, self.scale = decoder.config, decoder.scale
        self.layers, self.kv_heads, self.d = config.num_layers, config.num_kv_heads, config.head_dim
        self.sketch = SequenceSketch(
            self.layers, self.kv_heads, self.d, self.scale, BLOCK_SIZE, decoder.ops, decoded=True
        )
        self.keys, self.values, self.values64 = [], [], []  # [kv_heads, covered tokens, d] by layer
        self.lower, self.upper = [], []  # [kv_heads, covered, d] boxes of full blocks, for Quest
        for layer in range(self.layers):
            keys, values = (self._flat(pool[layer]) for pool in (prefix.cache.keys, prefix.cache.values))
            self.sketch.fit(layer, fit.q[layer], fit.position, keys, values)
            length = self.covered * BLOCK_SIZE
            self.keys.append(keys[:, :length].contiguous())
            self.values.append(values[:, :length].contiguous())
            self.values64.append(self.values[-1].double())
            boxes = self.keys[-1].unflatten(1, (-1, BLOCK_SIZE))
            self.lower.append(boxes.amin(dim=2))
            self.upper.append(boxes.amax(dim=2))

    @property
    def covered(self) -> int:
        """Blocks with a sketch."""
        return self.sketch.covered

    @property
    def groups(self) -> int:
        return self.covered // GROUP_BLOCKS

    def _flat(self, pool: torch.Tensor) -> torch.Tensor:
        """[kv_heads, prefix tokens, d]; the prefix lies in the first blocks."""
        return pool.flatten(0, 1)[: self.prefix.num_tokens].transpose(0, 1).float().contiguous()

    def top_bound(self, layer: int, q: torch.Tensor) -> torch.Tensor:
        """Quest's score of every covered block: [kv_heads, rows, covered], the best of a group's query heads."""
        query = q.view(q.shape[0], self.kv_heads, -1, self.d).transpose(0, 1).flatten(1, 2)
        bound = query.clamp_min(0.0) @ self.upper[layer].mT + query.clamp_max(0.0) @ self.lower[layer].mT
        return bound.view(self.kv_heads, q.shape[0], -1, self.covered).amax(dim=2)

    def estimate(self, layer: int, q: torch.Tensor) -> torch.Tensor:
        """ln of the sum of exponentials of each covered block, as the sketch's first planes see it, [kv_heads, rows, group, covered]."""
        return self.sketch.sums(layer, q, self.sketch.estimate_planes)[0]


def keep_by_score(
    score: torch.Tensor, rule: int, context_tokens: int, mass_budget: torch.Tensor, share: torch.Tensor,
    sink_blocks: torch.Tensor, recent_blocks: torch.Tensor,
) -> torch.Tensor:  # fmt: skip
    """`keep_blocks` on score [heads, blocks]; numbers are per head."""
    n = score.shape[0]
    return reference.keep_blocks(
        score, None, torch.full((n,), -(-context_tokens // BLOCK_SIZE)), rule=torch.full((n,), rule),
        mass_budget=mass_budget, block_budget_frac=share, sink_blocks=sink_blocks, recent_blocks=recent_blocks,
    )  # fmt: skip
