"""Shapes recovered from the entropies they give, and near ones for distributions outside the family."""

import numpy as np
import pytest

from sims.latent_shapes import moments
from sims.shape_fit import fit_shapes, shape_errors
from workbench.errors import InputError
from workbench.signals import entropy_and_varentropy

TEMPERATURES = np.array([0.5, 0.7, 1.0, 1.4])
N = 49_152


def measured(shapes):
    both = np.array([[moments(*s, t, N)[1:] for t in TEMPERATURES] for s in shapes])
    return both[..., 0], both[..., 1]


def test_entropies_of_the_family_are_met():
    rng = np.random.default_rng(3)
    shapes = np.column_stack([rng.uniform(0.1, 6, 300), rng.uniform(0.5, 3, 300), rng.uniform(0, 0.2, 300)])
    h, v = measured(shapes)
    errors = shape_errors(fit_shapes(h, v, TEMPERATURES, N), h, TEMPERATURES, N)
    assert np.quantile(np.abs(errors), 0.99) < 0.02
    assert np.abs(errors).max() < 0.1


def test_other_logits_are_met_within_a_tenth_of_a_nat_on_average():
    # Gaussian logits of several widths with a few raised tokens: a shape the family does not hold exactly.
    rng = np.random.default_rng(4)
    rows = []
    for width in rng.uniform(1.5, 3.5, 60):
        z = rng.normal(0.0, width, N)
        z[rng.integers(0, N, 5)] += rng.uniform(0, 10, 5)
        rows.append([entropy_and_varentropy(z, t) for t in TEMPERATURES])
    both = np.array(rows)
    h, v = both[..., 0], both[..., 1]
    errors = shape_errors(fit_shapes(h, v, TEMPERATURES, N), h, TEMPERATURES, N)
    assert np.abs(errors).mean() < 0.1


def test_a_missing_measurement_gives_a_missing_shape():
    h, v = measured(np.array([[1.0, 1.0, 0.0], [2.0, 1.0, 0.0]]))
    h[1, 2] = np.nan
    shapes = fit_shapes(h, v, TEMPERATURES, N)
    assert np.isfinite(shapes[0]).all()
    assert np.isnan(shapes[1]).all()


def test_bad_tables_are_refused():
    with pytest.raises(InputError, match="above 0"):
        fit_shapes(np.ones((1, 1)), np.ones((1, 1)), np.array([0.0]), N)
    with pytest.raises(InputError, match="must be"):
        fit_shapes(np.ones((1, 2)), np.ones((1, 2)), np.array([1.0]), N)
