"""The laws over rows of another engine do what they do in ours: same tape of logits, same actions, same tokens."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from kernels.dispatch import backend
from workbench.catalog import build_controllers
from workbench.live.engines.slots import Slots
from workbench.live.engines.steering import Rows, Steering
from workbench.loop import close_loop
from workbench.protocols import DecisionPoint
from workbench.signals import entropy_and_varentropy

TOKENS = 24
LAWS = {
    "pi": {"kind": "pi", "target_entropy_nats": 2.0},
    "rate-limited pi": {"kind": "pi", "target_entropy_nats": 2.0, "wrap": [{"kind": "rate-limited"}]},
    "mirostat": {"kind": "mirostat", "target_surprisal_nats": 1.5},
    "edt": {"kind": "edt"},
    "exact": {"kind": "exact", "target_entropy_nats": 1.5},
    "min-p": {"kind": "fixed", "temperature": 0.8, "wrap": [{"kind": "min-p", "min_p": 0.1}]},
}


def law_of(table, delay_steps, vocab=97):
    context = {"vocab_size": vocab, "delay_steps": delay_steps}
    return build_controllers({DecisionPoint.TEMPERATURE: table}, context)[DecisionPoint.TEMPERATURE]


class Actions:
    def __init__(self):
        self.rows = {}

    def decision(self, observation, action, applied):
        for slot in np.flatnonzero(observation.active):
            key = int(observation.request_id[slot]), int(observation.token_index[slot])
            fields = (applied.temperature, applied.target_entropy_nats, applied.mirostat_mu_nats, applied.min_p)
            self.rows[key] = tuple(None if f is None else float(f[slot]) for f in fields)


@pytest.mark.parametrize("delay_steps", [0, 1, 2])
@pytest.mark.parametrize("name", LAWS)
def test_on_the_same_tape_actions_and_tokens_are_equal(tiny_llama, name, delay_steps):
    prompts = [[3, 4, 5, 6 + i] + [7] * (5 * i) for i in range(3)]
    tape, ours = {}, Actions()

    def keep(request, token, logits):
        tape.update({(int(r), int(t)): row for r, t, row in zip(request, token, logits.clone(), strict=True)})

    made = tiny_llama.plant(
        prompts, TOKENS, controlled=frozenset({DecisionPoint.TEMPERATURE}), delay_steps=delay_steps, ignore_stop=True,
        seed=11, on_logits=keep,
    )  # fmt: skip
    close_loop(made.plant, {DecisionPoint.TEMPERATURE: law_of(LAWS[name], delay_steps)}, ours)
    theirs = Actions()
    steering = Steering(
        law_of(LAWS[name], delay_steps), 5, delay_steps, backend("torch"), seed=11, on_decision=theirs.decision
    )
    tokens = []
    for k in range(TOKENS):
        order = np.roll(np.arange(3), k)  # the engine moves its rows about
        rows = Rows(order + 1, order, np.full(3, k))
        drawn = steering.step(torch.stack([tape[int(r), k] for r in order]), rows)
        tokens.append(drawn.token_id.numpy()[np.argsort(order)])
    assert np.array(tokens).T.tolist() == made.executor.outputs
    assert theirs.rows == ours.rows


def test_raw_and_tempered_are_told_apart():
    """H_raw of [1.5, 1, 0.5, 0] whatever T is; tempered H is that of softmax(z / T)."""
    z = torch.tensor([[1.5, 1.0, 0.5, 0.0]])
    seen = []
    for temperature in (1.0, 0.5):
        law = law_of({"kind": "fixed", "temperature": temperature, "wrap": [{"kind": "min-p", "min_p": 0.3}]}, 0, 4)
        steering = Steering(law, 1, 0, backend("torch"), on_measured=seen.append)
        steering.step(z, Rows(np.zeros(1, np.int64), np.zeros(1, np.int64), np.zeros(1, np.int64)))
    raw = [m.values["entropy_raw_nats"][0] for m in seen]
    assert raw == pytest.approx([1.24505, 1.24505], abs=1e-5)
    assert seen[1].values["entropy_nats"][0] == pytest.approx(0.94754, abs=1e-5)
    assert seen[1].values["entropy_nats"][0] == pytest.approx(
        float(entropy_and_varentropy(z.numpy(), 0.5)[0][0]), abs=1e-5
    )


def one(slot, request, token):
    return Rows(np.array([slot]), np.array([request]), np.array([token]))


def test_a_token_drawn_twice_is_measured_once_and_the_last_draw_counts():
    """The end of a partial prefill chunk has logits too; the engine throws the draw away and draws again."""
    actions = Actions()
    steering = Steering(law_of(LAWS["pi"], 0), 2, 0, backend("torch"), on_decision=actions.decision)
    rng = torch.Generator().manual_seed(3)
    logits = [torch.randn(1, 97, generator=rng) for _ in range(4)]
    observed = []
    inner = steering.law.step
    object.__setattr__(steering, "law", SimpleNamespace(step=lambda s, o: (observed.append(o), inner(s, o))[1]))
    for k, (row, token) in enumerate(zip(logits, (0, 0, 1, 1), strict=True)):
        assert steering.step(row, one(1, 9, token)).token_id.shape == (1,), k
    assert [bool(o.joined[1]) for o in observed] == [True, False, False, False]
    assert [bool(o.measured[1]) for o in observed] == [False, False, True, False]
    h = entropy_and_varentropy(logits[1].double().numpy())[0][0]
    assert observed[2].entropy_raw_nats[1] == pytest.approx(h, abs=1e-5)
    assert observed[3].entropy_raw_nats[1] == pytest.approx(h, abs=1e-5)


def test_a_new_request_in_a_slot_starts_afresh_and_a_bad_row_is_missing():
    steering = Steering(law_of(LAWS["pi"], 0), 1, 0, backend("torch"))
    bad = torch.full((1, 97), float("nan"))
    assert int(steering.step(bad, one(0, 1, 0)).token_id) == -1
    good = torch.randn(1, 97)
    held = steering.step(good, one(0, 1, 1)).temperature_applied
    assert float(held) == 1.0  # nothing was measured: the law holds its T
    steering.step(good, one(0, 1, 2))
    fresh = steering.step(good, one(0, 2, 0)).temperature_applied
    assert float(fresh) == 1.0


def test_slots_are_given_from_outside_or_kept_while_they_last():
    slots = Slots(2)
    assert slots.take(7, 40, object()) == (7, 40, False)
    a, b, c = object(), object(), object()
    (sa, na, _), (sb, nb, _) = slots.take(None, None, a), slots.take(None, None, b)
    assert {sa, sb} == {0, 1}
    assert (na, nb) == (0, 1)
    slots.leave(sa)
    assert slots.take(None, None, a) == (sa, 0, False)  # preempted and back: same slot, same number
    slots.leave(sb)
    assert slots.take(None, None, c) == (sb, 2, True)  # a waiting request's state had to make room
