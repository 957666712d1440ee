"""The linear description against the controllers themselves, and frozen analysis against eigenvalues and simulation."""

import math
from fractions import Fraction

import numpy as np
import pytest

from controllers.temperature.pi import PITemperature
from controllers.temperature.pid import PIDTemperature
from workbench.analysis import closed_loop as loop
from workbench.analysis.circle import circle_limit, closed_form_limit
from workbench.analysis.margins import gain_margin, is_stable_frozen, jury_region, margins, static_gain
from workbench.analysis.stability import frozen_limit
from workbench.protocols import TemperatureObservation, blank_like

N, TARGET = 49152, 3.0


def run_controller(controller, varentropy, delay, tokens=30, start=0.3):
    """The real controller on the linear plant H = H* + V (u - 0), its measurements `delay` tokens late."""
    asked, state = [], controller.init(1)
    for k in range(tokens):
        source = k - 1 - delay
        blank = blank_like(TemperatureObservation, 1)
        known = source >= 0
        u = asked[source] if known else np.nan
        state, action = controller.step(
            state,
            TemperatureObservation(
                step=k,
                **blank
                | {
                    "active": np.array([True]),
                    "joined": np.array([k == 0]),
                    "request_id": np.array([0]),
                    "measured": np.array([known]),
                    "measured_step": np.array([max(source, 0)]),
                    "token_index": np.array([k]),
                    "entropy_nats": np.array([TARGET + varentropy * u]),
                    "varentropy_nats2": np.array([varentropy]),
                    "temperature_applied": np.array([math.exp(u) if known else np.nan]),
                },
            ),
        )
        asked.append(math.log(action.temperature[0]))
    return np.array(asked)


@pytest.mark.parametrize("delay", [0, 1, 2])
@pytest.mark.parametrize(("k_p", "k_d"), [(0.0, 0.0), (0.004, 0.0), (-0.004, 0.0), (0.004, 0.001)])
def test_matrix_reproduces_the_controller(delay, k_p, k_d):
    common = {
        "target_entropy_nats": TARGET,
        "vocab_size": N,
        "k_i": 0.006,
        "k_p": k_p,
        "delay_steps": delay,
        "temperature_start": math.exp(0.3),
    }
    controller = PIDTemperature(**common, k_d=k_d) if k_d else PITemperature(**common)
    law, v = loop.law_of(controller), 7.0
    path = run_controller(controller, v, delay)
    # Before its first measurement the controller holds; from then on A(V) must give every token. Early differences
    # miss the measurements before token 0, so the comparison starts when the taps are full and uses the real past.
    first = delay + len(law.taps) + 1
    past = [v * path[first - 1 - j] for j in range(delay + len(law.taps) - 1)]
    state = np.array([path[first], *past])
    a = loop.matrix(law, v, delay)
    for k in range(first, path.size - 1):
        state = a @ state
        assert state[0] == pytest.approx(path[k + 1], abs=1e-12)


@pytest.mark.parametrize("delay", range(5))
def test_frozen_polynomial_is_the_matrix_polynomial(delay):
    law = loop.proportional_integral_derivative(Fraction(1, 50), Fraction(1, 30), Fraction(1, 90))
    poles = np.sort_complex(np.linalg.eigvals(loop.matrix(law, 4.0, delay)))
    roots = np.sort_complex(np.roots([float(c) for c in reversed(loop.frozen_polynomial(law, 4, delay))]))
    assert np.allclose(poles, roots, atol=1e-7)


@pytest.mark.parametrize("delay", [0, 1, 2, 5, 20])
def test_gain_margin_is_the_frozen_limit(delay):
    limit = frozen_limit(delay)
    law = loop.integral(0.25 * limit)
    assert gain_margin(law, 1.0, delay) == pytest.approx(4.0, rel=1e-9)
    assert is_stable_frozen(loop.integral(0.999 * limit), 1.0, delay)
    assert not is_stable_frozen(loop.integral(1.001 * limit), 1.0, delay)


def test_delay_margin_turns_where_the_frozen_limit_does():
    found = margins(loop.integral(Fraction(1, 10)), 1.0, 5)
    delays = [d for d in range(5, 40) if frozen_limit(d) > 0.1]
    assert found.delay_margin_steps == max(delays) - 5
    assert found.stable
    assert found.spectral_radius < 1.0


def test_static_gain_is_one_for_integral_laws_and_not_for_feed_forward():
    for law in (loop.integral(0.3), loop.proportional_integral(0.1, 0.2), loop.explore(0.2)):
        assert static_gain(law, 3.0) == 1.0
    assert static_gain(loop.edt(0.5, math.log(10.0), 2.0), 3.0) < 1.0


def test_jury_region_against_poles():
    rng = np.random.default_rng(7)
    for k_p, k_i in rng.uniform([-1.5, -0.5], [1.5, 4.5], size=(400, 2)):
        radius = np.abs(np.linalg.eigvals(loop.matrix(loop.proportional_integral(k_p, k_i), 1.0))).max()
        if abs(radius - 1.0) > 1e-6:
            assert bool(jury_region(k_p, k_i, 1.0)) == (radius < 1.0)


@pytest.mark.parametrize("delay", [0, 1, 2, 3])
@pytest.mark.parametrize(("k_p", "k_d"), [(0.0, 0.0), (0.3, 0.0), (-0.3, 0.0), (0.2, 0.1)])
def test_circle_criterion_never_allows_less_than_the_closed_form(delay, k_p, k_d):
    law = loop.proportional_integral_derivative(k_p, 0.5, k_d)
    grid, closed = circle_limit(law, delay), closed_form_limit(0.5, k_p, k_d, delay)
    assert grid >= closed * (1 - 1e-6)
    if k_p == 0.0 and k_d == 0.0:
        assert grid == pytest.approx(closed, rel=1e-6)


def test_edt_slope_is_the_derivative_of_its_formula():
    theta, log_base, h, v = 0.7, -math.log(50.0), 2.5, 3.0
    slope = loop.matrix(loop.edt(theta, log_base, h), v)[0, 0]
    delta = 1e-6
    numeric = (theta * log_base / (h + v * delta) - theta * log_base / (h - v * delta)) / (2 * delta)
    assert slope == pytest.approx(numeric, rel=1e-6)


@pytest.mark.parametrize(("delay", "gain"), [(1, 0.3), (2, 0.2), (3, 0.1)])
def test_gain_and_phase_margins_against_python_control(delay, gain):
    import control

    from workbench.analysis.margins import loop_transfer, phase_margin_rad

    law = loop.proportional_integral(0.1 * gain, gain)
    gm, pm, *_ = control.margin(loop_transfer(law, 1.0, delay))
    assert gain_margin(law, 1.0, delay) == pytest.approx(gm, rel=1e-6)
    assert phase_margin_rad(law, 1.0, delay) == pytest.approx(np.deg2rad(pm), rel=1e-9)


def test_every_temperature_controller_of_the_catalog_has_a_law_or_a_reason():
    from controllers.temperature.gain_scheduled import GainScheduled
    from workbench.catalog import CATALOG
    from workbench.errors import InputError
    from workbench.protocols import DecisionPoint

    for kind in CATALOG[DecisionPoint.TEMPERATURE].values():
        names = set(kind.__dataclass_fields__)
        given = {"target_entropy_nats": 2.0, "vocab_size": N}
        controller = kind(**{k: v for k, v in given.items() if k in names})
        if kind.__name__ == "Mirostat":
            with pytest.raises(InputError, match="mu"):
                loop.law_of(controller)
            continue
        law = loop.law_of(controller, varentropy_nats2=4.0)
        assert law.name == kind.__name__
        stable = is_stable_frozen(law, 4.0, 0)
        assert stable == (kind.__name__ != "IntegralExplore")
    with pytest.raises(InputError, match="varentropy"):
        loop.law_of(GainScheduled(target_entropy_nats=2.0, vocab_size=N))


@pytest.mark.parametrize("delay", [0, 1, 3])
def test_an_anchored_law_is_interleaved_loops_without_delay(delay):
    law = loop.anchored(0.05)
    assert is_stable_frozen(law, 39.9, delay)
    assert not is_stable_frozen(law, 40.1, delay)
    path = loop.simulate(law, [12.0] * 12, delay)
    expected = [(1 - 0.6) ** (-(-k // (delay + 1))) for k in range(13)]
    assert np.allclose(path, expected)
    assert gain_margin(law, 12.0, delay) == pytest.approx(40.0 / 12.0, rel=1e-6)
