import numpy as np
import pytest

from sims.oracles.names import BUILDERS, OracleRequest, build_oracle
from workbench.errors import InputError


@pytest.mark.parametrize("name", BUILDERS)
@pytest.mark.parametrize("length", [1, 2, 7])
def test_every_name_builds_at_every_length_and_samples_its_own_support(name, length):
    oracle = build_oracle(name, OracleRequest(length=length))
    x = oracle.sample(np.random.default_rng(0), 20)
    assert x.shape == (20, length)
    assert np.all(np.isfinite(oracle.log_probability(x)))
    assert oracle.entropy_nats >= 0.0


@pytest.mark.parametrize(
    ("name", "request_", "message"),
    [
        ("pair", OracleRequest(length=4), "did you mean pairs"),
        ("pairs", OracleRequest(length=0), "at least 1, got 0"),
        ("parity", OracleRequest(length=4, entropy_nats=1.0), "does not take --entropy"),
        ("markov", OracleRequest(length=4, num_symbols=1), "--symbols must be at least 2"),
    ],
)
def test_bad_wishes_are_one_clear_line(name, request_, message):
    with pytest.raises(InputError, match=message):
        build_oracle(name, request_)


def test_wanted_entropies_are_reached():
    for name in ("independent", "markov", "pairs", "mixture"):
        oracle = build_oracle(name, OracleRequest(length=512, entropy_nats=20.0))
        assert oracle.entropy_nats == pytest.approx(20.0, abs=1e-5)
