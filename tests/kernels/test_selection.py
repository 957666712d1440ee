"""Keep rules, reveal prefixes and the top-k bracket: both twins against the words of the law, by enumeration."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernels import reference, reference_numpy, selection_numpy
from kernels.laws import KEEP_ALL, KEEP_LEAST_MASS, KEEP_TOP_BLOCKS, KEEP_WINDOW


def keep_by_words(score, mass, num_blocks, rule, budget, frac, sinks, recent):
    """One row, block by block."""
    protected = [b < sinks or b >= num_blocks - recent for b in range(num_blocks)]
    kept = [True] * num_blocks
    if rule == KEEP_WINDOW:
        return protected
    free = [b for b in range(num_blocks) if not protected[b] and not math.isnan(score[b]) and not math.isnan(mass[b])]
    free.sort(key=lambda b: (score[b], b))
    spent = 0.0
    for b in free:
        if rule == KEEP_LEAST_MASS:
            spent += mass[b]
            if spent > budget:
                break
        elif rule == KEEP_TOP_BLOCKS:
            if sum(kept) <= math.ceil(frac * num_blocks - 1e-9):
                break
        else:
            break
        kept[b] = False
    return kept


@given(st.data())
def test_keep_blocks_follows_its_words(data):
    num_blocks = data.draw(st.integers(0, 9))
    value = st.sampled_from([0.0, 0.01, 0.02, 0.05, 0.05, 0.2, 0.9, math.nan])
    score = data.draw(st.lists(value, min_size=9, max_size=9))
    mass = score if data.draw(st.booleans()) else data.draw(st.lists(value, min_size=9, max_size=9))
    numbers = {
        "rule": data.draw(st.sampled_from([KEEP_ALL, KEEP_LEAST_MASS, KEEP_TOP_BLOCKS, KEEP_WINDOW])),
        "mass_budget": data.draw(st.floats(0.0, 0.99)),
        "block_budget_frac": data.draw(st.floats(0.01, 1.0)),
        "sink_blocks": data.draw(st.integers(0, 3)),
        "recent_blocks": data.draw(st.integers(0, 4)),
    }
    expected = keep_by_words(score, mass, num_blocks, *numbers.values())
    expected += [False] * (9 - num_blocks)
    found = selection_numpy.keep_blocks([score], [mass], [num_blocks], **numbers)
    assert found[0].tolist() == expected
    twin = reference.keep_blocks(torch.tensor([score]), torch.tensor([mass]), torch.tensor([num_blocks]), **numbers)
    # The torch twin reads the same doubles; float32 input is widened, so ties stay ties.
    again = selection_numpy.keep_blocks(
        [np.float32(score).astype(float)], [np.float32(mass).astype(float)], [num_blocks], **numbers
    )
    assert twin[0].tolist() == again[0].tolist()


def test_keep_blocks_refuses_bad_numbers():
    good = {"rule": 1, "mass_budget": 0.1, "block_budget_frac": 0.5, "sink_blocks": 1, "recent_blocks": 1}
    for name, value in (("rule", 4), ("mass_budget", 1.0), ("mass_budget", math.nan), ("sink_blocks", -1)):
        with pytest.raises(ValueError):
            selection_numpy.keep_blocks([[0.1, 0.2]], None, [2], **{**good, name: value})
    with pytest.raises(ValueError, match="num_blocks"):
        selection_numpy.keep_blocks([[0.1, 0.2]], None, [3], **good)
    with pytest.raises(ValueError, match="block_budget_frac"):
        selection_numpy.keep_blocks([[0.1, 0.2]], None, [2], **{**good, "rule": 2, "block_budget_frac": 0.0})


@given(st.data())
def test_reveal_prefix_follows_its_words(data):
    length = data.draw(st.integers(1, 12))
    rank = data.draw(st.permutations(range(length)))
    cost = data.draw(st.lists(st.sampled_from([0.0, 0.25, 0.5, 2.0, math.inf]), min_size=length, max_size=length))
    masked = data.draw(st.lists(st.booleans(), min_size=length, max_size=length))
    budget = data.draw(st.sampled_from([0.0, 0.5, 1.0, 3.0, math.inf]))
    crossing = data.draw(st.booleans())
    low = data.draw(st.integers(1, 4))
    high = data.draw(st.integers(low, 14))
    taken, spent = [], 0.0
    for position in sorted((i for i in range(length) if masked[i]), key=lambda i: rank[i]):
        over = spent + cost[position] > budget
        if len(taken) >= high or (over and len(taken) >= low and not crossing):
            break
        spent += cost[position]
        if over and len(taken) >= low and crossing:
            taken.append(position)
            break
        if over and crossing and len(taken) < low:
            # The minimum is still open: positions go on until it is reached.
            taken.append(position)
            if len(taken) >= low:
                break
            continue
        taken.append(position)
    found = selection_numpy.reveal_prefix([rank], [cost], [masked], [budget], [crossing], [low], [high])
    assert sorted(np.flatnonzero(found[0]).tolist()) == sorted(taken)
    arguments = (torch.tensor([x]) for x in (rank, cost, masked, budget, crossing, low, high))
    assert reference.reveal_prefix(*arguments)[0].tolist() == found[0].tolist()


def test_reveal_prefix_edges():
    rank, cost, masked = np.arange(5)[None], np.full((1, 5), 0.3), np.ones((1, 5), bool)
    assert selection_numpy.reveal_prefix(rank, cost, masked, 0.0, True, 1, 5).sum() == 1  # eta = 0: one an iteration
    assert selection_numpy.reveal_prefix(rank, cost, masked, math.inf, True, 1, 5).sum() == 5
    assert selection_numpy.reveal_prefix(rank, cost, masked, 0.6, True, 1, 5).sum() == 3  # the crossing one included
    assert selection_numpy.reveal_prefix(rank, cost, ~masked, 1.0, True, 1, 5).sum() == 0
    for budget in (-1.0, math.nan):
        with pytest.raises(ValueError, match="budget"):
            selection_numpy.reveal_prefix(rank, cost, masked, budget, True, 1, 5)
    with pytest.raises(ValueError, match="cost"):
        selection_numpy.reveal_prefix(rank, cost * math.nan, masked, 1.0, True, 1, 5)


@pytest.mark.parametrize("n", [25, 49_152])
def test_topk_bracket_holds_and_closes(n):
    z = np.random.default_rng(n).standard_normal((3, n)) * 3
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    h = -(p * np.log(p)).sum(axis=1)
    for k in (1, 5, 20, n - 1, n, 2**31):
        for found in (reference_numpy.topk_entropy(z, k), reference.topk_entropy(torch.tensor(z), k)):
            lower, upper = np.asarray(found.lower_nats, float), np.asarray(found.upper_nats, float)
            assert (lower <= h + 1e-5).all()
            assert (h <= upper + 1e-5).all()
            assert (np.asarray(found.entropy_renormalised_nats) <= lower + 1e-5).all()
            if k >= n:
                assert np.allclose(lower, upper, atol=0)
                assert np.allclose(lower, h, atol=1e-5)
    for k in (0, -1):
        with pytest.raises(ValueError, match="k must be at least 1"):
            reference.topk_entropy(torch.tensor(z), k)


def test_topk_with_masks_and_bad_rows():
    z = torch.tensor([[0.0, -math.inf, 0.0, -math.inf], [math.nan, 0, 0, 0], [-math.inf] * 4])
    found = reference.topk_entropy(z, 3)
    assert found.lower_nats[0] == pytest.approx(math.log(2.0), abs=1e-6)
    assert found.upper_nats[0] == pytest.approx(math.log(2.0), abs=1e-6)
    assert found.lower_nats[1:].isnan().all()
