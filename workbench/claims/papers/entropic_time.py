"""Claims of Entropic-Time Inference (arXiv 2603.03310): scheduler, temperature loop, pruning, and all three together."""

from workbench.claims.claim import (
    Claim,
    Quantity,
    above,
    at_least,
    at_most,
    graded,
    never_above,
)

ET = "Entropic-Time Inference, arXiv 2603.03310"
CELL = "tight_1.2"  # of the Azure factorial; every size has it: little KV memory, offered 1.2 times capacity
LONG_CELL = "ample_1.2"  # of the Mooncake factorial
LIVE_CELL = "live_1.2"
SIMULATED = (
    "simulated H100, Llama-3-8B, Azure conversation trace, KV memory cut to 8 %, load 1.2 of capacity, paired seeds"
)
LONG = "simulated H100, Llama-3-8B, Mooncake conversation trace, all KV memory, load 1.2 of capacity, paired seeds"
LIVE = "SmolLM2-135M on this machine, load 1.2 of capacity, short contexts, paired seeds"
SYSTEM = (("latency", 0.25, "latency saved"), ("throughput", 0.30, "throughput gained"),
          ("tau_per_busy_s", 0.40, "dtau/dC gained, C in busy seconds"))  # fmt: skip
QUALITY_KEPT_NATS = 0.01  # of NLL a token, as in the study of pruning
MATCH_KEPT = 0.03  # exact match lost, as a share of the questions
ROUGE_KEPT = 0.02


def _gain(name: str, arm: str, claimed: float, label: str, cell: str = CELL) -> Quantity:
    return Quantity(f"{cell}_{arm}_{name}", label, at_least(claimed))


def _system(cell: str, arm: str = "STP") -> tuple[Quantity, ...]:
    return tuple(_gain(name, arm, claimed, label, cell) for name, claimed, label in SYSTEM)


def _single(id: str, arm: str, what: str, latency: float, throughput: float, tau: float) -> Claim:
    return Claim(
        id=id,
        source=f"{ET}, table of single parts",
        says=f"{what} alone: latency x {latency:g}, throughput x {throughput:g}, dtau/dC x {tau:g}",
        definition=f"{SIMULATED}: mean end-to-end latency, output tokens a second, tau a busy second; all three must hold",
        experiment="factorial_azure",
        quantities=(
            _gain("latency", arm, 1.0 - latency, "latency saved"),
            _gain("throughput", arm, throughput - 1.0, "throughput gained"),
            _gain("tau_per_busy_s", arm, tau - 1.0, "dtau/dC gained, C in busy seconds"),
        ),
    )


def _superadditive(id: str, null: str, where: str, experiment: str, cell: str, place: str = "") -> Claim:
    long = {"log": "multiplicative", "add": "additive"}[null]
    what = "ln gain" if null == "log" else "gain"
    return Claim(
        id=id,
        source=ET,
        says=f"the whole is more than its parts ({long} null){place}",
        definition=f"{where}: {what} of all three minus the sum over the three alone, latency and throughput",
        experiment=experiment,
        join="settings",
        quantities=tuple(
            Quantity(f"{cell}_excess_{null}_{name}", f"excess {what}, {name}", above(0.0))
            for name in ("latency", "throughput")
        ),
    )


CLAIMS = (
    Claim(
        id="et-latency", source=ET, says="the full system lowers latency by 25 to 35 %",
        definition=f"{SIMULATED}: mean end-to-end latency of completed requests, all three controllers against none",
        experiment="factorial_azure", quantities=(_gain("latency", "STP", 0.25, "latency saved"),),
    ),
    Claim(
        id="et-throughput", source=ET, says="the full system raises throughput by 30 to 45 %",
        definition=f"{SIMULATED}: output tokens a second, all three controllers against none",
        experiment="factorial_azure", quantities=(_gain("throughput", "STP", 0.30, "throughput gained"),),
    ),
    Claim(
        id="et-tau-rate", source=ET, says="the full system raises dtau/dC by 40 to 60 %",
        definition=f"{SIMULATED}: tau over C, C in busy seconds, FLOPs, KV bytes read, joules: four readings of C",
        experiment="factorial_azure", join="settings",
        quantities=(
            _gain("tau_per_busy_s", "STP", 0.40, "dtau/dC gained, busy seconds"),
            _gain("tau_per_tflop", "STP", 0.40, "dtau/dC gained, FLOPs"),
            _gain("tau_per_kv_gb", "STP", 0.40, "dtau/dC gained, KV bytes"),
            _gain("tau_per_j", "STP", 0.40, "dtau/dC gained, joules"),
        ),
    ),
    Claim(
        id="et-system-mooncake", source=ET, says="latency -25 to -35 %, throughput +30 to +45 %, dtau/dC +40 to +60 %, long prompts",
        definition=f"{LONG}: as above; all three must hold", experiment="factorial_mooncake",
        quantities=_system(LONG_CELL),
    ),
    Claim(
        id="et-system-live", source=ET, says="latency -25 to -35 %, throughput +30 to +45 %, dtau/dC +40 to +60 %, real model",
        definition=f"{LIVE}: as above; all three must hold", experiment="factorial_live", quantities=_system(LIVE_CELL),
        caution="a CPU and contexts of some hundred tokens: there is little KV to drop, and times are measured beside whatever else runs",
    ),
    Claim(
        id="et-system-vllm", source=ET, says="latency -25 to -35 %, throughput +30 to +45 %, dtau/dC +40 to +60 %, in vLLM",
        definition="arms served by vLLM, scheduler and temperature loop against none, seeds paired; all three must hold",
        experiment="factorial_vllm", quantities=_system("vllm", "ST"),
        caution="vLLM's hooks do not carry pruning: the whole is scheduler and loop",
    ),
    Claim(
        id="et-everywhere", source=ET, says="the gains hold whatever the load, context, batch, memory, GPU and model",
        definition="share of the cells of the authority map in which all three together gain by more than the interval",
        experiment="authority",
        quantities=tuple(
            Quantity(f"everywhere_{name}", f"share of cells, {label}", graded(0.1, 0.9)) for name, _, label in SYSTEM
        ),
    ),
    _single("et-sampling-alone", "T", "adaptive sampling", 0.98, 1.02, 1.08),
    _single("et-scheduling-alone", "S", "entropy scheduling", 0.88, 1.15, 1.12),
    _single("et-pruning-alone", "P", "entropic pruning", 0.85, 1.20, 1.25),
    Claim(
        id="et-kv-bandwidth", source=ET, says="KV bandwidth falls by 20 to 30 %",
        definition=f"{SIMULATED}: KV bytes read per completed request with pruning alone, 5 % of the mass dropped; mass process fitted to SmolLM2",
        experiment="factorial_azure", quantities=(_gain("kv_bytes", "P", 0.20, "KV bytes saved"),),
    ),
    Claim(
        id="et-attention-flops", source=ET, says="attention FLOPs fall by 20 to 30 %",
        definition=f"{SIMULATED}: operations of attention per completed request, prefill included, with pruning alone",
        experiment="factorial_azure", quantities=(_gain("attention_flops", "P", 0.20, "attention FLOPs saved"),),
        caution="a keep rule acts on decode steps; most attention operations of this trace are prefill",
    ),
    Claim(
        id="et-pruning-quality", source=ET, says="20 to 30 % less KV traffic and attention work in decoding, quality kept",
        definition="SmolLM2-135M, texts of 2,048 tokens (quick: 512, mathematics only), policies set to 75 % of the bytes: sketch-mass with its "
        "sketches and boxes counted; quality kept: NLL loss of at most 0.01 nats a token",
        experiment="prune",
        quantities=(
            Quantity("sketch-mass_bytes_saved", "KV bytes saved, sketch-mass", at_least(0.20)),
            Quantity("sketch-mass_flops_saved", "attention operations saved", at_least(0.20)),
            Quantity("sketch-mass_nll_lost_nats", "NLL lost, nats a token", at_most(QUALITY_KEPT_NATS)),
        ),
        caution="all policies, budgets and contexts stand side by side in `workbench prune`",
    ),
    Claim(
        id="et-quality-match", source=ET, says="quality is kept: exact match on GSM8K and SVAMP",
        definition="SmolLM2-135M, exact match lost to its baseline (greedy for pruning, constant temperature for the loop), both "
        "tasks together; kept: at most 3 points lost",
        experiment="quality",
        quantities=tuple(
            Quantity(f"match_lost_{arm}", f"exact match lost, {label}", at_most(MATCH_KEPT))
            for arm, label in (("pruned", "pruning"), ("steered", "loop"), ("steered_pruned", "all three"))
        ),
        caution="a 135M model answers some hundredths of these questions right: there is little to lose",
    ),
    Claim(
        id="et-quality-rouge", source=ET, says="quality is kept: ROUGE-L against the unpruned greedy text",
        definition="SmolLM2-135M on the same questions: F score of pruned greedy text against unpruned (partly from 0.5, kept from "
        "0.9); steered texts lose at most 0.02 against the constant temperature",
        experiment="quality",
        quantities=(
            Quantity("rouge_pruned", "ROUGE-L, pruning", graded(0.5, 0.9)),
            Quantity("rouge_lost_steered", "ROUGE-L lost, loop", at_most(ROUGE_KEPT)),
            Quantity("rouge_lost_steered_pruned", "ROUGE-L lost, all three", at_most(ROUGE_KEPT)),
        ),
        caution="greedy texts part at the first near-tie: the same weights in another arithmetic (rouge_rounding in the evidence) are the mark to read it against",
    ),
    Claim(
        id="et-energy", source=ET, says="the full system costs less energy and money",
        definition=f"{SIMULATED}: joules a token by the simulator's power model; any saving above nothing counts",
        experiment="factorial_azure",
        quantities=(Quantity(f"{CELL}_STP_energy", "energy saved", above(0.0)),),
        caution="money at a fixed price an hour follows throughput, which has its own row",
    ),
    Claim(
        id="et-oscillation", source=ET, says="entropy oscillates 15 to 20 % less",
        definition=f"{SIMULATED}: mean |H - H*| of tempered entropy, the loop against the constant temperature of equal mean entropy",
        experiment="factorial_azure", quantities=(_gain("entropy_error", "T", 0.15, "distance from the target saved"),),
        caution="the entropy process does not answer to the text: the next row has the real model",
    ),
    Claim(
        id="et-oscillation-live", source=ET, says="entropy oscillates 15 to 20 % less, real model",
        definition="SmolLM2-135M, the PI law against the constant temperature of equal mean entropy, same prompts and draws: mean "
        "|H - H*|, and total variation of H a token",
        experiment="temper", join="settings",
        quantities=(
            Quantity("tracking_saved", "distance from the target saved", at_least(0.15)),
            Quantity("variation_saved", "total variation saved", at_least(0.15)),
        ),
        caution="all laws, delays and the step response stand side by side in `workbench temper`",
    ),
    _superadditive("et-superadditive-multiplicative", "log", SIMULATED, "factorial_azure", CELL),
    _superadditive("et-superadditive-additive", "add", SIMULATED, "factorial_azure", CELL),
    _superadditive("et-superadditive-mooncake", "log", LONG, "factorial_mooncake", LONG_CELL, ", long prompts"),
    _superadditive("et-superadditive-live", "log", LIVE, "factorial_live", LIVE_CELL, ", real model"),
    Claim(
        id="et-superadditive-own-numbers", source=ET, says="the whole is more than its parts, by the paper's own table",
        definition="ln of the paper's range for the whole over the product of its single parts; above 0 at both ends shows it",
        experiment="counterexamples",
        quantities=tuple(Quantity(f"own_{name}", f"excess ln gain, {name}", above(0.0))
                         for name in ("latency", "throughput", "tau_rate")),
        caution="the ends are those of the paper's range: this row is arithmetic on its table, not a measurement",
    ),
    Claim(
        id="et-contraction-conditional", source=ET, says="the temperature loop contracts (with a gain below 2/V_max)",
        definition="certificates gain-bound and clamp-contraction recomputed; violation 0 is a proof",
        experiment="certificates",
        quantities=tuple(
            Quantity(name, f"certificate {name}", never_above()) for name in ("gain-bound", "clamp-contraction")
        ),
    ),
    Claim(
        id="et-contraction-any-gain", source=ET, says="the temperature loop contracts (as stated, with no bound on the gain)",
        definition="integral law on two-level logits at k_i V = 3: growth of the error in one step",
        experiment="counterexamples", quantities=(Quantity("expansion", "growth of the error", never_above()),),
    ),
    Claim(
        id="et-bounded-priority", source=ET, says="priorities are bounded",
        definition="certificate bounded-priority: score at most P + alpha W, P = ln(n)/c_min",
        experiment="certificates", quantities=(Quantity("bounded-priority", "violation", never_above()),),
    ),
    Claim(
        id="et-no-starvation", source=ET, says="bounded priority prevents starvation",
        definition="certificate scheduler-starvation: two exact loads with bounded scores whose cold request is never served",
        experiment="certificates", quantities=(Quantity("starves", "starving loads proven", never_above()),),
    ),
    Claim(
        id="et-bounded-wait", source="ours", says="with aging and no KV bypass nobody waits over ceil(P/alpha)+ceil((N-1)/B)+1",
        definition="certificate scheduler-wait: lemmas, and every adversary exhausted on the instances",
        experiment="certificates", quantities=(Quantity("scheduler-wait", "violation", never_above()),),
    ),
    Claim(
        id="et-tau-progress", source=ET, says="entropic time measures progress",
        definition="tau of a trace that alternates between 1 and 2 nats and ends where it began; certificate tau-identity",
        experiment="counterexamples",
        quantities=(Quantity("tau_per_net_drop_nats", "tau without net progress, nats", never_above()),),
    ),
    Claim(
        id="et-entropy-share", source=ET, says="blocks of little entropy share -a ln a can be dropped",
        definition="score of a block of mass 0.05 over that of mass 0.9, minus 1: above 0 the dominant block goes first",
        experiment="counterexamples", quantities=(Quantity("entropy_share_inversion", "inversion", never_above()),),
    ),
    Claim(
        id="et-human-quality", source=ET, says="human raters see no loss of quality", definition="none",
        experiment=None, needs="paid raters, texts of a model of 7B parameters or more under every arm, blinded: some 400 pairs "
        "of texts tell 45 % preference from 50 % with 95 % confidence",
    ),
    Claim(
        id="et-moe", source=ET, says="compatible with mixture of experts",
        definition="none", experiment=None,
        needs="a model shape with experts in the simulator (weights read a step grow with the distinct experts a batch routes to) and "
        "a step cost fitted to a GPU that serves one; the controllers themselves see logits and KV blocks and need no change",
    ),
    Claim(
        id="et-speculative", source=ET, says="compatible with speculative decoding",
        definition="none", experiment=None,
        needs="a draft model in the live engine, several tokens a step in the record, and acceptance rates measured under a steered "
        "temperature; vLLM itself refuses speculative decoding beside a custom logits processor",
    ),
)  # fmt: skip
