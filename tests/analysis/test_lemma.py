"""The lemma checker accepts only identities built from the hypotheses with positive weights."""

import pytest

from workbench.analysis.lemma import Lemma, Term, decide, expands, proof_of
from workbench.analysis.polynomial import exact

SQUARE = Lemma(variables=("x", "y"), shows="x**2 + y**2 - 2*x*y", terms=(Term(squares=("x - y",)),))


def test_a_square_is_proved_and_z3_agrees():
    assert expands(SQUARE, proof_of(SQUARE)).holds
    assert decide(SQUARE) == "proved"


def test_z3_names_a_counterexample():
    wrong = Lemma(variables=("x",), shows="x**2 - 1")
    assert "x =" in decide(wrong)


@pytest.mark.parametrize(
    "proof",
    [
        {"multiplier": [], "terms": [{"coefficient": "-1", "factors": [], "squares": ["x - y"]}]},
        {"multiplier": [], "terms": [{"coefficient": "1", "factors": ["x"], "squares": ["x - y"]}]},
        {"multiplier": ["x"], "terms": [{"coefficient": "1", "factors": [], "squares": ["x - y"]}]},
        {"multiplier": [], "terms": [{"coefficient": "1", "factors": [], "squares": ["x + y"]}]},
        {"multiplier": [], "terms": []},
    ],
    ids=["negative weight", "foreign factor", "multiplier of unknown sign", "wrong identity", "no terms"],
)
def test_wrong_proofs_of_a_true_statement_are_rejected(proof):
    assert not expands(SQUARE, proof).holds


def test_strictness_needs_a_strictly_positive_term():
    lemma = Lemma(variables=("x",), positive=("x",), shows="x**2", sense="> 0", terms=(Term(squares=("x",)),))
    assert not expands(lemma, proof_of(lemma)).holds
    strict = Lemma(variables=("x",), positive=("x",), shows="x**2", sense="> 0", terms=(Term(factors=("x", "x")),))
    assert expands(strict, proof_of(strict)).holds


def test_an_identity_with_terms_is_rejected():
    lemma = Lemma(variables=("x",), given=("x",), shows="x", sense="= 0", terms=(Term(factors=("x",)),))
    assert not expands(lemma, proof_of(lemma)).holds


@pytest.mark.parametrize("text", ["__import__('os')", "x**x", "x/y", "x.real", "1.5*x", "z + 1", "x**99", "lambda: x"])
def test_only_polynomials_are_read(text):
    with pytest.raises(ValueError, match="not a polynomial"):
        exact(text, ("x", "y"))
