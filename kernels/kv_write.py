"""Triton `kv_write`: new keys and values go to their slots in the paged cache, one program a token."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kernels.launch import FLOATS, POINTER, Shipped, check, check_range, next_power_of_2


@triton.jit
def kv_write_kernel(k_ptr, v_ptr, k_cache_ptr, v_cache_ptr, slot_ptr, num_slots, size, SIZE: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slot_ptr + token)
    i = tl.arange(0, SIZE)
    there = (i < size) & (slot >= 0) & (slot < num_slots)  # a slot out of range writes nothing
    tl.store(k_cache_ptr + slot * size + i, tl.load(k_ptr + token * size + i, mask=i < size), mask=there)
    tl.store(v_cache_ptr + slot * size + i, tl.load(v_ptr + token * size + i, mask=i < size), mask=there)


def kv_write(k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, slot_index: Tensor) -> None:
    """k, v: [tokens, kv_heads, d] into caches [num_blocks, block_size, kv_heads, d] at slot_index [tokens] int64."""
    check("k_cache", k_cache, FLOATS, (None, None, None, None), k_cache)
    check("v_cache", v_cache, k_cache.dtype, k_cache.shape, k_cache)
    num_blocks, block_size, kv_heads, d = k_cache.shape
    check("k", k := k.contiguous(), k_cache.dtype, (None, kv_heads, d), k_cache)
    check("v", v := v.contiguous(), k_cache.dtype, k.shape, k_cache)
    check("slot_index", slot_index, torch.int64, (k.shape[0],), k_cache)
    check_range("slot_index", slot_index, 0, num_blocks * block_size)
    if k.shape[0]:
        size = kv_heads * d
        kv_write_kernel[(k.shape[0],)](
            k, v, k_cache, v_cache, slot_index, num_blocks * block_size, size, SIZE=next_power_of_2(size), num_warps=4
        )


def shipped() -> list[Shipped]:
    return [
        Shipped(
            kv_write_kernel,
            f"kv_write {pointer[1:]} {size}",
            {"k_ptr": pointer, "v_ptr": pointer, "k_cache_ptr": pointer, "v_cache_ptr": pointer, "slot_ptr": "*i64",
             "num_slots": "i64", "size": "i32"},
            {"SIZE": size},
        )
        for pointer in (POINTER[torch.bfloat16], POINTER[torch.float32])
        for size in (256, 1024)
    ]  # fmt: skip
