"""The experiments claims rest on, by name: each turns a `Setting` into measured quantities."""

from collections.abc import Callable, Mapping
from importlib import import_module

from workbench.claims.claim import Measured
from workbench.claims.setting import Setting

EXPERIMENTS = ("certificates", "counterexamples", "factorial", "routing", "unmasking")


def experiment(name: str) -> Callable[[Setting], Mapping[str, Measured]]:
    """`measure` of the module of that name."""
    return import_module(f"workbench.claims.experiments.{name}").measure
