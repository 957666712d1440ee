"""Every policy at a share of bytes: budgets are set from the dense masses of the prefix's last tokens, before anything is pruned.

A policy with a share of blocks gets the target less what its boxes or sketches cost. One with a budget of mass gets the
mass at which the last tokens of the prefix would have read the target, by bisection: what it then really reads is
measured, and comparisons are at what was measured.
"""

from collections.abc import Callable

import numpy as np

from controllers.pruning.certified import Certified
from controllers.pruning.entropy_adaptive import EntropyAdaptive
from controllers.pruning.entropy_share import EntropyShare, GuardedEntropyShare
from controllers.pruning.h2o import H2O
from controllers.pruning.keep_all import KeepAll
from controllers.pruning.least_mass import LeastMass
from controllers.pruning.pyramid import Pyramid
from controllers.pruning.quest import Quest
from controllers.pruning.sketch_mass import SketchMass
from controllers.pruning.snapkv import SnapKV
from controllers.pruning.streaming_llm import StreamingLLM
from workbench.errors import InputError
from workbench.live.sequence_sketch import ESTIMATE_BITS, box_frac
from workbench.pruning.decode import WARMUP_TOKENS, Arm
from workbench.pruning.prefix import BLOCK_SIZE, Queries
from workbench.signals import FloatArray

OURS = ("least-mass", "entropy-adaptive", "sketch-mass", "certified")
BASELINES = ("streaming-llm", "h2o", "snapkv", "quest", "pyramid")
POLICIES = (*BASELINES, "entropy-share", "entropy-share-guarded", "least-mass", "entropy-adaptive", "sketch-mass")
FLOOR_SHARE = 0.6  # of the blocks a mass budget would keep, the share that stays in every head
AIM = 0.93  # mass budgets aim at this part of the target: texts look further back than the tokens they were set on
MIN_SHARE = 0.1  # of bytes: below, boxes and sketches alone would take most of it
CERTIFIED_BUDGETS = (0.01, 0.05)  # of dropped mass
OUTPUT_BUDGETS = (0.02, 0.1)  # of the change of a head's output over the output, as the stopping rule
OUTPUT_GUIDE = 0.25  # dropped mass for which the levels of the sketch are chosen, over the output budget


class KeptShare:
    """What rules with a mass budget would have kept of each dense query: mean share of blocks over layers and KV heads."""

    def __init__(self, queries: Queries, always_read: int) -> None:
        """The first block and the last `always_read` are never dropped."""
        filled = (queries.position.numpy() // BLOCK_SIZE + 1)[None, :, None]
        index = np.arange(queries.mass.shape[3])
        free = (index >= 1) & (index < filled[..., None] - always_read)
        rising = np.sort(np.where(free, queries.mass, np.inf), axis=3)
        self._spent = np.where(np.isinf(rising), np.inf, np.cumsum(np.where(np.isinf(rising), 0.0, rising), axis=3))
        self._filled = filled

    def of(self, budget: float | FloatArray, floor_frac: float = 0.0) -> float:
        """`budget`: one, or one a query."""
        budget = np.broadcast_to(budget, self._spent.shape[1:2])[None, :, None, None]
        kept = 1.0 - (self._spent <= budget).sum(axis=3) / self._filled
        return float(np.maximum(kept, np.minimum(floor_frac, 1.0)).mean())


def bisect(kept: Callable[[float], float], target: float) -> float:
    """The budget in [1e-6, 0.98] at which `kept`, which falls, comes down to the target; the nearer end if it never does."""
    low, high = np.log(1e-6), np.log(0.98)
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if kept(float(np.exp(middle))) > target else (low, middle)
    return float(np.exp(high))


def sketch_bytes_frac(head_size: int) -> float:
    """What SketchMass reads of every key, over all KV bytes."""
    return ESTIMATE_BITS / 32.0 + box_frac(head_size, BLOCK_SIZE)


def policies_at(target: float, queries: Queries, head_size: int, uncovered_blocks: int) -> dict[str, object]:
    """Every policy at the share `target` of bytes; `uncovered_blocks` at the end have no sketch yet and are read. Raises `InputError` where metadata alone would take it all."""
    boxes, sketch = 1.0 / BLOCK_SIZE, sketch_bytes_frac(head_size)
    aim = AIM * target
    if not MIN_SHARE < target <= 1.0:
        raise InputError(f"a share of bytes must be in ({MIN_SHARE:g}, 1], got {target:g}")
    recent = LeastMass().recent_blocks
    by_memory, by_sketch = KeptShare(queries, recent), KeptShare(queries, uncovered_blocks)
    kept = aim - sketch
    floor = FLOOR_SHARE * kept
    adaptive = EntropyAdaptive(from_keys=True)
    certainty = np.clip(
        (adaptive.dense_nats - queries.entropy_nats) / (adaptive.dense_nats - adaptive.floor_nats), 0, 1
    )
    votes = {"window_tokens": WARMUP_TOKENS, "block_budget_frac": target}
    return {
        "streaming-llm": StreamingLLM(block_budget_frac=target),
        "h2o": H2O(block_budget_frac=target),
        "snapkv": SnapKV(**votes),
        "pyramid": Pyramid(**votes),
        "quest": Quest(block_budget_frac=target - boxes),
        "entropy-share": EntropyShare(block_budget_frac=target),
        "entropy-share-guarded": GuardedEntropyShare(block_budget_frac=target),
        "least-mass": LeastMass(mass_budget=bisect(by_memory.of, aim - 1.0 / LeastMass().refresh_steps)),
        "entropy-adaptive": EntropyAdaptive(
            from_keys=True,
            floor_frac=floor,
            recent_blocks=1,
            mass_budget=bisect(lambda m: by_sketch.of(m * certainty, floor), kept),
        ),
        "sketch-mass": SketchMass(mass_budget=bisect(lambda m: by_sketch.of(m, floor), kept), floor_frac=floor),
    }


def by_output(budget: float) -> Certified:
    """The certified rule that stops by the bound on the output."""
    return Certified(mass_budget=OUTPUT_GUIDE * budget, output_budget=budget)


def arms(
    targets: tuple[float, ...], queries: Queries, head_size: int, uncovered_blocks: int, only: tuple[str, ...] = ()
) -> list[Arm]:
    """The dense arm first, then every policy at every target, then the certified rule."""
    made = [Arm("none", None, KeepAll())]
    for target in targets:
        made += [
            Arm(name, target, policy)
            for name, policy in policies_at(target, queries, head_size, uncovered_blocks).items()
            if not only or name in only
        ]
    if not only or "certified" in only:
        made += [Arm(f"certified {budget:g}", None, Certified(mass_budget=budget)) for budget in CERTIFIED_BUDGETS]
        made += [Arm(f"certified output {budget:g}", None, by_output(budget)) for budget in OUTPUT_BUDGETS]
    return made
