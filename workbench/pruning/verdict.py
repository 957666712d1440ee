"""What a pruning study shows, in sentences; each names its interval, and a baseline that wins is named."""

from collections.abc import Sequence

import polars as pl

from workbench.pruning.figures import (
    QUALITY_KEPT_NATS,
    ArmFigures,
    Duel,
    at_one_per_cent,
    entropy_law,
    quality_budget,
)


def duel_sentences(found: Sequence[Duel]) -> list[str]:
    """One a context and budget: in KL and in NLL, who is beaten beyond doubt, who is not told apart, who wins."""
    out = []
    for context, target in dict.fromkeys((d.context, d.target_frac) for d in found):
        mine = [d for d in found if (d.context, d.target_frac) == (context, target)]
        lower = all(d.kl_nats.value < 0.0 and d.nll_nats.value < 0.0 for d in mine)
        parts = [
            f"At {target:.0%} of bytes and {context:,} tokens our best by KL is {mine[0].ours}; its means of KL and NLL loss are "
            + ("both below every baseline's." if lower else "not both below every baseline's.")
        ]
        for name, measure in (("KL", "kl_nats"), ("NLL", "nll_nats")):
            told = {d.baseline: getattr(d, measure) for d in mine}
            sure = [b for b, e in told.items() if e.high < 0.0]
            wins = [b for b, e in told.items() if e.low > 0.0]
            rest = [f"{b} ({e.text(signed=True)})" for b, e in told.items() if b not in (*sure, *wins)]
            parts.append(
                f"{name} is lower beyond doubt against {', '.join(sure) or 'none'}"
                + (f", not told apart from {', '.join(rest)}" if rest else "")
                + (f", and HIGHER than {', '.join(f'{b} ({told[b].text(signed=True)})' for b in wins)}" if wins else "")
                + "."
            )
        nearest = max(mine, key=lambda d: d.kl_nats.value)
        parts.append(
            f"Nearest in KL: {nearest.baseline}, {nearest.kl_nats.text(signed=True)} nats a token (ours minus theirs)."
        )
        out.append(" ".join(parts))
    return out


def quality_sentences(figures: Sequence[ArmFigures]) -> list[str]:
    """The published 20 to 30 % fewer bytes with quality kept: does it hold here, and down to where?"""
    out = []
    for context in sorted({f.context for f in figures}):
        held = quality_budget(figures, context)
        if held is None:
            out.append(
                f"At {context:,} tokens no arm keeps NLL within {QUALITY_KEPT_NATS} nats of dense with 95 % confidence: "
                "20 to 30 % fewer bytes with quality kept is not shown here."
            )
            continue
        m = held.metrics
        saved = 1.0 - m["bytes_frac"].value
        word = "holds" if saved >= 0.2 else "does not hold"
        out.append(
            f"At {context:,} tokens the claim of 20 to 30 % less KV traffic with quality kept {word}: {held.label} reads "
            f"{m['bytes_frac'].text(3)} of the bytes (attention operations {m['blocks_frac'].value:.3f}), NLL loss "
            f"{m['nll_loss_nats'].text(signed=True)} nats a token, KL {m['kl_nats'].text()}."
        )
    return out


def certificate_sentences(curve: pl.DataFrame, certificates: pl.DataFrame) -> list[str]:
    out = []
    if curve.height:
        at = at_one_per_cent(curve)
        by = at.group_by("kind", "context").agg(
            pl.col("bytes_frac", "blocks_frac", "oracle_blocks_frac", "vacuous_frac")
            .filter(pl.col("query_context") == pl.col("query_context").max())
            .mean()
        )
        told = [
            f"{row['kind']} {row['context']:,}: {row['bytes_frac']:.1%} (blocks {row['blocks_frac']:.1%}, oracle "
            f"{row['oracle_blocks_frac']:.1%})"
            for row in by.sort("kind", "context").iter_rows(named=True)
        ]
        out.append(
            "Certified at a dropped mass of 0.01 in every head, KV bytes with everything included: "
            + "; ".join(told)
            + "."
        )
        layer = at.group_by("layer").agg(pl.col("vacuous_frac").mean()).sort("layer")
        out.append(
            "Share of heads in which certifying means reading everything, by layer: "
            + ", ".join(
                f"{row['layer']}: {row['vacuous_frac']:.0%}"
                for row in layer.iter_rows(named=True)
                if row["vacuous_frac"] >= 0.005
            )
            + "; 0 % in all others."
        )
        if (curve["stops_by"] == "output").any():
            out.append(_output_rule_sentence(curve))
    if certificates.height:
        lies, claims = int(certificates["violations"].sum()), int(certificates["num_claims"].sum())
        ratio = (certificates["dropped_mean"].sum() / max(certificates["bound_mean"].sum(), 1e-300)) if claims else 0.0
        change = certificates["output_change_mean"].sum() / certificates["output_norm_mean"].sum()
        bound = certificates["output_bound_mean"].sum() / certificates["output_norm_mean"].sum()
        out.append(
            f"Checked in {claims:,} heads and steps of the pruned runs: {lies} violations of the bounds on dropped mass and on "
            f"the output. True dropped mass is {ratio:.0%} of its bound on average; the output moves by {change:.2%} of its "
            f"norm, bounded by {bound:.1%}."
        )
    return out


def _output_rule_sentence(curve: pl.DataFrame) -> str:
    """Stopping by the output beside stopping by the mass, at the full prefix: what is allowed, what it costs, what is true."""
    full = curve.filter(pl.col("query_context") == pl.col("query_context").max().over("kind", "seed", "context"))
    names = ("bytes_frac", "dropped_mass", "output_change", "output_bound")
    by = full.group_by("stops_by", "context", "budget").agg(pl.col(names).mean()).sort("context", "budget")
    told = []
    for stops_by, word in (("output", "change of the output"), ("mass", "dropped mass")):
        rows = by.filter(pl.col("stops_by") == stops_by).iter_rows(named=True)
        each = [
            f"{row['budget']:g} at {row['context']:,}: {row['bytes_frac']:.1%} of bytes (drops {row['dropped_mass']:.2g}, output "
            f"moves {row['output_change']:.2g}, bounded by {row['output_bound']:.2g})"
            for row in rows
        ]
        told.append(f"by the {word}, {'; '.join(each)}")
    return "Where reading back stops, mean over texts, layers and heads: " + ". ".join(told) + "."


def entropy_sentence(figures: Sequence[ArmFigures], entropy_spread_nats: float) -> str:
    """`entropy_spread_nats`: standard deviation of the dense H_raw, what a unit of the simulator's latent level is worth."""
    law, texts = entropy_law(figures)
    told = (
        f"Entropy: dH_raw = {law.text(2, signed=True)} nats a unit of dropped mass (mean over layers and heads), {texts} texts in "
        "each context."
    )
    if not entropy_spread_nats > 0.0:
        return f"{told} H_raw does not vary here, so the simulator's latent unit is undefined."
    return (
        f"{told} H_raw varies by {entropy_spread_nats:.2f} nats here, so that is a pruning feedback of "
        f"{law.value / entropy_spread_nats:+.2f} in the simulator's latent units (`KindLaw.pruning_feedback`, default 0.5)."
    )
