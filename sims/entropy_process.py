"""What the simulated model believes about each next token: a latent logit shape per token, correlated in time.

Token k of request r has a standard normal latent level

    y_k = sqrt(1 - share) x_k + sqrt(share) a_r + m_k + f (T_{k-1} - 1) + p dropped_k
    x_k = phi x_{k-1} + sqrt(1 - phi^2) e_k          autocorrelation within a request
    a_r                                              the request's own level, `share` of the variance
    m_k = m_{k-1} + (M_k - m_{k-1}) / settle         trend towards the regime's M_k:
          flat 0, convergent -amplitude, divergent +amplitude, oscillating amplitude sin(2 pi j / period)
    f, p                                             answer of the text to temperature (the outer loop) and to pruning

and the quantile Phi((y_k - center) / scale) picks a shape from the kind's cloud, which is sorted by H_raw. A regime holds for a geometric
time of mean `dwell_tokens`, then another is drawn from `regime_weights`. Given the shape, H and V at any temperature, every
truncation and the sampled rank are exact (`sims.latent_shapes`). With `end_slope` not NaN a token ends the request with
probability 1 / (1 + exp(-(end_intercept + end_slope H_raw))); otherwise lengths come from the trace.

Every draw is Philox of (seed, stream, request, token): it does not depend on slot, batch, order or arm. The recursion
makes y_k a function of the request's own past only, preemption included.
Source: ours; Gaussian copula over an empirical marginal. Deviates from life: texts do not exist, so H_raw answers to
temperature and pruning only through f and p.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from sims.latent_shapes import NUM_PARAMETERS, level_counts, raw_moments
from workbench.errors import InputError
from workbench.signals import FloatArray, IntArray

FLAT, CONVERGENT, DIVERGENT, OSCILLATING = range(4)
REGIMES = ("flat", "convergent", "divergent", "oscillating")
CLOUD = 1024  # shapes a kind is resampled to
GUIDE_REACH, GUIDE_PER_UNIT = 4.0, 1024.0  # the outermost of the cloud's edges lie at 3.1


@dataclass(frozen=True, kw_only=True)
class KindLaw:
    """The law of one request kind; the symbols are those of the module.

    shapes [m, 3]   cloud of latent shapes (gap, slope, curvature), any order: sorted by H_raw here
    """

    name: str
    shapes: FloatArray
    autocorrelation: float = 0.25
    request_share: float = 0.1
    regime_weights: tuple[float, float, float, float] = (1.0, 0.0, 0.0, 0.0)
    amplitude: float = 0.5
    settle_tokens: float = 24.0
    dwell_tokens: float = 128.0
    period_tokens: float = 32.0
    temperature_feedback: float = 0.6
    pruning_feedback: float = 0.5
    center: float = (
        0.0  # mean and deviation of y over recorded texts: trends move y, the cloud already holds their effect
    )
    scale: float = 1.0
    end_intercept: float = math.nan
    end_slope: float = math.nan

    def __post_init__(self) -> None:
        where = f"KindLaw {self.name!r}"
        shapes = np.asarray(self.shapes)
        if shapes.ndim != 2 or shapes.shape[1] != NUM_PARAMETERS or not len(shapes):
            raise InputError(f"{where}: shapes must be [m, {NUM_PARAMETERS}], got {list(shapes.shape)}")
        if not np.all(np.isfinite(shapes)) or np.any(shapes < 0.0):
            raise InputError(f"{where}: gap, slope and curvature must be finite and at least 0")
        for name, low, high in (("autocorrelation", -1.0, 1.0), ("request_share", -1e-300, 1.0 + 1e-12)):
            if not low < getattr(self, name) < high:
                raise InputError(f"{where}: {name} must be in [{max(low, -1):g}, {high:g}), got {getattr(self, name)}")
        for name in ("settle_tokens", "dwell_tokens", "period_tokens"):
            if not 1.0 <= getattr(self, name) <= math.inf:
                raise InputError(f"{where}: {name} must be at least 1, got {getattr(self, name)}")
        weights = self.regime_weights
        if len(weights) != 4 or not all(w >= 0.0 for w in weights) or not 0.0 < sum(weights) < math.inf:
            raise InputError(f"{where}: regime_weights must be four numbers of at least 0, one of them above 0")
        for name in ("amplitude", "temperature_feedback", "pruning_feedback", "center"):
            if not math.isfinite(getattr(self, name)):
                raise InputError(f"{where}: {name} must be finite, got {getattr(self, name)}")


class LawTable(NamedTuple):
    """`KindLaw`s as compiled code reads them; first axis the kind."""

    cloud: FloatArray  # [kinds, CLOUD, 6] gap, slope, curvature; ln Z, H, V at T = 1; sorted by H
    numbers: FloatArray  # [kinds, NUMBERS]
    regimes: FloatArray  # [kinds, 4] cumulative weights
    counts: FloatArray  # [levels] outcomes on each level of a shape
    edges: FloatArray  # [CLOUD - 1] normal quantiles that part the cloud
    guide: IntArray  # where to begin among them, by `GUIDE_PER_UNIT` steps a unit from -GUIDE_REACH on


GAP, SLOPE, CURVE, RAW_LOG_Z, RAW_H, RAW_V = range(6)
(
    PHI, KICK, OWN_WEIGHT, SHARED, AMPLITUDE, SETTLE, SWITCH, PERIOD, FEEDBACK, PRUNING, END_INTERCEPT, END_SLOPE, CENTER, SCALE,
) = range(14)  # fmt: skip


def law_table(laws: tuple[KindLaw, ...], num_outcomes: int) -> LawTable:
    clouds, numbers, regimes = [], [], []
    for law in laws:
        cloud = np.ascontiguousarray(law.shapes, dtype=float)
        cloud = cloud[np.argsort(raw_moments(cloud, num_outcomes)[:, 1], kind="stable")]
        # Resampled to one size by nearest quantile, so that clouds of any size share a table.
        cloud = cloud[((np.arange(CLOUD) + 0.5) / CLOUD * len(cloud)).astype(np.int64)]
        clouds.append(np.column_stack([cloud, raw_moments(cloud, num_outcomes)]))
        phi, share = law.autocorrelation, law.request_share
        numbers.append([
            phi, math.sqrt(1.0 - phi * phi), math.sqrt(max(0.0, 1.0 - share)), math.sqrt(max(0.0, share)),
            law.amplitude, 1.0 / law.settle_tokens, 1.0 / law.dwell_tokens, 2.0 * math.pi / law.period_tokens,
            law.temperature_feedback, law.pruning_feedback, law.end_intercept, law.end_slope, law.center,
            1.0 / law.scale,
        ])  # fmt: skip
        regimes.append(np.cumsum(law.regime_weights) / sum(law.regime_weights))
    edges = ndtri(np.arange(1, CLOUD) / CLOUD)
    steps = np.arange(int(2 * GUIDE_REACH * GUIDE_PER_UNIT) + 1) / GUIDE_PER_UNIT - GUIDE_REACH
    return LawTable(
        np.array(clouds), np.array(numbers), np.array(regimes), level_counts(num_outcomes), edges,
        np.searchsorted(edges, steps).astype(np.int16),
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class EntropyProcess:
    """The laws of all kinds over one vocabulary. `source` says what they were fitted to."""

    vocab: int
    laws: tuple[KindLaw, ...]
    source: str = ""

    def __post_init__(self) -> None:
        if self.vocab < 2:
            raise InputError(f"EntropyProcess.vocab must be at least 2, got {self.vocab}")
        names = [law.name for law in self.laws]
        if not names or len(set(names)) != len(names):
            raise InputError(f"EntropyProcess needs distinct kinds, got {names}")

    def table_for(self, kind_names: tuple[str, ...]) -> LawTable:
        """The laws in the order of a run's kinds; a kind without a law of its own takes the one called "any"."""
        known = {law.name: law for law in self.laws}
        chosen = []
        for name in kind_names:
            law = known.get(name) or known.get("any")
            if law is None:
                raise InputError(
                    f"no entropy law for request kind {name!r} and none called 'any'; known: {list(known)}"
                )
            chosen.append(law)
        return law_table(tuple(chosen), self.vocab)
