"""A map against a table whose changes are known."""

import numpy as np
import polars as pl
import pytest

from workbench.analysis.pictures.control_map import control_map, draw_maps
from workbench.errors import InputError

AXES = {"of": "kind", "choice": "b", "baseline": "a", "rows": "memory", "columns": "rate", "figure": "e2e"}


def table():
    rows = []
    for rate in (1.0, 2.0):
        for memory in (0.1, 1.0):
            for seed in range(4):
                noise = 1.0 + 0.1 * seed  # common to both arms of a seed: pairing takes it out
                rows.append({"kind": "a", "rate": rate, "memory": memory, "seed": seed, "e2e": noise})
                gain = 0.8 if rate == 2.0 else 1.0 + 0.05 * (-1) ** seed
                rows.append({"kind": "b", "rate": rate, "memory": memory, "seed": seed, "e2e": gain * noise})
    return pl.DataFrame(rows)


def test_changes_are_paired_by_seed_and_only_what_seeds_can_tell_is_coloured():
    found = control_map(table(), **AXES)
    np.testing.assert_allclose(found.change[:, 1], -0.2, atol=1e-12)
    assert found.resolved[:, 1].all()
    assert not found.resolved[:, 0].any()
    assert draw_maps([found]).axes[0].get_xlabel() == "rate"


def test_a_missing_column_is_named():
    with pytest.raises(InputError, match="no column 'ttft'"):
        control_map(table(), **{**AXES, "figure": "ttft"})
