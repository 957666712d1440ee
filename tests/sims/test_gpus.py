"""The GPU table against figures that do not come from it."""

import pytest

from sims.gpus import GPUS, Gpu, gpu_named
from workbench.errors import InputError


def test_ridge_points_are_in_the_known_range():
    # FLOP per byte at which a dense bf16 kernel stops being bound by memory; public rooflines put A100 at 153 and
    # H100 SXM at 295.
    ridge = {name: gpu.peak_flop_per_s / gpu.bandwidth_bytes_per_s for name, gpu in GPUS.items()}
    assert ridge["A100-80G"] == pytest.approx(153, rel=0.01)
    assert ridge["H100"] == pytest.approx(295, rel=0.01)
    assert ridge["H200"] < ridge["H100"]


def test_the_five_are_there_each_with_a_source_that_says_what_is_assumed():
    assert set(GPUS) == {"A100-80G", "H100", "H200", "L4", "MI300X"}
    for gpu in GPUS.values():
        assert "data sheet" in gpu.source
        assert "assumed" in gpu.source


def test_an_unknown_gpu_names_the_nearest():
    with pytest.raises(InputError, match="H100"):
        gpu_named("H10")


def test_an_impossible_gpu_is_refused():
    good = GPUS["L4"]
    fields = {name: getattr(good, name) for name in good.__dataclass_fields__}
    with pytest.raises(InputError, match="bandwidth_bytes_per_s"):
        Gpu(**{**fields, "bandwidth_bytes_per_s": 0.0})
    with pytest.raises(InputError, match="power_idle_w"):
        Gpu(**{**fields, "power_idle_w": 100.0})
