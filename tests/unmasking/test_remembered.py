import numpy as np

from controllers.unmasking.entropy_sum import EntropySum
from sims.oracles.markov import Markov
from workbench.unmasking.plant import UnmaskPlant, decode
from workbench.unmasking.predictor import OraclePredictor
from workbench.unmasking.remembered import Remembered

CHAIN = Markov.sticky(30, 4, entropy_nats=6.0)


class Counting(OraclePredictor):
    rows = 0

    def predict(self, tokens):
        self.rows += tokens.shape[0]
        return super().predict(tokens)


def run(predictor, eta, rows=4):
    return decode(UnmaskPlant(predictor, np.full((rows, 30), -1), seed=2, temperature=0.0), EntropySum(eta_nats=eta))


def test_a_second_run_computes_nothing_and_decodes_alike():
    counting = Counting(CHAIN)
    remembered = Remembered(counting)
    plain = run(OraclePredictor(CHAIN), 0.7)
    first = run(remembered, 0.7)
    computed = counting.rows
    again = run(remembered, 0.7)
    assert counting.rows == computed == remembered.computed
    assert computed < remembered.asked == 2 * first.ledger.iterations.sum()
    for other in (first, again):
        assert np.array_equal(other.tokens, plain.tokens)
        assert np.array_equal(other.ledger.revealed_at, plain.ledger.revealed_at)


def test_policies_share_their_first_pass_and_rows_of_one_call_theirs():
    counting = Counting(CHAIN)
    remembered = Remembered(counting)
    run(remembered, np.inf)
    assert counting.rows == 1  # four rows, all masked
    run(remembered, np.inf, rows=1)
    assert counting.rows == 1


def test_beyond_its_limit_it_begins_anew_and_is_still_right():
    small = Remembered(Counting(CHAIN), max_rows=8)
    kept = run(small, 0.3)
    assert np.array_equal(kept.tokens, run(OraclePredictor(CHAIN), 0.3).tokens)
    assert len(small._known) <= 8
