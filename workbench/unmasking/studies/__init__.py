"""The studies behind `workbench unmask --study NAME`, one a file: each gives a `Study` of measured rows and statements."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from workbench.errors import unknown_name
from workbench.unmasking.study import Study

Tell = Callable[[float], None]

STUDIES: dict[str, str] = {
    "pairs": "duplicated pairs: the random order against lowest-entropy-first",
    "bounds": "every oracle, lengths and eta: bounds beside the measured values",
    "growth": "iterations against length, at fixed H(X0) and at H(X0) proportional to length",
    "algorithms": "Algorithm 2 against Algorithm 1 and against its two possible rates",
    "frontier": "divergence against iterations for every oracle and policy",
    "speed": "one full run of Algorithm 1 against its forward-backward passes",
    "queue": "autoregressive and masked-diffusion requests in one simulated queue",
    "proteins": "AntiBERTy and Sapiens: recovery, pseudo-perplexity and passes for every policy",
}


RESUMED = ("proteins",)  # keep what they have in the run's directory, and go on from there


def run_study(name: str, *, repeats: int | None, seed: int, tell: Tell, directory: Path | None = None) -> Study:
    """The study called `name`; `repeats` None is its own number. Raises InputError for an unknown name.

    directory: where a study of `RESUMED` keeps what it has; None keeps nothing.
    """
    if name not in STUDIES:
        raise unknown_name("study", name, STUDIES)
    module = import_module(f"workbench.unmasking.studies.{name}")
    kept = {"directory": directory} if name in RESUMED else {}
    return module.study(repeats=repeats, seed=seed, tell=tell, **kept)


def command_of(name: str, repeats: int | None, seed: int) -> str:
    words = ["workbench unmask --study", name]
    if repeats is not None:
        words.append(f"--repeats {repeats}")
    return " ".join([*words, f"--seed {seed}"])
