"""Slow spells lengthen exactly the steps that begin in them, at the same times in every arm."""

import numpy as np
import pytest

from sims.faults import SlowSpells
from workbench.errors import InputError


def steps_of(parts, arm="", spells=None):
    plant, controllers = parts.plant(parts.requests(), arm)
    if spells:
        spells.start(plant.clock.env, plant.executor, 3)
    return parts.drive(plant, controllers).telemetry.step_table()


def test_steps_in_a_spell_take_twice_as_long(parts):
    usual = steps_of(parts)
    slow = steps_of(parts, spells=SlowSpells(mean_gap_s=0.3, length_s=0.2, factor=2.0))
    assert slow["start_s"][-1] > usual["start_s"][-1]
    decodes = slow["num_tokens"] == slow["num_decode"]
    # Decode steps of this machine take 6.0 to 6.3 ms: a spell is plain to see.
    inside = slow["elapsed_s"][decodes] > 9e-3
    assert 0.1 < inside.mean() < 0.7
    np.testing.assert_array_less(slow["elapsed_s"][decodes][inside], 13.5e-3)
    np.testing.assert_array_less(11.9e-3, slow["elapsed_s"][decodes][inside])


def test_impossible_spells_are_refused():
    with pytest.raises(InputError, match="factor"):
        SlowSpells(mean_gap_s=1.0, length_s=1.0, factor=0.5)
    with pytest.raises(InputError, match="mean_gap_s"):
        SlowSpells(mean_gap_s=0.0, length_s=1.0)
