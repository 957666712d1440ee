"""A recorded live run becomes a `Calibration`: entropy laws, masses and the step cost of the machine it ran on."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sims.arrivals import KindMix
from sims.calibration import Calibration
from sims.entropy_process import EntropyProcess
from sims.fit_entropy import fit_entropy
from sims.fit_mass import fit_mass
from sims.fit_step_cost import fit_step_cost
from sims.goodness_of_fit import GoodnessOfFit, goodness_of_fit, split_by_prompt
from sims.models import MODELS, ModelShape
from sims.recorded import find_recorded_arms, manifest_of, recorded_masses, recorded_steps, recorded_tokens
from workbench.errors import InputError


def calibrate(
    run: Path | str,
    *,
    arms: Sequence[Path] | None = None,
    step_arms: Sequence[Path] | None = None,
    shape: ModelShape | None = None,
    seed: int = 0,
) -> Calibration:
    """Fit everything to the live arms of `run`, or to `arms`; step cost from `step_arms` where given.

    shape: of the recorded model; None: taken from the manifest. Raises `InputError` where the record does not suffice.
    """
    live = [arm for arm in (arms or find_recorded_arms(Path(run))) if manifest_of(arm).get("plant") == "live"]
    if not live:
        raise InputError(f"{run} holds no live arm; record one with workbench record")
    manifest = manifest_of(live[0])
    shape = shape or recorded_shape(manifest)
    entropy = fit_entropy(recorded_tokens(live), shape.vocab, seed=seed)
    mass, mass_figures = fit_mass(recorded_masses(live))
    flops = (2.0 * shape.num_layers * shape.layer_weights, shape.output_flop_per_sample, shape.attention_flop_per_pair)
    steps = recorded_steps(step_arms or live, shape.kv_bytes_per_token * kv_width(manifest), flops)
    cost, step_figures = fit_step_cost(
        steps, name=f"{shape.name} on the recorded machine", flops=flops, weight_bytes=shape.weight_bytes,
        kv_bytes_per_token=shape.kv_bytes_per_token * kv_width(manifest),
    )  # fmt: skip
    names = tuple(law.name for law in entropy.laws if law.name != "any") or ("any",)
    tokens = int(entropy.figures["tokens"])
    return Calibration(
        process=EntropyProcess(
            vocab=shape.vocab, laws=entropy.laws, source=f"fitted to {tokens:,} recorded tokens of {shape.name}"
        ),
        mass=mass,
        kinds=KindMix(names=names, weights=entropy.shares),
        step_cost=cost,
        max_context_tokens=shape.max_context_tokens,
        figures={**entropy.figures, **mass_figures, **step_figures},
    )


def held_out_fit(run: Path | str, *, share: float = 0.3, seed: int = 0) -> GoodnessOfFit:
    """Entropy laws fitted without a share of the prompts, judged on those. Raises `InputError` for too short a record."""
    live = [arm for arm in find_recorded_arms(Path(run)) if manifest_of(arm).get("plant") == "live"]
    if not live:
        raise InputError(f"{run} holds no live arm; record one with workbench record")
    vocab = recorded_shape(manifest_of(live[0])).vocab
    fitted, judged = split_by_prompt(recorded_tokens(live), share, seed)
    process = EntropyProcess(vocab=vocab, laws=fit_entropy(fitted, vocab, seed=seed).laws)
    return goodness_of_fit(judged, process, seed=seed)


def kv_width(manifest: dict[str, Any]) -> float:
    """Bytes of a recorded KV value over those of a weight in `ModelShape` (bf16)."""
    return 2.0 if manifest["scenario"]["live"]["dtype"] == "fp32" else 1.0


def recorded_shape(manifest: dict[str, Any]) -> ModelShape:
    """The model shape a live manifest names. Raises `InputError`."""
    given = (manifest.get("notes") or {}).get("model_shape")
    if given:
        return ModelShape(**given)
    name = str(manifest["scenario"]["live"]["model"])
    if "smollm2" in name.lower():
        return MODELS["SmolLM2-135M"]
    raise InputError(f"the record does not say the shape of model {name!r}; record it anew")
