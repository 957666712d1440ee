"""Hypothesis profiles, and where real traces and task sets lie when they are at hand."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("default", derandomize=True, deadline=None, max_examples=100)
settings.register_profile(
    "long", deadline=None, max_examples=5000, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of real traces, profiles and task sets beside the repository; skips where it is absent."""
    if not SHARED_DATA.is_dir():
        pytest.skip(f"no real traces at ../shared/data beside the repository ({SHARED_DATA.name} missing)")
    return SHARED_DATA
