"""Philox4x32-10 in Triton: the same bits as `kernels.philox` and the torch twin."""

import triton
import triton.language as tl


@triton.jit
def philox4x32(c0, c1, c2, c3, key_0, key_1):
    """Four output words for uint32 counters and keys."""
    for _ in tl.static_range(10):
        high_0, low_0 = tl.umulhi(c0, 0xD2511F53), c0 * 0xD2511F53
        high_1, low_1 = tl.umulhi(c2, 0xCD9E8D57), c2 * 0xCD9E8D57
        c0 = high_1 ^ c1 ^ key_0
        c2 = high_0 ^ c3 ^ key_1
        c1 = low_1
        c3 = low_0
        key_0 += 0x9E3779B9
        key_1 += 0xBB67AE85
    return c0, c1, c2, c3


@triton.jit
def uniform_lanes(first_lane, request_id, token_index, stream, seed_0, seed_1, BLOCK: tl.constexpr):
    """Uniform draws in (0, 1) at lanes first_lane .. first_lane + BLOCK - 1; first_lane a multiple of 4."""
    counter = (first_lane // 4 + tl.arange(0, BLOCK // 4)).to(tl.uint32)
    zero = counter * 0
    words = philox4x32(
        counter,
        zero + token_index.to(tl.uint32),
        zero + request_id.to(tl.uint32),
        zero + stream.to(tl.uint32),
        zero + seed_0.to(tl.uint32),
        zero + seed_1.to(tl.uint32),
    )
    x = tl.interleave(tl.interleave(words[0], words[2]), tl.interleave(words[1], words[3]))
    return ((x >> 9).to(tl.float32) + 0.5) * 1.1920928955078125e-07  # 2**-23
