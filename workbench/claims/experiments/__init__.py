"""The experiments claims rest on, by name: each turns a `Setting` into measured quantities."""

from collections.abc import Callable, Mapping
from importlib import import_module

from workbench.claims.claim import Measured
from workbench.claims.setting import Setting

# In the order they are run; what is quick comes first.
EXPERIMENTS = (
    "certificates", "counterexamples", "routing", "unmasking", "max_entropy", "factorial_azure", "factorial_mooncake",
    "factorial_vllm", "temper", "prune", "quality", "probe", "factorial_live", "authority",
)  # fmt: skip
# Those that use one core and nothing that learns: they run beside each other.
SINGLE = ("certificates", "counterexamples", "routing", "unmasking", "max_entropy")


def experiment(name: str) -> Callable[[Setting], Mapping[str, Measured]]:
    """`measure` of the module of that name."""
    return import_module(f"workbench.claims.experiments.{name}").measure
