"""What is said of decoded sequences, on decodes made by hand: known differences, known units."""

import numpy as np
import polars as pl
import pytest

from workbench.unmasking.estimate import Estimate
from workbench.unmasking.protein_results import COLUMNS, curves_of, per_unit, protein_results


def decodes(share: float, lengths: list[int], better: float, noise: float = 0.01) -> pl.DataFrame:
    """Recovery 0.3 + 0.1 ln(passes) + what the sequence brings; the entropy sum has `better` more."""
    rng = np.random.default_rng(0)
    rows = []
    for index, length in enumerate(lengths):
        own = rng.normal(0.0, 0.1)
        for policy, settings in (
            ("entropy-sum", ((1.0, "inf"), (6.0, "10"), (20.0, "3"))),
            ("eb-sampler", ((1.0, "inf"), (5.0, "10"), (18.0, "3"))),
            ("confidence-threshold", ((1.0, "0.01"), (9.0, "0.5"), (30.0, "0.7"))),
        ):
            for passes, setting in settings:
                value = 0.3 + own + 0.1 * np.log(passes) + (better if policy == "entropy-sum" else 0.0)
                rows.append(
                    ("m:heavy", share, policy, setting, f"s{index}", length, passes, value + rng.normal(0.0, noise),
                     1.0 - value, 0.7, True)
                )  # fmt: skip
    return pl.DataFrame(rows, schema=COLUMNS, orient="row")


def test_a_difference_is_found_at_equal_passes_though_sequences_differ_by_more():
    study = protein_results(decodes(0.5, list(range(100, 112)), 0.05), "c")
    for rival in ("eb-sampler", "confidence-threshold"):
        for passes in (2, 4, 8, 16):
            name = f"m_heavy_50_{passes}_passes_minus_{rival}_recovery"
            mean, half = study.figures[name], study.figures[f"{name}_half_width"]
            assert mean - half < 0.05 < mean + half
            assert half < 0.02
        assert f"m_heavy_50_32_passes_minus_{rival}_recovery" not in study.figures, "no curve reaches 32 passes"
        assert study.figures[f"{rival}_worse"] == 4
        assert study.figures[f"{rival}_better"] == study.figures[f"{rival}_undecided"] == 0
        nats = study.figures[f"m_heavy_50_4_passes_minus_{rival}_pseudo_nll_nats"]
        assert nats == pytest.approx(-0.05, abs=1e-9)
    assert study.ok


def test_no_difference_is_undecided():
    study = protein_results(decodes(0.9, list(range(100, 112)), 0.0, noise=0.05), "c")
    figures = study.figures
    assert figures["eb-sampler_undecided"] + figures["confidence-threshold_undecided"] >= 7


def test_fully_masked_sequences_of_one_length_are_one_unit():
    frame = decodes(1.0, [107, 107, 107, 108, 111, 111], 0.0)
    study = protein_results(frame, "c")
    assert {row[-1] for row in study.rows} == {3}
    half = protein_results(decodes(0.9, [107, 107, 107, 108, 111, 111], 0.0), "c")
    assert {row[-1] for row in half.rows} == {6}


def test_maskings_of_one_sequence_do_not_narrow_the_interval():
    frame = decodes(0.5, [100, 101, 102], 0.0).with_columns(unit=pl.col("sequence"))
    cell = frame.filter((pl.col("policy") == "eb-sampler") & (pl.col("setting") == "3"))
    once, often = per_unit(cell, "recovery"), per_unit(pl.concat([cell] * 5), "recovery")
    assert isinstance(once, Estimate)
    assert often.half_width == pytest.approx(once.half_width)
    assert set(curves_of(frame, "eb-sampler", "recovery")) == {"s0", "s1", "s2"}


def test_a_sequence_left_masked_fails_the_statement():
    frame = decodes(0.5, [100, 101], 0.0)
    assert not protein_results(frame.with_columns(complete=pl.col("passes") < 10.0), "c").ok
    assert not protein_results(frame.with_columns(passes=pl.col("passes") * 3.0), "c").ok, "90 passes for 50 positions"
