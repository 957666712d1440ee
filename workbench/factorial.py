"""The 2x2x2 factorial: scheduler, temperature loop and pruning on or off, in every combination.

Off means absent: first come first served, the constant baseline temperature, every block read. The temperature loop's
target is the mean entropy that the constant temperature gives, so that the two are compared at the same mean.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workbench.metrics import ARM_CODES, CONTROLLERS
from workbench.protocols import DecisionPoint
from workbench.scenario import Scenario


@dataclass(frozen=True, kw_only=True)
class FactorialSettings:
    """Knobs of the three controllers when they are on. Targets in nats."""

    target_entropy_nats: float
    temperature_start: float = 1.0
    mass_budget: float = 0.05
    sink_blocks: int = 1
    recent_blocks: int = 4
    aging_nats_per_s: float = 100.0

    def controllers(self, code: str) -> dict[DecisionPoint, dict[str, Any]]:
        """Controller tables of the arm `code` (letters of `CONTROLLERS`, or "-")."""
        tables: dict[DecisionPoint, dict[str, Any]] = {}
        if "S" in code:
            tables[DecisionPoint.ORDER] = {"kind": "entropy-aging", "aging_nats_per_s": self.aging_nats_per_s}
        if "T" in code:
            tables[DecisionPoint.TEMPERATURE] = {
                "kind": "pi",
                "target_entropy_nats": self.target_entropy_nats,
                "temperature_start": self.temperature_start,
            }
        if "P" in code:
            tables[DecisionPoint.KEEP] = {
                "kind": "least-mass",
                "mass_budget": self.mass_budget,
                "sink_blocks": self.sink_blocks,
                "recent_blocks": self.recent_blocks,
            }
        return tables


def switches(code: str) -> Mapping[str, bool]:
    """The manifest's `arm` of a code: each controller on or off."""
    return {name: letter in code for letter, name in CONTROLLERS.items()}


def switches_of(scenario: Scenario) -> Mapping[str, bool]:
    """The same for a scenario of its own: a controller is on where its decision point has one."""
    points = {"scheduler": DecisionPoint.ORDER, "temperature": DecisionPoint.TEMPERATURE, "pruning": DecisionPoint.KEEP}
    return {name: point in scenario.controllers for name, point in points.items()}


__all__ = ["ARM_CODES", "FactorialSettings", "switches", "switches_of"]
