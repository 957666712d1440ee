"""Masked-diffusion decoding: a plant that reveals, exact accounts of what it cost, and the studies made of them."""
