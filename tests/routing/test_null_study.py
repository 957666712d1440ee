import pytest

from workbench.routing.null_study import null_study
from workbench.routing.pictures import null_picture, power_picture


def test_the_plain_rule_is_chance_on_smooth_traces_and_the_calibrated_one_is_not():
    rows = {(r.router, r.phi): r for r in null_study(num_traces=4000)}
    for phi, each_way in ((0.0, 0.13), (0.5, 0.36), (0.9, 0.48)):
        plain, calibrated = rows["plain rule (k = 0.07)", phi], rows["calibrated (5 %)", phi]
        assert plain.share_cot == pytest.approx(each_way, abs=0.025)
        assert plain.share_direct == pytest.approx(each_way, abs=0.025)
        assert calibrated.routed <= 0.05 + 1.5 * calibrated.error


def test_power_grows_with_the_fall_and_pictures_are_png():
    rows = null_study((0.0, 0.5), (0.0, 1.0, 2.0, 3.0), num_traces=1000)
    calibrated = [r.share_cot for r in rows if r.router.startswith("calibrated") and r.phi == 0.0]
    assert calibrated == sorted(calibrated)
    assert calibrated[2] >= 0.8
    for made in (power_picture(rows), null_picture([r for r in rows if r.fall_sd == 0.0])):
        assert made.startswith(b"\x89PNG")
