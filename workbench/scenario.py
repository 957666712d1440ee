"""One TOML file says what a run is. It becomes a frozen, validated `Scenario`; the resolved form goes into the record.

    name = "conversation-overload"
    plant = "sim"                      # or "live"
    seeds = [0, 1, 2]
    [workload]                         # what arrives
    trace = "AzureLLMInferenceTrace_conv.csv"
    num_requests = 2000
    [hardware]                         # what serves it (simulated plant)
    gpu = "H100"
    model = "Llama-3-8B"
    [engine]                           # see `workbench.engine.config.EngineConfig`
    max_running = 256
    [diffusion]                        # a share of the requests is masked diffusion, revealed by controllers.reveal
    share_frac = 0.5
    [routing]                          # what controllers.route chooses between
    evaluation = "runs/route"
    [controllers.temperature]          # one table per decision point; `kind` names a row of the catalog
    kind = "pi"
    target_entropy_nats = 1.5

An unknown key is an error that names the nearest valid ones. Relative paths are taken from the scenario file's folder.
"""

import math
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import pydantic
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, model_validator

from workbench.engine.config import EngineConfig
from workbench.errors import InputError, unknown_name
from workbench.protocols import DecisionPoint

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Workload(Section):
    """Which requests arrive, and when. Exactly one source: a trace file, a generator, or (live) a prompt file."""

    trace: Path | None = None
    trace_format: str | None = None  # guessed from the file where None
    generator: str = "azure-conversation"  # used, and said so, where no trace is given
    prompts: Path | None = None  # live: JSONL of prompts; None: the built-in set
    num_requests: Annotated[int, Field(ge=1)] = 2000
    first_request: Annotated[int, Field(ge=0)] = 0
    arrivals: Literal["trace", "poisson", "gamma", "modulated"] = "trace"  # trace: the recorded (or generated) times
    gap_cv: Positive = 2.0  # gamma: coefficient of variation of the gaps
    rate_spread: Annotated[float, Field(gt=1, allow_inf_nan=False)] = 4.0  # modulated: high rate over low rate
    dwell_s: Positive = 30.0  # modulated: mean time at a rate
    rate_multiplier: Positive = 1.0  # times the trace's own rate
    rate_per_s: Positive | None = None  # mean rate; overrides the multiplier
    max_tokens: Annotated[int, Field(ge=1)] | None = None  # cap on output tokens
    length_coupling: Annotated[float, Field(ge=-1, le=1)] | None = None  # rank correlation of a request's output length
    #                                                    with the typical entropy of its kind; None: the calibration's
    prefix_tokens: Annotated[int, Field(ge=0)] = (
        0  # generator: prompts begin with one of `num_prefixes` texts this long
    )
    num_prefixes: Annotated[int, Field(ge=1)] = 8
    cancel_frac: Annotated[float, Field(ge=0, le=1)] = 0.0  # share of clients who go away, after an exponential time
    cancel_mean_s: Positive = 10.0  # of this mean after their request


class Hardware(Section):
    """What serves the requests in the simulator: names of `sims.gpus` and `sims.models`."""

    gpu: str = "H100"
    num_gpus: Annotated[int, Field(ge=1)] = 1
    model: str = "Llama-3-8B"
    memory_frac: Annotated[float, Field(gt=0, le=1)] = 0.9  # of GPU memory for weights and KV
    kv_memory_frac: Annotated[float, Field(gt=0, le=1)] = 1.0  # of what weights leave: below 1 makes KV tight
    calibration: Path | None = None  # JSON written by `workbench calibrate`: step cost, entropy and mass processes
    num_replicas: Annotated[int, Field(ge=1)] = 1  # engines of `num_gpus` GPUs each, behind a dispatcher
    dispatcher: str = "round-robin"  # a name of `sims.dispatcher`


class SlowFault(Section):
    """GPUs that run slower now and then (`sims.faults.SlowSpells`)."""

    mean_gap_s: Positive
    length_s: Positive
    factor: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 2.0


class FailureFault(Section):
    """GPUs that fail and come back (`sims.faults.Failures`)."""

    mean_gap_s: Positive
    repair_s: Positive


class Faults(Section):
    """What goes wrong in the simulator; nothing by default."""

    slow: SlowFault | None = None
    failure: FailureFault | None = None


class Live(Section):
    """Which real model, and how it runs."""

    model: str = "smollm2"  # or a Hugging Face directory or a .gguf file
    dtype: Literal["bf16", "fp32"] = "bf16"
    backend: Literal["torch", "cpu", "triton"] = "cpu"  # see `kernels.dispatch`


class Diffusion(Section):
    """Masked-diffusion requests beside the autoregressive ones: each pass computes every position, a policy reveals some."""

    share_frac: Annotated[float, Field(ge=0, le=1)] = 0.0  # of the workload's requests
    length_tokens: Annotated[int, Field(ge=1)] | None = (
        None  # positions to reveal; None: the request's own output length
    )
    oracle: str = "markov"  # simulated: the exact joint the sequences come from, see `sims.oracles.names`
    entropy_nats: Positive | None = None  # its H(X0), for oracles that can be told
    num_symbols: Annotated[int, Field(ge=2)] | None = None
    model: str = "sapiens-heavy"  # live: a packaged masked model
    temperature: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.0  # of the tokens drawn


class Routing(Section):
    """What a router chooses between: the answers a request would get under each strategy."""

    probe_tokens: Annotated[int, Field(ge=3)] = 64
    evaluation: Path | None = (
        None  # simulated: recorded answers, a folder of `workbench route --evaluate` or a Parquet file
    )
    direct_tokens: Annotated[int, Field(ge=1)] = 16  # simulated, nothing recorded: a Direct answer is at most so long
    cot_factor: Annotated[float, Field(ge=1, allow_inf_nan=False)] = (
        3.0  # and a chain of thought so many times Standard
    )
    task: str | None = None  # live: questions of a task, by name or JSONL file; None: the workload's prompts
    tasks_dir: Path | None = None
    prompts: Path | None = None  # live: templates of the strategies, instead of ours
    max_direct_tokens: Annotated[int, Field(ge=1)] = 16
    max_cot_tokens: Annotated[int, Field(ge=1)] = 256


class Scenario(Section):
    name: Annotated[str, Field(min_length=1)] = "scenario"
    plant: Literal["sim", "live"] = "sim"
    seeds: tuple[Annotated[int, Field(ge=0, lt=2**63)], ...] = (0,)
    level: Literal["summary", "window", "full"] = "window"
    window_steps: Annotated[int, Field(ge=1)] = 2000
    workload: Workload = Workload()
    hardware: Hardware = Hardware()
    faults: Faults = Faults()
    live: Live = Live()
    diffusion: Diffusion = Diffusion()
    routing: Routing = Routing()
    engine: dict[str, Any] = Field(default_factory=dict)
    controllers: dict[DecisionPoint, dict[str, Any]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check(self) -> Self:
        known = [field.name for field in fields(EngineConfig)]
        for key in self.engine:
            if key not in known:
                raise unknown_name("key in [engine]", key, known)
        if not self.seeds:
            raise InputError("seeds must name at least one seed, got []")
        self.engine_config(num_blocks=1)  # checks types and ranges
        return self

    def engine_config(self, num_blocks: int) -> EngineConfig:
        """The engine's settings; `num_blocks` is what the plant's memory allows, unless the scenario sets it."""
        try:
            return TypeAdapter(EngineConfig).validate_python({"num_blocks": num_blocks, **self.engine})
        except pydantic.ValidationError as error:
            raise InputError(_one_line(error, Scenario, "engine.")) from None

    def plain(self) -> dict[str, Any]:
        """As JSON takes it, and `parse_scenario` reads it back: an infinite number is the text "inf"."""
        return _plain(self.model_dump(mode="python"))

    def with_changes(self, **changes: Any) -> "Scenario":
        """A validated copy with top-level fields replaced, or dotted keys such as `workload__rate_multiplier`."""
        data = self.model_dump()
        for key, value in changes.items():
            *sections, last = key.split("__")
            target = data
            for section in sections:
                target = target.setdefault(section, {})
            target[last] = value
        return parse_scenario(data)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    return value


def load_scenario(path: Path) -> Scenario:
    """Read a scenario file. Raises `InputError` (one line) for anything that cannot be used."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise InputError(f"scenario {path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"scenario {path}: cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"scenario {path}: not valid TOML: {error}") from None
    for section, key in (
        ("workload", "trace"),
        ("workload", "prompts"),
        ("hardware", "calibration"),
        ("live", "model"),
        ("routing", "evaluation"),
        ("routing", "task"),
        ("routing", "tasks_dir"),
        ("routing", "prompts"),
    ):
        value = data.get(section, {}).get(key) if isinstance(data.get(section, {}), dict) else None
        if isinstance(value, str) and (path.parent / value).exists():
            data[section][key] = str((path.parent / value).resolve())
    return parse_scenario(data, where=f"scenario {path}: ")


def parse_scenario(data: dict[str, Any], where: str = "") -> Scenario:
    try:
        scenario = Scenario.model_validate(data)
    except pydantic.ValidationError as error:
        raise InputError(_one_line(error, Scenario, where)) from None
    except InputError as error:
        raise InputError(f"{where}{error}") from None
    for path in (scenario.workload.trace, scenario.workload.prompts, scenario.hardware.calibration):
        folder = path is scenario.workload.trace  # ServeGen's are folders
        if path is not None and not (path.is_file() or (folder and path.is_dir())):
            raise InputError(f"{where}no file at {path}; give an existing path")
    if (path := scenario.routing.evaluation) is not None and not path.exists():
        raise InputError(f"{where}routing.evaluation: nothing at {path}; make one with `workbench route --evaluate`")
    return scenario


def _one_line(error: pydantic.ValidationError, model: type[BaseModel], where: str) -> str:
    first = error.errors(include_url=False)[0]
    location = ".".join(str(part) for part in first["loc"])
    if isinstance(first.get("ctx", {}).get("error"), InputError):
        return f"{where.removesuffix('engine.')}{first['ctx']['error']}"
    if first["type"] == "extra_forbidden":
        section = model
        for part in first["loc"][:-1]:
            section = section.model_fields[str(part)].annotation  # type: ignore[assignment]
        table = f"key in [{'.'.join(str(p) for p in first['loc'][:-1])}]" if len(first["loc"]) > 1 else "key"
        return f"{where}{unknown_name(table, str(first['loc'][-1]), section.model_fields)}"
    message = first["msg"][0].lower() + first["msg"][1:]
    given = repr(first["input"])
    return f"{where}{location}: {message}, got {given if len(given) < 80 else given[:77] + '...'}"
