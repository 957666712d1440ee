"""Unmasking policies by name and main number, as the command line gives them: `entropy-sum`, `confidence-threshold:0.9`."""

from dataclasses import dataclass
from typing import Any

from workbench.catalog import CATALOG, build_controller
from workbench.errors import InputError, unknown_name
from workbench.protocols import DecisionPoint
from workbench.unmasking.accounts import Policy

# The field that `NAME:VALUE` sets, and whether `--eta` sets it where no value is given.
MAIN_KNOB: dict[str, tuple[str, bool]] = {
    "entropy-sum": ("eta_nats", True),
    "adaptive-entropy-sum": ("total_nats", True),
    "max-entropy": ("threshold_nats", True),
    "ordered-entropy-sum": ("eta_nats", True),
    "eb-sampler": ("gamma_nats", True),
    "confidence-threshold": ("threshold", False),
    "confidence-factor": ("factor", False),
    "klass": ("confidence", False),
    "low-confidence": ("count", False),
    "uniform": ("num_iterations", False),
    "random-size": ("num_iterations", False),
    "dilated": ("base", False),
    "left-to-right": ("count", False),
}


@dataclass(frozen=True)
class NamedPolicy:
    name: str
    label: str  # with its main number
    policy: Policy
    uses_eta: bool
    table: dict[str, Any]  # as a scenario's [controllers.reveal] has it


def named_policy(
    text: str,
    eta_nats: float | None = None,
    *,
    knobs: dict[str, Any] | None = None,
    block_length: int | None = None,
    remask_below: float | None = None,
) -> NamedPolicy:
    """The policy `NAME` or `NAME:VALUE`; further fields in `knobs`; wrapped where a block length or a threshold is given.

    Raises:
        InputError: unknown name or field, a value that is no number or out of range.
    """
    name, _, value = text.strip().partition(":")
    name = name.replace("_", "-").lower()
    if name not in CATALOG[DecisionPoint.REVEAL]:
        raise unknown_name("policy", name, CATALOG[DecisionPoint.REVEAL])
    field, takes_eta = MAIN_KNOB[name]
    table: dict[str, Any] = {"kind": name, **(knobs or {})}
    uses_eta = takes_eta and eta_nats is not None and not value and field not in table
    if value:
        table[field] = _number(text, value)
    elif uses_eta:
        table[field] = eta_nats
    wraps: list[dict[str, Any]] = []
    if block_length is not None:
        wraps.append({"kind": "semi-autoregressive", "block_length": block_length})
    if remask_below is not None:
        wraps.append({"kind": "remasking", "threshold": remask_below})
    table["wrap"] = wraps
    policy = build_controller(DecisionPoint.REVEAL, table, {})
    label = name + (f":{table[field]:g}" if isinstance(table.get(field), int | float) else "")
    for wrap in wraps:
        label = f"{wrap['kind']}({label})"
    return NamedPolicy(name, label, policy, uses_eta, table)


def parse_knobs(pairs: list[str]) -> dict[str, Any]:
    """`key=value` words as a table; numbers become numbers. Raises InputError for a word without `=`."""
    knobs: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise InputError(f"--set takes key=value, got {pair!r}")
        knobs[key.strip()] = _number(pair, value) if _is_number(value) else value.strip()
    return knobs


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _number(where: str, text: str) -> int | float:
    if not _is_number(text):
        raise InputError(f"policy {where!r}: {text!r} is no number; write NAME:VALUE, as in entropy-sum:0.1")
    value = float(text)
    return int(value) if value.is_integer() and not any(c in text for c in ".eE") else value
