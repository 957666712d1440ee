"""Exact answers for short sequences: the law of a sampler by running it on every sequence, one order or all of them.

For an order, q_order(x) is the product of the marginals along the path on which the tokens are those of x. Summed over all
sequences it is one. The mixed sampler draws its order at random: q(x) = mean over orders of q_order(x). A fresh permutation
each iteration and one permutation kept for the whole run give the same mixture, as long as the policy reads the order from
the front: how long a batch is depends on positions inside it only, so what is left stays uniformly ordered.
"""

import itertools
import math
from dataclasses import dataclass

import numpy as np

from sims.oracles.oracle import Oracle, plogp
from sims.oracles.table import all_sequences
from workbench.errors import InputError
from workbench.signals import FloatArray, IntArray
from workbench.unmasking.accounts import Policy
from workbench.unmasking.plant import UnmaskPlant, decode
from workbench.unmasking.predictor import OraclePredictor, SharedContext

MAX_PATHS = 60_000


@dataclass(frozen=True)
class OrderLaw:
    """Exact figures of one order."""

    probability: FloatArray  # [sequences] q_order(x), in the order of `all_sequences`
    kl_nats: float  # KL(p || q_order)
    iterations: float  # E_p[K]
    iterations_sampled: float  # E_q[K]
    entropy_nats: float  # H(q_order)


@dataclass(frozen=True)
class MixedLaw:
    """Exact figures of the sampler that draws its order at random, over all length! orders."""

    probability: FloatArray  # [sequences] q(x)
    kl_nats: float  # KL(p || q)
    kl_mean_nats: float  # mean over orders of KL(p || q_order), never below kl_nats
    iterations: float
    iterations_sampled: float
    entropy_nats: float  # H(q)
    entropy_mean_nats: float  # mean over orders of H(q_order), never above H(q)


def _laws(oracle: Oracle, policy: Policy, orders: IntArray, seed: int) -> list[OrderLaw]:
    sequences = all_sequences(oracle.length, oracle.num_symbols)
    paths = len(orders) * len(sequences)
    if paths > MAX_PATHS:
        raise InputError(
            f"{len(orders)} orders of {len(sequences)} sequences are {paths} paths, at most {MAX_PATHS} are enumerated; "
            "shorten the sequence"
        )
    truth = np.tile(sequences, (len(orders), 1))
    plant = UnmaskPlant(
        SharedContext(OraclePredictor(oracle)),
        np.full(truth.shape, -1),
        seed=seed,
        truth=truth,
        orders=np.repeat(orders, len(sequences), axis=0),
        request_id=np.repeat(np.arange(len(orders)), len(sequences)),
        measure_divergence=getattr(policy, "needs_divergence", False),
    )
    ledger = decode(plant, policy).ledger
    p = np.exp(oracle.log_probability(sequences))
    laws = []
    for q, k in zip(
        np.exp(-ledger.surprisal_nats).reshape(len(orders), -1),
        ledger.iterations.reshape(len(orders), -1),
        strict=True,
    ):
        laws.append(OrderLaw(q, kl_divergence(p, q), float(p @ k), float(q @ k), float(-plogp(q).sum())))
    return laws


def kl_divergence(p: FloatArray, q: FloatArray) -> float:
    """KL(p || q) in nats; inf where p puts mass on what q excludes."""
    support = p > 0.0
    with np.errstate(divide="ignore"):
        return max(float((p[support] * (np.log(p[support]) - np.log(q[support]))).sum()), 0.0)


def law_of_order(oracle: Oracle, policy: Policy, rank: IntArray, seed: int = 0) -> OrderLaw:
    """The exact law of `policy` when `rank` [length] is its order. Raises InputError if it is too long to enumerate."""
    return _laws(oracle, policy, np.asarray(rank)[None], seed)[0]


def law_of_mixture(oracle: Oracle, policy: Policy, seed: int = 0) -> MixedLaw:
    """The exact law over all orders. Raises InputError if there are too many paths (beyond six binary positions)."""
    paths = (
        math.factorial(oracle.length) * float(oracle.num_symbols) ** oracle.length if oracle.length < 20 else math.inf
    )
    if paths > MAX_PATHS:
        raise InputError(
            f"all orders of {oracle.length} positions with {oracle.num_symbols} symbols are more than {MAX_PATHS} paths; "
            "shorten the sequence"
        )
    orders = np.array(list(itertools.permutations(range(oracle.length))), dtype=np.int64)
    laws = _laws(oracle, policy, orders, seed)
    q = np.mean([law.probability for law in laws], axis=0)
    p = np.exp(oracle.log_probability(all_sequences(oracle.length, oracle.num_symbols)))
    return MixedLaw(
        probability=q,
        kl_nats=kl_divergence(p, q),
        kl_mean_nats=float(np.mean([law.kl_nats for law in laws])),
        iterations=float(np.mean([law.iterations for law in laws])),
        iterations_sampled=float(np.mean([law.iterations_sampled for law in laws])),
        entropy_nats=float(-plogp(q).sum()),
        entropy_mean_nats=float(np.mean([law.entropy_nats for law in laws])),
    )
