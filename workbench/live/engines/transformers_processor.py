"""A temperature law in `generate`: a logits processor of transformers that measures, decides and draws.

    steered = LogitsSteering.for_model(model, "scenario.toml", seed=0)
    model.generate(**inputs, logits_processor=[steered], do_sample=False)

The token is drawn here, with the Philox noise of our own engines keyed by (seed, row, token index), and every other logit is
closed: greedy search then returns it, and one seed gives the same tokens in every engine. H is measured on the model's own
logits, seen by a hook: if another processor has changed them, the numbers are no H_raw and the run is refused. A row that
has drawn an end token draws no more; what `generate` pads it with is never measured. One object serves one `generate` call
after another; each starts afresh.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import LogitsProcessor

from kernels.dispatch import backend as choose_backend
from workbench.errors import InputError
from workbench.live.engines.deployment import Deployment, deploy
from workbench.live.engines.steering import Measured, OnDecision, Rows, Steering
from workbench.protocols import DecisionPoint
from workbench.scenario import Scenario


class LogitsSteering(LogitsProcessor):
    """`hook` of the model must be in place while it generates (`for_model` puts it there; `close` takes it off)."""

    def __init__(
        self,
        deployment: Deployment,
        *,
        end_ids: Sequence[int] = (),
        seed: int | None = None,
        backend: str = "torch",
        request_id: Sequence[int] | None = None,
        on_decision: OnDecision | None = None,
        on_measured: Callable[[Measured], None] | None = None,
    ) -> None:
        self.deployment, self.ops = deployment, choose_backend(backend)
        self.seed = deployment.seed if seed is None else seed
        self.end_ids = torch.tensor(sorted(set(end_ids)), dtype=torch.int64)
        self.request_id = None if request_id is None else np.asarray(request_id, np.int64)
        self.on_decision, self.on_measured = on_decision, on_measured
        self.steering: Steering | None = None
        self.alive = np.zeros(0, np.bool_)  # rows that have not drawn an end token
        self.prompt_width = self.width = 0
        self._raw: torch.Tensor | None = None
        self._remove: Callable[[], None] = lambda: None

    @classmethod
    def for_model(cls, model: Any, scenario: Scenario | Path | str | dict, **options: Any) -> "LogitsSteering":
        """With the model's vocabulary and end tokens, hooked to it. Raises `InputError`."""
        text = model.config.get_text_config() if hasattr(model.config, "get_text_config") else model.config
        deployment = deploy(scenario, "transformers", int(text.vocab_size))
        steering = cls(deployment, end_ids=end_ids_of(model), **options)
        steering.attach(model)
        return steering

    def attach(self, model: Any) -> None:
        """See the logits before any other processor does."""

        def keep(module: Any, args: Any, output: Any) -> None:
            self._raw = output.logits[:, -1]

        self._remove = model.register_forward_hook(keep).remove

    def close(self) -> None:
        self._remove()

    @property
    def token_index(self) -> int:
        """Index of the token drawn next, the same in every row."""
        return self.width - self.prompt_width

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        batch, width = input_ids.shape
        if self.steering is None or width != self.width + 1 or batch != self.alive.size:
            self._begin(batch, width)
        else:
            ended = torch.isin(input_ids[:, -1].cpu(), self.end_ids).numpy()
            self.alive &= ~ended
        self.width = width
        self._check_raw(scores)
        some = np.flatnonzero(self.alive)
        out = scores.clone()
        if some.size == 0:
            return out
        assert self.steering is not None
        request = some if self.request_id is None else self.request_id[some]
        rows = Rows(some, request, np.full(some.size, self.token_index))
        index = torch.from_numpy(some).to(scores.device)
        drawn = self.steering.step(scores[index].float(), rows)
        token = drawn.token_id
        if bool((token < 0).any()):
            bad = int(some[int((token < 0).nonzero()[0])])
            raise InputError(f"row {bad} has no distribution at token {self.token_index}: logits are NaN or infinite")
        closed = torch.full_like(out[index], float("-inf"))
        out[index] = closed.scatter_(1, token[:, None], 0.0)
        return out

    def _begin(self, batch: int, width: int) -> None:
        if self.request_id is not None and self.request_id.size != batch:
            raise InputError(f"request_id names {self.request_id.size} requests, the batch has {batch} rows")
        law = self.deployment.controllers.get(DecisionPoint.TEMPERATURE)
        self.steering = Steering(
            law, batch, self.deployment.delay_steps, self.ops, seed=self.seed,
            temperature=self.deployment.scenario.engine_config(1).temperature,
            on_decision=self.on_decision, on_measured=self.on_measured,
        )  # fmt: skip
        self.alive = np.ones(batch, np.bool_)
        self.prompt_width = width

    def _check_raw(self, scores: torch.Tensor) -> None:
        if self._raw is None:
            raise InputError("the model's own logits were not seen: attach(model), or use LogitsSteering.for_model")
        if self._raw.shape != scores.shape or not torch.equal(self._raw.float(), scores.float()):
            raise InputError(
                "another logits processor has changed the logits (repetition penalty, forced or suppressed tokens, "
                "beams, guidance?): what is left is not H_raw; switch it off in the generation config"
            )
        self._raw = None


def end_ids_of(model: Any) -> list[int]:
    """End tokens that stop `generate`: the generation config's; of a model without one, the model config's."""
    config = getattr(model, "generation_config", None) or model.config
    given = getattr(config, "eos_token_id", None)
    if given is None:
        return []
    return [int(x) for x in given] if isinstance(given, Sequence) else [int(given)]
