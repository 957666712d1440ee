"""One full run of Algorithm 1 on a long chain against the forward-backward passes it needs: what the loop itself costs."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from controllers.unmasking.entropy_sum import EntropySum
from sims.oracles.hidden_markov import forward_backward_rows
from sims.oracles.markov import Markov
from workbench.unmasking.estimate import exact
from workbench.unmasking.plant import UnmaskPlant, decode
from workbench.unmasking.predictor import OraclePredictor
from workbench.unmasking.studies import Tell, command_of
from workbench.unmasking.study import Study

LENGTH, NUM_STATES, ENTROPY_NATS, ETA_NATS = 4096, 8, 20.0, 1.0
LIMIT = 1.5


def study(*, repeats: int | None, seed: int, tell: Tell) -> Study:
    number = repeats or 30
    oracle = Markov.sticky(LENGTH, NUM_STATES, ENTROPY_NATS)
    predictor, policy = OraclePredictor(oracle), EntropySum(eta_nats=ETA_NATS)
    masked = np.full((1, LENGTH), -1)
    identity = np.eye(NUM_STATES)

    def run(index: int) -> UnmaskPlant:
        return decode(UnmaskPlant(predictor, masked, seed=seed, request_id=np.array([index])), policy)

    def standard_pass(tokens: np.ndarray) -> None:
        forward_backward_rows(tokens, oracle.initial, oracle.transition, identity)

    run(0)
    standard_pass(masked)
    runs, standards, own, iterations = [], [], [], []
    for index in range(1, number + 1):
        wall, plant = _timed(lambda index=index: run(index))
        count = int(plant.ledger.iterations[0])
        # The same number of passes, on the same machine state, over a text as far revealed as the run was on average.
        half = np.where(plant.ledger.revealed_at < count // 2, plant.tokens, -1)
        standard, _ = _timed(lambda half=half, count=count: [standard_pass(half) for _ in range(count)])
        powers, _ = _timed(lambda half=half, count=count: [oracle.marginals(half) for _ in range(count)])
        runs.append(wall / count)
        standards.append(standard / count)
        own.append(powers / count)
        iterations.append(count)
        tell(index / number)
    # The least of all: neighbours on the machine empty caches and can only add.
    run_s, standard_s, own_s = (float(np.min(values)) for values in (runs, standards, own))
    ratio = run_s / standard_s
    found = Study(
        name="speed",
        title="Algorithm 1 on a Markov chain: the cost of the loop",
        intro=(
            f"L = {LENGTH}, {NUM_STATES} states, H(X0) = {ENTROPY_NATS:g} nats, eta = {ETA_NATS:g}. CPU time of one run against "
            f"as many standard forward-backward passes, each the least of {number}; the oracle itself answers from powers of the transition matrix."
        ),
        command=command_of("speed", repeats, seed),
        columns=("quantity", "value", "unit"),
        rows=[
            ("iterations, median", exact(float(np.median(iterations))), ""),
            ("whole run, per iteration", run_s * 1e6, "microseconds"),
            ("one forward-backward pass", standard_s * 1e6, "microseconds"),
            ("one pass by powers (what runs)", own_s * 1e6, "microseconds"),
            ("run / (iterations x forward-backward)", ratio, ""),
        ],
        figures={
            "ratio": ratio,
            "iteration_s": run_s,
            "forward_backward_s": standard_s,
            "own_pass_s": own_s,
            "iterations": float(np.median(iterations)),
        },
    )
    found.state(f"one run takes {ratio:.2f} times its forward-backward passes, at most {LIMIT}", ratio <= LIMIT)
    return found


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds of this thread: other processes on the machine do not count."""
    start = time.thread_time()
    result = work()
    return time.thread_time() - start, result
