"""The two-sample test by prompts: it keeps its size under strong autocorrelation, where tokens as units do not, and it sees faults."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import ks_2samp

from sims.entropy_process import EntropyProcess, KindLaw
from sims.goodness_of_fit import (
    TESTS,
    autocorrelation,
    compare,
    dwell_tokens,
    goodness_of_fit,
    split_by_prompt,
    twins,
)
from sims.recorded import RecordedTokens
from workbench.errors import InputError

RNG = np.random.default_rng(3)
SHAPES = np.column_stack([RNG.gamma(2.0, 1.0, 400), RNG.uniform(0.3, 1.5, 400), np.full(400, 0.02)])
LAW = KindLaw(name="any", shapes=SHAPES, autocorrelation=0.8, request_share=0.3)
PROCESS = EntropyProcess(vocab=1000, laws=(LAW,))


def recorded(seed: int, process: EntropyProcess = PROCESS, prompts: int = 16, tokens: int = 40) -> RecordedTokens:
    """Texts drawn from a process, two answers a prompt, passed off as a record."""
    text = np.repeat(np.arange(2 * prompts), tokens)
    nothing = np.zeros(text.size)
    made = RecordedTokens(
        text=text, prompt=text // 2, token_index=np.tile(np.arange(tokens), 2 * prompts),
        kind=np.full(text.size, "any"), entropy_raw_nats=nothing, temperature_applied=np.ones(text.size),
        dropped_mass=nothing, entropy_at=np.zeros((text.size, 1)), varentropy_at=np.zeros((text.size, 1)),
        temperatures=np.array([1.0]), ended=np.zeros(text.size, bool),
    )  # fmt: skip
    return replace(made, entropy_raw_nats=twins(made, process, seed))


def split(tokens: RecordedTokens) -> list[np.ndarray]:
    return np.split(tokens.entropy_raw_nats, np.flatnonzero(np.diff(tokens.text)) + 1)


def test_size_is_kept_where_tokens_as_units_would_reject():
    clusters = [np.array([2 * c, 2 * c + 1]) for c in range(16)]
    rng = np.random.default_rng(0)
    by_prompt, by_token = [], []
    for trial in range(120):
        one, two = split(recorded(1000 + trial)), split(recorded(5000 + trial))
        by_prompt.append(compare(one, two, clusters, TESTS["marginal"], 59, rng)[1] <= 0.05)
        by_token.append(ks_2samp(np.concatenate(one), np.concatenate(two)).pvalue <= 0.05)
    # 120 trials at 5 %: 13 or more happen in one of a hundred.
    assert sum(by_prompt) <= 12
    assert np.mean(by_token) > 0.4


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"autocorrelation": 0.0, "request_share": 0.0}, "autocorrelation"),
        ({"autocorrelation": 0.0, "request_share": 0.0}, "dwell"),
        ({"shapes": SHAPES * np.array([0.5, 0.8, 1.0])}, "marginal"),
    ],
)
def test_a_wrong_law_is_seen_where_it_is_wrong(change, name):
    wrong = EntropyProcess(vocab=1000, laws=(replace(LAW, **change),))
    found = {c.name: c for c in goodness_of_fit(recorded(7), wrong, swaps=199).comparisons}
    assert found[name].p_value <= 0.02


def test_the_right_law_passes_and_says_what_it_rests_on():
    found = goodness_of_fit(recorded(8), PROCESS, swaps=99, seed=1)
    assert found.smallest_p > 0.05
    assert (found.num_prompts, found.num_texts, found.num_tokens) == (16, 32, 1280)
    low, high = found.autocorrelation_band
    assert np.mean((low <= found.autocorrelation[1]) & (found.autocorrelation[1] <= high)) > 0.6
    assert set(found.figures()) >= {"fit_p_value", "fit_marginal", "fit_dwell_p"}


def test_autocorrelation_and_dwell_by_hand():
    zigzag = [np.tile([0.0, 1.0], 50)]
    assert autocorrelation(zigzag, 2).tolist() == pytest.approx([-1.0, 1.0])
    assert dwell_tokens([np.array([0.0, 0.0, 2.0, 2.0, 2.0, 0.0])], 1.0).tolist() == [2.0, 3.0, 1.0]


def test_whole_prompts_are_held_out():
    fitted, judged = split_by_prompt(recorded(9), 0.25, seed=0)
    assert not set(fitted.prompt) & set(judged.prompt)
    assert len(set(judged.prompt)) == 4
    with pytest.raises(InputError, match="held-out prompts are too few"):
        goodness_of_fit(judged, PROCESS)
