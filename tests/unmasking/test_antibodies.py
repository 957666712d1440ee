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
    },
    "light": {
        "trastuzumab": "54785c99f723",
        "adalimumab": "9feb1bb63d9f",
        "bevacizumab": "8fab282ce71f",
        "pembrolizumab": "ddbb8beff963",
        "nivolumab": "2670a2973187",
        "rituximab": "54f166649687",
    },
}


@pytest.mark.parametrize(("chain", "name"), [(c, n) for c, sequences in CHAINS.items() for n in sequences])
def test_sequences_are_those_of_the_public_list(chain: str, name: str) -> None:
    sequence = CHAINS[chain][name]
    assert hashlib.sha256(sequence.encode()).hexdigest()[:12] == THERA_SABDAB[chain][name]
    assert set(sequence) <= set(AMINO_ACIDS)
    assert sequence.count("C") >= 2, "the disulphide bridge of an immunoglobulin fold"
    # The joining segment: WG.G or FG.G near the end, as in every V domain.
    assert re.search(r"WG.GT" if chain == "heavy" else r"FG.GT", sequence[-15:])
    assert 100 <= len(sequence) <= 130


def test_both_chains_of_every_antibody() -> None:
    assert list(HEAVY) == list(LIGHT)
