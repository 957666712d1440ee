"""Claims of Confidence-Based Decoding (arXiv 2603.22248): entropies decide how many tokens a masked-diffusion step reveals."""

from workbench.claims.claim import Claim, Quantity, above, at_least, graded, never_above, within
from workbench.claims.experiments.unmasking import UNTUNED

UNMASK = "Confidence-Based Decoding, arXiv 2603.22248"
CHAINS = "sticky Markov chains of 8 states, KL at most 0.5 nats, fewest iterations over a grid of the knobs"

CLAIMS = (
    Claim(
        id="unmask-kl", source=UNMASK, says="KL is at most O(eta log L), random order",
        definition="KL / (eta (1 + log2 L)) - 1 on duplicated pairs and a Markov chain, constant 1 (ours: the paper states none)",
        experiment="unmasking",
        quantities=tuple(Quantity(f"{o}_{n}_kl", f"KL beyond the scale, {o}, L = {n}", never_above()) for o in ("pairs", "markov")
                         for n in (64, 256)),
    ),
    Claim(
        id="unmask-iterations", source=UNMASK, says="O~(H(X0)/eps) iterations suffice",
        definition="E[K] / ((H(X0) + KL)/eta + 1) - 1 on the same oracles",
        experiment="unmasking",
        quantities=tuple(Quantity(f"{o}_{n}_iterations", f"iterations beyond the bound, {o}, L = {n}", never_above()) for o in ("pairs", "markov")
                         for n in (64, 256)),
    ),
    Claim(
        id="unmask-only-log-length", source=UNMASK, says="iterations depend on the length by log L only",
        definition="entropy sum at fixed eta and H(X0) = 20 nats: E[K] of the longest over the shortest sequence against the ratio of "
        "1 + log2 L, minus 1; Markov chain and mixture of codewords",
        experiment="unmasking",
        quantities=tuple(Quantity(f"{o}_growth", f"growth beyond log L, {o}", never_above()) for o in ("markov", "mixture")),
    ),
    Claim(
        id="unmask-no-tuning", source=UNMASK, says="no tuning and no prior knowledge",
        definition=f"one eta = 1 nat on {len(UNTUNED)} laws of L = 64, none of them told: KL and iterations beyond their bounds, as shares",
        experiment="unmasking",
        quantities=tuple(
            Quantity(f"{o}_untuned_{name}", f"{'KL' if name == 'kl' else name} beyond the bound, {o}", never_above())
            for o in UNTUNED for name in ("kl", "iterations")
        ),
        caution="where H(X0) is near L times its largest value the bound on iterations promises nothing, and holds emptily",
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
        quantities=tuple(Quantity(f"{o}_100_tokens_per_iteration", f"tokens an iteration, {o}", graded(2.0, 10.0))
                         for o in ("pairs", "markov")),
    ),
    Claim(
        id="unmask-max-entropy-slower", source=UNMASK, says="max entropy is slower than entropy sum",
        definition=f"{CHAINS}: iterations of Algorithm 2 over those of Algorithm 1, minus 1",
        experiment="max_entropy", quantities=(Quantity("slower", "more iterations", at_least(0.1)),),
    ),
    Claim(
        id="unmask-max-entropy-rate", source=UNMASK, says="max entropy needs iterations of the order H(X0) L / eps",
        definition=f"{CHAINS}: exponents of L and of H(X0) in Algorithm 2's iterations; nearer to 1 than to 1/2",
        experiment="max_entropy", caution="a rate for the worst case: these chains may be kinder than it",
        quantities=(
            Quantity("length_power", "exponent of L", above(0.75)),
            Quantity("entropy_power", "exponent of H(X0)", above(0.75)),
        ),
    ),
    Claim(
        id="unmask-max-entropy-root", source="ours", says="max entropy needs iterations of the order sqrt(H(X0) L / eps)",
        definition=f"{CHAINS}: the same exponents, between 1/4 and 3/4",
        experiment="max_entropy",
        quantities=(
            Quantity("length_power", "exponent of L", within(0.25, 0.75)),
            Quantity("entropy_power", "exponent of H(X0)", within(0.25, 0.75)),
        ),
    ),
    Claim(
        id="unmask-max-entropy-prior", source=UNMASK, says="max entropy must be told H(X0), entropy sum need not",
        definition="KL at most 0.5 nats: Algorithm 2 with the knobs that are best at a small H(X0), used at a larger one, exceeds its "
        "budget, while Algorithm 1 in the same place stays within its own scale; Markov chains and duplicated pairs",
        experiment="max_entropy", join="settings",
        quantities=tuple(
            Quantity(f"{law}_{name}", f"{label}, {law}", above(0.0))
            for law in ("chains", "pairs")
            for name, label in (("prior_kl", "KL of Algorithm 2 beyond the budget"),
                                ("prior_within", "KL of Algorithm 1 below its scale"))
        ),
        caution="chains of more entropy are also less correlated, so that the same knobs are safer there",
    ),
)  # fmt: skip
