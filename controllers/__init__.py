"""The five kinds of entropic controller: pure NumPy, one object for the simulator and the real model."""
