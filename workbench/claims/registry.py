"""The ledger's rows: every claim of the three papers that we know, its definition here and its thresholds."""

from workbench.claims.claim import Claim, Quantity, Rule, Verdict, above, at_least, never_above
from workbench.errors import unknown_name

ET = "Entropic-Time Inference, arXiv 2603.03310"
EDRM = "EDRM, arXiv 2605.22873"
UNMASK = "Confidence-Based Decoding, arXiv 2603.22248"
CELL = "tight_1.2"  # every size has this cell: little KV memory, offered 1.2 times capacity
TASKS = ("arc-easy", "boolq", "svamp", "gsm8k")
SIMULATED = (
    "simulated H100, Llama-3-8B, Azure conversation trace, KV memory cut to 8 %, load 1.2 of capacity, paired seeds"
)


def _gain(name: str, arm: str, claimed: float, label: str) -> Quantity:
    return Quantity(f"{CELL}_{arm}_{name}", label, at_least(claimed))


def _single(id: str, arm: str, what: str, latency: float, throughput: float, tau: float) -> Claim:
    return Claim(
        id=id,
        source=f"{ET}, table of single parts",
        says=f"{what} alone: latency x {latency:g}, throughput x {throughput:g}, dtau/dC x {tau:g}",
        definition=f"{SIMULATED}: mean end-to-end latency, output tokens a second, tau a busy second; all three must hold",
        experiment="factorial",
        quantities=(
            _gain("latency", arm, 1.0 - latency, "latency saved"),
            _gain("throughput", arm, throughput - 1.0, "throughput gained"),
            _gain("tau_per_busy_s", arm, tau - 1.0, "dtau/dC gained, C in busy seconds"),
        ),
    )


ENTROPIC_TIME = (
    Claim(
        id="et-latency", source=ET, says="the full system lowers latency by 25 to 35 %",
        definition=f"{SIMULATED}: mean end-to-end latency of completed requests, all three controllers against none",
        experiment="factorial", quantities=(_gain("latency", "STP", 0.25, "latency saved"),),
    ),
    Claim(
        id="et-throughput", source=ET, says="the full system raises throughput by 30 to 45 %",
        definition=f"{SIMULATED}: output tokens a second, all three controllers against none",
        experiment="factorial", quantities=(_gain("throughput", "STP", 0.30, "throughput gained"),),
    ),
    Claim(
        id="et-tau-rate", source=ET, says="the full system raises dtau/dC by 40 to 60 %",
        definition=f"{SIMULATED}: tau over C, C in busy seconds, FLOPs, KV bytes read, joules: four readings of C",
        experiment="factorial", join="settings",
        quantities=(
            _gain("tau_per_busy_s", "STP", 0.40, "dtau/dC gained, busy seconds"),
            _gain("tau_per_tflop", "STP", 0.40, "dtau/dC gained, FLOPs"),
            _gain("tau_per_kv_gb", "STP", 0.40, "dtau/dC gained, KV bytes"),
            _gain("tau_per_j", "STP", 0.40, "dtau/dC gained, joules"),
        ),
    ),
    _single("et-sampling-alone", "T", "adaptive sampling", 0.98, 1.02, 1.08),
    _single("et-scheduling-alone", "S", "entropy scheduling", 0.88, 1.15, 1.12),
    _single("et-pruning-alone", "P", "entropic pruning", 0.85, 1.20, 1.25),
    Claim(
        id="et-kv-bandwidth", source=ET, says="KV bandwidth falls by 20 to 30 %",
        definition=f"{SIMULATED}: KV bytes read per completed request with pruning alone, 5 % of the mass dropped; mass process fitted to SmolLM2",
        experiment="factorial", quantities=(_gain("kv_bytes", "P", 0.20, "KV bytes saved"),),
    ),
    Claim(
        id="et-energy", source=ET, says="the full system costs less energy",
        definition=f"{SIMULATED}: joules a token by the simulator's power model; any saving above nothing counts",
        experiment="factorial",
        quantities=(Quantity(f"{CELL}_STP_energy", "energy saved", above(0.0)),),
    ),
    Claim(
        id="et-oscillation", source=ET, says="entropy oscillates 15 to 20 % less",
        definition=f"{SIMULATED}: mean |H - H*| of tempered entropy, the loop against the constant temperature of equal mean entropy",
        experiment="factorial", quantities=(_gain("entropy_error", "T", 0.15, "distance from the target saved"),),
        caution="the entropy process does not answer to the text: the outer loop is measured by `workbench temper`",
    ),
    Claim(
        id="et-superadditive-multiplicative", source=ET, says="the whole is more than its parts (multiplicative null)",
        definition=f"{SIMULATED}: ln gain of all three minus the sum over the three alone, latency and throughput",
        experiment="factorial", join="settings",
        quantities=(
            Quantity(f"{CELL}_excess_log_latency", "excess ln latency gain", above(0.0)),
            Quantity(f"{CELL}_excess_log_throughput", "excess ln throughput gain", above(0.0)),
        ),
    ),
    Claim(
        id="et-superadditive-additive", source=ET, says="the whole is more than its parts (additive null)",
        definition=f"{SIMULATED}: gain of all three minus the sum of the gains alone, latency and throughput",
        experiment="factorial", join="settings",
        quantities=(
            Quantity(f"{CELL}_excess_add_latency", "excess latency gain", above(0.0)),
            Quantity(f"{CELL}_excess_add_throughput", "excess throughput gain", above(0.0)),
        ),
    ),
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
        experiment=None, needs="paid raters, texts of a model of 7B parameters or more under every arm, blinded",
    ),
    Claim(
        id="et-moe-speculative", source=ET, says="compatible with mixture of experts and speculative decoding",
        definition="none", experiment=None,
        needs="an engine with expert routing and a draft model, and acceptance rates measured under a steered temperature",
    ),
)  # fmt: skip

EDRM_CLAIMS = (
    Claim(
        id="edrm-tokens", source=EDRM, says="27 to 55 % fewer tokens than always reasoning, by instance",
        definition="heuristic rule, S_max = 32, on recorded SmolLM2-135M: output tokens, probe included, against always-CoT; "
        "four tasks",
        experiment="routing", join="settings",
        quantities=tuple(Quantity(f"{t}_saved", f"tokens saved, {t}", at_least(0.27)) for t in TASKS),
        caution="S_max sends most arithmetic questions to Direct by overload alone; always-Direct saves more",
    ),
    Claim(
        id="edrm-accuracy", source=EDRM, says="accuracy rises by up to 4.7 points, by instance",
        definition="accuracy of the rule minus always-CoT, extraction scoring, recorded SmolLM2-135M; four tasks",
        experiment="routing", join="settings",
        quantities=tuple(Quantity(f"{t}_accuracy", f"accuracy gained, {t}", at_least(0.047)) for t in TASKS),
        caution="a 135M model is near guessing on these tasks and does not gain from a chain of thought",
    ),
    Claim(
        id="edrm-trend", source=EDRM, says="a falling entropy trend predicts that a chain of thought helps",
        definition="AUROC of falling V_sp for questions only CoT answers, within tasks, recorded SmolLM2-135M",
        experiment="routing",
        quantities=(Quantity("trend_auroc", "AUROC", Rule((0.5, 0.6), (Verdict.NOT_REPRODUCED, Verdict.PARTLY,
                                                                       Verdict.REPRODUCED))),),
    ),
    Claim(
        id="edrm-probe-length", source=EDRM, says="64 tokens suffice", definition="none", experiment=None,
        needs="generations recorded with the entropies of 128 tokens or more: the record at hand keeps those of the first 64",
    ),
    Claim(
        id="edrm-phase", source=EDRM, says="a phase transition: V_sp has two modes",
        definition="Sarle's bimodality coefficient of V_sp over four tasks above 5/9, that of a uniform law",
        experiment="routing", quantities=(Quantity("bimodality", "Sarle's coefficient", above(5.0 / 9.0)),),
        caution="one probe length; scaling with N is not judged",
    ),
    Claim(
        id="edrm-reasoning-model", source=EDRM, says="a reasoning model needs 34 to 38 % fewer tokens at equal accuracy",
        definition="none", experiment=None,
        needs="a reasoning model with open weights and a GPU: `workbench route --model DIRECTORY --evaluate`",
    ),
)  # fmt: skip

UNMASK_CLAIMS = (
    Claim(
        id="unmask-kl", source=UNMASK, says="KL is at most O(eta log L), random order",
        definition="KL / (eta (1 + log2 L)) - 1 on duplicated pairs and a Markov chain, constant 1 (ours: the paper states none)",
        experiment="unmasking",
        quantities=tuple(Quantity(f"{o}_{n}_kl", f"{o}, L = {n}", never_above()) for o in ("pairs", "markov")
                         for n in (64, 256)),
    ),
    Claim(
        id="unmask-iterations", source=UNMASK, says="O~(H(X0)/eps) iterations suffice",
        definition="E[K] / ((H(X0) + KL)/eta + 1) - 1 on the same oracles",
        experiment="unmasking",
        quantities=tuple(Quantity(f"{o}_{n}_iterations", f"{o}, L = {n}", never_above()) for o in ("pairs", "markov")
                         for n in (64, 256)),
    ),
    Claim(
        id="unmask-any-order", source="popular reading of the above", says="revealing the surest positions first is as safe",
        definition="lowest-entropy-first on duplicated pairs, L = 1024: KL over the random order's scale, minus 1",
        experiment="counterexamples", quantities=(Quantity("ordered_kl_ratio", "KL beyond the scale", never_above()),),
    ),
    Claim(
        id="unmask-100-in-10", source=UNMASK, says="100 tokens in 10 iterations",
        definition="tokens an iteration at L = 100, eta = 0.105 nats: duplicated pairs of 0.01 nats, and a Markov chain",
        experiment="unmasking", join="settings",
        quantities=tuple(Quantity(f"{o}_100_tokens_per_iteration", f"tokens an iteration, {o}",
                                  Rule((2.0, 10.0), (Verdict.NOT_REPRODUCED, Verdict.PARTLY, Verdict.REPRODUCED)))
                         for o in ("pairs", "markov")),
    ),
)  # fmt: skip

CLAIMS: tuple[Claim, ...] = (*ENTROPIC_TIME, *EDRM_CLAIMS, *UNMASK_CLAIMS)


def chosen(id: str | None) -> list[Claim]:
    """All claims, one by id, or those whose id begins with `id` and a dash ("et", "edrm", "unmask")."""
    if id is None:
        return list(CLAIMS)
    found = [claim for claim in CLAIMS if claim.id == id or claim.id.startswith(f"{id}-")]
    if not found:
        raise unknown_name("claim", id, [claim.id for claim in CLAIMS])
    return found
