"""Philox against Random123's published answers, and the NumPy, torch and scalar forms against one another."""

import numpy as np
import torch

from kernels import philox
from kernels.reference.logit_stats import philox_uniform, philox_uniform_fine

# Random123 1.14, kat_vectors, philox4x32-10: counter, key, output words.
ONES = 0xFFFFFFFF
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((ONES,) * 4, (ONES,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


def test_known_answers_in_every_form():
    for counter, key, expected in KNOWN:
        words = philox.philox4x32(*(np.array([c], np.int64) for c in counter), *key)
        assert tuple(int(w[0]) for w in words) == expected
        words = philox.philox4x32(*(torch.tensor([c]) for c in counter), *key)
        assert tuple(int(w[0]) for w in words) == expected
        if counter[0] < 2**30:  # lanes are 4 * counter + word
            seed = key[0] | key[1] << 32
            lanes = 4 * counter[0] + np.arange(4)
            found = philox.random_words(seed, counter[3], counter[2], counter[1], lanes)
            assert tuple(found.tolist()) == expected


def test_torch_draws_are_the_numpy_draws():
    request, token = np.array([0, 7, 2**32 - 1, 2**32 + 7]), np.array([3, 0, 5, 9])
    seed = 0x123456789ABCDEF0
    ours = philox.uniform(seed, 4, request[:, None], token[:, None], np.arange(101)[None])
    theirs = philox_uniform(seed, 4, torch.tensor(request), torch.tensor(token), 101)
    assert np.array_equal(ours, theirs.double().numpy())
    assert np.array_equal(ours.astype(np.float32).astype(np.float64), ours)  # exact in float32
    assert ours.min() > 0.0
    assert ours.max() < 1.0
    fine = philox.uniform_fine(seed, 4, request, token)
    assert np.array_equal(fine, philox_uniform_fine(seed, 4, torch.tensor(request), torch.tensor(token)).numpy())


def test_draws_depend_on_every_key_and_on_nothing_else():
    base = philox.uniform(1, 2, 3, 4, 5)
    others = [
        (9, 2, 3, 4, 5),
        (1 + 2**32, 2, 3, 4, 5),
        (1, 9, 3, 4, 5),
        (1, 2, 9, 4, 5),
        (1, 2, 3, 9, 5),
        (1, 2, 3, 4, 9),
    ]
    assert len({float(base), *(float(philox.uniform(*key)) for key in others)}) == 7
    batch = philox.uniform(1, 2, np.array([8, 3, 6]), np.array([0, 4, 1]), np.array([1, 5, 2]))
    assert batch[1] == base


def test_uniform_is_uniform():
    u = philox.uniform(11, 0, np.arange(200_000), 0)
    counts = np.histogram(u, bins=100, range=(0, 1))[0]
    chi_square = ((counts - 2000.0) ** 2 / 2000.0).sum()
    assert 50.0 < chi_square < 160.0  # 99 degrees of freedom: 1e-4 tails are 53 and 161
    assert abs(np.corrcoef(u[:-1], u[1:])[0, 1]) < 0.01
