"""Whatever a plant reports, NaN, infinities, gaps, delays, a temperature law answers within its clamp."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.contracts.checks import leaves
from tests.contracts.table import VOCAB, cases
from workbench.protocols import DecisionPoint, TemperatureObservation, blank_like

LAWS = [
    pytest.param(controller, id=name)
    for delay_steps in (0, 2)
    for name, controller in cases(delay_steps)
    if controller.point is DecisionPoint.TEMPERATURE and (delay_steps == 0 or hasattr(controller, "delay_steps"))
]
anything = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True),
    st.floats(-1.0, 12.0),
    st.sampled_from([0.0, np.log(VOCAB), 1e-300, 5e-324, np.nan]),
)


@pytest.mark.parametrize("controller", LAWS)
@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(st.booleans(), anything, anything, anything, anything, anything, st.integers(-3, 40)),
        min_size=1,
        max_size=12,
    )
)
def test_bounded(controller: object, script: list) -> None:
    state = controller.init(2)
    lowest, highest = np.inf, 0.0
    for step, (measured, h, v, h_raw, surprisal, applied, source) in enumerate(script):
        arrays = blank_like(TemperatureObservation, 2)
        arrays["active"][0] = True
        arrays["joined"][0] = step == 0
        arrays["request_id"][0] = 0
        arrays["measured"][0] = measured
        arrays["measured_step"][0] = source
        arrays["token_index"][0] = step
        for name, value in (
            ("entropy_nats", h),
            ("varentropy_nats2", v),
            ("entropy_raw_nats", h_raw),
            ("varentropy_raw_nats2", v),
            ("surprisal_nats", surprisal),
            ("temperature_applied", applied),
        ):
            arrays[name][0] = value
        state, action = controller.step(state, TemperatureObservation(step=step, **arrays))
        temperature = action.temperature[0]
        lowest, highest = min(lowest, temperature), max(highest, temperature)
        assert np.isfinite(temperature)
        if np.isfinite(action.temperature_max):
            assert action.temperature_min - 1e-15 <= temperature <= action.temperature_max + 1e-15
        for leaf in leaves(state):
            if isinstance(leaf, np.ndarray) and leaf.dtype == np.float64:
                assert not np.isinf(leaf).any()
        if action.mirostat_mu_nats is not None:
            assert 0.0 <= action.mirostat_mu_nats[0] <= 1000.0
    assert 0.0 < lowest <= highest <= 2.0
