import numpy as np

from workbench.unmasking.entropy_terms import entropy_terms


def test_against_numpy_to_the_last_places():
    rng = np.random.default_rng(0)
    p = np.concatenate(
        [
            rng.random(20_000),
            10.0 ** rng.uniform(-290, 0, 20_000),
            1.0 - 10.0 ** rng.uniform(-16, -1, 20_000),
            [1.0, 0.5],
        ]
    )
    want = p * np.log(p)
    np.testing.assert_allclose(entropy_terms(p), want, rtol=5e-16, atol=0.0)


def test_zero_one_and_less_than_any_normal_number_give_zero():
    found = entropy_terms(np.array([[0.0, 1.0, 5e-324], [1e-310, 9e-301, 0.0]]))
    assert np.all(found == 0.0)
    assert found.shape == (2, 3)


def test_every_length_around_a_chunk():
    for n in (0, 1, 511, 512, 513, 1500):
        p = np.linspace(0.01, 1.0, n)
        np.testing.assert_allclose(entropy_terms(p), p * np.log(p), rtol=5e-16)
