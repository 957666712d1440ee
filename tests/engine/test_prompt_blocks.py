"""Content ids: equal exactly where prompts begin alike under one model and one policy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.engine.prompt_blocks import ContentIds, blocks_of_groups, blocks_of_hashes, blocks_of_tokens
from workbench.errors import InputError

FIRST = list(range(100, 164))


def ids(*prompts, model="m", policy="p", block_size=16, shared=None):
    blocks = blocks_of_tokens(prompts, block_size, model=model, policy=policy, ids=shared)
    return [blocks.of(r).tolist() for r in range(len(prompts))]


@pytest.mark.parametrize("shift", [256, 65_536, 1 << 31])
def test_ids_that_agree_in_their_low_bytes_are_other_contents(shift):
    other = FIRST.copy()
    other[5] += shift
    a, b = ids(FIRST, other)
    assert not set(a) & set(b)


def test_ids_are_not_joined_digits():
    a, b = ids([1, 23] * 8, [12, 3] * 8)
    assert not set(a) & set(b)


def test_a_change_in_one_block_changes_every_later_one_and_no_earlier_one():
    other = FIRST.copy()
    other[20] += 1
    a, b = ids(FIRST, other)
    assert a[0] == b[0]
    assert not set(a[1:]) & set(b[1:])


@pytest.mark.parametrize("change", [{"model": "another"}, {"policy": "another"}])
def test_another_model_or_policy_shares_nothing(change):
    shared = ContentIds()
    (a,) = ids(FIRST, shared=shared)
    (b,) = ids(FIRST, shared=shared, **change)
    (c,) = ids(FIRST, shared=shared)
    assert not set(a) & set(b)
    assert a == c


def test_a_part_block_has_no_id():
    assert [len(i) for i in ids(FIRST[:15], FIRST[:16], FIRST[:47])] == [0, 1, 2]


@given(st.lists(st.lists(st.integers(0, 2), max_size=12), max_size=8), st.integers(1, 4))
def test_ids_are_equal_exactly_where_beginnings_are(prompts, size):
    found = ids(*prompts, block_size=size)
    for a, x in zip(found, prompts, strict=True):
        for b, y in zip(found, prompts, strict=True):
            for i, (p, q) in enumerate(zip(a, b, strict=False)):
                assert (p == q) == (x[: (i + 1) * size] == y[: (i + 1) * size])


def test_hashes_of_a_trace_cover_the_blocks_that_are_full():
    # 70 tokens: a hash of 64, a hash of 6. 40 tokens: one hash. Blocks of 16.
    blocks = blocks_of_hashes(np.array([0, 2, 3]), np.array([0, 1, 0]), np.array([70, 40]), 64, 16)
    assert blocks.of(0).tolist() == [0, 1, 2, 3]
    assert blocks.of(1).tolist() == [0, 1]
    assert blocks.num_keys == 8
    with pytest.raises(InputError, match="must divide the 64 tokens"):
        blocks_of_hashes(np.array([0, 1]), np.array([0]), np.array([64]), 64, 24)


def test_groups_share_their_beginning_only():
    blocks = blocks_of_groups(np.array([0, 1, 0]), 40, np.array([100, 100, 20]), 2, 16)
    assert blocks.of(0).tolist() == [0, 1]
    assert blocks.of(1).tolist() == [2, 3]
    assert blocks.of(2).tolist() == [0]
