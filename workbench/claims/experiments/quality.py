"""Is quality kept, on the real model: exact match on GSM8K and SVAMP, and ROUGE-L against the unpruned greedy text.

SmolLM2-135M answers questions of both tasks under each arm, the same questions throughout:

    greedy          T = 0, every block read                              the reference text
    greedy, fp32    the same in another arithmetic                       what rounding alone changes
    pruned          T = 0, least mass with 5 % of the mass dropped
    constant        T constant, every block read                         the baseline of the loop
    steered         temperature loop at the constant's mean entropy
    steered, pruned both; the scheduler changes no token (draws are keyed by request and token), so this is all three

match_lost_ARM    exact match of its baseline (greedy or constant) minus its own, both tasks together
rouge_ARM         ROUGE-L of its text against the reference, mean over questions
rouge_lost_ARM    ROUGE-L of the constant's text minus that of the arm's, both against the reference
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from workbench.claims.claim import Measured
from workbench.claims.interval import over_seeds, share_difference
from workbench.claims.rouge import rouge_l
from workbench.claims.setting import Setting
from workbench.factorial import FactorialSettings
from workbench.main_job import BASE_TEMPERATURE
from workbench.protocols import Strategy
from workbench.signals import BoolArray, FloatArray

TASKS = ("gsm8k", "svamp")
REFERENCE, CONSTANT = "greedy", "constant"
BASELINE_OF = {"pruned": REFERENCE, "steered": CONSTANT, "steered_pruned": CONSTANT}


def measure(setting: Setting) -> Mapping[str, Measured]:
    from workbench.catalog import build_controllers
    from workbench.live.session import LiveModel
    from workbench.pruning.texts import tasks_folder
    from workbench.routing.extraction import extract, is_correct
    from workbench.routing.prompts import load_prompts
    from workbench.routing.subsample import subsample
    from workbench.routing.task_files import load_task

    each, tokens = setting.size((6, 16), (40, 64))
    folder, templates = tasks_folder(None), load_prompts()
    questions = [q for task in TASKS for q in subsample(load_task(task, folder), each, setting.seed)]
    model = LiveModel.load("smollm2", seed=setting.seed)
    prompts = [model.request(templates.messages(q, Strategy.STANDARD), tokens).prompt for q in questions]
    context = {"vocab_size": model.config.vocab_size, "delay_steps": 0}

    def texts(
        code: str, temperature: float, target_nats: float = 1.0, of: LiveModel = model
    ) -> tuple[list[str], float]:
        tables = FactorialSettings(
            target_entropy_nats=target_nats, temperature_start=BASE_TEMPERATURE, recent_blocks=2
        ).controllers(code)
        made = of.generate(
            prompts, tokens, controllers=build_controllers(tables, context), temperature=temperature, max_running=32,
            seed=setting.seed,
        )  # fmt: skip
        return [one.text for one in made], float(np.concatenate([one.entropy_nats for one in made]).mean())

    found: dict[str, list[str]] = {}
    found[REFERENCE], _ = texts("-", 0.0)
    setting.tell(0.15)
    found["pruned"], _ = texts("P", 0.0)
    setting.tell(0.35)
    found[CONSTANT], mean_nats = texts("-", BASE_TEMPERATURE)
    setting.tell(0.5)
    found["steered"], _ = texts("T", BASE_TEMPERATURE, mean_nats)
    setting.tell(0.65)
    found["steered_pruned"], _ = texts("TP", BASE_TEMPERATURE, mean_nats)
    setting.tell(0.85)
    found["rounding"], _ = texts("-", 0.0, of=LiveModel.load("smollm2", "fp32", seed=setting.seed))
    setting.tell(1.0)
    right = {
        arm: np.array([is_correct(extract(text, q), q) for text, q in zip(made, questions, strict=True)])
        for arm, made in found.items()
    }
    rouge = {
        arm: np.array([rouge_l(text, told) for text, told in zip(made, found[REFERENCE], strict=True)])
        for arm, made in found.items()
    }
    return quantities(right, rouge)


def quantities(right: Mapping[str, BoolArray], rouge: Mapping[str, FloatArray]) -> dict[str, Measured]:
    """right[arm] and rouge[arm] over the same questions."""

    def mean(values: FloatArray) -> Measured:
        one = over_seeds(values)
        return replace(one, method=f"t over {one.num_replicates} questions")

    found: dict[str, Measured] = {}
    for arm, base in BASELINE_OF.items():
        lost, gained = (int(np.count_nonzero(x)) for x in (right[base] & ~right[arm], right[arm] & ~right[base]))
        found[f"match_lost_{arm}"] = share_difference(lost, gained, right[arm].size, "questions")
    for arm in ("pruned", "rounding", "steered", CONSTANT, "steered_pruned"):
        found[f"rouge_{arm}"] = mean(rouge[arm])
    for arm in ("steered", "steered_pruned"):
        found[f"rouge_lost_{arm}"] = mean(rouge[CONSTANT] - rouge[arm])
    for arm in (REFERENCE, CONSTANT):
        found[f"match_{arm}"] = mean(right[arm].astype(np.float64))
    return found
