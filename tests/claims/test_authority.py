"""The map colours what its interval tells, names the mechanism that changed, and counts the cells that gain."""

from workbench.claims.authority_map import authority_map, effect, mechanism
from workbench.claims.claim import Measured
from workbench.claims.experiments.authority import CHANGES, ROWS, CellTask, cell_quantities, shares
from workbench.claims.mechanism import HELD_BY, held_by
from workbench.claims.paired import GAINS
from workbench.metrics.arm import ARM_CODES, BASELINE

STILL = dict.fromkeys(CHANGES, 0.0)


def held(**given: float) -> dict[str, float]:
    return dict.fromkeys(HELD_BY, 0.0) | given


def kept(gain: float, spread: float, changed: dict[str, float], hold: dict[str, float]):
    """A cell of four seeds in which every arm but the baseline improves every metric by `gain`, give or take `spread`."""
    cells = []
    for k in range(4):
        factor = 1.0 + gain + spread * (-1) ** k
        values = {code: [1.0 if code == BASELINE else factor**sign for _, sign in GAINS.values()] for code in ARM_CODES}
        cells.append({"values": values, "changes": dict.fromkeys(ARM_CODES, STILL | changed), "held": hold})
    return cells


def measured(gain: float, spread: float, changed: dict[str, float], hold: dict[str, float], cell: str):
    return {f"{cell}/{n}": m for n, m in cell_quantities(kept(gain, spread, changed, hold)).items()}


def test_mechanisms() -> None:
    waits, serves = held(queue_share=0.7, kv_peak_frac=1.0), held(weights_share=0.6, kv_share=0.2)
    cell = "base/tight_1.3"
    for changed, hold, metric, letter in (
        ({"queue": -0.3, "service": -0.1}, waits, "latency", "A"),
        ({"queue": -0.3, "service": -0.1}, held(queue_share=0.7), "latency", "Q"),
        ({"service": 0.5, "recomputed": 0.2, "busy": 0.3}, serves, "latency", "R"),
        ({"service": -0.1, "kv_read": -0.2, "busy": -0.1}, serves, "latency", "M"),
        ({"tau": 0.05, "busy": 0.01}, serves, "tau_per_busy_s", "E"),
        ({"service": 0.1, "busy": 0.1}, serves, "throughput", "B"),
    ):
        assert mechanism(measured(0.1, 0.01, changed, hold, cell), cell, "P", metric) == letter
    assert held_by(waits) == "admission: KV blocks"
    assert held_by(serves) == "memory-bound: weights"
    assert held_by(held(kv_share=0.5)) == "memory-bound: KV"
    assert held_by(held(queue_share=0.6, running_frac=0.95)) == "admission: batch slots"


def test_a_cell_inside_its_interval_is_drawn_as_no_effect() -> None:
    hold = held(weights_share=0.6)
    found = measured(0.2, 0.01, {"service": -0.2, "kv_read": -0.3, "busy": -0.2}, hold, "base/ample_0.5")
    found |= measured(0.01, 0.2, {"service": -0.2}, hold, "base/tight_1.3")
    assert effect(found["base/ample_0.5/P_latency"]) == 1
    assert effect(found["base/tight_1.3/P_latency"]) == 0
    page = authority_map(found)
    assert page.count("<svg") == 4
    # Two cells a panel, seven panels, three figures: half gain, half are empty.
    assert page.count("fill:var(--better)") == 21
    assert page.count("no effect") == 21
    assert page.count(">M</text>") == 21
    assert authority_map({}) == ""


def test_share_of_cells_counts_the_decided() -> None:
    def one(low: float, high: float) -> Measured:
        return Measured(0.5 * (low + high), low, high, "given")

    cells = [one(0.1, 0.2), one(-0.1, 0.2), one(-0.2, -0.1), one(0.0, 0.0)]
    found = shares(
        {f"r{k}/c/STP_{n}": m for k, m in enumerate(cells) for n in ("latency", "throughput", "tau_per_busy_s")}
    )
    assert (found["everywhere_latency"].low, found["everywhere_latency"].high) == (0.25, 0.5)


def test_a_cell_runs_and_resumes(tmp_path) -> None:
    task = CellTask("base", "tight", (1.3,), 0, 8, None, tmp_path)
    task.run()
    assert task.finished
    first = task.path.read_bytes()
    task.run()
    assert task.path.read_bytes() == first
    requests = task._requests()
    assert abs(sum(p for p, _ in requests) / len(requests) / ROWS["base"].prompt_tokens - 1.0) < 0.01
    assert not (tmp_path / "scratch" / task.path.stem).exists()
