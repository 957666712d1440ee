"""ROUGE-L against cases worked by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.claims.rouge import lcs_length, rouge_l


def test_worked_cases() -> None:
    # Lin 2004, section 3.1: "police kill the gunman" shares "police the gunman" with the reference, "the gunman kill police" two.
    reference = "police killed the gunman"
    assert rouge_l("police kill the gunman", reference) == pytest.approx(0.75)
    assert rouge_l("the gunman kill police", reference) == pytest.approx(0.5)
    assert rouge_l("The gunman, police killed.", reference) == pytest.approx(0.5)
    assert rouge_l("", "") == 1.0
    assert rouge_l("", "a") == 0.0
    assert rouge_l("a b", "a b c d") == pytest.approx(2 * 1.0 * 0.5 / 1.5)


words = st.lists(st.sampled_from("abc"), max_size=12)


@given(words, words)
def test_lcs_against_recursion(a: list[str], b: list[str]) -> None:
    table = {}
    for i in range(len(a) + 1):
        for j in range(len(b) + 1):
            if i == 0 or j == 0:
                table[i, j] = 0
            elif a[i - 1] == b[j - 1]:
                table[i, j] = table[i - 1, j - 1] + 1
            else:
                table[i, j] = max(table[i - 1, j], table[i, j - 1])
    assert lcs_length(a, b) == table[len(a), len(b)]
    text = rouge_l(" ".join(a), " ".join(b))
    assert 0.0 <= text <= 1.0
    assert text == rouge_l(" ".join(b), " ".join(a))
