"""Unmasking policies: which masked positions a masked-diffusion model reveals after each forward pass."""
