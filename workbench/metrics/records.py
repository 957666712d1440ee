"""The records of one arm as columns: what every metric reads.

Tables come from `workbench.record` (a frame each); here they become float64 arrays with NaN for null, requests
sorted by arrival (ties in file order), steps by start.

Times of one request, all on the run's clock:

    arrival_s <= first_scheduled_s <= first_token_s <= finished_s

A time that was never measured is null. Zero is a time like any other and never means "not measured".
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray

from workbench.engine.requests import RequestStatus
from workbench.errors import InputError
from workbench.signals import BoolArray, FloatArray

Columns = Mapping[str, FloatArray]

REQUEST_TIMES = ("arrival_s", "first_scheduled_s", "first_token_s", "finished_s")
CLOCK_SLACK_S = 1e-9
GIVEN_UP = ("timed_out", "cancelled")  # request columns, 1 where the request ended so


@dataclass(frozen=True)
class Slo:
    """Service level a request must meet to count as goodput. Default [ours]: interactive chat, first token within two
    seconds and ten tokens a second after it."""

    ttft_s: float = 2.0
    tpot_s: float = 0.1


@dataclass(frozen=True)
class Records:
    """Columns of one arm, or of one batch of it.

    requests: those that arrived in the batch. finished: those that completed within its time window, for ratios of
    work done to what it took. steps: those that started in the window.
    """

    requests: Columns
    refused: BoolArray
    finished: Columns
    steps: Columns
    start_s: float
    end_s: float
    slo: Slo = field(default_factory=Slo)
    num_replicas: int = 1
    step_cost_max_tokens: float = np.nan  # largest batch that the step cost was made for; NaN where time is measured
    itl_request_id: FloatArray | None = None  # inter-token gaps: whose, and how long
    itl_s: FloatArray | None = None

    @property
    def num_requests(self) -> int:
        return self.refused.shape[0]

    @cached_property
    def completed(self) -> BoolArray:
        return ~np.isnan(self.request("finished_s")) & ~self.refused

    def request(self, name: str) -> FloatArray:
        """Request column [num_requests]; all NaN where the record has no such column."""
        return self.requests.get(name, np.full(self.num_requests, np.nan))

    @cached_property
    def served(self) -> "Records":
        """The same window with `requests` those that completed in it."""
        size = next(iter(self.finished.values())).shape[0]
        return replace(self, requests=self.finished, refused=np.zeros(size, dtype=np.bool_))

    def step(self, name: str) -> FloatArray:
        """Step column; all NaN where the record has no such column."""
        size = next(iter(self.steps.values())).shape[0] if self.steps else 0
        return self.steps.get(name, np.full(size, np.nan))

    def batches(self, count: int) -> list["Records"]:
        """Cut into `count` consecutive batches: requests by arrival, work by time between equal shares of finishes.

        Every batch holds the same request ids in every arm of one seed, which is what pairs them.
        """
        edges = np.linspace(0, self.num_requests, count + 1).round().astype(np.int64)
        ended = self.request("finished_s")
        known = np.sort(ended[~np.isnan(ended)])
        cuts = np.quantile(known, np.linspace(0, 1, count + 1)) if known.size else np.full(count + 1, self.end_s)
        cuts[0], cuts[-1] = self.start_s, max(self.end_s, cuts[-1])
        began = self.step("start_s")
        parts: list[Records] = []
        for k in range(count):
            rows = slice(edges[k], edges[k + 1])
            # The last window is closed on the right, so that no request and no step is lost.
            last = k == count - 1
            in_window = (ended > cuts[k] if k else ended >= cuts[k]) & (ended <= cuts[k + 1])
            in_steps = (began >= cuts[k]) & ((began <= cuts[k + 1]) if last else (began < cuts[k + 1]))
            itl_id, itl = self.itl_request_id, self.itl_s
            if itl_id is not None and itl is not None:
                mine = np.isin(itl_id, self.request("request_id")[rows])
                itl_id, itl = itl_id[mine], itl[mine]
            parts.append(
                replace(
                    self,
                    requests={name: column[rows] for name, column in self.requests.items()},
                    refused=self.refused[rows],
                    finished={name: column[in_window] for name, column in self.requests.items()},
                    steps={name: column[in_steps] for name, column in self.steps.items()},
                    start_s=float(cuts[k]),
                    end_s=float(cuts[k + 1]),
                    itl_request_id=itl_id,
                    itl_s=itl,
                )
            )
        return parts


def numeric_columns(frame: pl.DataFrame) -> dict[str, NDArray[np.float64]]:
    """Numeric and boolean columns as float64, null as NaN."""
    chosen = [name for name, dtype in frame.schema.items() if dtype.is_numeric() or dtype == pl.Boolean]
    floats = frame.select(pl.col(chosen).cast(pl.Float64).fill_null(float("nan")))
    return {name: floats[name].to_numpy() for name in chosen}


def records_of(
    requests: pl.DataFrame,
    steps: pl.DataFrame,
    sequences: pl.DataFrame | None = None,
    slo: Slo | None = None,
    num_replicas: int = 1,
    step_cost_max_tokens: float = np.nan,
) -> Records:
    """`Records` of one arm from its frames.

    Raises `InputError` where a request's times run backwards: such a record cannot be measured.
    """
    for name in ("request_id", "arrival_s"):
        if name not in requests.columns:
            raise InputError(f"requests table must have a column {name}; found: {', '.join(requests.columns)}")
    requests = requests.sort("arrival_s", maintain_order=True)
    columns = numeric_columns(requests)
    _check_times(columns)
    refused = _refused(requests)
    for name in GIVEN_UP:
        columns[name] = _in_status(requests, name).astype(float)
    if "finished_s" in columns:
        columns["finished_s"] = np.where(refused, np.nan, columns["finished_s"])
    if "start_s" in steps.columns:
        steps = steps.sort("start_s", maintain_order=True)
    step_columns = numeric_columns(steps)
    ends = [columns.get("finished_s", np.empty(0)), step_columns.get("start_s", np.empty(0))]
    if "start_s" in step_columns and "elapsed_s" in step_columns:
        ends.append(step_columns["start_s"] + step_columns["elapsed_s"])
    last = np.concatenate([*ends, columns["arrival_s"]])
    last = last[~np.isnan(last)]
    completed = ~np.isnan(columns.get("finished_s", np.full(requests.height, np.nan)))
    itl = inter_token_gaps(sequences, steps) if sequences is not None else None
    return Records(
        requests=columns,
        refused=refused,
        finished={name: column[completed] for name, column in columns.items()},
        steps=step_columns,
        start_s=float(np.nanmin(columns["arrival_s"])) if requests.height else 0.0,
        end_s=float(last.max()) if last.size else 0.0,
        slo=slo or Slo(),
        num_replicas=num_replicas,
        step_cost_max_tokens=step_cost_max_tokens,
        itl_request_id=None if itl is None else itl[0],
        itl_s=None if itl is None else itl[1],
    )


def _refused(requests: pl.DataFrame) -> BoolArray:
    return _in_status(requests, "refused")


def _in_status(requests: pl.DataFrame, name: str) -> BoolArray:
    """Status by name in any case, or as the engine's number."""
    if "status" not in requests.columns:
        return np.zeros(requests.height, dtype=np.bool_)
    status = requests["status"]
    if status.dtype.is_numeric():
        return (status == int(RequestStatus[name.upper()])).fill_null(False).to_numpy()
    return (status.cast(pl.String).str.to_lowercase() == name).fill_null(False).to_numpy()


def _check_times(columns: Columns) -> None:
    known = [name for name in REQUEST_TIMES if name in columns]
    for i, earlier in enumerate(known):
        for later in known[i + 1 :]:
            wrong = columns[later] < columns[earlier] - CLOCK_SLACK_S
            if wrong.any():
                row = int(np.flatnonzero(wrong)[0])
                raise InputError(
                    f"request {columns['request_id'][row]:.0f}: {later} = {columns[later][row]:g} lies before "
                    f"{earlier} = {columns[earlier][row]:g}; times on one clock must not run backwards"
                )


def inter_token_gaps(sequences: pl.DataFrame, steps: pl.DataFrame) -> tuple[FloatArray, FloatArray] | None:
    """(request_id, gap_s) between consecutive tokens of a request; None where token indices are not in the record.

    A token's time is the end of the step that drew it: two tokens in one step are 0 s apart. Gaps across tokens that
    were not recorded (window level) are left out.
    """
    index = next((name for name in ("token_index", "obs_token_index") if name in sequences.columns), None)
    if index is None or not {"step", "start_s", "elapsed_s"} <= set(steps.columns):
        return None
    tokens = sequences.filter((pl.col("point") == "measure") & pl.col(index).is_not_null())
    if tokens.is_empty():
        return None
    ends = steps.select(pl.col("step"), (pl.col("start_s") + pl.col("elapsed_s")).alias("end_s"))
    tokens = tokens.select("step", "request_id", index).join(ends, on="step").sort("request_id", index, "end_s")
    columns = numeric_columns(tokens)
    follows = (np.diff(columns["request_id"]) == 0) & (np.diff(columns[index]) == 1)
    return columns["request_id"][1:][follows], np.diff(columns["end_s"])[follows]
