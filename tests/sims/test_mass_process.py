"""Block masses: their law, and that draws depend on nothing else."""

import numpy as np
import pytest

from sims.mass_process import MassProcess, draw_masses, mass_law, new_mass_state
from workbench.errors import InputError

LAW = mass_law(MassProcess(sink=4.0, decay=0.6, spread=0.8, flicker=0.3), 64)


def drawn(num_blocks, seed=1, request=0, slot=0, width=64, law=LAW):
    state = new_mass_state(4, width)
    draw(state, num_blocks, seed, slot, request, law)
    return state


def draw(state, num_blocks, seed=1, slot=0, request=0, law=LAW):
    draw_masses(state, law, seed, np.array([slot]), np.array([request]), np.array([num_blocks]), np.array([True]))


def test_masses_sum_to_one_and_have_the_stated_law():
    blocks, ratios, sinks = 40, [], []
    for request in range(3000):
        mass = drawn(blocks, request=request).mass[0, :blocks]
        assert mass.sum() == pytest.approx(1.0)
        ratios.append(np.log(mass[9] / mass[29]))
        sinks.append(np.log(mass[0] / mass[1]))
    ratios = np.array(ratios)
    # ln w_9 - ln w_29 is normal: mean decay ln(ages), variance 2 (spread^2 + flicker^2).
    assert ratios.mean() == pytest.approx(-0.6 * np.log(31 / 11), abs=4 * ratios.std() / np.sqrt(3000))
    assert ratios.std() == pytest.approx(np.sqrt(2 * (0.8**2 + 0.3**2)), rel=0.05)
    assert np.mean(sinks) > np.log(4.0)


def test_heavy_hitters_stay_heavy_as_the_context_grows():
    state = drawn(40)
    before = state.mass[0, :40].copy()
    draw(state, 41)
    assert np.corrcoef(np.log(before[1:]), np.log(state.mass[0, 1:40]))[0, 1] > 0.7


def test_masses_do_not_depend_on_slot_or_on_what_was_drawn_before():
    one, other = drawn(20, slot=0), drawn(7, slot=3)
    draw(other, 20, slot=3)
    np.testing.assert_array_equal(one.mass[0], other.mass[3])


def test_impossible_numbers_are_refused():
    with pytest.raises(InputError, match="spread"):
        MassProcess(spread=-1.0)
