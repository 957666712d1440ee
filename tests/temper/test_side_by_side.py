"""Laws in one batch do exactly what they do alone."""

import numpy as np

from controllers.temperature.exact import ExactSolve
from controllers.temperature.fixed import Fixed
from controllers.temperature.min_p import MinP
from controllers.temperature.mirostat import Mirostat
from controllers.temperature.pi import PITemperature
from tests.controllers.temperature.closed_loop import observation
from workbench.temper.side_by_side import SideBySide, laws_used

PARTS = (
    PITemperature(target_entropy_nats=2.0, vocab_size=50),
    Fixed(temperature=0.5),
    Mirostat(),
    ExactSolve(target_entropy_nats=1.0, vocab_size=50),
    MinP(Fixed(), min_p=0.1),
)


def test_every_part_acts_as_if_alone() -> None:
    rng = np.random.default_rng(0)
    law = SideBySide(PARTS, 3)
    state, alone = law.init(15), [part.init(3) for part in PARTS]
    told: dict = {}
    for token in range(10):
        state, action = law.step(state, observation(15, token, **told))
        for index, part in enumerate(PARTS):
            rows = slice(3 * index, 3 * index + 3)
            mine = {k: v[rows] if isinstance(v, np.ndarray) else v for k, v in told.items()}
            alone[index], expected = part.step(alone[index], observation(3, token, **mine))
            np.testing.assert_array_equal(action.temperature[rows], expected.temperature)
            for name, off in (("mirostat_mu_nats", np.inf), ("min_p", 0.0), ("target_entropy_nats", np.nan)):
                value = getattr(expected, name)
                np.testing.assert_array_equal(getattr(action, name)[rows], np.full(3, off) if value is None else value)
        told = {"measured": True, "measured_step": token, "temperature_applied": action.temperature}
        for name in ("entropy_nats", "entropy_raw_nats", "varentropy_nats2", "surprisal_nats"):
            told[name] = rng.uniform(0.0, 3.0, 15)


def test_laws_used() -> None:
    assert [laws_used(part) for part in PARTS] == [(), (), ("mirostat_mu_nats",), ("target_entropy_nats",), ("min_p",)]
