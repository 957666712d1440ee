import numpy as np

from workbench.engine.step_time import FLOOR_S, StepTime


def test_it_learns_what_a_row_adds() -> None:
    """Steps of a known linear law: the marginal cost of a decode row and of a chunk are recovered."""
    law, rng = StepTime(), np.random.default_rng(0)
    for _ in range(400):
        tokens, kv = int(rng.integers(1, 200)), float(rng.integers(0, 20000))
        law.add(tokens, kv, 4e-3 + 2e-4 * tokens + 3e-7 * kv)
    cost = law.marginal_s(np.array([100, 0, 5000]), np.array([1, 128, 1]))
    expected = 2e-4 * np.array([1, 128, 1]) + 3e-7 * np.array([101, 128, 5001])
    np.testing.assert_allclose(cost, expected, rtol=0.02)


def test_it_always_has_a_positive_answer() -> None:
    law = StepTime()
    assert (law.marginal_s(np.array([0, 10]), np.array([1, 1])) >= FLOOR_S).all()
    law.add(5, 100.0, 0.0)
    assert (law.marginal_s(np.array([0, 10]), np.array([1, 64])) >= FLOOR_S).all()
