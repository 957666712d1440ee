"""kvpress beside us: the same prompts and budgets through a Python that has it, in its own environment."""

import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np

from workbench.errors import InputError
from workbench.live.tokenizer import Tokenizer
from workbench.live.weights import load_model
from workbench.pruning.study import Settings, places
from workbench.pruning.texts import make_text
from workbench.record import write_atomically
from workbench.strict_json import strict_json


def compare(
    python: Path, settings: Settings, directory: Path, tasks_dir: Path | None, progress: Callable[[float], None]
) -> tuple[list[dict[str, Any]], Path]:
    """(a row for each text, press and budget; the file they are in). Raises `InputError` where that Python cannot run kvpress."""
    model = load_model(settings.model, "fp32")
    encode = Tokenizer(model.directory).encode
    texts = [
        make_text(place.kind, place.seed, place.context, settings.tail_tokens, encode, tasks_dir)
        for place in places(settings, directory)
    ]
    job = {
        "model": str(model.directory),
        "targets": settings.targets,
        "texts": [{"name": t.name, "ids": t.ids, "num_tail": t.num_tail} for t in texts],
    }
    directory.mkdir(parents=True, exist_ok=True)
    job_path, out_path = directory / "kvpress_job.json", directory / "kvpress.json"
    write_atomically(job_path, strict_json(job).encode())
    worker = Path(__file__).with_name("kvpress_worker.py")
    with TemporaryFile(
        "w+", encoding="utf-8", errors="replace"
    ) as errors:  # a pipe nobody reads would fill up and stop it
        try:
            run = subprocess.Popen(
                [str(python), "-I", "-W", "ignore", str(worker), str(job_path), str(out_path)],
                stdout=subprocess.PIPE, stderr=errors, text=True,
            )  # fmt: skip
        except OSError as error:
            raise InputError(f"--kvpress {python}: {error.strerror or error}") from None
        assert run.stdout is not None
        with run:
            for line in run.stdout:
                progress(float(line))
        if run.returncode != 0:
            errors.seek(0)
            told = errors.read().strip().splitlines()
            raise InputError(f"--kvpress {python} failed: {told[-1] if told else f'exit code {run.returncode}'}")
    return json.loads(out_path.read_text()), out_path


def sentences(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Mean KL and NLL loss by press and budget."""
    out = []
    for target in dict.fromkeys(row["target_frac"] for row in rows):
        told = []
        for press in dict.fromkeys(row["press"] for row in rows):
            mine = [row for row in rows if row["press"] == press and row["target_frac"] == target]
            good = [row for row in mine if "error" not in row]
            if not good:
                told.append(f"{press} refused ({mine[0]['error']})")
                continue
            kl, nll, kept = (
                float(np.mean([row[k] for row in good])) for k in ("kl_nats", "nll_loss_nats", "kept_frac")
            )
            told.append(f"{press} {kl:.4f} ({nll:+.4f}, keeps {kept:.3f})")
        out.append(
            f"kvpress at {target:.0%} of KV, one-off after the prefill, KL nats a token (NLL loss): "
            + ", ".join(told)
            + "."
        )
    return out
