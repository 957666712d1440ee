"""The event engine against queueing theory: 99 % batch-means intervals must hold the closed form."""

import numpy as np
import pytest

from controllers.scheduling.priority_classes import PriorityClasses
from controllers.scheduling.srpt import SRPTOracle
from sims.queues import (
    batch_means,
    erlang_sojourn,
    finite_queue_loss,
    impatient_loss,
    priority_sojourns,
    round_robin_sojourn,
    run_queue,
    service_tokens,
    single_server_sojourn,
    srpt_sojourn,
)
from workbench.engine.requests import RequestStatus
from workbench.errors import InputError
from workbench.protocols import DecisionPoint


@pytest.mark.parametrize(
    ("service", "load", "count"),
    [
        ("deterministic", 0.5, 100_000),
        ("deterministic", 0.7, 300_000),
        ("exponential", 0.5, 300_000),
        ("exponential", 0.7, 900_000),
        ("hyperexponential", 0.5, 1_600_000),
    ],
)
def test_one_server_against_pollaczek_khinchine(service, load, count):
    run = run_queue(service=service, load=load, count=count, seed=2)
    found = batch_means(run.sojourn)
    assert found.covers(single_server_sojourn(run))
    assert found.half_width / found.mean < 0.02


@pytest.mark.long
@pytest.mark.parametrize(
    ("service", "load", "width", "runs"),  # runs of 8 million requests
    [
        ("deterministic", 0.8, 0.01, 1),
        ("deterministic", 0.9, 0.01, 3),
        ("deterministic", 0.95, 0.03, 1),
        ("exponential", 0.8, 0.01, 1),
        ("exponential", 0.9, 0.01, 5),
        ("exponential", 0.95, 0.03, 2),
        ("hyperexponential", 0.8, 0.01, 4),
        ("hyperexponential", 0.9, 0.01, 13),
        ("hyperexponential", 0.95, 0.03, 5),
    ],
)
def test_one_server_under_heavy_load(service, load, width, runs):
    sojourns, exact = [], []
    for seed in range(3, 3 + runs):
        run = run_queue(service=service, load=load, count=8_000_000, seed=seed)
        sojourns.append(run.sojourn)
        exact.append(single_server_sojourn(run))
    found = batch_means(sojourns)
    assert found.covers(np.mean(exact))
    assert found.half_width / found.mean < width


@pytest.mark.parametrize(("service", "load", "wait"), [("deterministic", 0.5, 0.5), ("exponential", 0.8, 4.0)])
def test_closed_forms_are_the_textbook_numbers(service, load, wait):
    # Mean waits of M/D/1 at 0.5 and M/M/1 at 0.8 in units of the service time.
    run = run_queue(service=service, load=load, count=200_000, seed=1)
    assert single_server_sojourn(run) - run.service.mean() == pytest.approx(wait, rel=0.03)


def test_priorities_against_cobham():
    run = run_queue(
        service="exponential", load=0.6, count=15_000, seed=4, num_classes=2,
        controllers={DecisionPoint.ORDER: PriorityClasses()},
    )  # fmt: skip
    for k, exact in enumerate(priority_sojourns(run)):
        assert batch_means(run.sojourn[run.priority == k]).covers(exact)
    assert run.sojourn[run.priority == 0].mean() < 0.8 * run.sojourn[run.priority == 1].mean()


@pytest.mark.long
@pytest.mark.parametrize(("load", "count"), [(0.7, 400_000), (0.8, 800_000)])
def test_priorities_under_load(load, count):
    run = run_queue(
        service="exponential", load=load, count=count, seed=4, num_classes=2,
        controllers={DecisionPoint.ORDER: PriorityClasses()},
    )  # fmt: skip
    for k, exact in enumerate(priority_sojourns(run)):
        assert batch_means(run.sojourn[run.priority == k]).covers(exact)


@pytest.mark.long
@pytest.mark.parametrize(("load", "count", "width"), [(0.6, 60_000, 0.03), (0.8, 60_000, 0.06)])
def test_shortest_remaining_time_against_schrage_and_miller(load, count, width):
    """Service in steps of 1 / 20: one under way is not interrupted, and a new arrival waits for its end.

    That bias of discretisation is at most one step for whoever comes and one for each that overtakes: stated, and held to.
    """
    pieces = 20
    run = run_queue(
        service="exponential", load=load, count=count, seed=5, pieces=pieces,
        controllers={DecisionPoint.ORDER: SRPTOracle()},
    )  # fmt: skip
    found, exact = batch_means(run.sojourn), srpt_sojourn(run)
    assert exact - found.half_width <= found.mean <= exact + found.half_width + 1.0 / pieces
    assert found.half_width / found.mean < width
    assert found.mean < single_server_sojourn(run)


def test_eight_replicas_with_a_central_queue_are_erlangs():
    run = run_queue(service="exponential", load=0.5, servers=8, count=10_000, seed=3)
    found = batch_means(run.wait)
    assert found.covers((erlang_sojourn(0.5, 8) - 1.0) * run.service.mean())
    assert found.half_width < 0.02 * erlang_sojourn(0.5, 8)


@pytest.mark.long
@pytest.mark.parametrize(
    ("servers", "load", "count", "width"),
    [(8, 0.8, 1_600_000, 0.01), (32, 0.9, 2_200_000, 0.01), (32, 0.95, 2_800_000, 0.03)],
)
def test_many_replicas_under_load_are_erlangs(servers, load, count, width):
    run = run_queue(service="exponential", load=load, servers=servers, count=count, seed=6)
    found = batch_means(run.wait)
    exact = erlang_sojourn(load, servers)
    assert found.covers((exact - 1.0) * run.service.mean())
    assert found.half_width < width * exact


@pytest.mark.parametrize("count", [5_000, pytest.param(300_000, marks=pytest.mark.long)])
def test_dealing_in_turn_is_a_queue_with_erlang_gaps_and_an_even_draw_is_poisson(count):
    for dispatcher, exact in (("round-robin", round_robin_sojourn(0.5, 2)), ("random", 2.0)):
        run = run_queue(service="exponential", load=0.5, servers=2, dispatcher=dispatcher, count=count, seed=7)
        assert batch_means(run.sojourn).covers(exact)
    assert round_robin_sojourn(0.5, 1) == pytest.approx(2.0)


@pytest.mark.parametrize("count", [6_000, pytest.param(400_000, marks=pytest.mark.long)])
@pytest.mark.parametrize("load", [0.8, 1.2])
def test_a_queue_limit_loses_what_a_finite_queue_loses(load, count):
    run = run_queue(service="exponential", load=load, count=count, seed=8, max_queue=3)
    lost = run.ledger.status == RequestStatus.REFUSED
    assert batch_means(lost.astype(float)).covers(finite_queue_loss(load, 4))
    assert np.array_equal(lost, np.isnan(run.sojourn))


@pytest.mark.parametrize("count", [6_000, pytest.param(400_000, marks=pytest.mark.long)])
@pytest.mark.parametrize("load", [0.8, 1.0])
def test_impatience_loses_what_barrer_says(load, count):
    run = run_queue(service="exponential", load=load, count=count, seed=9, ttft_timeout_s=2.0)
    unserved = np.isnan(run.ledger.first_scheduled_s)
    assert batch_means(unserved.astype(float)).covers(impatient_loss(load, 2.0))
    # Some were served and ended too late: they count as given up as well.
    assert np.count_nonzero(run.ledger.status == RequestStatus.TIMED_OUT) > np.count_nonzero(unserved)


def test_batches_of_independent_runs_are_put_together():
    runs = [np.random.default_rng(seed).exponential(size=30_000) for seed in range(4)]
    alone, together = batch_means(runs[0]), batch_means(runs)
    assert batch_means(runs[:1]) == alone
    assert together.mean == pytest.approx(np.mean([batch_means(run).mean for run in runs]))
    assert 0.35 < together.half_width / alone.half_width < 0.65  # four times the batches halve it


def test_erlang_c_is_the_known_one():
    assert erlang_sojourn(0.5, 1) == pytest.approx(2.0)
    # M/M/2 at load rho per server: T = 1 / (1 - rho^2).
    assert erlang_sojourn(0.7, 2) == pytest.approx(1.0 / (1.0 - 0.49))


def test_service_times_have_their_moments():
    for name, cv2 in (("deterministic", 0.0), ("exponential", 1.0), ("hyperexponential", 4.0)):
        s = service_tokens(name, 400_000, 7) / 2000
        assert s.mean() == pytest.approx(1.0, rel=0.01)
        assert s.var() == pytest.approx(cv2, abs=0.1)
    with pytest.raises(InputError, match="service"):
        service_tokens("gamma", 5, 0)
    with pytest.raises(InputError, match="load"):
        run_queue(service="exponential", load=1.0, count=5, seed=0)


def test_an_interval_of_independent_draws_holds_its_mean_about_as_often_as_it_says():
    rng = np.random.default_rng(0)
    held = sum(batch_means(rng.exponential(size=3000), confidence=0.9).covers(1.0) for _ in range(300))
    assert 0.85 < held / 300 < 0.95
