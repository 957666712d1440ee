"""What another engine has spooled becomes one arm of a run, in the record every other tool reads.

Batches, requests and orders come from the process that scheduled, tokens and temperatures from the one that sampled; they
are joined by request and token index, never by step numbers of two processes. Draws that the engine threw away (the
end of a partial prefill chunk, a step past the end of an answer) are left out.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from sims.models import ModelShape
from workbench.engine.config import EngineConfig
from workbench.engine.executor import Batch, StepResult
from workbench.engine.requests import RequestLedger, RequestSpec, RequestStatus
from workbench.engine.telemetry import TOKEN_COLUMNS, Telemetry
from workbench.errors import InputError
from workbench.factorial import switches_of
from workbench.live.engines.spool import read_stream
from workbench.protocols import DecisionPoint
from workbench.record import ArmRecorder
from workbench.scenario import parse_scenario

Columns = dict[str, np.ndarray]
SETTINGS = ("block_size", "max_context_tokens", "max_running", "token_budget", "max_chunk_tokens", "watermark_frac")


class SpooledPlant:
    """What `ArmRecorder.finish` asks of a plant, filled from a spool."""

    def __init__(self, requests: RequestSpec, config: EngineConfig, num_slots: int) -> None:
        self.requests, self.config, self.num_slots = requests, config, num_slots
        self.ledger = RequestLedger(len(requests))
        self.telemetry = Telemetry(len(requests), None, config.entropy_target_nats)


def collect_arm(
    spool: Path, directory: Path, *, arm: Mapping[str, Any] | None = None, extra: Mapping[str, Any] | None = None,
    request_columns: Mapping[str, Any] | None = None, notes: Mapping[str, Any] | None = None, compared: bool = False,
) -> Path:  # fmt: skip
    """Write the arm a spool holds; returns its folder. The scenario in it has the engine settings that were in force.

    notes: more facts beside those of the engine; compared: without `arm`, reports compare it by its controllers. Raises `InputError` for a spool that holds no finished step."""
    about = {**_read_json(spool / "sampler.json"), **_read_json(spool / "scheduler.json")}
    arrived, batches = read_stream(spool, "requests"), read_stream(spool, "batches")
    if not arrived or not batches:
        raise InputError(f"{spool}: no step of the engine was recorded")
    scenario = parse_scenario(_without_files(about["scenario"]))
    spec = _requests(arrived)
    config = EngineConfig(
        num_blocks=about["num_blocks"], block_size=about["block_size"], max_running=about["max_running"],
        max_context_tokens=about["max_context_tokens"], token_budget=about["token_budget"],
        max_chunk_tokens=about["token_budget"], watermark_frac=0.0, delay_steps=scenario.engine_config(1).delay_steps,
        entropy_target_nats=scenario.engine_config(1).entropy_target_nats,
        preemption_quantum_tokens=scenario.engine_config(1).preemption_quantum_tokens,
    )  # fmt: skip
    plant = SpooledPlant(spec, config, int(about["num_slots"]))
    shape = shape_of(about)
    _fill(plant, spool, batches, shape)
    _end(plant, read_stream(spool, "ends"), arrived)
    recorder = ArmRecorder("full", 0)
    for point in (DecisionPoint.ORDER, DecisionPoint.TEMPERATURE):
        if rows := read_stream(spool, point.value):
            recorder.take_rows(point, rows)
    engine = {"engine": "vllm", "engine_version": about["vllm"], "async_scheduling": about["async_scheduling"]}
    if arm is None and compared:
        arm = switches_of(scenario)
    had = {f"engine__{name}": getattr(config, name) for name in SETTINGS}
    return recorder.finish(
        directory, plant, scenario.with_changes(plant="live", level="full", **had), int(about["seed"]), arm=arm,
        extra={
            "controller_context": about["controller_context"], "controller_flags": about["controller_flags"],
            "notes": {
                **engine, "hardware": "this machine", "model": about["model"], "backend": about["backend"],
                "sampler": about["sampler"], "model_shape": shape.__dict__, "engine_torch": about["torch"],
                "workload": f"{len(spec)} requests served by vLLM {about['vllm']}", **(notes or {}),
            },
            **(extra or {}),
        },
        request_columns=request_columns,
    )  # fmt: skip


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path}: cannot be read ({error}); did the engine start with a scenario and record?"
        ) from None


def _without_files(scenario: Mapping[str, Any]) -> dict[str, Any]:
    """Requests come from the record: files the scenario named may be gone."""
    data = {**scenario, "workload": {**scenario["workload"], "trace": None, "prompts": None}}
    return {**data, "hardware": {**scenario["hardware"], "calibration": None}}


def _requests(arrived: Columns) -> RequestSpec:
    kinds = list(dict.fromkeys(arrived["kind"].tolist()))
    first_s = float(arrived["arrival_s"].min())
    return RequestSpec(
        arrival_s=arrived["arrival_s"] - first_s,
        prompt_tokens=arrived["prompt_tokens"],
        output_tokens=arrived["asked_tokens"],
        kind=np.array([kinds.index(k) for k in arrived["kind"]], np.int64),
        priority=arrived["priority"],
        kind_names=tuple(kinds),
        length_known=False,
    )


def _fill(plant: SpooledPlant, spool: Path, batches: Columns, shape: ModelShape) -> None:
    """Every step through the telemetry and the ledger, as `EnginePlant` would have done it."""
    ledger = plant.ledger
    first_s = float(read_stream(spool, "requests")["arrival_s"].min())
    ends = read_stream(spool, "ends")
    produced = np.full(len(plant.requests), np.iinfo(np.int64).max)
    if ends:
        produced[ends["request_id"]] = ends["output_tokens"]
    tokens = read_stream(spool, "tokens")
    drawn = _last_draws(tokens, produced)
    lost = read_stream(spool, "preemptions")
    lost_at = _preemptions(lost)
    again = np.zeros(len(plant.requests), np.int64)  # KV to be computed once more, up to this token
    edges = np.flatnonzero(np.diff(batches["step"])) + 1
    for rows in np.split(np.arange(batches["step"].size), edges):
        step = int(batches["step"][rows[0]])
        for request, computed in lost_at.get(step, ()):
            ledger.num_preempted[request] += 1
            again[request] = max(again[request], computed)
        b = {name: values[rows] for name, values in batches.items()}
        request, samples = b["request_id"], b["samples"] & (b["token_index"] < produced[b["request_id"]])
        where = np.array([drawn.get((int(r), int(t)), -1) if s else -1
                          for r, t, s in zip(request, b["token_index"], samples, strict=True)])  # fmt: skip
        batch = Batch(
            step=step, slot=b["slot"], request_id=request, start=b["start"], num_tokens=b["num_tokens"], samples=samples,
            token_index=b["token_index"], prompt_tokens=plant.requests.prompt_tokens[request],
            output_tokens=plant.requests.output_tokens[request], kind=plant.requests.kind[request],
            num_blocks=b["num_blocks"], slot_block_table=np.zeros((0, 0), np.int32), block_size=plant.config.block_size,
        )  # fmt: skip
        start_s, end_s = float(b["start_s"][0]) - first_s, float(b["end_s"][0]) - first_s
        plant.telemetry.step(
            batch, _result(b, samples, where, tokens, shape, end_s - start_s), start_s=start_s, elapsed_s=end_s - start_s,
            num_waiting=int(b["num_waiting"][0]), num_backlog=0,
            num_preempted=int(b["num_preempted"][0]), blocks_used=int(b["blocks_used"][0]),
            blocks_free=int(b["blocks_free"][0]),
        )  # fmt: skip
        fresh = request[np.isnan(ledger.first_scheduled_s[request])]
        ledger.first_scheduled_s[fresh] = start_s
        end = b["start"] + b["num_tokens"]
        ledger.recomputed_tokens[request] += np.minimum(end, again[request]) - np.minimum(b["start"], again[request])
        drew = request[samples]
        ledger.generated_tokens[drew] = b["token_index"][samples] + 1
        first = drew[np.isnan(ledger.first_token_s[drew])]
        ledger.first_token_s[first] = end_s


def _last_draws(tokens: Columns, produced: np.ndarray) -> dict[tuple[int, int], int]:
    """(request, token index) -> its row among the tokens: the last draw is the one the engine kept."""
    if not tokens:
        return {}
    kept = np.flatnonzero(tokens["token_index"] < produced[tokens["request_id"]])
    return {(int(tokens["request_id"][i]), int(tokens["token_index"][i])): int(i) for i in kept}


def _preemptions(lost: Columns) -> dict[int, list[tuple[int, int]]]:
    found: dict[int, list[tuple[int, int]]] = {}
    if lost:
        for step, request, computed in zip(lost["step"], lost["request_id"], lost["computed_tokens"], strict=True):
            found.setdefault(int(step), []).append((int(request), int(computed)))
    return found


def _result(
    b: Columns, samples: np.ndarray, where: np.ndarray, tokens: Columns, shape: ModelShape, elapsed_s: float
) -> StepResult:
    """What the sampler measured in this step, NaN where it could not; work counted from the shape of the model."""
    n = samples.size
    known = where >= 0
    columns = {}
    for name in TOKEN_COLUMNS:
        columns[name] = np.full(n, np.nan)
        if name == "dropped_mass":
            columns[name][samples] = 0.0
        elif tokens:
            columns[name][known] = tokens[name][where[known]]
    token_id = np.full(n, -1, np.int64)
    if tokens:
        token_id[known] = tokens["token_id"][where[known]]
    context = (b["start"] + b["num_tokens"]).astype(np.float64)
    pairs = float((b["num_tokens"] * (b["start"] + 0.5 * (b["num_tokens"] + 1))).sum())
    layers = 2.0 * shape.num_layers * shape.layer_weights * float(b["num_tokens"].sum())
    flops = layers + shape.output_flop_per_sample * int(samples.sum()) + shape.attention_flop_per_pair * pairs
    read = float(context.sum()) * shape.kv_bytes_per_token
    return StepResult(
        elapsed_s=elapsed_s, energy_j=float("nan"), flops=flops, kv_bytes_read=read, kv_bytes_dense=read,
        token_id=token_id, ended=np.zeros(n, np.bool_), block_mass=None, **columns,
    )  # fmt: skip


def _end(plant: SpooledPlant, ends: Columns, arrived: Columns) -> None:
    ledger = plant.ledger
    ledger.status[:] = RequestStatus.RUNNING
    ledger.status[np.isnan(ledger.first_scheduled_s)] = RequestStatus.WAITING
    if not ends:
        return
    first_s = float(arrived["arrival_s"].min())
    request = ends["request_id"]
    finished = np.array([name in ("FINISHED_STOPPED", "FINISHED_LENGTH_CAPPED") for name in ends["status"]])
    refused = np.array([name in ("FINISHED_IGNORED", "FINISHED_ERROR") for name in ends["status"]])
    ledger.status[request[finished]] = RequestStatus.COMPLETED
    ledger.status[request[refused]] = RequestStatus.REFUSED
    ledger.finished_s[request[finished]] = ends["time_s"][finished] - first_s
    ledger.generated_tokens[request] = ends["output_tokens"]


def shape_of(about: Mapping[str, Any]) -> ModelShape:
    """The model's shape from its Hugging Face configuration. Raises `InputError` for one that is no plain decoder."""
    config = about["model_config"]
    try:
        heads = int(config["num_attention_heads"])
        hidden = int(config["hidden_size"])
        return ModelShape(
            name="SmolLM2-135M" if "SmolLM2-135M" in about["model"] else Path(about["model"]).name,
            num_layers=int(config["num_hidden_layers"]), hidden=hidden, num_heads=heads,
            num_kv_heads=int(config.get("num_key_value_heads") or heads),
            head_size=int(config.get("head_dim") or hidden // heads), intermediate=int(config["intermediate_size"]),
            vocab=int(config["vocab_size"]), max_context_tokens=int(about["max_context_tokens"]),
            tied_embeddings=bool(config.get("tie_word_embeddings", False)),
            qkv_bias=bool(config.get("attention_bias", False)), bytes_per_weight=4 if "float32" in about["dtype"] else 2,
            window_tokens=None, source="the served model",
        )  # fmt: skip
    except KeyError as missing:
        raise InputError(
            f"{about['model']}: its configuration has no {missing}; only plain decoders are recorded"
        ) from None
