"""The sequences are those of the public list, and look like variable domains."""

import hashlib
import re

import pytest

from workbench.live.masked_model import AMINO_ACIDS
from workbench.unmasking.antibodies import CHAINS, HEAVY, LIGHT

# First 12 hex digits of SHA-256 of each sequence as Thera-SAbDab (table of February 2025) gives it.
THERA_SABDAB = {
    "heavy": {
        "trastuzumab": "8b8998709aa9",
        "adalimumab": "30e40fc23324",
        "bevacizumab": "164e2a019fef",
        "pembrolizumab": "5d92fab23224",
        "nivolumab": "1ca5cedc1d7f",
        "rituximab": "3ab7a687009a",
        "cetuximab": "d0601193a5a9",
        "ipilimumab": "ee979ba556df",
        "ustekinumab": "ec8d47844861",
        "tocilizumab": "c7b0165da04b",
        "omalizumab": "ba330e6191fc",
        "secukinumab": "2bc8df82cf8f",
    },
    "light": {
        "trastuzumab": "54785c99f723",
        "adalimumab": "9feb1bb63d9f",
        "bevacizumab": "8fab282ce71f",
        "pembrolizumab": "ddbb8beff963",
        "nivolumab": "2670a2973187",
        "rituximab": "54f166649687",
        "cetuximab": "8db2241c340c",
        "ipilimumab": "1cd23d8124c0",
        "ustekinumab": "f3962c9fef39",
        "tocilizumab": "d958a843afd2",
        "omalizumab": "52f4617d6927",
        "secukinumab": "d4252a72dd1c",
    },
}


@pytest.mark.parametrize(("chain", "name"), [(c, n) for c, sequences in CHAINS.items() for n in sequences])
def test_sequences_are_those_of_the_public_list(chain: str, name: str) -> None:
    sequence = CHAINS[chain][name]
    assert hashlib.sha256(sequence.encode()).hexdigest()[:12] == THERA_SABDAB[chain][name]
    assert set(sequence) <= set(AMINO_ACIDS)
    assert sequence.count("C") >= 2, "the disulphide bridge of an immunoglobulin fold"
    # The joining segment: WG.G or FG.G near the end, as in every V domain.
    assert re.search(r"WG.G[ST]" if chain == "heavy" else r"FG.GT", sequence[-15:])
    assert 100 <= len(sequence) <= 130


def test_both_chains_of_every_antibody() -> None:
    assert list(HEAVY) == list(LIGHT)
