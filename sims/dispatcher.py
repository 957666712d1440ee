"""Which replica takes a request: the policies of a dispatcher, by name.

    random          an even draw; Poisson arrivals stay Poisson at every replica
    round-robin     each in turn
    least-loaded    the one with the fewest requests inside, waiting ones included; ties to the one served longest ago
    two-choices     the less loaded of two drawn evenly (power of two choices)
    prefix-aware    where most of the prompt's beginning was sent last, unless that replica holds `SLACK` requests more than
                    the least loaded one; else the least loaded
    central-queue   none until one has a free place: requests wait at the dispatcher, first come first served

A policy sees who is up and how loaded each is. Draws are Philox of (seed, request, attempt): the same for every arm.
Source: Mitzenmacher, IEEE TPDS 12 (2001) for two choices; prefix affinity with a load bound: ours, after SGLang's router.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from kernels.philox import uniform
from sims import streams
from workbench.engine.prompt_blocks import PromptBlocks
from workbench.errors import InputError, unknown_name
from workbench.signals import IntArray

SLACK = 4  # requests by which affinity may unbalance the load


@dataclass(frozen=True)
class Choice:
    """What a policy decides on: request r for the `attempt`-th time, the replicas that are up, requests inside each."""

    request: int
    attempt: int
    up: IntArray  # indices, rising
    load: IntArray  # [num_replicas]
    places: int  # requests that a replica serves at once


class Policy(Protocol):
    def choose(self, choice: Choice) -> int | None:
        """Index of a replica that is up; None: wait at the dispatcher."""
        ...


@dataclass
class Random:
    seed: int

    def choose(self, choice: Choice) -> int | None:
        return int(choice.up[_draw(self.seed, choice, 0, choice.up.size)])


@dataclass
class RoundRobin:
    turn: int = 0

    def choose(self, choice: Choice) -> int | None:
        place = int(np.searchsorted(choice.up, self.turn))
        chosen = int(choice.up[place % choice.up.size])
        self.turn = chosen + 1
        return chosen


@dataclass
class LeastLoaded:
    num_replicas: int
    given: list[int] = field(default_factory=list)  # by replica: when it was last given a request, in choices
    choices: int = 0

    def choose(self, choice: Choice) -> int | None:
        self.given = self.given or [0] * self.num_replicas
        self.choices += 1
        chosen = min((int(i) for i in choice.up), key=lambda i: (choice.load[i], self.given[i], i))
        self.given[chosen] = self.choices
        return chosen


@dataclass
class TwoChoices:
    seed: int

    def choose(self, choice: Choice) -> int | None:
        count = choice.up.size
        first = _draw(self.seed, choice, 0, count)
        if count == 1:
            return int(choice.up[first])
        second = (first + 1 + _draw(self.seed, choice, 1, count - 1)) % count
        pair = int(choice.up[first]), int(choice.up[second])
        return min(pair, key=lambda i: choice.load[i])  # equal: the first drawn


@dataclass
class PrefixAware:
    blocks: PromptBlocks
    fallback: LeastLoaded

    def __post_init__(self) -> None:
        self.home = np.full(self.blocks.num_keys, -1, np.int64)  # replica that a block was sent to last

    def choose(self, choice: Choice) -> int | None:
        keys = self.blocks.of(choice.request)
        known = np.flatnonzero(self.home[keys] >= 0)
        chosen = int(self.home[keys[known[-1]]]) if known.size else -1
        least = int(choice.load[choice.up].min())
        if chosen not in choice.up or choice.load[chosen] > least + SLACK:
            found = self.fallback.choose(choice)
            assert found is not None
            chosen = found
        self.home[keys] = chosen
        return chosen


@dataclass
class CentralQueue:
    fallback: LeastLoaded

    def choose(self, choice: Choice) -> int | None:
        free = choice.up[choice.load[choice.up] < choice.places]
        if free.size == 0:
            return None
        return self.fallback.choose(Choice(choice.request, choice.attempt, free, choice.load, choice.places))


def _draw(seed: int, choice: Choice, index: int, count: int) -> int:
    u = float(uniform(seed, streams.DISPATCH, choice.request, choice.attempt, index))
    return min(int(u * count), count - 1)


Maker = Callable[[int, int, PromptBlocks | None], Policy]
POLICIES: dict[str, Maker] = {
    "random": lambda replicas, seed, blocks: Random(seed),
    "round-robin": lambda replicas, seed, blocks: RoundRobin(),
    "least-loaded": lambda replicas, seed, blocks: LeastLoaded(replicas),
    "two-choices": lambda replicas, seed, blocks: TwoChoices(seed),
    "prefix-aware": lambda replicas, seed, blocks: _prefix_aware(replicas, blocks),
    "central-queue": lambda replicas, seed, blocks: CentralQueue(LeastLoaded(replicas)),
}


def _prefix_aware(replicas: int, blocks: PromptBlocks | None) -> Policy:
    if blocks is None:
        raise InputError("dispatcher prefix-aware needs engine.prefix_caching = true")
    return PrefixAware(blocks, LeastLoaded(replicas))


def make_policy(name: str, num_replicas: int, seed: int, blocks: PromptBlocks | None) -> Policy:
    """`blocks`: what prompts begin with, None where nothing is cached. Raises `InputError` for an unknown name."""
    if name not in POLICIES:
        raise unknown_name("dispatcher", name, POLICIES)
    return POLICIES[name](num_replicas, seed, blocks)
