"""Tensors in huge pages are ordinary tensors: zero, apart from each other, alive as long as one of them is."""

import gc

import pytest
import torch

from kernels import huge_pages


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_zeros_side_by_side(dtype):
    shapes = [(3, 5), (7,), (2, 1, 4), (0, 3)]
    made = huge_pages.zeros(shapes, dtype)
    assert [tuple(t.shape) for t in made] == shapes
    assert all(t.dtype == dtype and t.is_contiguous() and not t.any() for t in made)
    assert all(t.data_ptr() % huge_pages.CACHE_LINE_BYTES == 0 for t in made if t.numel())
    for value, tensor in enumerate(made, 1):
        tensor.fill_(value)
    assert [float(t.sum()) for t in made] == [15.0, 14.0, 24.0, 0.0]
    last = made[2]
    del made, tensor
    gc.collect()
    assert last.flatten().tolist() == [3.0] * 8


def test_nothing_asked_for():
    assert huge_pages.zeros([], torch.float32) == []
    assert huge_pages.zeros([(0, 4)], torch.float32)[0].shape == (0, 4)
