import numpy as np
import pytest

from workbench.unmasking.study import Study, fitted_power


def test_the_power_is_that_of_a_power_law_and_its_interval_that_of_the_values():
    x = np.array([128, 256, 512, 1024])
    exact = fitted_power(x, 3.0 * x**0.7)
    assert (exact.mean, exact.half_width) == (pytest.approx(0.7), 0.0)
    rng = np.random.default_rng(0)
    slopes = [fitted_power(x, 50.0 * x**0.2 * np.exp(rng.normal(0.0, 0.05, 4))).mean for _ in range(4000)]
    y = 50.0 * x**0.2
    assert fitted_power(x, y, 1.96 * 0.05 * y).half_width == pytest.approx(1.96 * np.std(slopes), rel=0.05)


def test_a_study_is_ok_when_all_it_states_holds():
    study = Study(name="s", title="t", intro="", command="", columns=())
    study.state("true", True)
    assert study.ok
    study.state("false", False)
    assert not study.ok
