"""The one exception for bad input: the command line prints it as a single line and exits with 2."""

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Input that cannot be used. The message says what, where, the allowed range and the remedy, in one line."""


def unknown_name(what: str, given: str, known: Iterable[str]) -> InputError:
    """An `InputError` for a name that is not one of `known`, offering the nearest ones."""
    choices = sorted(known)
    near = difflib.get_close_matches(given, choices, n=3, cutoff=0.5)
    offer = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(choices)}"
    return InputError(f"unknown {what} {given!r}; {offer}")
