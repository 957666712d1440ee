"""From the tables of a study to its page, its sentences and the figures that programs read."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from controllers.pruning.entropy_share import EntropyShare
from workbench.errors import InputError
from workbench.pruning import pictures
from workbench.pruning.figures import ArmFigures, arm_figures, at_one_per_cent, best_of_ours, duels
from workbench.pruning.kvpress_peer import sentences as kvpress_sentences
from workbench.pruning.page import HEADER, figure_rows, section, write_page
from workbench.pruning.regime import regime
from workbench.pruning.regime import sentences as regime_sentences
from workbench.pruning.study import Settings
from workbench.pruning.verdict import (
    certificate_sentences,
    duel_sentences,
    entropy_sentence,
    quality_sentences,
)
from workbench.record import write_atomically

KVPRESS_NOTE = (
    "The same texts and continuations through kvpress in its own environment: a press drops keys once, after the prefill, token by "
    "token and head by head, for good, before it has seen the continuation; bytes are the share of KV it keeps. Our policies choose "
    "blocks anew for each token and count what that costs."
)


@dataclass(frozen=True)
class Report:
    ok: bool
    arms: list[ArmFigures]
    lines: list[str]
    figures: dict[str, Any]
    paths: dict[str, Path]


def context_sentence(positions: pl.DataFrame) -> str:
    """What the dense model can do at each context: NLL by eighths of the text."""
    out = []
    for (context,), rows in positions.group_by(["context"], maintain_order=True):
        by = rows.filter(~pl.col("kind").is_in(["keyvalue"])).group_by("first_token").agg(pl.col("nll_nats").mean())
        nll = by.sort("first_token")["nll_nats"].to_numpy()
        eighths = [float(part.mean()) for part in np.array_split(nll, min(8, nll.size))]
        out.append(f"{context:,} tokens: " + ", ".join(f"{x:.2f}" for x in eighths))
    return "Dense NLL along the text in eighths, nats a token (gsm8k, code, needles): " + "; ".join(out) + "."


def report(
    tables: Mapping[str, pl.DataFrame],
    settings: Settings,
    directory: Path,
    command: str,
    max_context: int,
    kvpress: Sequence[Mapping[str, Any]] | None = None,
) -> Report:
    """`kvpress`: rows of `kvpress_peer.compare`. Raises `InputError` where no text is done yet."""
    steps, certificates, curve = tables["steps"], tables["certificates"], tables["curve"]
    if steps.height == 0:
        raise InputError("no text of this study is done yet; run it again to resume")
    figures = arm_figures(steps)
    fought = duels(figures)
    dense = [f for f in figures if f.arm == "none"]
    asked = "; ".join(f"{f.metrics['accuracy'].text(2)} at {f.context:,}" for f in dense)
    context_lines = [
        f"The configuration of the model allows {max_context:,} positions. {context_sentence(tables['positions'])}",
        f"Dense answers right in retrieval: {asked}.",
    ]
    target = min(settings.targets)
    shown = best_of_ours(figures, max(f.context for f in figures), target)
    simulated = regime(
        *((shown.metrics["bytes_frac"].value, shown.metrics["blocks_frac"].value) if shown else (0.25, 0.25))
    )
    proof, quality = certificate_sentences(curve, certificates), quality_sentences(figures)
    images = {"pareto.png": pictures.png(pictures.pareto(figures))}
    if any(not np.isnan(f.metrics["accuracy"].value) for f in figures):
        images["retrieval.png"] = pictures.png(pictures.retrieval(figures))
    images["certificate.png"] = pictures.png(pictures.certificate_curves(curve))
    if certificates.height:
        images["layers.png"] = pictures.png(pictures.layers(certificates))
    images["regime.png"] = pictures.png(pictures.regime_map(simulated))
    predictors = (
        tables["predictors"]
        .group_by("context", "predictor", maintain_order=True)
        .agg(pl.col("error", "missed_mass", "oracle_missed_mass").mean())
    )
    spread = float(steps.filter(pl.col("arm") == "none")["entropy_nats"].std() or 0.0)
    lines = [*duel_sentences(fought), *quality, *proof, entropy_sentence(figures, spread)]
    sections = [
        section("What to use", lines[: len(lines) - len(proof) - 1]),
        section(
            "Figures",
            [
                "Means over texts, 95 % bootstrap intervals over texts. Bytes: keys and values of the blocks read, sketch planes, "
                "boxes and scales, over all KV bytes in bf16; a block counts once a KV head. KL to the dense distribution of the "
                "same token, NLL of the reference token, both after the errors of earlier tokens have gone into the KV cache.",
                f"entropy-share is a trap: it {EntropyShare.trap}. Where many blocks are kept a dominant block still ranks among them, so "
                "that guard and trap differ only at budgets of a few blocks; equal rows above say that it did not bite here.",
            ],
            HEADER, figure_rows(figures), {"pareto": images["pareto.png"]},
        ),
        section("Retrieval and context", context_lines, images={"retrieval": images["retrieval.png"]} if "retrieval.png" in images else {}),
        section(
            "Certificate", proof, images={k: images[f"{k}.png"] for k in ("certificate", "layers") if f"{k}.png" in images},
        ),
        section(
            "Predicting the next query's masses",
            ["Total variation distance to the true masses of a KV head, and the true mass outside the predicted best quarter."],
            ("predictor", "context", "error", "missed mass", "missed by the oracle"),
            [
                [r["predictor"], f"{r['context']:,}", f"{r['error']:.3f}", f"{r['missed_mass']:.3f}", f"{r['oracle_missed_mass']:.3f}"]
                for r in predictors.iter_rows(named=True)
            ],
        ),
        section("Where it changes throughput", regime_sentences(simulated), images={"regime": images["regime.png"]}),
        section("Entropy", [lines[-1]]),
    ]  # fmt: skip
    if kvpress:
        images["kvpress.png"] = pictures.png(pictures.beside_kvpress(figures, kvpress))
        beside = kvpress_sentences(kvpress)
        sections.insert(
            2, section("kvpress beside us", [KVPRESS_NOTE, *beside], images={"kvpress": images["kvpress.png"]})
        )
        lines += beside
    numbers = _numbers(figures, certificates, curve, settings)
    facts = [
        f"{steps.select('kind', 'context', 'seed').unique().height} texts", f"contexts {', '.join(map(str, settings.contexts))}",
        f"continuations of {settings.tail_tokens} tokens", f"seed {settings.seed}", f"model {settings.model}",
    ]  # fmt: skip
    paths = write_page(
        directory, model=settings.model, command=command, facts=facts, lines=lines, sections=sections, images=images,
        figures=numbers,
    )  # fmt: skip
    for name, table in tables.items():
        buffer = io.BytesIO()
        table.write_parquet(buffer, compression="zstd")
        write_atomically(directory / f"{name}.parquet", buffer.getvalue())
        paths[name] = directory / f"{name}.parquet"
    honest = numbers["violations"] == 0
    exact = all(f.metrics["kl_nats"].value == 0.0 and f.metrics["bytes_frac"].value == 1.0 for f in dense)
    return Report(honest and exact, figures, [*lines, *context_lines, *regime_sentences(simulated)], numbers, paths)


def _numbers(
    figures: Sequence[ArmFigures], certificates: pl.DataFrame, curve: pl.DataFrame, settings: Settings
) -> dict[str, Any]:
    """The plain names speak of our best arm at the smallest budget and the longest context."""

    def number(value: float) -> float | None:
        return None if np.isnan(value) else float(value)

    longest = max(f.context for f in figures)
    best = best_of_ours(figures, longest, min(settings.targets)) or figures[0]
    lies = sum(int(t["violations"].sum()) for t in (certificates, curve) if t.height)
    at = at_one_per_cent(curve) if curve.height else curve
    out: dict[str, Any] = {
        "bytes_frac": number(best.metrics["bytes_frac"].value),
        "kl_nats": number(best.metrics["kl_nats"].value),
        "nll_loss_nats": number(best.metrics["nll_loss_nats"].value),
        "violations": lies,
        "vacuous_frac": number(float(at["vacuous_frac"].mean())) if at.height else None,
    }
    for f in figures:
        for name in ("bytes_frac", "kl_nats", "nll_loss_nats", "accuracy"):
            out[f"{f.label}, {f.context}: {name}"] = number(f.metrics[name].value)
    for row in (
        at.group_by("kind", "query_context", maintain_order=True).agg(pl.col("bytes_frac").mean()).iter_rows(named=True)
        if at.height
        else ()
    ):
        out[f"certified at 0.01, {row['kind']}, {row['query_context']}: bytes_frac"] = row["bytes_frac"]
    return out
