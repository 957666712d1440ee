"""What a request to vLLM says about steering, read from its sampling parameters; what cannot be honoured is refused.

Extra arguments (`SamplingParams(extra_args=...)`, or `vllm_xargs` in a request to the server), all optional:

    entropic            "off": this request is left to the engine
    entropic_scenario   another temperature law, a file name of the server's folder ENTROPIC_SCENARIOS
    entropic_seed       seed of this request's draws, instead of the scenario's: the same request again draws the same
    entropic_kind       name of the request's kind, for the scheduler's priors
    entropic_request, entropic_slot     set by our scheduler, not by clients
"""

from dataclasses import dataclass
from typing import Any

from workbench.errors import InputError, unknown_name

KNOWN = (
    "entropic", "entropic_scenario", "entropic_seed", "entropic_kind", "entropic_request", "entropic_slot",
    "entropic_arrival_s",
)  # fmt: skip
GREEDY = 1e-5  # vLLM takes a temperature below this as greedy


@dataclass(frozen=True)
class Wishes:
    """One request's own wishes."""

    steered: bool  # the law decides; False: greedy or opted out
    own_temperature: float
    engine_truncates: bool  # top-k, top-p or min-p asked for: the engine draws
    scenario: str | None
    seed: int | None
    kind: str
    request_id: int | None
    slot: int | None
    changes_logits: str | None  # which parameter changes the logits before a processor sees them


def wishes_of(params: Any) -> Wishes:
    """Of a `vllm.SamplingParams`. Raises `InputError` for an unknown or malformed extra argument."""
    given = {k: v for k, v in (params.extra_args or {}).items() if str(k).startswith("entropic")}
    for name in given:
        if name not in KNOWN:
            raise unknown_name("extra argument", name, KNOWN)
    mode = given.get("entropic", "on")
    if mode not in ("on", "off"):
        raise InputError(f"entropic must be 'on' or 'off', got {mode!r}")
    seed = given.get("entropic_seed")
    if seed is not None and (not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 2**63):
        raise InputError(f"entropic_seed must be a whole number in [0, 2^63), got {seed!r}")
    return Wishes(
        steered=mode == "on" and params.temperature >= GREEDY,
        own_temperature=0.0 if params.temperature < GREEDY else float(params.temperature),
        engine_truncates=params.top_p < 1.0 or params.top_k > 0 or params.min_p > 0.0,
        scenario=given.get("entropic_scenario"),
        seed=seed,
        kind=str(given.get("entropic_kind", "any")),
        request_id=given.get("entropic_request"),
        slot=given.get("entropic_slot"),
        changes_logits=_changes_logits(params),
    )


def check_steerable(wishes: Wishes, law_truncates: bool) -> None:
    """Raises `InputError` where a steered request asks for something the law cannot go together with."""
    if not wishes.steered:
        return
    if wishes.changes_logits is not None:
        raise InputError(
            f"{wishes.changes_logits} changes the logits the temperature law measures; leave it out, or send "
            "entropic='off' to leave this request to the engine"
        )
    if wishes.engine_truncates and law_truncates:
        raise InputError(
            "top_k, top_p and min_p of a request do not go together with a law that truncates; leave them out, or "
            "send entropic='off' to leave this request to the engine"
        )


def _changes_logits(params: Any) -> str | None:
    """The first parameter that changes what a logits processor sees, or what is drawn after it; None: none does."""
    for name, neutral in (
        ("logit_bias", None),
        ("allowed_token_ids", None),
        ("bad_words", None),
        ("structured_outputs", None),
        ("thinking_token_budget", None),
    ):
        if getattr(params, name, neutral):
            return name
    for name, neutral in (
        ("min_tokens", 0),
        ("presence_penalty", 0.0),
        ("frequency_penalty", 0.0),
        ("repetition_penalty", 1.0),
    ):
        if getattr(params, name, neutral) != neutral:
            return name
    return None


def truncates(law: Any) -> bool:
    """Whether a temperature law's table cuts tokens off."""
    return law.get("kind") == "mirostat" or any(w.get("kind") in ("min-p", "top-h") for w in law.get("wrap", []))
