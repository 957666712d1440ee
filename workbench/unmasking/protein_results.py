"""What decoded antibody sequences say: every policy's recovery and passes, and three rules at equal passes, as a `Study`.

Intervals are over units. A unit is one sequence with all its maskings; where everything is masked it is one *length*, since
the model is then shown nothing else and decodes all sequences of a length alike.
"""

from collections.abc import Sequence

import numpy as np
import polars as pl

from workbench.unmasking.equal_passes import Curves, common_range, curve, paired_difference
from workbench.unmasking.estimate import Estimate, estimate
from workbench.unmasking.study import Chart, Series, Study

OURS, RIVALS = "entropy-sum", ("eb-sampler", "confidence-threshold")
EQUAL_PASSES = (2, 4, 8, 16, 32)
# A row of the decodes: one sequence, one masking, one setting of a policy.
COLUMNS: dict[str, pl.DataType] = {
    "model": pl.String(),
    "masked_frac": pl.Float64(),
    "policy": pl.String(),
    "setting": pl.String(),
    "sequence": pl.String(),
    "length": pl.Int64(),
    "passes": pl.Float64(),
    "recovery": pl.Float64(),  # share of the masked positions that come back
    "pseudo_nll_nats": pl.Float64(),  # a position, of the decoded sequence under the same model
    "first_entropy_nats": pl.Float64(),  # mean over masked positions at the first pass
    "complete": pl.Boolean(),  # nothing is left masked
}


def protein_results(decodes: pl.DataFrame, command: str) -> Study:
    """Rows, pictures, statements and figures of `decodes` (columns `COLUMNS`)."""
    decodes = decodes.with_columns(
        unit=pl.when(pl.col("masked_frac") < 1.0)
        .then(pl.col("sequence"))
        .otherwise(pl.format("length {}", pl.col("length")))
    )
    models = list(dict.fromkeys(decodes["model"]))
    counts = {m: decodes.filter(pl.col("model") == m)["sequence"].n_unique() for m in models}
    found = Study(
        name="proteins",
        title="Masked protein models: every policy on antibody sequences",
        intro=(
            "Therapeutic antibodies ("
            + ", ".join(f"{m}: {n} sequences" for m, n in counts.items())
            + "), 50, 90 and 100 % of the variable domain masked, decoded at T = 0. Recovery is the share of masked positions that come "
            "back; at 100 % nothing says which antibody is meant, and sequences of one length are one unit. The joint of such a "
            "model is not known, so there is no divergence to state: recovery, pseudo-perplexity and forward passes are what they are."
        ),
        command=command,
        columns=(
            "model", "masked", "policy", "setting", "passes", "recovery", "pseudo-perplexity", "first H, nats", "units",
        ),
    )  # fmt: skip
    recovery: list[Chart] = []
    perplexity: list[Chart] = []
    paired: list[Chart] = []
    tally = {rival: [0, 0, 0] for rival in RIVALS}
    for model in models:
        for share in sorted(set(decodes["masked_frac"])):
            cell = decodes.filter((pl.col("model") == model) & (pl.col("masked_frac") == share))
            if cell.height == 0:
                continue
            title = f"{model}, {share:.0%} masked"
            lines = _policies(found, cell, model, share)
            recovery.append(Chart(title, title, "forward passes", "recovery", [a for a, _ in lines], log_y=False))
            perplexity.append(
                Chart(title, title, "forward passes", "pseudo-perplexity", [b for _, b in lines], log_y=False)
            )
            paired.append(
                Chart(title, title, "forward passes", "recovery difference", _paired(found, cell, title, tally), log_y=False)
            )  # fmt: skip
    found.panels += [recovery, perplexity, paired]
    found.state(
        "every sequence comes back whole, at its own length, nothing masked, in at most one pass a masked position",
        bool(decodes["complete"].all())
        and bool((decodes["passes"] <= (decodes["masked_frac"] * decodes["length"]).round().clip(1)).all()),
    )
    for rival, (above, below, open_) in tally.items():
        found.figures |= {f"{rival}_better": below, f"{rival}_worse": above, f"{rival}_undecided": open_}
        found.notes.append(
            f"Recovery at equal passes, entropy sum against {rival}: above it in {above}, below it in {below}, within its 95 % "
            f"interval of zero in {open_} of {above + below + open_} comparisons (model, share masked, passes)."
        )
    return found


def per_unit(cell: pl.DataFrame, column: str) -> Estimate:
    return estimate(cell.group_by("unit", maintain_order=True).agg(pl.col(column).mean())[column].to_numpy())


def _policies(found: Study, cell: pl.DataFrame, model: str, share: float) -> list[tuple[Series, Series]]:
    """A row a setting; a line a policy, of recovery and of pseudo-perplexity against passes."""
    lines: list[tuple[Series, Series]] = []
    for policy in dict.fromkeys(cell["policy"]):
        points: list[tuple[float, Estimate, Estimate]] = []
        for setting in dict.fromkeys(cell.filter(pl.col("policy") == policy)["setting"]):
            rows = cell.filter((pl.col("policy") == policy) & (pl.col("setting") == setting))
            passes, back = per_unit(rows, "passes"), per_unit(rows, "recovery")
            pseudo = exponential(per_unit(rows, "pseudo_nll_nats"))
            points.append((passes.mean, back, pseudo))
            found.rows.append(
                (
                    model, share, policy, setting, passes, back, pseudo, per_unit(rows, "first_entropy_nats"),
                    rows["unit"].n_unique(),
                )
            )  # fmt: skip
        points.sort(key=lambda point: point[0])
        x = [p for p, *_ in points]
        # Without bands: sequences differ by far more than rules do, the paired differences below say what is known.
        lines.append((_line(policy, x, [r for _, r, _ in points]), _line(policy, x, [n for *_, n in points])))
    return lines


def _line(name: str, x: Sequence[float], values: Sequence[Estimate]) -> Series:
    return Series(name, x, [v.mean for v in values])


def _paired(found: Study, cell: pl.DataFrame, title: str, tally: dict[str, list[int]]) -> list[Series]:
    """Entropy sum minus each rival at equal passes; adds figures, notes and the tally (above, below, undecided)."""
    series: list[Series] = []
    key = title.replace(":", "_").replace(", ", "_").replace(" masked", "").replace("%", "")
    for rival in RIVALS:
        ours, theirs = (curves_of(cell, policy, "recovery") for policy in (OURS, rival))
        low, high = common_range(ours, theirs)
        at = [p for p in EQUAL_PASSES if low <= p <= high]
        differences = [paired_difference(ours, theirs, p) for p in at]
        pseudo = [curves_of(cell, policy, "pseudo_nll_nats") for policy in (OURS, rival)]
        nats = [paired_difference(pseudo[0], pseudo[1], p) for p in at]
        words: list[str] = []
        for passes, d, n in zip(at, differences, nats, strict=True):
            if not np.isnan(d.half_width):  # one unit alone says nothing of others
                tally[rival][0 if d.low > 0.0 else 1 if d.high < 0.0 else 2] += 1
            name = f"{key}_{passes}_passes_minus_{rival}"
            found.figures |= {
                f"{name}_recovery": d.mean, f"{name}_recovery_half_width": d.half_width,
                f"{name}_pseudo_nll_nats": n.mean, f"{name}_pseudo_nll_half_width_nats": n.half_width,
            }  # fmt: skip
            words.append(f"{passes}: {_signed(d)} ({_signed(n)})")
        found.notes.append(
            f"{title}, entropy sum minus {rival} at equal passes, recovery (pseudo-NLL, nats a position): "
            + ("; ".join(words) if words else "no number of passes that both reach on every sequence")
            + "."
        )
        series.append(Series(f"minus {rival}", at, [d.mean for d in differences], [d.half_width for d in differences]))
    ends = [1, EQUAL_PASSES[-1]]
    series.append(Series("equal", ends, [0.0, 0.0], guide=True))
    return series


def curves_of(cell: pl.DataFrame, policy: str, column: str) -> Curves:
    """By unit, the curve of a swept policy: a point a setting, the mean over what belongs to the unit."""
    mine = cell.filter(pl.col("policy") == policy)
    points = mine.group_by("unit", "setting", maintain_order=True).agg(pl.col("passes", column).mean())
    return {
        str(unit): curve(rows["passes"].to_numpy(), rows[column].to_numpy())
        for (unit,), rows in points.group_by("unit", maintain_order=True)
    }


def exponential(nll_nats: Estimate) -> Estimate:
    """exp of a mean, its half-width to first order."""
    mean = float(np.exp(nll_nats.mean))
    return Estimate(mean, mean * nll_nats.half_width)


def _signed(e: Estimate) -> str:
    return f"{e.mean:+.3f}" if np.isnan(e.half_width) else f"{e.mean:+.3f} +- {e.half_width:.3f}"
