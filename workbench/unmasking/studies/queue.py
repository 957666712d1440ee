"""Autoregressive and masked-diffusion requests in one queue: how many passes a policy needs decides what everyone waits.

The simulated engine on a roofline GPU; every pass of a diffusion request costs a full forward of all its positions, whatever
the policy; the policy decides how many tokens that buys. Sequences come from a sticky Markov oracle, so that the
divergence of each policy is known beside its speed.
"""

from collections.abc import Sequence

import numpy as np

from sims.arrivals import poisson_arrivals
from sims.calibration import builtin_calibration
from sims.clock import SimClock
from sims.executor import SimExecutor
from sims.gpus import gpu_named
from sims.models import model_named
from sims.oracles.markov import Markov
from sims.roofline import roofline_step_cost
from workbench.engine.config import EngineConfig
from workbench.engine.diffusion import DiffusionEnginePlant
from workbench.engine.requests import RequestSpec, RequestStatus
from workbench.loop import close_loop
from workbench.protocols import DecisionPoint
from workbench.unmasking.accounts import account
from workbench.unmasking.policies import named_policy
from workbench.unmasking.predictor import OraclePredictor
from workbench.unmasking.rows import MaskedRows
from workbench.unmasking.studies import Tell, command_of
from workbench.unmasking.study import Chart, Series, Study

GPU, MODEL = "A100-80G", "Llama-2-7B"
LENGTH, ENTROPY_NATS, PROMPT, RATE_PER_S = 128, 12.0, 128, 4.0
POLICIES = (
    "left-to-right:1",
    "uniform:32",
    "confidence-threshold:0.9",
    "eb-sampler:1",
    "entropy-sum:1",
    "entropy-sum:3",
)


class _NoRecord:
    def decision(self, observation: object, action: object, applied: object) -> None:
        pass


def study(*, repeats: int | None, seed: int, tell: Tell) -> Study:
    number = repeats or 60
    found = Study(
        name="queue",
        title="Two kinds of decoding in one queue",
        intro=(
            f"{number} requests at {RATE_PER_S:g} a second on {GPU}, {MODEL}, first come first served; every other one is masked "
            f"diffusion over {LENGTH} positions (Markov oracle, {ENTROPY_NATS:g} nats), the rest autoregressive, {LENGTH} tokens."
        ),
        command=command_of("queue", repeats, seed),
        columns=(
            "policy",
            "passes",
            "KL",
            "diffusion end to end, s",
            "AR time per token, s",
            "AR end to end, s",
            "makespan, s",
        ),
    )
    oracle = Markov.sticky(LENGTH, 8, ENTROPY_NATS)
    predictor = OraclePredictor(oracle)
    diffuses = np.arange(number) % 2 == 0
    spans: list[tuple[float, float]] = []
    all_done = True
    for index, text in enumerate(POLICIES):
        rule = named_policy(text)
        plant = serve(diffuses, predictor, rule.policy, seed)
        ledger = plant.ledger
        all_done &= bool(np.all(ledger.status == RequestStatus.COMPLETED))
        all_done &= bool(np.all(ledger.generated_tokens == LENGTH))
        end = ledger.finished_s - plant.requests.arrival_s
        per_token = (ledger.finished_s - ledger.first_token_s) / (LENGTH - 1)
        kl = account(oracle, rule.policy, repeats=24, seed=seed, sampled_path=False).kl_nats
        passes = float(plant.iterations[diffuses].mean())
        spans.append((passes, float(end[diffuses].mean())))
        found.rows.append(
            (
                rule.label, passes, kl, float(end[diffuses].mean()), float(per_token[~diffuses].mean()),
                float(end[~diffuses].mean()), float(ledger.finished_s.max()),
            )
        )  # fmt: skip
        key = rule.label.replace(":", "_")
        found.figures |= {f"{key}_passes": passes, f"{key}_e2e_s": spans[-1][1], f"{key}_kl_nats": kl.mean}
        tell((index + 1) / len(POLICIES))
    found.state("every request ends with exactly the tokens it asked for", all_done)
    fewer = [(a, b) for a in spans for b in spans if a[0] < 0.9 * b[0]]
    found.state(
        "a policy that needs a tenth fewer passes than another ends its diffusion requests sooner",
        all(a[1] < b[1] for a, b in fewer),
    )
    rows = sorted(found.rows, key=lambda row: float(row[1]))  # type: ignore[arg-type]
    passes = [float(row[1]) for row in rows]  # type: ignore[arg-type]
    found.charts = [
        Chart(
            "latency",
            "What a policy's passes cost everyone in the queue",
            "forward passes a diffusion request",
            "end to end, s",
            [
                Series(name, passes, [float(row[column]) for row in rows])  # type: ignore[arg-type]
                for name, column in (("masked diffusion", 3), ("autoregressive", 5))
            ],
        ),
        Chart(
            "divergence",
            "What the passes buy",
            "forward passes a diffusion request",
            "KL, nats (0 drawn at 0.001)",
            [
                Series(str(row[0]), [float(row[1])], [row[2].mean], [row[2].half_width])  # type: ignore[union-attr,arg-type]
                for row in rows
            ],
            floor=1e-3,
        ),
    ]
    found.notes.append(
        "A pass computes every position again and keeps nothing: with one position a pass, diffusion costs about as many full "
        "forwards as there are positions. What a policy saves in passes everyone in the queue gains."
    )
    return found


def serve(diffuses: np.ndarray, predictor: OraclePredictor, policy: object, seed: int) -> DiffusionEnginePlant:
    """One simulated run; `diffuses` says which requests are masked diffusion."""
    number = diffuses.size
    calibration = builtin_calibration()
    kinds: Sequence[str] = ("any", "diffusion")
    requests = RequestSpec(
        arrival_s=poisson_arrivals(number, RATE_PER_S, seed),
        prompt_tokens=np.full(number, PROMPT),
        output_tokens=np.full(number, LENGTH),
        kind=diffuses.astype(np.int64),
        priority=np.zeros(number, dtype=np.int64),
        kind_names=tuple(kinds),
    )
    cost = roofline_step_cost(gpu_named(GPU), model_named(MODEL), max_tokens=4096, max_rows=256)
    executor = SimExecutor(cost, calibration.process, requests.kind_names, seed=seed)
    rows = MaskedRows(diffuses, requests.output_tokens, lambda r: predictor, seed=seed)
    config = EngineConfig(num_blocks=4096, block_size=16, max_running=64)
    plant = DiffusionEnginePlant(requests, executor, SimClock(), config, rows, frozenset({DecisionPoint.REVEAL}))
    close_loop(plant, {DecisionPoint.REVEAL: policy}, _NoRecord())  # type: ignore[dict-item]
    return plant
