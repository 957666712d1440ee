"""The gain interval against time-varying linear loops simulated directly."""

import numpy as np
import pytest

from controllers.temperature.gain_bounds import integral_gain_limit, varentropy_limit


@pytest.mark.parametrize("delay_steps", [0, 1, 2, 3])
def test_inside_the_interval_no_sequence_of_gains_diverges(delay_steps: int) -> None:
    """10,000 random switching sequences of V in [0, 1] (as shares of V_max), worst growth over 300 steps."""
    rng = np.random.default_rng(delay_steps)
    n = 49152
    k_p, k_d = 0.2 / varentropy_limit(n), 0.05 / varentropy_limit(n)
    k_i = 0.98 * integral_gain_limit(n, delay_steps, k_p, k_d)
    kp, kd, ki = (g * varentropy_limit(n) for g in (k_p, k_d, k_i))
    rows, steps = 10_000, 300
    # Frequencies of switching from every step to every hundred, and pure two-level patterns.
    v = rng.random((rows, steps + 8))
    hold = rng.integers(1, 30, rows)
    v = np.take_along_axis(v, (np.arange(steps + 8)[None, :] // hold[:, None]), axis=1)
    v[: rows // 2] = np.round(v[: rows // 2])
    u = [rng.normal(size=rows) for _ in range(delay_steps + 3)]
    start = np.max(np.abs(u), axis=0)
    h = [v[:, i] * u[i] for i in range(len(u))]
    peak = start.copy()
    for k in range(steps):
        h0, h1, h2 = h[-1 - delay_steps], h[-2 - delay_steps], h[-3 - delay_steps]
        u.append(u[-1] - ki * h0 + kp * (h1 - h0) - kd * (h0 - 2 * h1 + h2))
        h.append(v[:, k + 3] * u[-1])
        peak = np.maximum(peak, np.abs(u[-1]))
    assert np.max(peak / start) < 12.0


def test_the_numbers_of_the_shipped_vocabularies() -> None:
    for n, expected in ((49152, 0.0663), (128256, 0.0562), (151936, 0.0547)):
        assert integral_gain_limit(n, 0) == pytest.approx(expected, abs=5e-5)
        assert integral_gain_limit(n, 1) == pytest.approx(integral_gain_limit(n, 0) / 3)
        assert integral_gain_limit(n, 2) == pytest.approx(integral_gain_limit(n, 0) / 5)
