"""`workbench unmask` as it is called: figures, the cases where decoders hang or return too much, one clear line for the rest."""

import json
import sys

import pytest

from workbench.cli.app import main


@pytest.fixture
def call(tmp_path, monkeypatch, capsys):
    """Run the command in this process; gives exit code, the strict-JSON object, standard error."""

    def refuse(name):
        raise AssertionError(f"{name} is not strict JSON")

    def run(*words, out="o"):
        argv = ["workbench", "unmask", *words, "--json", "--no-pictures", "--out", str(tmp_path / out)]
        monkeypatch.setattr(sys, "argv", argv)
        with pytest.raises(SystemExit) as end:
            main()
        streams = capsys.readouterr()
        return end.value.code, json.loads(streams.out, parse_constant=refuse), streams.err

    return run


def test_pairs_have_their_known_divergence(call):
    code, body, _ = call("--oracle", "pairs", "--eta", "0.105", "--length", "256", "--repeats", "400")
    figures = body["figures"]
    assert code == 0
    assert body["ok"] is True
    assert abs(figures["kl_nats"] - 0.113) < 2 * figures["kl_half_width_nats"]
    assert figures["entropy_nats"] == pytest.approx(1.28)
    assert figures["iterations"] <= figures["bound_iterations"]
    assert figures["kl_nats"] <= figures["bound_kl_nats"]


@pytest.mark.parametrize(
    ("words", "iterations"),
    [
        (("--policy", "confidence-threshold:0.999", "--length", "100"), 100),
        (("--eta", "0", "--length", "100"), 100),
        (("--eta", "inf", "--length", "100"), 1),
        (("--eta", "inf", "--length", "1"), 1),
        (("--eta", "0", "--length", "1"), 1),
        (("--block-length", "32", "--eta", "inf", "--length", "100"), 4),
    ],
)
def test_no_position_reached_no_hang_and_exactly_the_asked_length(call, words, iterations):
    code, body, _ = call("--oracle", "independent", "--repeats", "8", *words)
    assert code == 0
    assert body["figures"]["iterations"] == iterations
    assert body["figures"]["length"] == int(words[-1])
    assert body["figures"]["kl_nats"] == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--oracle", "independent", "--eta", "-1"), r"eta_nats must be in [0, inf], got -1"),
        (("--oracle", "independent", "--eta", "nan"), r"eta_nats must be in [0, inf], got nan"),
        (("--oracle", "independent", "--length", "0"), "--length must be at least 1, got 0"),
        (("--oracle", "independent", "--repeats", "0"), "--repeats must be at least 1"),
        (("--oracle", "par"), "did you mean"),
        (("--oracle", "pairs", "--policy", "entropysum"), "did you mean entropy-sum"),
        (("--study", "pears"), "did you mean pairs"),
        (("--oracle", "pairs", "--frontier"), "give one of"),
        ((), "give one of"),
        (
            ("--oracle", "pairs", "--length", "4", "--order", "0,1,1,2"),
            "each position of 0 .. 3 once, 1 occurs 2 times",
        ),
        (("--oracle", "pairs", "--length", "4", "--order", "0,1,2"), "3 is missing"),
        (("--oracle", "pairs", "--length", "2", "--order", "0,one"), "got 'one'"),
        (("--model", "sapiens-heavy", "--order", "0,1"), "--order is for --oracle"),
        (("--model", "sapiens-heavy", "--masked", "0"), "--masked must be in (0, 1], got 0"),
        (("--model", "sapiens-heavy", "--temperature", "nan"), "--temperature must be in [0, inf), got nan"),
        (("--oracle", "pairs", "--remask", "0.5", "--repeats", "2"), "masks positions again"),
    ],
)
def test_bad_input_is_one_line_and_exit_two(call, words, message):
    code, body, errors = call(*words)
    assert code == 2
    assert body["ok"] is False
    assert message in body["error"]
    assert errors.count("\n") == 1
    assert "Traceback" not in errors


def test_mates_side_by_side_pay_what_the_order_costs_and_mates_apart_nothing(call):
    """Four twins of 0.01 nats, eta = 0.105: mates in one batch are wrong together, or never."""
    words = ("--oracle", "pairs", "--length", "8", "--eta", "0.015", "--repeats", "4")
    _, side, _ = call(*words, "--order", "0,1,2,3,4,5,6,7")
    _, apart, _ = call(*words, "--order", "0,2,4,6,1,3,5,7")
    assert side["figures"]["kl_nats"] == pytest.approx(0.04)
    assert apart["figures"]["kl_nats"] == pytest.approx(0.0, abs=1e-12)


def test_eta_zero_says_what_it_does(call):
    _, body, errors = call("--oracle", "pairs", "--eta", "0", "--length", "8", "--repeats", "2")
    assert "one uncertain position an iteration" in errors
    assert body["figures"]["bound_iterations"] is None


def test_equal_seeds_give_equal_figures_and_tables(call, tmp_path):
    words = ("--oracle", "markov", "--eta", "0.5", "--length", "64", "--repeats", "8", "--seed", "5")
    _, one, _ = call(*words, out="a")
    _, two, _ = call(*words, out="b")
    assert one["figures"] == two["figures"]
    assert (tmp_path / "a/table.csv").read_bytes() == (tmp_path / "b/table.csv").read_bytes()
