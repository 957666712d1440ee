"""What a policy costs on an oracle: divergence on the true path, iterations on both paths, bounds beside them.

True path: tokens come from p, as if every draw were right; sampled path: they come from the marginals, as in use.
For an order (the random order drawn for one request), with S_k the batch of iteration k,

    KL(p || q_order) = sum over k of E_p[ TC(S_k | revealed) ]            total correlation, exact from the oracle
                     = E_p[ ln p(x) - sum_i ln q_i(x_i) ]                 the same by log-ratios, unbiased, wider
    E_p[ sum of entropies spent ] = H(X0) + KL                            so E_p[K] <= (H(X0) + KL)/eta + 1
    E_q[ sum of entropies spent ] = H(q_order)                            so E_q[K] <= H(q)/eta + 1

The last two follow from (K - 1) eta < sum of entropies spent, on every path, for the entropy sum. Averaged over orders the
first bounds the divergence of the mixed sampler from above (`enumeration.py` has that one exactly for short sequences).
Source: arXiv 2603.22248 for the rule and its rate; the accounts are ours.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from sims.oracles.oracle import Oracle
from workbench.errors import InputError
from workbench.protocols import Controller, RevealAction, RevealObservation
from workbench.signals import FloatArray, IntArray
from workbench.unmasking.estimate import Estimate, estimate
from workbench.unmasking.ledger import Batch
from workbench.unmasking.plant import UnmaskPlant, decode
from workbench.unmasking.predictor import OraclePredictor

Policy = Controller[RevealObservation, Any, RevealAction]

MAX_CELLS = 2**25  # entries of one table of marginals held at a time


@dataclass(frozen=True, kw_only=True)
class Account:
    """One oracle, one policy. `eta_nats` is the entropy-sum budget, None for other policies."""

    length: int
    repeats: int
    eta_nats: float | None
    entropy_nats: float  # H(X0)
    entropy_error_nats: float
    kl_nats: Estimate  # averaged over orders; bounds the mixed sampler's divergence from above
    kl_method: str  # "joint entropies" or "log-ratios"
    iterations: Estimate  # E_p[K]
    iterations_sampled: Estimate  # E_q[K]
    entropy_sampled_nats: Estimate  # H(q_order), averaged over orders
    bound_kl_nats: Estimate  # E_p, sum over batches of sum H - max H, which no total correlation exceeds
    entropy_spent_nats: Estimate  # E_p of the entropies spent, equal to H(X0) + KL
    paths_within_bound: float  # share of paths, true and sampled, with (K - 1) eta < entropies spent; NaN without eta

    @property
    def bound_iterations(self) -> float:
        """(H(X0) + KL)/eta + 1, NaN where no theorem applies (no eta, or eta = 0 or inf gives inf or 1)."""
        if self.eta_nats is None:
            return float("nan")
        if self.eta_nats == 0.0:
            return float("inf")
        return (self.entropy_nats + self.kl_nats.mean) / self.eta_nats + 1.0

    @property
    def bound_iterations_sampled(self) -> float:
        if self.eta_nats is None:
            return float("nan")
        return float("inf") if self.eta_nats == 0.0 else self.entropy_sampled_nats.mean / self.eta_nats + 1.0

    @property
    def scale_kl_nats(self) -> float:
        """eta (1 + log2 L), what the theorem's O(eta log L) is measured in; its constant is not stated."""
        return float("nan") if self.eta_nats is None else self.eta_nats * (1.0 + np.log2(self.length))

    @property
    def kl_over_scale(self) -> float:
        scale = self.scale_kl_nats
        return self.kl_nats.mean / scale if 0.0 < scale < np.inf else float("nan")

    @property
    def vacuous(self) -> bool:
        """The bound on iterations promises nothing: it is no smaller than one iteration a position.

        With eps = eta (1 + log2 L) this is H(X0)/L >= eps/(1 + log2 L) up to the divergence itself.
        """
        return self.eta_nats is not None and not self.bound_iterations < self.length

    @property
    def saving(self) -> float:
        """Positions per iteration on the true path."""
        return self.length / self.iterations.mean


class TotalCorrelation:
    """Adds up TC(batch | revealed) = sum H - H(batch | revealed) of the batches it is shown, per row."""

    def __init__(self, oracle: Oracle, rows: int):
        self.oracle = oracle
        self.nats: FloatArray = np.zeros(rows)
        self.possible = True  # False once a joint entropy was out of reach

    def __call__(self, batch: Batch) -> None:
        if not self.possible:
            return
        several = batch.revealed.sum(axis=1) > 1  # one position alone has no correlation
        if not several.any():
            return
        rows, tokens, revealed = batch.rows[several], batch.tokens[several], batch.revealed[several]
        try:
            joint = self.oracle.batch_entropy(tokens, revealed)
        except InputError:
            self.possible = False
            return
        summed = np.where(revealed, batch.entropy_nats[several], 0.0).sum(axis=1)
        self.nats[rows] += np.maximum(summed - joint, 0.0)


def account(
    oracle: Oracle,
    policy: Policy,
    *,
    repeats: int = 64,
    seed: int = 0,
    sampled_path: bool = True,
    rank: IntArray | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Account:
    """Measure `policy` on `oracle` over `repeats` true and as many sampled paths, each with its own random orders.

    Without `sampled_path` only the true paths are run; what belongs to the sampled ones is NaN. `rank` [length] is one order for
    all runs and iterations in place of random ones; "mean over orders" is then that of this order.

    Raises:
        InputError: `repeats` below 1, or a policy that masks positions again (its sampler is no product along an order).
    """
    if repeats < 1:
        raise InputError(f"--repeats must be at least 1, got {repeats}")
    if has_remasking(policy):
        raise InputError(
            "a policy that masks positions again has no divergence along an order; account for the policy inside the wrapper"
        )
    chunk = max(1, min(repeats, MAX_CELLS // (oracle.length * oracle.num_symbols)))
    truth = oracle.sample(np.random.default_rng([seed, 0x7A]), repeats)
    predictor = OraclePredictor(oracle)
    eta = getattr(policy, "eta_nats", None) if type(policy).__name__ == "EntropySum" else None
    parts: dict[str, list[FloatArray]] = {}
    joint_possible = True
    for start in range(0, repeats, chunk):
        request_id = np.arange(start, min(start + chunk, repeats))
        masked = np.full((request_id.size, oracle.length), -1)
        correlation = TotalCorrelation(oracle, request_id.size)
        for path in ("p", "q") if sampled_path else ("p",):
            plant = UnmaskPlant(
                predictor,
                masked,
                seed=seed,
                truth=truth[request_id] if path == "p" else None,
                request_id=request_id,
                orders=None if rank is None else np.tile(rank, (request_id.size, 1)),
                measure_divergence=getattr(policy, "needs_divergence", False),
                on_batch=correlation if path == "p" else None,
            )
            ledger = decode(plant, policy).ledger
            found = {
                "iterations": ledger.iterations.astype(np.float64),
                "spent": ledger.entropy_spent_nats,
                "excess": ledger.excess_spent_nats,
                "surprisal": ledger.surprisal_nats,
            }
            if path == "p":
                found["correlation"] = correlation.nats
                found["log_ratio"] = ledger.surprisal_nats + oracle.log_probability(truth[request_id])
            for name, values in found.items():
                parts.setdefault(f"{name}_{path}", []).append(values)
        joint_possible &= correlation.possible
        on_progress(int(request_id[-1]) + 1, repeats)
    values = {name: np.concatenate(pieces) for name, pieces in parts.items()}
    within, nothing = float("nan"), Estimate(float("nan"), float("nan"))
    if eta is not None and np.isfinite(eta):
        paths = "pq" if sampled_path else "p"
        inside = [(values[f"iterations_{path}"] - 1.0) * eta <= values[f"spent_{path}"] + 1e-9 for path in paths]
        within = float(np.concatenate(inside).mean())
    return Account(
        length=oracle.length,
        repeats=repeats,
        eta_nats=eta,
        entropy_nats=oracle.entropy_nats,
        entropy_error_nats=oracle.entropy_error_nats,
        kl_nats=estimate(values["correlation_p"] if joint_possible else values["log_ratio_p"]),
        kl_method="joint entropies" if joint_possible else "log-ratios",
        iterations=estimate(values["iterations_p"]),
        iterations_sampled=estimate(values["iterations_q"]) if sampled_path else nothing,
        entropy_sampled_nats=estimate(values["spent_q"]) if sampled_path else nothing,
        bound_kl_nats=estimate(values["excess_p"]),
        entropy_spent_nats=estimate(values["spent_p"]),
        paths_within_bound=within,
    )


def has_remasking(policy: Any) -> bool:
    """Whether some wrapper masks revealed positions again."""
    while policy is not None:
        if getattr(policy, "remasks", False):
            return True
        policy = getattr(policy, "inner", None)
    return False
