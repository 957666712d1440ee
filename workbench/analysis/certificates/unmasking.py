"""Entropy-sum unmasking: total correlation of a batch, and the number of iterations."""

import itertools
from collections.abc import Iterator
from typing import Any

import flint

from workbench.analysis.ball import ball, precision
from workbench.analysis.certificate import Certificate, Falsehood, Verdict, Witness, fraction
from workbench.analysis.lemma import Lemma, Term, prove_lemmas, verdict_of

LENGTH = 3
ETAS = ("1/10", "1/2", "1")
Word = tuple[int, ...]


def supports() -> Iterator[tuple[Word, ...]]:
    """Every non-empty set of binary words of length 3; each stands for the uniform distribution on it."""
    words = list(itertools.product((0, 1), repeat=LENGTH))
    for size in range(1, len(words) + 1):
        yield from itertools.combinations(words, size)


def entropy_of_counts(counts: list[int]) -> flint.arb:
    total = sum(counts)
    return flint.arb(total).log() - sum((c * flint.arb(c).log() for c in counts), flint.arb(0)) / total


def entropy_of(words: list[Word], positions: tuple[int, ...]) -> flint.arb:
    """Joint entropy of the given positions under the uniform distribution on `words`."""
    counts: dict[Word, int] = {}
    for word in words:
        key = tuple(word[i] for i in positions)
        counts[key] = counts.get(key, 0) + 1
    return entropy_of_counts(list(counts.values()))


def batch_of(words: list[Word], masked: list[int], eta: flint.arb) -> list[int]:
    """Positions in order until the sum of their entropies exceeds eta, the crossing one included."""
    total, batch = flint.arb(0), []
    for position in masked:
        batch.append(position)
        total += entropy_of(words, (position,))
        if bool(total > eta):
            break
        if not bool(total < eta):
            raise ArithmeticError("a sum of entropies cannot be told from eta; raise the precision")
    return batch


def decode(support: tuple[Word, ...], order: tuple[int, ...], eta: flint.arb) -> tuple[flint.arb, flint.arb, flint.arb]:
    """(E_p[K], KL(p || q), E_p[sum of TC]) for one order, exactly over all paths of the true distribution."""
    iterations, divergence, correlation, n = flint.arb(0), flint.arb(0), flint.arb(0), len(support)
    for word in support:
        masked, words, log_q = list(order), list(support), flint.arb(0)
        while masked:
            batch = batch_of(words, masked, eta)
            iterations += ball(1) / n
            correlation += (
                sum((entropy_of(words, (i,)) for i in batch), flint.arb(0)) - entropy_of(words, tuple(batch))
            ) / n
            for i in batch:
                log_q += (flint.arb(sum(w[i] == word[i] for w in words)) / len(words)).log()
            words = [w for w in words if all(w[i] == word[i] for i in batch)]
            masked = [i for i in masked if i not in batch]
        divergence += (-flint.arb(n).log() - log_q) / n
    return iterations, divergence, correlation


def correlation_lemmas(claim: dict[str, Any]) -> dict[str, Lemma]:
    f = claim["factor"]
    return {
        # H(X, Y) - H(X) = sum p(x,y) (ln p(x) - ln p(x,y)), each term nonnegative
        "a joint is never below a marginal": Lemma(
            variables=("p", "a", "b"), given=("p", "a - b"), shows="p*(a - b)", terms=(Term(factors=("p", "a - b")),)
        ),
        "total correlation": Lemma(
            variables=("S", "J", "m"),
            given=("J - m", "S - m", "m"),
            shows=f"{f}*(S - m) - (S - J)",
            terms=(Term(factors=("J - m",)),),
        ),
        "the rule stops in time": Lemma(
            variables=("S", "h", "m", "e"),
            given=("e - (S - h)", "m - h"),
            shows="e - (S - m)",
            terms=(Term(factors=("e - (S - h)",)), Term(factors=("m - h",))),
        ),
    }


def prove_correlation(factor: str = "1") -> Witness:
    claim = {"factor": factor}
    return {"claim": claim, "evidence": prove_lemmas(correlation_lemmas(claim))}


def check_correlation(witness: Witness) -> Verdict:
    """The lemmas, and every support of three bits against the claim (balls; equality is allowed to overlap)."""
    factor, checked = fraction(witness["claim"]["factor"]), 0
    everything = tuple(range(LENGTH))
    with precision(120):
        for support in supports():
            words = list(support)
            marginals = [entropy_of(words, (i,)) for i in everything]
            largest = max(marginals, key=lambda h: float(h.mid()))
            total = sum(marginals, flint.arb(0))
            if bool(total - entropy_of(words, everything) > ball(factor) * (total - largest)):
                return Verdict(False, f"total correlation is larger for the uniform distribution on {support}")
            checked += 1
    summary = f"{checked} joint distributions enclosed"
    return verdict_of(correlation_lemmas(witness["claim"]), witness["evidence"], summary=summary)


def iteration_lemmas(claim: dict[str, Any]) -> dict[str, Lemma]:
    """F = H + KL = E[sum over batches of marginal entropies] >= eta (K - 1): every batch but the last exceeds eta."""
    f = claim["factor"]
    return {
        "batches pay": Lemma(
            variables=("F", "e", "K"), positive=("e",), given=("F - e*(K - 1)",), shows=f"{f}*F - e*(K - 1)",
            terms=(Term(factors=("F - e*(K - 1)",)),),
        )
    }  # fmt: skip


def prove_iterations(factor: str = "1", offset: str = "1") -> Witness:
    claim = {"factor": factor, "offset": offset, "etas": list(ETAS)}
    return {"claim": claim, "evidence": prove_lemmas(iteration_lemmas(claim))}


def check_iterations(witness: Witness) -> Verdict:
    claim, runs = witness["claim"], 0
    with precision(120):
        for support in supports():
            entropy = entropy_of(list(support), tuple(range(LENGTH)))
            for text in claim["etas"]:
                eta = ball(text)
                for order in itertools.permutations(range(LENGTH)):
                    iterations, divergence, correlation = decode(support, order, eta)
                    name = f"uniform on {support}, eta = {text}, order {order}"
                    if not divergence.overlaps(correlation):
                        return Verdict(False, f"KL is not the summed total correlation: {name}")
                    bound = ball(claim["factor"]) * (entropy + divergence) / eta + ball(claim["offset"])
                    if bool(iterations > bound):
                        return Verdict(False, f"{iterations.str(6)} iterations, bound {bound.str(6)}: {name}")
                    if bool(divergence > eta * iterations):
                        return Verdict(False, f"KL above eta E[K]: {name}")
                    runs += 1
    summary = f"{runs} runs over all paths enclosed, KL = summed total correlation in each"
    return verdict_of(iteration_lemmas(claim), witness["evidence"], summary=summary)


CERTIFICATES = (
    Certificate(
        name="total-correlation",
        statement="a batch taken by the entropy-sum rule has TC <= sum H - max H <= eta",
        domain="every joint distribution, lemmas; enclosed for all 255 supports of three bits",
        method="identities, z3 beside them; exhaustive with ball arithmetic",
        argument=(
            "TC = sum H_i - H(joint), and a joint entropy is at least its largest marginal. The sum before the crossing "
            "position is at most eta, and leaving out the largest instead of the last leaves no more."
        ),
        prove=prove_correlation,
        check=check_correlation,
        falsified=lambda: [Falsehood("TC <= 0.99 (sum H - max H)", prove_correlation("99/100"))],
    ),
    Certificate(
        name="iteration-bound",
        statement="E_p[K] <= (H(X_0) + KL)/eta + 1, and for each order KL = sum of E[total correlation] <= eta E_p[K]",
        domain="every joint distribution, lemma; all 255 supports of three bits, 6 orders, eta = 0.1, 0.5, 1 enclosed",
        method="identity; exhaustive over all paths with ball arithmetic",
        argument=(
            "Along the true path the batch's marginal entropies sum in expectation to H(X_0) plus the total correlations, "
            "which are the KL of this order; every batch but the last exceeds eta."
        ),
        prove=prove_iterations,
        check=check_iterations,
        falsified=lambda: [
            Falsehood("E_p[K] <= 0.9 (H + KL)/eta + 1", prove_iterations(factor="9/10")),
            Falsehood("E_p[K] <= (H + KL)/eta", prove_iterations(offset="0")),
        ],
    ),
)
