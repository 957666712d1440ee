"""Statistics of marginals: entropy, the two largest probabilities, movement since the last pass; and the check of them."""

import numpy as np
from numba import njit

from workbench.errors import InputError
from workbench.signals import BoolArray, FloatArray
from workbench.unmasking.entropy_terms import entropy_terms
from workbench.unmasking.predictor import Marginals

SUM_TOLERANCE = 1e-6


def position_statistics(marginals: Marginals, masked: BoolArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(entropy_nats, confidence, runner_up), each [rows, length], NaN where not masked.

    Raises:
        InputError: a masked position's row holds NaN, inf or a negative number, or does not sum to 1 within 1e-6.
    """
    probability = np.ascontiguousarray(marginals.probability, dtype=np.float64)
    if probability.shape[:2] != masked.shape:
        raise InputError(
            f"predictor gave marginals of shape {probability.shape} for tokens of shape {masked.shape}; "
            "it must give [rows, length, num_symbols]"
        )
    entropy, confidence, runner_up, bad_row, bad_position = _statistics(probability, entropy_terms(probability), masked)
    if bad_row >= 0:
        raise InputError(
            f"predictor: the marginal of row {bad_row}, position {bad_position} "
            f"{_what_is_wrong(probability[bad_row, bad_position])}; every masked position needs a distribution that sums to 1"
        )

    def given(fused: FloatArray | None, computed: FloatArray) -> FloatArray:
        return computed if fused is None else np.where(masked, fused, np.nan)

    return (
        given(marginals.entropy_nats, entropy),
        given(marginals.confidence, confidence),
        given(marginals.runner_up, runner_up),
    )


def _what_is_wrong(row: FloatArray) -> str:
    if not np.all(np.isfinite(row)):
        return "holds NaN or inf"
    if row.min() < 0.0:
        return f"holds the negative probability {row.min():.3g}"
    return f"sums to {row.sum():.9g}"


@njit(cache=True, nogil=True)
def _statistics(probability, terms, masked):
    """Entropy and the two largest probabilities where masked, and the first place that holds no distribution (-1: none)."""
    rows, length, n = probability.shape
    entropy = np.empty((rows, length))
    confidence = np.empty((rows, length))
    runner_up = np.empty((rows, length))
    for row in range(rows):
        for i in range(length):
            if not masked[row, i]:
                entropy[row, i] = confidence[row, i] = runner_up[row, i] = np.nan
                continue
            h = 0.0
            total = 0.0
            first = 0.0
            second = 0.0
            lowest = 0.0
            for s in range(n):
                p = probability[row, i, s]
                h -= terms[row, i, s]
                total += p
                lowest = min(lowest, p)
                second = max(second, min(first, p))
                first = max(first, p)
            if not abs(total - 1.0) <= SUM_TOLERANCE or lowest < 0.0:
                return entropy, confidence, runner_up, row, i
            entropy[row, i] = max(h, 0.0)
            confidence[row, i] = min(first, 1.0)
            runner_up[row, i] = second
    return entropy, confidence, runner_up, -1, -1


@njit(cache=True, nogil=True)
def divergence(now: FloatArray, before: FloatArray, among: BoolArray) -> FloatArray:
    """[rows, length] KL(now || before) in nats where `among`, NaN elsewhere; inf where a possible token was impossible."""
    rows, length, n = now.shape
    out = np.full((rows, length), np.nan)
    for row in range(rows):
        for i in range(length):
            if among[row, i]:
                value = 0.0
                for s in range(n):
                    p = now[row, i, s]
                    if p > 0.0:
                        q = before[row, i, s]
                        value += p * np.log(p / q) if q > 0.0 else np.inf
                out[row, i] = max(value, 0.0)
    return out
