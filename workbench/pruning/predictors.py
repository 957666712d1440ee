"""How far each predictor of the next query's block masses is off: last, running mean, running sum, sketch."""

import numpy as np

from controllers.pruning.mass_memory import LastMass, LinearMemory, RunningMass, SummedMass
from workbench.live.sequence_sketch import ESTIMATE_BITS
from workbench.protocols import KeepObservation, blank_like
from workbench.pruning.key_rules import KeyRules
from workbench.pruning.prefix import BLOCK_SIZE, Queries
from workbench.signals import FloatArray

MEMORIES: dict[str, LinearMemory] = {
    "last": LastMass(),
    "running mean 0.2": RunningMass(0.2),
    "running mean 0.5": RunningMass(0.5),
    "sum": SummedMass(),
}
KEPT_SHARE = 0.25
SKIP = 8  # tokens a memory has seen before it is judged


def predictor_errors(rules: KeyRules, queries: Queries) -> list[dict[str, object]]:
    """Dense queries of consecutive tokens, predicted from those before (the sketch: from the query itself).

    error: total variation distance between predicted and true masses of a KV head; missed_mass: true mass outside the
    predicted best quarter of the blocks; oracle_missed_mass: outside the true best quarter. Means over layers and heads.
    """
    layers, num, kv_heads, width = queries.mass.shape
    true = np.nan_to_num(queries.mass).transpose(1, 0, 2, 3).reshape(num, layers * kv_heads, width)
    told = {name: [] for name in MEMORIES}
    for name, memory in MEMORIES.items():
        known = memory.init(layers * kv_heads)
        for w in range(num):
            told[name].append(known)
            arrays = blank_like(KeepObservation, layers * kv_heads, block_mass=width)
            arrays["active"][:] = arrays["measured"][:] = True
            arrays["joined"][:] = w == 0
            arrays["num_blocks"][:] = int(queries.position[w]) // BLOCK_SIZE + 1
            arrays["block_mass"] = true[w]
            known = memory.update(known, KeepObservation(step=w, **arrays))
    rows = [_row(name, [_normed(p) for p in predicted[SKIP:]], true[SKIP:]) for name, predicted in told.items()]
    covered = rules.covered
    sketched = [rules.estimate(layer, queries.q[layer]) for layer in range(layers)]
    estimate = np.stack([e.softmax(dim=3).mean(dim=2).numpy() for e in sketched])  # [layers, kv_heads, num, covered]
    guess = true.copy()
    share = 1.0 - true[:, :, covered:].sum(axis=2, keepdims=True)  # blocks without a sketch are read, so known
    guess[:, :, :covered] = estimate.transpose(2, 0, 1, 3).reshape(num, layers * kv_heads, covered) * share
    rows.append(_row(f"sketch, {ESTIMATE_BITS:g} bits", list(guess[SKIP:]), true[SKIP:]))
    return rows


def _normed(mass: FloatArray) -> FloatArray:
    filled = np.nan_to_num(mass)
    return filled / filled.sum(axis=1, keepdims=True)


def _row(name: str, predicted: list[FloatArray], true: FloatArray) -> dict[str, object]:
    error, missed, least = [], [], []
    for guess, mass in zip(predicted, true, strict=True):
        keep = max(1, round(KEPT_SHARE * mass.shape[1]))
        error.append(0.5 * np.abs(guess - mass).sum(axis=1).mean())
        best = np.argpartition(-guess, keep - 1, axis=1)[:, :keep]
        missed.append(1.0 - np.take_along_axis(mass, best, axis=1).sum(axis=1).mean())
        least.append(1.0 - np.sort(mass, axis=1)[:, -keep:].sum(axis=1).mean())
    return {
        "predictor": name, "error": float(np.mean(error)), "missed_mass": float(np.mean(missed)),
        "oracle_missed_mass": float(np.mean(least)),
    }  # fmt: skip
