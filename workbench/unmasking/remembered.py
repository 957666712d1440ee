"""A predictor that remembers: what many runs ask of a deterministic model is computed once."""

import numpy as np

from workbench.signals import FloatArray, IntArray
from workbench.unmasking.predictor import Marginals, MaskedPredictor


class Remembered:
    """Wraps `inner`; a row of tokens it has predicted before is not predicted again, within a call and across calls.

    Decoding one sequence under many rules begins with the same pass for all of them; rules without chance stay together until
    the first of them reveals another position; and sequences that are fully masked differ in nothing but their length. The
    marginals are those of `inner` up to the rounding of another batch. `asked` rows were wanted, `computed` were predicted. A row
    takes 8 (num_symbols + 2) bytes a position; what goes beyond `max_rows` of them makes it begin anew.
    Source: ours.
    """

    def __init__(self, inner: MaskedPredictor, max_rows: int = 20_000):
        self.inner, self.num_symbols, self.max_rows = inner, inner.num_symbols, max_rows
        self.asked = self.computed = 0
        self._known: dict[bytes, tuple[FloatArray, FloatArray | None, FloatArray | None]] = {}

    def predict(self, tokens: IntArray) -> Marginals:
        keys = [row.tobytes() for row in np.ascontiguousarray(tokens)]
        new = [index for index, key in enumerate(keys) if key not in self._known and key not in keys[:index]]
        self.asked, self.computed = self.asked + len(keys), self.computed + len(new)
        if new:
            if len(self._known) + len(new) > self.max_rows:
                wanted = set(keys)
                self._known = {key: row for key, row in self._known.items() if key in wanted}
            found = self.inner.predict(tokens[new])
            for place, index in enumerate(new):
                self._known[keys[index]] = (
                    found.probability[place].copy(),
                    None if found.entropy_nats is None else found.entropy_nats[place].copy(),
                    None if found.confidence is None else found.confidence[place].copy(),
                )
        rows = [self._known[key] for key in keys]
        return Marginals(
            probability=np.stack([row[0] for row in rows]),
            entropy_nats=_stack([row[1] for row in rows]),
            confidence=_stack([row[2] for row in rows]),
        )


def _stack(rows: list[FloatArray | None]) -> FloatArray | None:
    return np.stack([row for row in rows if row is not None]) if rows[0] is not None else None
