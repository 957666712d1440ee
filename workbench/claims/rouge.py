"""ROUGE-L: how much of one text stands in another in the same order, as the F score of their longest common subsequence.

    P = LCS / len(candidate), R = LCS / len(reference), F = 2 P R / (P + R); words are runs of letters and digits, lower case
Source: Lin, "ROUGE: a package for automatic evaluation of summaries", 2004; sentence level, beta = 1, no stemming.
"""

import re
from collections.abc import Sequence

WORD = re.compile(r"[a-z0-9]+")


def words(text: str) -> list[str]:
    return WORD.findall(text.lower())


def lcs_length(a: Sequence[str], b: Sequence[str]) -> int:
    """Length of the longest common subsequence, O(len a len b)."""
    row = [0] * (len(b) + 1)
    for x in a:
        corner = 0
        for j, y in enumerate(b, 1):
            corner, row[j] = row[j], corner + 1 if x == y else max(row[j], row[j - 1])
    return row[-1]


def rouge_l(candidate: str, reference: str) -> float:
    """F in [0, 1]; two empty texts are equal."""
    a, b = words(candidate), words(reference)
    if not a and not b:
        return 1.0
    common = lcs_length(a, b)
    return 2.0 * common / (len(a) + len(b))
