import pytest

from controllers.unmasking.entropy_sum import EntropySum
from controllers.unmasking.semi_autoregressive import SemiAutoregressive
from workbench.catalog import CATALOG
from workbench.errors import InputError
from workbench.protocols import DecisionPoint
from workbench.unmasking.policies import MAIN_KNOB, named_policy, parse_knobs


def test_every_policy_has_a_main_number_that_exists():
    assert set(MAIN_KNOB) == set(CATALOG[DecisionPoint.REVEAL])
    for name, (field, _) in MAIN_KNOB.items():
        assert hasattr(named_policy(name).policy, field)


def test_names_values_and_eta():
    assert named_policy("entropy_sum", 0.3).policy == EntropySum(eta_nats=0.3)
    assert named_policy("entropy-sum:0.7", 0.3).policy == EntropySum(eta_nats=0.7)
    assert named_policy("uniform:8").policy.num_iterations == 8
    assert named_policy("confidence-threshold", 0.3).uses_eta is False
    wrapped = named_policy("entropy-sum:1", block_length=4).policy
    assert isinstance(wrapped, SemiAutoregressive)
    assert named_policy("eb-sampler:0.1", knobs=parse_knobs(["order=margin"])).policy.order == "margin"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("entropy-som", "did you mean entropy-sum"),
        ("entropy-sum:much", "'much' is no number"),
        ("uniform:2.5", "integer"),
        ("uniform:0", "at least 1"),
        ("entropy-sum:nan", "eta_nats must be"),
    ],
)
def test_bad_names_and_values_are_one_clear_line(text, message):
    with pytest.raises(InputError, match=message):
        named_policy(text)


def test_an_unknown_field_offers_the_nearest():
    with pytest.raises(InputError, match="did you mean order"):
        named_policy("eb-sampler", knobs={"ordr": "margin"})
    with pytest.raises(InputError, match="key=value"):
        parse_knobs(["order"])
