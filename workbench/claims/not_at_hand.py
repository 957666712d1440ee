"""What an experiment says when something it needs is not on this machine: its claims are then not testable here."""

from workbench.errors import InputError


class NotAtHand(InputError):
    """The message says what is missing and how to give it."""
