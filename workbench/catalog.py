"""Every controller by name, in one table: scenario files, contract tests and `workbench doctor` read it.

A new controller is one row. Each class owns its own knobs (its dataclass fields); `vocab_size` and `delay_steps` are
filled in from the plant where a class has them and the scenario does not say.
"""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

import pydantic
from pydantic import TypeAdapter

from controllers.pruning.certified import Certified
from controllers.pruning.entropy_adaptive import EntropyAdaptive
from controllers.pruning.entropy_share import EntropyShare, GuardedEntropyShare
from controllers.pruning.h2o import H2O
from controllers.pruning.keep_all import KeepAll
from controllers.pruning.least_mass import LeastMass
from controllers.pruning.pyramid import Pyramid
from controllers.pruning.quest import Quest
from controllers.pruning.sketch_mass import SketchMass
from controllers.pruning.snapkv import SnapKV
from controllers.pruning.streaming_llm import StreamingLLM
from controllers.routing.dataset_level import DatasetRouter
from controllers.routing.fixed import FixedRouter
from controllers.routing.heuristic import HeuristicRouter
from controllers.routing.mlp import MLPRouter
from controllers.routing.random_mix import RandomMixRouter
from controllers.routing.surrogate import SurrogateRouter
from controllers.routing.token_signature import TokenSignatureRouter
from controllers.scheduling.completion_aware import CompletionAware
from controllers.scheduling.entropy_aging import EntropyAging
from controllers.scheduling.entropy_ratio import EntropyRatio
from controllers.scheduling.fcfs import FCFS
from controllers.scheduling.mlfq import MLFQ
from controllers.scheduling.priority_classes import PriorityClasses
from controllers.scheduling.shortest_predicted import ShortestPredicted
from controllers.scheduling.srpt import SRPTOracle
from controllers.temperature.anchored import AnchoredI
from controllers.temperature.edt import EDT
from controllers.temperature.exact import ExactSolve
from controllers.temperature.explore import IntegralExplore
from controllers.temperature.fixed import Fixed
from controllers.temperature.gain_scheduled import GainScheduled
from controllers.temperature.matched_constant import MatchedConstant
from controllers.temperature.min_p import MinP
from controllers.temperature.mirostat import Mirostat
from controllers.temperature.pi import PITemperature
from controllers.temperature.pid import PIDTemperature
from controllers.temperature.positional import PositionalPI
from controllers.temperature.top_h import TopH
from controllers.unmasking.adaptive_entropy_sum import AdaptiveEntropySum
from controllers.unmasking.confidence_factor import ConfidenceFactor
from controllers.unmasking.confidence_threshold import ConfidenceThreshold
from controllers.unmasking.dilated import Dilated
from controllers.unmasking.eb_sampler import EBSampler
from controllers.unmasking.entropy_sum import EntropySum
from controllers.unmasking.klass import KLASS
from controllers.unmasking.left_to_right import LeftToRight
from controllers.unmasking.low_confidence import LowConfidence
from controllers.unmasking.max_entropy import MaxEntropy
from controllers.unmasking.ordered_entropy_sum import OrderedEntropySum
from controllers.unmasking.random_size import RandomSize
from controllers.unmasking.remasking import Remasking
from controllers.unmasking.semi_autoregressive import SemiAutoregressive
from controllers.unmasking.uniform import Uniform
from controllers.wrappers import Delayed, RateLimited, Saturated
from workbench.errors import InputError, unknown_name
from workbench.protocols import Controller, DecisionPoint

CATALOG: dict[DecisionPoint, dict[str, type[Any]]] = {
    DecisionPoint.ORDER: {
        "fcfs": FCFS,
        "entropy-aging": EntropyAging,
        "entropy-ratio": EntropyRatio,
        "completion-aware": CompletionAware,
        "srpt-oracle": SRPTOracle,
        "shortest-predicted": ShortestPredicted,
        "mlfq": MLFQ,
        "priority-classes": PriorityClasses,
    },
    DecisionPoint.TEMPERATURE: {
        "fixed": Fixed,
        "matched-constant": MatchedConstant,
        "pi": PITemperature,
        "pi-positional": PositionalPI,
        "pid": PIDTemperature,
        "anchored": AnchoredI,
        "gain-scheduled": GainScheduled,
        "exact": ExactSolve,
        "mirostat": Mirostat,
        "edt": EDT,
        "explore": IntegralExplore,
    },
    DecisionPoint.KEEP: {
        "keep-all": KeepAll,
        "streaming-llm": StreamingLLM,
        "h2o": H2O,
        "snapkv": SnapKV,
        "quest": Quest,
        "pyramid": Pyramid,
        "least-mass": LeastMass,
        "entropy-share": EntropyShare,
        "entropy-share-guarded": GuardedEntropyShare,
        "entropy-adaptive": EntropyAdaptive,
        "sketch-mass": SketchMass,
        "certified": Certified,
    },
    DecisionPoint.REVEAL: {
        "entropy-sum": EntropySum,
        "adaptive-entropy-sum": AdaptiveEntropySum,
        "max-entropy": MaxEntropy,
        "ordered-entropy-sum": OrderedEntropySum,
        "eb-sampler": EBSampler,
        "confidence-threshold": ConfidenceThreshold,
        "confidence-factor": ConfidenceFactor,
        "klass": KLASS,
        "low-confidence": LowConfidence,
        "uniform": Uniform,
        "random-size": RandomSize,
        "dilated": Dilated,
        "left-to-right": LeftToRight,
    },
    DecisionPoint.ROUTE: {
        "fixed": FixedRouter,
        "random-mix": RandomMixRouter,
        "heuristic": HeuristicRouter,
        "surrogate": SurrogateRouter,
        "dataset-level": DatasetRouter,
        "mlp": MLPRouter,
        "token-signature": TokenSignatureRouter,
    },
}
WRAPPERS: dict[str, type[Any]] = {
    "rate-limited": RateLimited,
    "delayed": Delayed,
    "saturated": Saturated,
    "min-p": MinP,
    "top-h": TopH,
    "semi-autoregressive": SemiAutoregressive,
    "remasking": Remasking,
}


def build_controller(
    point: DecisionPoint, table: Mapping[str, Any], context: Mapping[str, Any]
) -> Controller[Any, Any, Any]:
    """The controller a `[controllers.<point>]` table describes.

    `kind` names the row; `wrap`, a list of tables, the wrappers from the inside out; every other key is a field of the
    class. `context` offers values for fields the table leaves out (vocab_size, delay_steps). Raises `InputError`.
    """
    where = f"controllers.{point.value}"
    knobs = dict(table)
    wraps = knobs.pop("wrap", [])
    controller = _build(CATALOG[point], knobs, context, where)
    for index, wrap in enumerate(wraps):
        controller = _build(WRAPPERS, {"inner": controller, **wrap}, context, f"{where}.wrap[{index}]")
    return controller


def build_controllers(
    tables: Mapping[DecisionPoint, Mapping[str, Any]], context: Mapping[str, Any]
) -> dict[DecisionPoint, Controller[Any, Any, Any]]:
    return {point: build_controller(point, tables[point], context) for point in DecisionPoint if point in tables}


def _build(rows: Mapping[str, type[Any]], table: dict[str, Any], context: Mapping[str, Any], where: str) -> Any:
    kind = table.pop("kind", None)
    if kind is None:
        raise InputError(f"{where} needs `kind`; known: {', '.join(sorted(rows))}")
    if kind not in rows:
        raise unknown_name(f"kind in {where}", str(kind), rows)
    cls = rows[kind]
    known = {field.name: field for field in fields(cls) if field.init}
    for key in table:
        if key not in known:
            raise unknown_name(f"key in {where}", key, known)
    values = {name: context[name] for name in known if name in context and name not in table} | table
    missing = [n for n, f in known.items() if n not in values and f.default is MISSING and f.default_factory is MISSING]
    if missing:
        raise InputError(f"{where} (kind {kind!r}) needs {', '.join(missing)}")
    checked = {}
    for name, value in values.items():
        if name == "inner":
            checked[name] = value
            continue
        try:
            checked[name] = TypeAdapter(known[name].type).validate_python(value)
        except pydantic.ValidationError as error:
            raise InputError(f"{where}.{name}: {error.errors()[0]['msg'].lower()}, got {value!r}") from None
    return cls(**checked)
