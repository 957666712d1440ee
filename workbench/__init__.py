"""Simulation and control-theory workbench for language-model inference steered by uncertainty."""
