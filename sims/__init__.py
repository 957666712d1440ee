"""The simulated plant: a discrete-event GPU server with entropy and attention-mass processes. Never imports torch."""
