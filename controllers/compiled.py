"""A controller's step in compiled code, for a plant that takes many steps without coming back to Python.

Offering one is optional. A controller that does has a method

    compiled(state, width) -> rule | None        None where these parameters have no compiled step

and its rule is a NamedTuple of numbers and of the state's arrays, copied, with `width` KV blocks a slot where the state
holds blocks. The plant changes those arrays in place, step by step, and asks `rule.state(shown_width)` for the state when it
comes back, `shown_width` being the blocks a slot that the last keep decision was shown; a keep rule never asked is left out.
The class of the rule names its step, the compiled pieces that the controller's own `step` runs:

    decide = compiled function (rule, view, third)

    ORDER        third: out [slots] int64    ranks, as `OrderAction.rank`
    TEMPERATURE  third: out [slots] float64  temperatures, not yet clamped; the rule has `temperature_min`, `temperature_max`
    KEEP         third: out [slots] int64    `KeepRule`s; the rule has the other fields of `KeepAction`, [slots]

Each is asked once a step, never slot by slot: handing over a tuple counts a reference for each of its arrays, which for the
arrays of one slot would take longer than the decision.

A contract test holds `decide` and `step` together bit for bit. Views hold what observations hold, under the same names.
"""

from typing import Any, ClassVar, NamedTuple, Protocol

from numba import types
from numba.extending import overload

from workbench.signals import BoolArray, FloatArray, IntArray


class OrderView(NamedTuple):
    active: BoolArray
    joined: BoolArray
    measured: BoolArray
    served: BoolArray
    arrival_rank: IntArray
    kind: IntArray
    entropy_raw_nats: FloatArray
    marginal_step_s: FloatArray


class TemperatureView(NamedTuple):
    step: int
    active: BoolArray
    joined: BoolArray
    measured: BoolArray
    measured_step: IntArray
    entropy_nats: FloatArray
    varentropy_nats2: FloatArray
    temperature_applied: FloatArray


class KeepView(NamedTuple):
    active: BoolArray
    joined: BoolArray
    measured: BoolArray
    num_blocks: IntArray
    block_mass: FloatArray  # [slots, width of the rule]
    shown_width: int  # blocks a slot that the observation would show


class Rule(Protocol):
    """What `compiled` returns."""

    decide: ClassVar[Any]

    def state(self, shown_width: int) -> Any: ...


def decide(rule: Any, view: Any, third: Any) -> Any:
    """The step of whichever controller `rule` belongs to. Compiled code only: `_decide` below is what Numba puts here."""
    raise NotImplementedError


@overload(decide, jit_options={"forceinline": True})
def _decide(rule: Any, view: Any, third: Any) -> Any:
    if not isinstance(rule, types.NamedTuple | types.NamedUniTuple):
        return None
    step = rule.instance_class.decide

    def call(rule: Any, view: Any, third: Any) -> Any:
        return step(rule, view, third)

    return call
