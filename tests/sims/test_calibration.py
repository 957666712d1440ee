"""A calibration file comes back as it was written; a broken one is one line."""

import json
from dataclasses import replace

import numpy as np
import pytest

from sims.calibration import builtin_calibration, read_calibration, write_calibration
from sims.latent_shapes import raw_moments
from workbench.errors import InputError


def test_a_calibration_survives_the_file(tmp_path, parts):
    before = replace(builtin_calibration(), step_cost=parts.cost(power_idle_w=np.nan, flop_per_s=np.inf))
    write_calibration(tmp_path / "c.json", before)
    after = read_calibration(tmp_path / "c.json")
    assert after.mass == before.mass
    assert after.kinds == before.kinds
    for law, again in zip(before.process.laws, after.process.laws, strict=True):
        np.testing.assert_allclose(again.shapes, law.shapes, rtol=1e-4)
        assert again.autocorrelation == law.autocorrelation
        assert np.isnan(again.end_slope) == np.isnan(law.end_slope)
    np.testing.assert_array_equal(after.step_cost.dense_s, before.step_cost.dense_s)
    assert np.isnan(after.step_cost.power_idle_w)
    assert after.step_cost.flop_per_s == np.inf


def test_the_built_in_laws_have_the_entropies_measured_on_the_model():
    calibration = builtin_calibration()
    assert calibration.process.vocab == 49_152
    means = {
        law.name: raw_moments(np.ascontiguousarray(law.shapes), 49_152)[:, 1].mean() for law in calibration.process.laws
    }
    # Sampled at T = 1 the model has a mean entropy of about 2.3 nats; creative text is the most uncertain.
    assert means["any"] == pytest.approx(2.3, abs=0.4)
    assert max(means, key=means.__getitem__) == "creative"
    names = calibration.kinds.names
    assert [means[n] for n in names] == sorted(means[n] for n in names)
    assert calibration.step_cost is None


@pytest.mark.parametrize("text", ["{", "[]", "{}", json.dumps({"format": 1})])
def test_broken_files_are_named(tmp_path, text):
    (tmp_path / "c.json").write_text(text)
    with pytest.raises(InputError, match=r"c\.json"):
        read_calibration(tmp_path / "c.json")
    with pytest.raises(InputError, match="No such file"):
        read_calibration(tmp_path / "none.json")
