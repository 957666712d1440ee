"""Claims of EDRM, "When Do LLMs Reason?" (arXiv 2605.22873): the entropies of a probe decide how to answer."""

from workbench.claims.claim import Claim, Quantity, above, at_least, at_most, graded

EDRM = "EDRM, arXiv 2605.22873"
TASKS = ("arc-easy", "boolq", "svamp", "gsm8k")
RECORDED = "recorded SmolLM2-135M, 200 questions and 50 for calibration a task"
NO_GAIN = "a 135M model is near guessing on these tasks and does not gain from a chain of thought"

CLAIMS = (
    Claim(
        id="edrm-set-tokens", source=EDRM, says="41 to 55 % fewer tokens than always reasoning, by data set",
        definition=f"one strategy a data set, chosen on its first 50 questions, {RECORDED}: output tokens against always-CoT; four tasks",
        experiment="routing", join="settings",
        quantities=tuple(Quantity(f"{t}_set_saved", f"tokens saved, {t}", at_least(0.41)) for t in TASKS),
        caution="always-Direct saves about nine tenths on every task",
    ),
    Claim(
        id="edrm-set-accuracy", source=EDRM, says="accuracy rises by up to 1.05 points, by data set",
        definition=f"accuracy of that strategy minus always-CoT, extraction scoring, {RECORDED}; four tasks",
        experiment="routing", join="settings",
        quantities=tuple(Quantity(f"{t}_set_accuracy", f"accuracy gained, {t}", at_least(0.0105)) for t in TASKS),
        caution=NO_GAIN,
    ),
    Claim(
        id="edrm-tokens", source=EDRM, says="27 to 45 % fewer tokens than always reasoning, by instance",
        definition=f"heuristic rule, S_max = 32, {RECORDED}: output tokens, probe included, against always-CoT; four tasks",
        experiment="routing", join="settings",
        quantities=tuple(Quantity(f"{t}_saved", f"tokens saved, {t}", at_least(0.27)) for t in TASKS),
        caution="S_max sends most arithmetic questions to Direct by overload alone; always-Direct saves more",
    ),
    Claim(
        id="edrm-accuracy", source=EDRM, says="accuracy rises by up to 4.7 points, by instance",
        definition=f"accuracy of the rule minus always-CoT, extraction scoring, {RECORDED}; four tasks",
        experiment="routing", join="settings",
        quantities=tuple(Quantity(f"{t}_accuracy", f"accuracy gained, {t}", at_least(0.047)) for t in TASKS),
        caution=NO_GAIN,
    ),
    Claim(
        id="edrm-trend", source=EDRM, says="a falling entropy trend predicts that a chain of thought helps",
        definition=f"AUROC of falling V_sp for questions only CoT answers, within tasks, {RECORDED}",
        experiment="routing", quantities=(Quantity("trend_auroc", "AUROC", graded(0.5, 0.6)),),
    ),
    Claim(
        id="edrm-probe-length", source=EDRM, says="64 tokens suffice",
        definition="SmolLM2-135M, Standard replies longer than 64 tokens: share of questions routed otherwise after 128 tokens (at most "
        "a tenth), and AUROC of the trend gained by them (at most 0.05); no overload limit",
        experiment="probe",
        quantities=(
            Quantity("decision_changes", "decisions changed", at_most(0.1)),
            Quantity("auroc_gained", "AUROC gained", at_most(0.05)),
        ),
    ),
    Claim(
        id="edrm-phase", source=EDRM, says="a phase transition: V_sp has two modes",
        definition=f"Sarle's bimodality coefficient of V_sp over four tasks above 5/9, that of a uniform law, {RECORDED}",
        experiment="routing", quantities=(Quantity("bimodality", "Sarle's coefficient", above(5.0 / 9.0)),),
    ),
    Claim(
        id="edrm-phase-scaling", source=EDRM, says="a phase transition: it sharpens with the length N of the probe",
        definition="SmolLM2-135M, Standard replies longer than 64 tokens: Sarle's coefficient at N = 128 minus that at N = 16",
        experiment="probe", quantities=(Quantity("bimodality_growth", "growth of Sarle's coefficient", above(0.0)),),
        caution="a coefficient that grows below 5/9 is no transition: read it beside the row above",
    ),
    Claim(
        id="edrm-reasoning-model", source=EDRM, says="a reasoning model needs 34 to 38 % fewer tokens at equal accuracy",
        definition="none", experiment=None,
        needs="a reasoning model with open weights and a GPU for its answers of some thousand tokens (the smallest have 1.5B parameters; "
        "none comes in a package here): `workbench route --model DIRECTORY --evaluate`, S_max = 10",
    ),
)  # fmt: skip
