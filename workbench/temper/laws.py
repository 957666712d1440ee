"""Which temperature laws are compared, each built for the target, vocabulary and delay at hand."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from controllers.temperature.anchored import AnchoredI
from controllers.temperature.edt import EDT
from controllers.temperature.exact import ExactSolve
from controllers.temperature.explore import IntegralExplore
from controllers.temperature.fixed import Fixed
from controllers.temperature.gain_scheduled import GainScheduled
from controllers.temperature.min_p import MinP
from controllers.temperature.mirostat import Mirostat
from controllers.temperature.pi import PITemperature
from controllers.temperature.pid import PIDTemperature
from controllers.temperature.positional import PositionalPI
from controllers.temperature.setpoint import TargetSteps
from controllers.temperature.top_h import TopH
from controllers.wrappers import RateLimited
from workbench.errors import unknown_name


@dataclass(frozen=True)
class Law:
    """`build(target, steps, vocab)` gives the controller. `regulates`: it has an entropy target."""

    name: str
    what: str
    build: Callable[[float, TargetSteps, int], Any]
    regulates: bool = True
    delay_steps: int = 0


def _aimed(law: Callable[..., Any], **knobs: Any) -> Callable[[float, TargetSteps, int], Any]:
    return lambda target, steps, vocab: law(target_entropy_nats=target, target_steps=steps, vocab_size=vocab, **knobs)


def _constant(law: Any) -> Callable[[float, TargetSteps, int], Any]:
    return lambda target, steps, vocab: law


NOTHING = Law("does nothing (T = 1)", "constant T = 1", _constant(Fixed(temperature=1.0)), regulates=False)

LAWS: tuple[Law, ...] = (
    NOTHING,
    Law("pi", "integral, half the proven gain", _aimed(PITemperature)),
    Law("pi, with k_p", "half the proven gain, k_p = 0.01", _aimed(PITemperature, k_p=0.01)),
    Law("pi-positional", "positional form, back-calculation", _aimed(PositionalPI, k_p=0.01)),
    Law("pid", "velocity form, k_d = 0.002", _aimed(PIDTemperature)),
    Law("pi, delay 1", "measurement one token late", _aimed(PITemperature, delay_steps=1), delay_steps=1),
    Law("anchored, delay 1", "anchored at the measured token", _aimed(AnchoredI, delay_steps=1), delay_steps=1),
    Law("gain-scheduled", "Newton step, limited", _aimed(GainScheduled)),
    Law("rate-limited pi", "at most 2 % a token", lambda h, s, n: RateLimited(_aimed(PITemperature)(h, s, n), 0.02)),
    Law("exact", "H(T) = H* solved on each token's logits", _aimed(ExactSolve)),
    Law(
        "mirostat",
        "surprisal loop, tau = H*",
        lambda h, s, n: Mirostat(target_surprisal_nats=max(h, 0.05), rate=0.1),
        regulates=False,
    ),
    Law("edt", "feed-forward from raw H", _constant(EDT()), regulates=False),
    Law("min-p 0.05 (T = 1)", "truncation", _constant(MinP(Fixed(), min_p=0.05)), regulates=False),
    Law("top-h 0.4 (T = 1)", "truncation", _constant(TopH(Fixed(), top_h=0.4)), regulates=False),
    Law("explore", "integral, opposite sign", _aimed(IntegralExplore), regulates=False),
)


def chosen_laws(names: list[str]) -> tuple[Law, ...]:
    """The laws named, in table order, with the one that does nothing first; all of them for an empty list."""
    known = [law.name for law in LAWS]
    for name in names:
        if name not in known:
            raise unknown_name("law", name, known)
    return tuple(law for law in LAWS if not names or law is NOTHING or law.name in names)
