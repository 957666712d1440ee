"""Decoding masked text with a model directory: BERT, RoBERTa, Dream or LLaDA under any policy; passes and likelihood."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from workbench.errors import InputError
from workbench.signals import FloatArray, IntArray
from workbench.unmasking.charts import order_heat_map, reveal_animation
from workbench.unmasking.estimate import estimate
from workbench.unmasking.ledger import Batch
from workbench.unmasking.plant import UnmaskPlant, decode
from workbench.unmasking.policies import NamedPolicy
from workbench.unmasking.run_record import RunRecord
from workbench.unmasking.study import Study

SCORED_POSITIONS = 16
SHOWN_CHARS = 160


@dataclass(frozen=True)
class TextSetting:
    directory: Path
    prompt: str | tuple[int, ...]
    length: int  # masked positions behind the prompt
    policy: NamedPolicy
    temperature: float
    repeats: int
    seed: int


def text_study(
    setting: TextSetting, command: str, tell: Callable[[float], None], record_dir: Path | None = None
) -> tuple[Study, dict[str, tuple[str, bytes]]]:
    """One model, one prompt, one policy: a row a run, the order, an animation. Raises `InputError`."""
    from workbench.live.masked_text import MaskedTextModel
    from workbench.unmasking.model_predictor import ModelPredictor, pseudo_nll

    if setting.length < 0:
        raise InputError(f"--length must be at least 0, got {setting.length}")
    if not 0.0 <= setting.temperature < np.inf:
        raise InputError(f"--temperature must be in [0, inf), got {setting.temperature:g}; 0 is the likeliest token")
    model = MaskedTextModel.load(setting.directory)
    prompt = setting.prompt if isinstance(setting.prompt, str) else list(setting.prompt)
    given = model.given(prompt, setting.length)
    if not (given.tokens < 0).any():
        raise InputError("nothing is masked: give --length of at least 1, or a prompt that holds the mask token")
    tell(0.1)
    predictor = ModelPredictor(model)
    frames: list[tuple[FloatArray, IntArray]] = []
    first = np.zeros(setting.repeats)
    recorder = None if record_dir is None else RunRecord(setting.policy, setting.seed, model.name)
    num_masked, known = int((given.tokens < 0).sum()), np.zeros(setting.repeats)

    def look(batch: Batch) -> None:
        if batch.iteration == 0:
            first[batch.rows] = np.nanmean(batch.entropy_nats, axis=1)
        if batch.rows[0] == 0:
            frames.append((batch.entropy_nats[0].copy(), batch.revealed[0].astype(np.int64)))
        known[batch.rows] = (batch.drawn[:, given.tokens < 0] >= 0).sum(axis=1)
        tell(0.1 + 0.8 * float(known.mean()) / num_masked)
        if recorder is not None:
            recorder.on_batch(batch)

    plant = UnmaskPlant(
        predictor,
        np.tile(given.tokens, (setting.repeats, 1)),
        seed=setting.seed,
        temperature=setting.temperature,
        measure_divergence=getattr(setting.policy.policy, "needs_divergence", False),
        on_batch=look,
        select=predictor.select,
    )
    ledger = decode(plant, setting.policy.policy, recorder=recorder).ledger
    hidden = np.flatnonzero(given.tokens < 0)
    scored = hidden[np.unique(np.linspace(0, hidden.size - 1, min(SCORED_POSITIONS, hidden.size)).round().astype(int))]
    nll = pseudo_nll(model, plant.tokens, scored)
    texts = [model.decode(row) for row in plant.tokens]
    passes = estimate(ledger.iterations.astype(float))
    study = Study(
        name=f"{model.name}-{setting.policy.label}",
        title=f"{setting.policy.label} on {model.name}, {hidden.size} masked positions",
        intro=(
            f"{model.family} model; given: {given.text[:SHOWN_CHARS]!r}. T = {setting.temperature:g}. Pseudo-perplexity on "
            f"{scored.size} of the revealed positions, each masked alone. Passes are forward passes a run."
        ),
        command=command,
        columns=("run", "passes", "entropy spent, nats", "NLL drawn, nats a token", "pseudo-perplexity", "text"),
        rows=[
            (
                r, int(ledger.iterations[r]), float(ledger.entropy_spent_nats[r]),
                float(ledger.surprisal_nats[r]) / hidden.size, float(np.exp(nll[r])), texts[r][-SHOWN_CHARS:],
            )
            for r in range(setting.repeats)
        ],
        figures={
            "iterations": passes.mean,
            "iterations_half_width": passes.half_width,
            "pseudo_perplexity": float(np.exp(nll.mean())),
            "nll_drawn_nats": float(ledger.surprisal_nats.mean()) / hidden.size,
            "entropy_nats": float(first.mean()),
            "kl_nats": None,
            "bound_kl_nats": None,
            "bound_iterations": None,
        },
        notes=["A real model has no known joint: divergence and bounds are null; likelihood stands in."],
    )  # fmt: skip
    complete = bool(np.all(plant.tokens >= 0)) and bool(np.all(ledger.iterations <= hidden.size))
    study.state("every position is revealed, in at most one pass a masked position", complete)
    pictures = {
        "order.png": (
            "Order of revealing",
            order_heat_map(ledger.revealed_at[:24], f"{setting.policy.label} on {model.name}"),
        ),
        "run.gif": ("One run: blue masked (darker: more uncertain), orange revealed now", reveal_animation(frames)),
    }
    if recorder is not None and record_dir is not None:
        about = {"name": model.name, "family": model.family, "backend": predictor.ops.implementation}
        columns = {"given_text": [given.text] * setting.repeats, "output_text": texts, "pseudo_nll_nats": nll}
        recorder.finish(record_dir / "text", plant, about, columns)
    return study, pictures
