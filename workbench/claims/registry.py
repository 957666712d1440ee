"""The ledger's rows: every claim of the three papers that we know."""

from workbench.claims.claim import Claim
from workbench.claims.papers import edrm, entropic_time, unmasking
from workbench.errors import unknown_name

CLAIMS: tuple[Claim, ...] = (*entropic_time.CLAIMS, *edrm.CLAIMS, *unmasking.CLAIMS)


def chosen(id: str | None) -> list[Claim]:
    """All claims, one by id, or those whose id begins with `id` and a dash ("et", "edrm", "unmask")."""
    if id is None:
        return list(CLAIMS)
    found = [claim for claim in CLAIMS if claim.id == id or claim.id.startswith(f"{id}-")]
    if not found:
        raise unknown_name("claim", id, [claim.id for claim in CLAIMS])
    return found
