"""A decoding run as `workbench replay` reads it: one arm a sequence, every decision and every revealed token.

arm/manifest.json       the policy as a scenario's controller table, seed, versions, SHA-256 of the tables
arm/sequences.parquet   decisions of the policy (`point` = "reveal"), and revealed tokens ("measure")
arm/requests.parquet    a row a run: passes, tokens revealed, what they spent
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from workbench.record import ArmRecorder, write_arm
from workbench.scenario import parse_scenario
from workbench.unmasking.ledger import Batch
from workbench.unmasking.plant import UnmaskPlant
from workbench.unmasking.policies import NamedPolicy


class RunRecord:
    """The record of one `UnmaskPlant` under `policy`: a `Recorder`, whose `on_batch` is the plant's own."""

    def __init__(self, policy: NamedPolicy, seed: int, name: str) -> None:
        self.scenario = parse_scenario(
            {"name": name, "plant": "live", "level": "full", "seeds": [seed], "controllers": {"reveal": policy.table}}
        )
        self._recorder, self._seed = ArmRecorder("full", 0), seed
        self.decision = self._recorder.decision
        self._tokens: list[dict[str, np.ndarray]] = []

    def on_batch(self, batch: Batch) -> None:
        at, position = np.nonzero(batch.revealed)
        self._tokens.append(
            {
                "step": np.full(at.size, batch.iteration),
                "slot": batch.rows[at],
                "token_index": position,
                "token_id": batch.drawn[at, position],
                "entropy_raw_nats": batch.entropy_nats[at, position],
            }
        )

    def finish(self, directory: Path, plant: UnmaskPlant, model: Mapping[str, Any], columns: Mapping[str, Any]) -> Path:
        """Write the arm; `columns` [rows] are what else the request table says."""
        ledger = plant.ledger
        requests = {
            "request_id": plant.request_id,
            "output_tokens": (ledger.revealed_at >= 0).sum(axis=1),
            "passes": ledger.iterations,
            "entropy_spent_nats": ledger.entropy_spent_nats,
            "excess_spent_nats": ledger.excess_spent_nats,
            "nll_raw_nats": ledger.surprisal_nats,
            **columns,
        }
        manifest = {
            "scenario": self.scenario.plain(), "name": self.scenario.name, "plant": "live", "arm": None,
            "kind": "unmask", "seed": self._seed, "num_slots": plant.num_slots, "controller_context": {},
            "model": dict(model),
        }  # fmt: skip
        tokens = [step | {"request_id": plant.request_id[step["slot"]]} for step in self._tokens]
        tables = {"requests": pa.table(requests), "sequences": self._recorder.sequence_table(tokens)}
        return write_arm(directory, tables, manifest)
