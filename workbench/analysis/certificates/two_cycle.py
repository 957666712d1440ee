"""Gain scheduling k / max(V, V_floor) is only local: on spike-plus-uniform logits it jumps from clamp to clamp for ever."""

from typing import Any

import flint

from workbench.analysis.ball import ball, level_statistics, precision
from workbench.analysis.certificate import Certificate, Falsehood, Verdict, Witness, fraction
from workbench.analysis.lemma import Lemma, Term, prove_lemmas, verdict_of

CLAIM = {
    "gain": "1/2",
    "target_nats": "5",
    "varentropy_floor": "1",
    "temperature_min": "1/2",
    "temperature_max": "2",
    "largest_step": None,
    "local_limit": "2",
}


def lemmas(claim: dict[str, Any]) -> dict[str, Lemma]:
    """At the solution the slope is 1 - g: the term with dV/du is multiplied by H* - H = 0."""
    limit = claim["local_limit"]
    return {
        "locally contracting": Lemma(
            variables=("g",),
            positive=("g", f"{limit} - g"),
            shows="1 - (1 - g)**2",
            sense="> 0",
            terms=(Term(factors=("g", f"{limit} - g")),),
        )
    }


def prove(**changes: Any) -> Witness:
    claim = {**CLAIM, **changes}
    logits = {"num_outcomes": 49152, "spike": "54/5"}
    return {"claim": claim, "evidence": {"logits": logits, **prove_lemmas(lemmas(claim))}}


def next_log_temperature(claim: dict[str, Any], logits: dict[str, Any], temperature: flint.arb) -> flint.arb:
    """u + g (H* - H)/max(V, floor), its step limited, before the clamp; a ball."""
    levels = [(ball(logits["spike"]) / temperature, 1), (flint.arb(0), int(logits["num_outcomes"]) - 1)]
    entropy, varentropy = level_statistics(levels)
    step = (
        ball(claim["gain"]) * (ball(claim["target_nats"]) - entropy) / varentropy.max(ball(claim["varentropy_floor"]))
    )
    if claim["largest_step"] is not None:
        step = step.min(ball(claim["largest_step"])).max(-ball(claim["largest_step"]))
    return temperature.log() + step


def check(witness: Witness) -> Verdict:
    claim, logits = witness["claim"], witness["evidence"]["logits"]
    with precision(200):
        low, high = ball(fraction(claim["temperature_min"])), ball(fraction(claim["temperature_max"]))
        up = Verdict(bool(next_log_temperature(claim, logits, low) > high.log()), "from T_min it does not reach T_max")
        down = Verdict(
            bool(next_log_temperature(claim, logits, high) < low.log()), "from T_max it does not reach T_min"
        )
        inside = []
        for temperature, below in ((low, True), (high, False)):
            levels = [(ball(logits["spike"]) / temperature, 1), (flint.arb(0), int(logits["num_outcomes"]) - 1)]
            entropy, _ = level_statistics(levels)
            ok = entropy < ball(claim["target_nats"]) if below else entropy > ball(claim["target_nats"])
            inside.append(Verdict(bool(ok), "the target is not reachable inside the clamp"))
    return verdict_of(lemmas(claim), witness["evidence"], up, down, *inside, summary="both jumps enclosed")


CERTIFICATES = (
    Certificate(
        name="gain-scheduled-two-cycle",
        statement="gain-scheduled Newton cycles clamp to clamp at gain 0.5 with a reachable target; locally it contracts",
        domain="n = 49152, one spike of 10.8 nats, T in [0.5, 2], H* = 5, V_floor = 1, no step limit; local: 0 < g < 2",
        method="ball arithmetic (200 bits) on the two jumps; identity for the local slope",
        argument=(
            "At T_min the spike holds nearly all mass and at T_max nearly none; V is far below its value in between, so the "
            "step is too long both times and the clamps form a cycle, although H(T_min) < H* < H(T_max). At the solution "
            "the slope is 1 - g: convergence is local, which is why the shipped law limits |du|."
        ),
        prove=prove,
        check=check,
        falsified=lambda: [
            Falsehood("it cycles even with |du| <= 0.1", prove(largest_step="1/10")),
            Falsehood("it cycles with V_floor = 30", prove(varentropy_floor="30")),
            Falsehood("local for 0 < g < 2.01", prove(local_limit="201/100")),
        ],
    ),
)
