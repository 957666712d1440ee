"""One task's recorded generations as aligned arrays: what each strategy would have scored and cost on each question.

Two ways of scoring: "extraction" reads the answer from the text; "likelihood" takes the option the model finds likeliest after its
own text (numbers have no options and are scored by extraction in both).
Token accounts [ours]: a fixed strategy costs its reply; a router's Standard costs the Standard reply (the probe is its
beginning, and its KV is reused); a router's Direct or CoT costs the probe and the other reply, whose prompt is another.
"""

from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from workbench.errors import InputError
from workbench.protocols import Controller, RouteAction, RouteObservation, Strategy
from workbench.routing.generation_record import Settings
from workbench.signals import BoolArray, FloatArray, IntArray

SCORINGS = ("extraction", "likelihood")


@dataclass(frozen=True, kw_only=True)
class Panel:
    """Q questions; the second axis of [Q, 3] arrays is `Strategy`."""

    task: str
    scoring: str
    position: IntArray  # [Q]
    correct: BoolArray  # [Q, 3]
    answered: BoolArray  # [Q, 3] an answer could be read (always, by likelihood)
    output_tokens: IntArray  # [Q, 3]
    prompt_tokens: IntArray  # [Q, 3]
    probe_tokens: IntArray  # [Q] tokens the probe really took
    probe_entropy_nats: FloatArray  # [Q, probe_tokens], NaN beyond the reply
    probe_surprisal_nats: FloatArray
    chance: float  # accuracy of guessing uniformly among the options; NaN for numbers

    def __len__(self) -> int:
        return len(self.position)

    def rows(self, keep: BoolArray | IntArray) -> "Panel":
        """The given questions only."""
        picked = {name: value[keep] for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        return replace(self, **picked)

    def observation(self) -> RouteObservation:
        """All questions as one route observation, a slot each."""
        n = len(self)
        return RouteObservation(
            step=0,
            active=np.ones(n, dtype=bool),
            joined=np.ones(n, dtype=bool),
            request_id=self.position,
            measured=self.probe_tokens > 0,
            measured_step=np.zeros(n, dtype=np.int64),
            num_probe_tokens=self.probe_tokens,
            probe_entropy_nats=self.probe_entropy_nats,
            probe_surprisal_raw_nats=self.probe_surprisal_nats,
        )

    def route(self, router: Controller) -> RouteAction:
        return router.step(router.init(len(self)), self.observation())[1]

    def outcome(self, strategy: IntArray, probed: bool) -> tuple[BoolArray, IntArray]:
        """(correct [Q], output tokens [Q]) when question q is answered with `strategy[q]`."""
        rows = np.arange(len(self))
        paid = self.output_tokens[rows, strategy]
        if probed:
            paid = paid + np.where(strategy == Strategy.STANDARD, 0, self.probe_tokens)
        return self.correct[rows, strategy], paid


def needs_probe(router: Controller) -> bool:
    """False for a router that decides without looking at the question: it pays for no probe."""
    return bool(getattr(router, "needs_probe", True))


def make_panel(table: pl.DataFrame, task: str, settings: Settings, scoring: str = "extraction") -> Panel:
    """The `Panel` of every question of `task` that has all three strategies recorded."""
    if scoring not in SCORINGS:
        raise InputError(f"scoring must be one of {', '.join(SCORINGS)}, got {scoring!r}")
    rows = table.filter(pl.col("task") == task)
    parts = {s: rows.filter(pl.col("strategy") == s.name.lower()).sort("position") for s in Strategy}
    shared = set.intersection(*(set(part["position"].to_list()) for part in parts.values()))
    if not shared:
        raise InputError(
            f"task {task!r}: no question has all three strategies recorded yet; run the evaluation further"
        )
    parts = {s: part.filter(pl.col("position").is_in(sorted(shared))) for s, part in parts.items()}
    standard = parts[Strategy.STANDARD]
    has_options = bool((standard["num_labels"] > 0).all())
    by_likelihood = scoring == "likelihood" and has_options

    def columns(name: str) -> np.ndarray:
        return np.stack([parts[s][name].to_numpy() for s in Strategy], axis=1)

    correct = columns("correct_likelihood" if by_likelihood else "correct_extraction").astype(bool)
    answered = np.ones_like(correct)
    if not by_likelihood:
        answered = np.stack([parts[s]["extracted"].is_not_null().to_numpy() for s in Strategy], axis=1)
    return Panel(
        task=task,
        scoring="likelihood" if by_likelihood else "extraction",
        position=standard["position"].to_numpy().astype(np.int64),
        correct=correct,
        answered=answered,
        output_tokens=columns("output_tokens").astype(np.int64),
        prompt_tokens=columns("prompt_tokens").astype(np.int64),
        probe_tokens=np.minimum(standard["output_tokens"].to_numpy(), settings.probe_tokens).astype(np.int64),
        probe_entropy_nats=_padded(standard["entropy_raw_nats"], settings.probe_tokens),
        probe_surprisal_nats=_padded(standard["surprisal_raw_nats"], settings.probe_tokens),
        chance=float((1.0 / standard["num_labels"]).mean()) if has_options else float("nan"),  # type: ignore[arg-type]
    )


def split(panel: Panel, settings: Settings) -> tuple[Panel, Panel]:
    """(calibration, evaluation): the first `num_calibration` positions and the rest."""
    first = panel.position < settings.num_calibration
    return panel.rows(first), panel.rows(~first)


def _padded(lists: pl.Series, width: int) -> FloatArray:
    out = np.full((len(lists), width), np.nan)
    for row, values in enumerate(lists):
        head = values.to_numpy()[:width]
        out[row, : len(head)] = head
    return out
