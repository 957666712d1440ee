"""Gain intervals equal what controllers accept; single gains are judged as the closed forms and simulation say."""

from fractions import Fraction

import pytest

from controllers.temperature.gain_bounds import integral_gain_limit
from controllers.temperature.pi import PITemperature
from workbench.analysis.gain_verdict import judge_gain
from workbench.analysis.stability import SWITCHING, frozen_limit, gain_interval, proven_limit, switching_limit
from workbench.errors import InputError


@pytest.mark.parametrize("vocab_size", [24, 49152, 151936])
@pytest.mark.parametrize("delay", [0, 1, 2, 7])
@pytest.mark.parametrize("k_p", [0.0, 0.003, -0.003])
def test_the_interval_is_the_one_constructors_use(vocab_size, delay, k_p):
    class Law:
        pass

    law = Law()
    law.k_p = k_p
    ours = gain_interval(law, vocab_size, delay)
    assert ours.high == pytest.approx(integral_gain_limit(vocab_size, delay, k_p), rel=1e-12)
    assert ours.low == 0.0


def test_a_constructor_refuses_the_end_of_the_interval_and_accepts_just_below():
    high = gain_interval("I", 49152, 2).high
    PITemperature(target_entropy_nats=2.0, vocab_size=49152, k_i=high * 0.9999, delay_steps=2)
    with pytest.raises(InputError, match="k_i must be in"):
        PITemperature(target_entropy_nats=2.0, vocab_size=49152, k_i=high * 1.0001, delay_steps=2)


def test_the_anchored_law_keeps_the_interval_of_no_delay():
    from controllers.temperature.anchored import AnchoredI

    high = gain_interval("I", 49152, 0).high
    law = AnchoredI(target_entropy_nats=2.0, vocab_size=49152, delay_steps=4, k_i=0.999 * high)
    assert gain_interval(law, 49152, 4).high == gain_interval("anchored", 49152, 9).high == high


def test_every_interval_names_a_certificate_that_exists():
    from workbench.analysis.certificates.table import CERTIFICATES

    names = {c.name for c in CERTIFICATES}
    pid = PITemperature(target_entropy_nats=2.0, vocab_size=49152, k_p=0.001)
    for law in ("I", "explore", "gain-scheduled", pid):
        for delay in (0, 1):
            assert gain_interval(law, 49152, delay).certificate in names


def test_limits_are_ordered_and_have_their_values():
    assert [round(frozen_limit(d), 6) for d in (0, 1, 2)] == [2.0, 1.0, 0.618034]
    assert [proven_limit(d) for d in (0, 1, 2)] == [2.0, pytest.approx(2 / 3), 0.4]
    for d in range(len(SWITCHING)):
        assert proven_limit(d) <= switching_limit(d) <= frozen_limit(d) + 1e-12
    assert switching_limit(4) is None


@pytest.mark.parametrize("bad", [("nonsense", 100, 0), ("I", 1, 0), ("I", 100, -1)])
def test_bad_input_is_refused(bad):
    with pytest.raises(InputError):
        gain_interval(*bad)


def test_time_base():
    """k_i V = 1.9 certified, 2.0 marginal, 2.1 unstable; static gain 1; simulations agree."""
    good, marginal, bad = (judge_gain(Fraction(g), 0) for g in ("1.9", "2", "2.1"))
    assert good.certified
    assert good.frozen_error < 1e-9
    assert not marginal.certified
    assert not marginal.frozen_stable
    assert "marginal" in marginal.reason
    assert marginal.frozen_error == pytest.approx(1.0)
    assert not bad.certified
    assert bad.frozen_error > 1e9
    assert {good.static_gain, marginal.static_gain, bad.static_gain} == {1.0}


def test_delay_two_neither_is_certified_one_switching_diverges():
    first, second = (judge_gain(Fraction(g), 2) for g in ("0.58", "0.60"))
    assert not first.certified
    assert not second.certified
    assert first.frozen_error < 1e-6
    assert second.frozen_error < 1e-6
    assert first.switching_error < 1e-2
    assert second.switching_error > 1e6
    assert "0.4" in first.reason
    assert "diverges" in second.reason


@pytest.mark.parametrize(("gain", "delay"), [("0", 0), ("-1", 0), ("1", -1), ("1", 65)])
def test_gains_and_delays_out_of_range_are_refused(gain, delay):
    with pytest.raises(InputError):
        judge_gain(Fraction(gain), delay)


def test_stability_needs_no_heavy_package():
    import subprocess
    import sys

    code = (
        "import sys, workbench.analysis.stability;"
        "sys.exit(any(m in sys.modules for m in ('z3', 'flint', 'cvxpy', 'control', 'torch', 'scipy')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
