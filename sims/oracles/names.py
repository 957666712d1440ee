"""The oracles by name, as the command line offers them."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sims.oracles.duplicates import Duplicates
from sims.oracles.hidden_markov import HiddenMarkov
from sims.oracles.independent import Independent
from sims.oracles.markov import Markov
from sims.oracles.mixture import Mixture
from sims.oracles.oracle import Oracle, binary_probability
from sims.oracles.parity import Parity
from sims.oracles.replacement import Replacement
from sims.oracles.shuffle import Shuffle
from sims.oracles.table import Table
from workbench.errors import InputError, unknown_name


@dataclass(frozen=True, kw_only=True)
class OracleRequest:
    """What a named oracle may be told. `entropy_nats` is the wanted H(X0), `num_symbols` the alphabet; None: its default."""

    length: int
    entropy_nats: float | None = None
    num_symbols: int | None = None
    seed: int = 0


def _independent(r: OracleRequest) -> Oracle:
    n = r.num_symbols or 2
    if r.entropy_nats is None:
        return Independent(np.full((r.length, n), 1.0 / n))
    if n != 2:
        raise InputError("oracle independent takes a wanted entropy with 2 symbols only; drop --symbols or --entropy")
    p = binary_probability(r.entropy_nats / r.length)
    return Independent(np.tile([1.0 - p, p], (r.length, 1)))


def _pairs(r: OracleRequest) -> Oracle:
    h = 0.01 if r.entropy_nats is None else r.entropy_nats / ((r.length + 1) // 2)
    return Duplicates.pairs(r.length, h)


BUILDERS: dict[str, tuple[str, frozenset[str], Callable[[OracleRequest], Oracle]]] = {
    "independent": (
        "independent positions, uniform unless told",
        frozenset({"entropy_nats", "num_symbols"}),
        _independent,
    ),
    "markov": (
        "sticky Markov chain",
        frozenset({"entropy_nats", "num_symbols"}),
        lambda r: Markov.sticky(r.length, r.num_symbols or 8, r.entropy_nats),
    ),
    "hmm": (
        "sticky hidden states seen through noise",
        frozenset({"num_symbols"}),
        lambda r: HiddenMarkov.noisy_switch(r.length, r.num_symbols or 2),
    ),
    "mixture": (
        "three noisy codewords",
        frozenset({"entropy_nats"}),
        lambda r: Mixture.codewords(r.length, r.entropy_nats),
    ),
    "pairs": ("adjacent twins, 0.01 nats a pair unless told", frozenset({"entropy_nats"}), _pairs),
    "copy": (
        "a uniform list and its copy",
        frozenset({"num_symbols"}),
        lambda r: Duplicates.copy_list(r.length, r.num_symbols or 4),
    ),
    "parity": ("uniform over even parity", frozenset(), lambda r: Parity(r.length)),
    "k-of-n": (
        "uniform over strings with length / 8 ones",
        frozenset(),
        lambda r: Shuffle.k_of_n(r.length, r.length // 8),
    ),
    "replace": (
        "a known list with one item replaced",
        frozenset({"num_symbols"}),
        lambda r: Replacement(r.length, r.num_symbols or 4),
    ),
    "shuffle": (
        "a shuffled list of equally frequent items",
        frozenset({"num_symbols"}),
        lambda r: Shuffle.balanced(r.length, r.num_symbols or 4),
    ),
    "permutation": ("a random permutation", frozenset(), lambda r: Shuffle.permutation(r.length)),
    "table": (
        "a random joint, short sequences only",
        frozenset({"num_symbols"}),
        lambda r: Table.random(np.random.default_rng(r.seed), r.length, r.num_symbols or 2),
    ),
}


def build_oracle(name: str, request: OracleRequest) -> Oracle:
    """The oracle called `name`.

    Raises:
        InputError: unknown name, a length below 1, or a wish the oracle cannot be told.
    """
    if name not in BUILDERS:
        raise unknown_name("oracle", name, BUILDERS)
    if request.length < 1:
        raise InputError(f"--length must be at least 1, got {request.length}: there is nothing to reveal")
    if request.num_symbols is not None and request.num_symbols < 2:
        raise InputError(f"--symbols must be at least 2, got {request.num_symbols}")
    _, knobs, builder = BUILDERS[name]
    for knob, option in (("entropy_nats", "--entropy"), ("num_symbols", "--symbols")):
        if getattr(request, knob) is not None and knob not in knobs:
            offers = ", ".join(sorted(n for n, (_, k, _) in BUILDERS.items() if knob in k))
            raise InputError(f"oracle {name} does not take {option}; these do: {offers}")
    return builder(request)
