"""AntiBERTy and Sapiens, heavy and light chains: what every policy recovers, and in how many passes.

The tokens are the likeliest ones (T = 0). Entropy sum, EB-Sampler and confidence threshold are swept, so that they can be
compared at equal passes: recovery and pseudo-likelihood are interpolated on the logarithm of the passes.
"""

from dataclasses import dataclass

import numpy as np

from workbench.unmasking.estimate import Estimate
from workbench.unmasking.policies import named_policy
from workbench.unmasking.proteins import Decoded, ProteinBench, per_sequence
from workbench.unmasking.studies import Tell, command_of
from workbench.unmasking.study import Chart, Series, Study

# (model, sequences, positions scored): AntiBERTy takes some twenty times as long a pass.
MODELS = (
    ("sapiens-heavy", 3, 16),
    ("sapiens-light", 3, 16),
    ("antiberty:heavy", 1, 8),
    ("antiberty:light", 1, 8),
)
SHARES = (0.5, 0.9, 1.0)
SWEPT: dict[str, tuple[str, ...]] = {
    "entropy-sum": ("1", "3", "10", "30"),
    "eb-sampler": ("1", "3", "10", "30"),
    "confidence-threshold": ("0.99", "0.9", "0.7", "0.5", "0.3"),
}
SINGLE = (
    "adaptive-entropy-sum:30", "ordered-entropy-sum:3", "max-entropy:1.5", "confidence-factor:1", "klass:0.7",
    "low-confidence:4", "uniform:16", "random-size:16", "dilated:2", "left-to-right:4",
)  # fmt: skip


@dataclass(frozen=True)
class Measured:
    policy: str
    setting: str
    passes: Estimate
    recovery: Estimate
    nll_nats: Estimate


def study(*, repeats: int | None, seed: int, tell: Tell) -> Study:
    found = Study(
        name="proteins",
        title="Masked protein models: every policy on antibody sequences",
        intro=(
            "Therapeutic antibodies, 50, 90 and 100 % of the variable domain masked, decoded at T = 0. Recovery is the share of "
            "masked positions that come back; at 100 % nothing says which antibody is meant. The model is not exact, so there "
            "is no divergence to state: recovery, pseudo-perplexity and forward passes are what they are."
        ),
        command=command_of("proteins", repeats, seed),
        columns=("model", "masked", "policy", "setting", "passes", "recovery", "pseudo-perplexity", "first H, nats"),
    )
    settings = [(p, s) for p, values in SWEPT.items() for s in values]
    settings += [(text.partition(":")[0], text.partition(":")[2]) for text in SINGLE]
    total = sum(own if repeats is None else repeats for _, own, _ in MODELS) * len(SHARES) * len(settings)
    done = 0
    complete = True
    for name, own, scored in MODELS:
        bench = ProteinBench(name)
        number = min(repeats or own, len(bench.sequences))
        for share in SHARES:
            measured: list[Measured] = []
            for policy, setting in settings:
                rule = named_policy(f"{policy}:{setting}").policy
                d = bench.decode(rule, share, sequences=number, seed=seed, scored=scored)
                complete &= all(np.all(tokens >= 0) for tokens in d.tokens)
                one = _measured(policy, setting, d)
                measured.append(one)
                found.rows.append(
                    (
                        name, share, policy, setting, one.passes, one.recovery, float(np.exp(one.nll_nats.mean)),
                        float(d.entropy_first_nats.mean()),
                    )
                )  # fmt: skip
                done += number
                tell(min(done / total, 1.0))
            _compare(found, name, share, measured)
    found.state("every sequence comes back whole, at its own length, nothing masked", complete)
    found.notes.append(
        "Intervals are over sequences (none where there is one); differences inside them are not differences."
    )
    return found


def _measured(policy: str, setting: str, d: Decoded) -> Measured:
    return Measured(
        policy,
        setting,
        per_sequence(d.names, d.iterations),
        per_sequence(d.names, d.recovery),
        per_sequence(d.names, d.pseudo_nll_nats),
    )


def _compare(found: Study, model: str, share: float, measured: list[Measured]) -> None:
    """A chart of recovery against passes, and the three swept policies at one number of passes all three reach."""
    label = f"{model.replace(':', '-')}-{share:.0%}".replace("%", "")
    lines = []
    for policy in dict.fromkeys(m.policy for m in measured):
        mine = sorted((m for m in measured if m.policy == policy), key=lambda m: m.passes.mean)
        lines.append(Series(policy, [m.passes.mean for m in mine], [m.recovery.mean for m in mine]))
    found.charts.append(Chart(label, f"{model}, {share:.0%} masked", "forward passes", "recovery", lines, log_y=False))
    curves = {p: sorted((m for m in measured if m.policy == p), key=lambda m: m.passes.mean) for p in SWEPT}
    low = max(curve[0].passes.mean for curve in curves.values())
    high = min(curve[-1].passes.mean for curve in curves.values())
    if low > high:
        found.notes.append(f"{model}, {share:.0%}: the three swept rules share no number of passes.")
        return
    passes = float(np.sqrt(low * high))
    parts = []
    for policy, curve in curves.items():
        x = np.log([m.passes.mean for m in curve])
        recovery = float(np.interp(np.log(passes), x, [m.recovery.mean for m in curve]))
        nll = float(np.interp(np.log(passes), x, [m.nll_nats.mean for m in curve]))
        found.figures[f"{label}_{policy}_recovery"] = recovery
        found.figures[f"{label}_{policy}_pseudo_perplexity"] = float(np.exp(nll))
        parts.append(f"{policy} {recovery:.3f} (pseudo-perplexity {np.exp(nll):.2f})")
    found.figures[f"{label}_equal_passes"] = passes
    found.notes.append(f"{model}, {share:.0%} masked, at {passes:.1f} passes, recovery: {'; '.join(parts)}.")
