"""Gains, nulls and effects of a factorial whose arms are known."""

import numpy as np
import pytest

from workbench.claims.claim import Verdict, decide
from workbench.claims.paired import EFFECTS, GAINS, TOLD, effects, gains, quantities
from workbench.claims.papers.entropic_time import CELL
from workbench.claims.registry import CLAIMS
from workbench.metrics.arm import ARM_CODES

BY_ID = {claim.id: claim for claim in CLAIMS}
SIGNS = np.array([sign for _, sign in GAINS.values()])


def arms(factor: dict[str, float], noise: float = 0.004) -> dict[str, np.ndarray]:
    """Six seeds of positive metrics; the arm's factor improves every metric (falls count as 1 / factor)."""
    generator = np.random.default_rng(3)
    base = np.exp(generator.normal(0.0, 0.3, (6, len(GAINS))))
    return {
        code: base * np.exp(generator.normal(0.0, noise, base.shape)) * factor.get(code, 1.0) ** SIGNS
        for code in ARM_CODES
    }


def verdict_of(id: str, values: dict[str, np.ndarray]) -> Verdict:
    return decide(BY_ID[id], {f"{CELL}_{name}": one for name, one in quantities(values).items()})


@pytest.mark.parametrize("id", ["et-latency", "et-throughput"])
def test_falsified_data_changes_the_verdict(id: str) -> None:
    values = arms({"STP": 1.6})
    assert verdict_of(id, values) is Verdict.REPRODUCED
    swapped = values | {"-": values["STP"], "STP": values["-"]}
    assert verdict_of(id, swapped) is Verdict.NOT_REPRODUCED
    one_seed_turned = {code: x.copy() for code, x in values.items()}
    one_seed_turned["STP"][0] = values["-"][0]
    assert verdict_of(id, one_seed_turned) is Verdict.INCONCLUSIVE


def test_gains_are_shares_of_the_baseline() -> None:
    values = {code: np.ones((6, len(GAINS))) for code in ARM_CODES} | {"STP": np.full((6, len(GAINS)), 0.75)}
    found = quantities(values)
    assert found["STP_latency"].value == pytest.approx(0.25)
    assert found["STP_throughput"].value == pytest.approx(-0.25)
    assert found["excess_log_latency"].value == pytest.approx(-np.log(0.75))
    assert found["excess_add_throughput"].value == pytest.approx(-0.25)


def test_gains_that_multiply_have_no_interaction() -> None:
    one = {"S": 1.1, "T": 0.9, "P": 1.3}
    factor = {code: float(np.prod([one[c] for c in code if c in one])) for code in ARM_CODES}
    found = effects(arms(factor, noise=0.0))
    assert len(found) == len(EFFECTS) * len(TOLD)
    for name in TOLD:
        for letter, x in one.items():
            assert found[f"effect_{letter}_{name}"].value == pytest.approx(np.log(x))
        for effect in EFFECTS[3:]:
            assert found[f"effect_{effect}_{name}"].value == pytest.approx(0.0, abs=1e-12)


def test_an_interaction_is_found_where_it_was_put() -> None:
    # S and P together gain e^0.2 beyond their product: half the difference of simple effects is 0.1.
    factor = {code: float(np.exp(0.2 * ("S" in code and "P" in code))) for code in ARM_CODES}
    found = effects(arms(factor, noise=0.0))
    assert found["effect_SxP_latency"].value == pytest.approx(0.1)
    assert found["effect_SxT_latency"].value == pytest.approx(0.0, abs=1e-12)


def test_what_no_record_holds_is_left_out() -> None:
    values = arms({})
    column = list(GAINS).index("tau_per_j")
    for x in values.values():
        x[:, column] = np.nan
    found = gains(values)
    assert "STP_tau_per_j" not in found
    assert "STP_latency" in found
    assert effects({code: values[code] for code in ("-", "S")}) == {}
