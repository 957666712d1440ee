"""The sentences of a report say what its rows say."""

import numpy as np

from controllers.routing.fixed import FixedRouter
from controllers.routing.heuristic import HeuristicRouter
from tests.routing.test_fit_mlp import panel
from workbench.protocols import Strategy
from workbench.routing.comparison import compare, descriptor_rows
from workbench.routing.findings import findings
from workbench.routing.precision import FlipRow

ROUTERS = {
    "always-standard": FixedRouter(strategy=Strategy.STANDARD),
    "always-direct": FixedRouter(strategy=Strategy.DIRECT),
    "always-cot": FixedRouter(strategy=Strategy.COT),
    "heuristic": HeuristicRouter(overload_nats=np.inf),
}


def said(made, flips=()):
    return findings(compare(made, ROUTERS), descriptor_rows(made), flips, {"made": float("nan")})


def test_a_router_that_knows_is_said_to_know():
    lines = " ".join(said(panel(200)))
    assert "1 beat always-Direct beyond the interval (heuristic on made by extraction)" in lines
    assert "1 of 1 rows beat a random mix of their own shares (heuristic on made by extraction)" in lines
    assert "-V_sp on made" in lines
    assert "What this model cannot show" not in lines


def test_where_nothing_helps_it_is_said_and_nothing_is_claimed():
    made = panel(200, informative=False)
    made.correct[:] = False
    made.correct[:5, Strategy.DIRECT] = True
    lines = said(made)
    assert any("0 beat always-Direct" in line for line in lines)
    assert any("worse on" in line for line in lines)
    assert any(line.startswith("What this model cannot show") and "made (0.025, one in ten)" in line for line in lines)
    assert not any(line.startswith("Descriptors") for line in lines), "no question is helped, so nothing can be told"


def test_flips_name_the_worst():
    rows = [
        FlipRow(task="made", router=r, num_questions=100, flip_share=share, mean_shift_nats=0.03, max_shift_nats=0.3)
        for r, share in (("heuristic", 0.04), ("surrogate", 0.01))
    ]
    assert any(
        "2.5 % of decisions on average" in line and "4.0 % (heuristic on made)" in line
        for line in said(panel(60), rows)
    )
