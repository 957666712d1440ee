"""The whole study on a fake model: what must come out does, and the verdict says it."""

from pathlib import Path

import numpy as np
import pytest

from controllers.temperature.fixed import Fixed
from tests.temper.fake_model import VOCAB, fake_generate
from workbench.errors import InputError
from workbench.temper.laws import LAWS, NOTHING, chosen_laws
from workbench.temper.loop_gain import Dithered, dither_sign, gain_check, outer_slope
from workbench.temper.page import write_page
from workbench.temper.study import Job, Study, run_study
from workbench.temper.verdict import best_tracker, sentences


@pytest.fixture(scope="module")
def study() -> Study:
    return run_study(fake_generate(6, 80), LAWS, 2.5, (3.0, 2.0), 80, VOCAB)


def test_exact_solve_is_the_best_tracker(study: Study) -> None:
    rows = {row.law.name: row for row in study.rows}
    best = best_tracker(study)
    assert best is not None
    assert best.law.name == "exact"
    assert rows["exact"].tracking_nats.value < 0.01
    assert rows["exact"].tracking_gain.high < 0.0


def test_pi_brings_texts_together_and_nothing_does_not(study: Study) -> None:
    rows = {row.law.name: row for row in study.rows}
    assert rows["pi"].spread_gain.high < 0.0
    assert rows[NOTHING.name].spread_gain.value == pytest.approx(0.0, abs=1e-9)
    assert rows[NOTHING.name].tracking_gain.value == pytest.approx(0.0, abs=1e-9)
    assert rows[NOTHING.name].nll_gain.value == pytest.approx(0.0, abs=1e-9)
    assert rows["pi"].final_error_nats is not None
    assert abs(rows["pi"].final_error_nats.value) < 0.15
    assert abs(rows[NOTHING.name].final_error_nats.value) > 0.3


def test_verdict_names_the_law_and_its_price(study: Study) -> None:
    text = " ".join(sentences(study))
    assert "use exact" in text
    assert "no evidence for an integral law" in text


def test_when_nothing_helps_the_verdict_says_so() -> None:
    only = run_study(fake_generate(num_prompts=3), chosen_laws(["explore"]), 2.5, (2.0, 3.0), 64, VOCAB)
    assert best_tracker(only) is None
    assert "use the constant" in sentences(only)[0]


def test_dither_recovers_both_slopes() -> None:
    """Without feedback raw H of later tokens does not move; tempered H of the token itself moves by V."""
    amplitude = 0.2
    for feedback in (0.0, 1.0):
        (run,) = fake_generate(24, 200, feedback=feedback)([Job(Dithered(Fixed(), amplitude, 3))])
        rows, columns = run.entropy_nats.shape
        sign = dither_sign(3, *(a.ravel() for a in np.indices((rows, columns)))).reshape(rows, columns)
        np.testing.assert_allclose(np.log(run.temperature), amplitude * sign, atol=1e-12)
        slope = outer_slope(run.entropy_nats, run.entropy_raw_nats, run.varentropy_nats2, sign, amplitude)
        assert slope.inner.value == pytest.approx(slope.mean_varentropy, rel=0.15)
        first = slope.lags[0]
        assert (first.low <= 0.0 <= first.high) if feedback == 0.0 else first.low > 0.0
        assert abs(sign.mean()) < 0.05


def test_gain_check_on_known_logits() -> None:
    z = np.random.default_rng(0).normal(0, 3, (200, 500))
    check = gain_check(z)
    assert check.ratio == pytest.approx(1.0, abs=1e-3)
    assert check.within_frac == 1.0
    assert check.num_rows == 200


def test_page_is_self_contained(study: Study, tmp_path: Path) -> None:
    (run,) = fake_generate(4, 40)([Job(Fixed())])
    sign = dither_sign(0, *(a.ravel() for a in np.indices(run.entropy_nats.shape))).reshape(run.entropy_nats.shape)
    slope = outer_slope(run.entropy_nats, run.entropy_raw_nats, run.varentropy_nats2, sign, 0.2)
    check = gain_check(np.random.default_rng(0).normal(0, 3, (10, 50)))
    paths = write_page(
        study,
        check,
        slope,
        [("exact", 0.1, 0.0), ("top-k, k = 20", 0.9, 0.8)],
        tmp_path,
        model="</script><b>x</b>",
        command="workbench temper",
        facts=["<img src=x onerror=alert(1)>"],
        figures={"tracking_nats": 1.0},
    )
    html = paths["report"].read_text()
    assert "<b>x</b>" not in html
    assert "<img src=x" not in html
    assert "http" not in html.replace("data:image", "")
    for name in ("step.png", "gains.png", "texts.png", "temperature.png", "dither.png", "estimators.png", "table.csv"):
        assert (tmp_path / name).stat().st_size > 500
    assert paths["table"].read_text().count("\n") == len(study.rows) + 1


def test_unknown_law_is_refused_with_near_names() -> None:
    with pytest.raises(InputError, match="did you mean mirostat"):
        chosen_laws(["mirostart"])
