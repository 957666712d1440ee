"""Every controller of the catalog with the numbers it cannot do without, and every wrapper around what it may wrap.

A new plug-in is one row of `workbench/catalog.py`; it needs a row in `KNOBS` only where a field has no default.
"""

from collections.abc import Iterator
from typing import Any

from workbench.catalog import CATALOG, WRAPPERS, build_controller
from workbench.protocols import DecisionPoint, RevealAction, SamplingAction

VOCAB = 50

# Fields without a default, by decision point and kind; filled in by `build_controller` only where the class has them.
KNOBS: dict[tuple[DecisionPoint, str], dict[str, Any]] = {
    (DecisionPoint.TEMPERATURE, kind): {"target_entropy_nats": 1.5}
    for kind in ("pi", "pi-positional", "pid", "gain-scheduled", "anchored", "explore", "exact")
}
KNOBS[DecisionPoint.ROUTE, "mlp"] = {
    "centre": (40.0, 0.0, 1.5),
    "scale": (20.0, 0.3, 0.5),
    "hidden_weight": ((1.0, -1.0, 0.5), (0.2, 2.0, -1.0)),
    "hidden_bias": (0.1, -0.1),
    "output_weight": ((1.0, 0.0), (0.0, 1.0), (-1.0, -1.0)),
    "output_bias": (0.0, 0.0, 0.0),
}


def cases(delay_steps: int = 0) -> Iterator[tuple[str, Any]]:
    """(name, controller) for every row, bare and wrapped."""
    for point, rows in CATALOG.items():
        for kind in rows:
            table = {"kind": kind} | KNOBS.get((point, kind), {})
            context = {"vocab_size": VOCAB, "delay_steps": delay_steps}
            bare = build_controller(point, table, context)
            yield kind, bare
            for name, wrapper in WRAPPERS.items():
                assert wrapper.action_type in (SamplingAction, RevealAction)
                if wrapper.point is not point:
                    continue
                extra = 1 if name == "delayed" else 0
                if name == "rate-limited" and getattr(bare, "solves_in_step", False):
                    continue
                inner = build_controller(point, table, context | {"delay_steps": delay_steps + extra})
                yield f"{name}({kind})", wrapper(inner)


def named_cases(delay_steps: int = 0) -> list[Any]:
    import pytest

    return [pytest.param(controller, id=f"{controller.point.value}-{name}") for name, controller in cases(delay_steps)]
