"""Exact joint distributions that stand where a masked-diffusion model would: their conditionals are right, so KL is exact."""
