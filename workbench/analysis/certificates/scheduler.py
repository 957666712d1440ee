"""Waiting under entropy scheduling: the bound with its hypotheses, starvation without them, bounded priority."""

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from workbench.analysis.certificate import Certificate, Falsehood, Verdict, Witness, fraction
from workbench.analysis.lemma import Lemma, Term, prove_lemmas, verdict_of

# (requests ready at most, served a step, P/alpha)
INSTANCES = (
    *((n, b, ratio) for n in (2, 3, 4) for b in range(1, n) for ratio in ("0", "1/2", "1", "2")),
    (5, 2, "1"),
    (5, 3, "2"),
)
ABSENT = -1


def wait_lemmas(claim: dict[str, Any]) -> dict[str, Lemma]:
    """s is alpha; i waits with age ai and ratio ri, j is served before it."""
    return {
        "who outranks i was last served early": Lemma(
            variables=("s", "P", "ri", "rj", "ai", "aj"),
            given=("ri", "P - rj", "rj + s*aj - ri - s*ai"),
            shows="P - s*(ai - aj)",
            terms=tuple(Term(factors=(g,)) for g in ("ri", "P - rj", "rj + s*aj - ri - s*ai")),
        ),
        # m unserved steps past P/alpha use B fresh others each: B m <= N - 1, and ceil((N-1)/B) = c has B c >= N - 1
        "they run out": Lemma(
            variables=("B", "m", "N", "c"),
            given=("N - 1 - B*m", "B*c - N + 1"),
            shows="B*(c - m)",
            terms=(Term(factors=("N - 1 - B*m",)), Term(factors=("B*c - N + 1",))),
        ),
    }


def wait_bound(num_ready: int, served: int, ratio: Fraction, slack: int = 1) -> int:
    """ceil(P/alpha) + ceil((N-1)/B) + 1."""
    return math.ceil(ratio) + math.ceil(Fraction(num_ready - 1, served)) + slack


def worst_wait(num_ready: int, served: int, ratio: Fraction, stop_above: int) -> int:
    """The longest wait over every adversary, by exhausting the reachable ages (stops early above `stop_above`).

    A state is the sorted ages of the ready requests, ABSENT where a place is free. The adversary picks ratios in [0, P],
    ties, departures after service and arrivals; a set S can be served exactly when every member's age plus P/alpha
    reaches every outsider's age (ratio P inside, 0 outside).
    """
    start = tuple([1] * num_ready)
    seen, stack, worst = {start}, [start], 0
    while stack:
        ages = stack.pop()
        present = [i for i, age in enumerate(ages) if age != ABSENT]
        for chosen in itertools.combinations(present, min(served, len(present))):
            outside = [ages[i] for i in present if i not in chosen]
            if chosen and outside and min(ages[i] for i in chosen) + ratio < max(outside):
                continue
            worst = max([worst, *(ages[i] for i in chosen)])
            if worst > stop_above or any(age > stop_above for age in outside):
                return max([worst, *(age + 1 for age in outside)])
            waiting = [age + 1 for age in outside]
            free = num_ready - len(waiting)
            # served requests stay (age 1) or leave; arrivals come in with age 0 or 1; the rest of the places stay free
            for newcomers in itertools.combinations_with_replacement((ABSENT, 0, 1), free):
                after = tuple(sorted([*waiting, *newcomers]))
                if after not in seen:
                    seen.add(after)
                    stack.append(after)
    return worst


def prove_wait(slack: int = 1) -> Witness:
    claim = {"instances": [list(instance) for instance in INSTANCES], "slack": slack}
    return {"claim": claim, "evidence": prove_lemmas(wait_lemmas(claim))}


def check_wait(witness: Witness) -> Verdict:
    claim, tight = witness["claim"], 0
    for n, b, text in claim["instances"]:
        ratio = fraction(text)
        bound = wait_bound(n, b, ratio, int(claim["slack"]))
        worst = worst_wait(n, b, ratio, bound)
        if worst > bound:
            return Verdict(False, f"N = {n}, B = {b}, P/alpha = {text}: an adversary makes one wait {worst} > {bound}")
        tight += worst == bound
    summary = f"{len(claim['instances'])} instances exhausted, the bound is attained in {tight}"
    return verdict_of(wait_lemmas(claim), witness["evidence"], summary=summary)


@dataclass(frozen=True)
class Step:
    """One step of `run_schedule`: lefts of the ready hot requests in order of arrival, and what was served."""

    hot_left: tuple[int, ...]
    hot_all_served: bool
    cold_served: bool


def run_schedule(case: dict[str, Any], steps: int) -> list[Step]:
    """A small exact scheduler with one cold request, score alpha times its age, and hot ones that score P plus that.

    `arrivals` hot requests come each step, each needs `hot_steps` services and holds `hot_blocks` meanwhile; the cold one
    needs `cold_blocks` of `blocks`; `served` places. With `bypass` running requests keep their blocks and what does not
    fit is skipped; without it blocks are given in the order of scores and nobody passes the first that does not fit.
    """
    alpha, score = fraction(case["alpha"]), fraction(case["score"])
    hot: list[dict[str, int]] = []
    cold_age, history = 0, []
    for _ in range(steps):
        hot += [{"age": 0, "left": int(case["hot_steps"]), "running": 0} for _ in range(int(case["arrivals"]))]
        order = [(alpha * cold_age, -1), *((score + alpha * entry["age"], i) for i, entry in enumerate(hot))]
        order.sort(key=lambda entry: (-entry[0], entry[1]))  # ties to the older: the cold one, then by arrival
        room = int(case["blocks"]) - (sum(e["running"] for e in hot) * int(case["hot_blocks"]) if case["bypass"] else 0)
        batch: list[int] = []
        for _, i in order:
            held = case["bypass"] and i >= 0 and hot[i]["running"]
            need = 0 if held else int(case["cold_blocks"] if i < 0 else case["hot_blocks"])
            if len(batch) < int(case["served"]) and need <= room:
                batch.append(i)
                room -= need
            elif not case["bypass"]:
                break
        history.append(Step(tuple(e["left"] for e in hot), all(i in batch for i in range(len(hot))), -1 in batch))
        cold_age = 0 if -1 in batch else cold_age + 1
        for i, entry in enumerate(hot):
            entry["age"] = 0 if i in batch else entry["age"] + 1
            entry["left"] -= i in batch
            entry["running"] = int(i in batch)
        hot = [entry for entry in hot if entry["left"] > 0]
    return history


CASE = {"alpha": "0", "score": "2", "arrivals": 2, "hot_steps": 1, "hot_blocks": 1, "served": 2, "blocks": 8}
STARVING: dict[str, dict[str, Any]] = {
    "no aging": {**CASE, "cold_blocks": 1, "bypass": False},
    "bypass": {**CASE, "alpha": "1/10", "arrivals": 1, "hot_steps": 2, "hot_blocks": 2, "served": 4, "blocks": 4}
    | {"cold_blocks": 4, "bypass": True},
}


def prove_starvation(**changes: Any) -> Witness:
    """The loop: two steps at which the hot requests are in the same state."""
    cases = {name: {**case, **changes} for name, case in STARVING.items()}
    evidence = {}
    for name, case in cases.items():
        states = [step.hot_left for step in run_schedule(case, 60)]
        start = next((i for i in range(1, 59) if states[i] == states[i + 1]), 1)
        evidence[name] = {"loop_start": start, "loop_end": start + 1, "replay": 60}
    return {"claim": {"cases": cases}, "evidence": evidence}


def check_starvation(witness: Witness) -> Verdict:
    """Replays each case. The hot requests return to a state they were in, and the cold one was not served meanwhile.

    That repeats for ever if ages play no part: at alpha = 0 they do not enter the order; with bypass every hot request
    is served whatever the order and the cold one does not fit, so its age changes nothing.
    """
    for name, case in witness["claim"]["cases"].items():
        evidence = witness["evidence"][name]
        start, end = int(evidence["loop_start"]), int(evidence["loop_end"])
        history = run_schedule(case, max(end + 1, int(evidence["replay"])))
        served = [i for i, step in enumerate(history) if step.cold_served]
        if served:
            return Verdict(False, f"{name}: the cold request is served at step {served[0]}")
        if not start < end or history[start].hot_left != history[end].hot_left:
            return Verdict(False, f"{name}: the state does not repeat")
        ageless = fraction(case["alpha"]) == 0
        if not ageless and not (case["bypass"] and all(step.hot_all_served for step in history[start:end])):
            return Verdict(False, f"{name}: the order depends on age, so a repeated state proves nothing")
    return Verdict(True, "two loops replayed in which the cold request is never served")


def priority_lemmas(claim: dict[str, Any]) -> dict[str, Lemma]:
    f = claim["factor"]
    return {
        "score": Lemma(
            variables=("P", "s", "W", "r", "a"),
            given=("P - r", "s", "W - a", "P", "r", "a"),
            shows=f"{f}*(P + s*W) - (r + s*a)",
            terms=(Term(factors=("P - r",)), Term(factors=("s", "W - a"))),
        ),
        # ratio = drop/cost <= P = L/m with drop <= L = ln n and cost >= m = c_min
        "ratio": Lemma(
            variables=("L", "m", "d", "c"),
            given=("L - d", "c - m", "L"),
            positive=("m",),
            shows="L*c - d*m",
            terms=(Term(factors=("L", "c - m")), Term(factors=("m", "L - d"))),
        ),
    }


def prove_priority(factor: str = "1") -> Witness:
    claim = {"factor": factor}
    return {"claim": claim, "evidence": prove_lemmas(priority_lemmas(claim))}


def check_priority(witness: Witness) -> Verdict:
    return verdict_of(priority_lemmas(witness["claim"]), witness["evidence"])


CERTIFICATES = (
    Certificate(
        name="scheduler-wait",
        statement="ratio clipped to [0, P], top B really served: nobody waits over ceil(P/alpha) + ceil((N-1)/B) + 1 steps",
        domain=f"lemmas for all numbers; exhausted on {len(INSTANCES)} instances with N <= 5, arrivals and departures included",
        method="lemmas with z3 beside them; exhaustive search over every adversary on the instances",
        argument=(
            "If j is served before i at age a_i, then alpha (a_i - a_j) <= P: j was last served (or arrived) no later than "
            "P/alpha after i was. Past age P/alpha each unserved step serves B such others, and each drops out of that set "
            "when served. They were all ready at one step, so they are at most N - 1. Any tie-break."
        ),
        prove=prove_wait,
        check=check_wait,
        falsified=lambda: [Falsehood("one step sooner: ceil(P/alpha) + ceil((N-1)/B)", prove_wait(0))],
    ),
    Certificate(
        name="scheduler-starvation",
        statement="without aging, or with aging but KV bypass, a request can wait for ever although all scores are bounded",
        domain="two explicit loads: alpha = 0; alpha = 0.1 with a cold request that needs every KV block",
        method="exhaustive: replay until the hot requests' state repeats",
        argument="The order (alpha = 0) or the fit (bypass) does not depend on the cold request's age, so the loop repeats.",
        prove=prove_starvation,
        check=check_starvation,
        falsified=lambda: [
            Falsehood("it starves with alpha = 0.1 and no bypass", prove_starvation(alpha="1/10", bypass=False)),
            Falsehood("it starves with fewer hot requests than places", prove_starvation(arrivals=1, served=3)),
        ],
    ),
    Certificate(
        name="bounded-priority",
        statement="every score is at most P + alpha W with W the longest wait, and P = ln(n)/c_min bounds the ratio",
        domain="all numbers with 0 <= ratio <= P, 0 <= age <= W, drop <= ln n, cost >= c_min > 0",
        method="identities, z3 beside them",
        argument="Sums and products of the hypotheses. Bounded scores alone do not prevent starvation.",
        prove=prove_priority,
        check=check_priority,
        falsified=lambda: [Falsehood("at most 0.99 (P + alpha W)", prove_priority("99/100"))],
    ),
)
