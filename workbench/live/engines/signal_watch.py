"""The watchdog of the signal path: is the process that samples still giving signs of life?

After each model step the scheduler shows the step the sampler says it has reached. `PATIENCE_STEPS` model steps without a
new one are a lost signal; the next new one brings it back. Steps, not seconds: an idle engine gives no sign and needs none.
"""

from enum import Enum

PATIENCE_STEPS = 8


class Change(Enum):
    """What a step changed."""

    NOTHING = "nothing"
    LOST = "lost"
    RETURNED = "returned"


class SignalWatch:
    """`lost` says whether the engine is on its own now."""

    def __init__(self, patience_steps: int = PATIENCE_STEPS) -> None:
        self.patience_steps = patience_steps
        self.lost = False
        self._reached, self._silent_steps = 0, 0

    def after_step(self, sampler_step: int) -> Change:
        """A model step has ended; `sampler_step` is what the board says now."""
        self._silent_steps = 0 if sampler_step != self._reached else self._silent_steps + 1
        self._reached = sampler_step
        if not self.lost and self._silent_steps >= self.patience_steps:
            self.lost = True
            return Change.LOST
        if self.lost and self._silent_steps == 0:
            self.lost = False
            return Change.RETURNED
        return Change.NOTHING
