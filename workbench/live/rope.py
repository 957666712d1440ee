"""Rotary angles: cos and sin of position times inverse frequency, with the scaling rules of `ModelConfig`.

inverse frequency_i = theta^(-2 i / d), i = 0 .. d/2 - 1. `llama3` scaling with wavelength w_i = 2 pi / f_i and
original context L: f_i is kept where w_i < L / high, divided by `factor` where w_i > L / low, and in between mixed with
weight s = (L / w_i - low) / (high - low). Source: RoFormer (arXiv 2104.09864); Llama 3.1 model card for the scaling.
"""

import math

import torch

from workbench.live.model_config import ModelConfig


def inverse_frequencies(config: ModelConfig) -> torch.Tensor:
    """[head_dim / 2] in float32, computed in float64."""
    exponent = torch.arange(0, config.head_dim, 2, dtype=torch.float64) / config.head_dim
    frequency = config.rope_theta**-exponent / config.rope_linear_factor
    if (rule := config.rope_scaling) is not None:
        wavelength = 2.0 * math.pi / frequency
        share = rule.original_positions / wavelength
        smooth = ((share - rule.low_freq_factor) / (rule.high_freq_factor - rule.low_freq_factor)).clamp(0.0, 1.0)
        frequency = (1.0 - smooth) * frequency / rule.factor + smooth * frequency
    return frequency.float()


def rotary_table(config: ModelConfig, num_positions: int) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin, each [num_positions, head_dim / 2] in float32."""
    position = torch.arange(num_positions, dtype=torch.float32)
    angle = position[:, None] * inverse_frequencies(config)[None, :]
    return angle.cos(), angle.sin()
