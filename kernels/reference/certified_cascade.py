"""The certified choice: which blocks a head has to read so that a bound on what it left out meets a target.

For each query head, with e_b the sum of exp(s q.k) over block b, known once the block is read, and u_b >= e_b from its sketch:

    A  = sum of e_b over blocks read,    o_K = sum of e_b m_b / A their output, m_b block b's own mean value
    B  = sum of u_b over blocks left out
    dropped mass    delta <= B / (A + B)
    output          |o - o_K| <= min(delta max_b R_b, sum_b u_b R_b / A),    R_b = |c - o_K| + r

over the blocks left out, c and r the ball around the values of b's group. Blocks are looked at in levels of a sketch,
the next level only where it may matter, then read back in the order of their bounds until the target is met: a dropped mass,
or a change of the output as a share of |o_K|. Source: ours; DESIGN 4.4.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

COARSE = 0.03  # share of the budget that blocks left out by a coarse level may use up
OUTWARD = 1.0 + 1e-6  # what float32 may have lost of a block's mean value

Levels = list[
    tuple[int, Tensor, Tensor]
]  # (planes, estimate, upper bound) from coarse to fine, [heads, rows, group, blocks]


class BlockValues(NamedTuple):
    """What bounds on the output go by."""

    mean: Tensor  # [heads, rows, group, blocks, d] of a block's values under its own softmax; used of blocks that are read
    centre: Tensor  # [heads, groups, d] of the values of each group of blocks, from the first block on
    radius: Tensor  # [heads, groups], rounded up
    group_blocks: int


class Cascade(NamedTuple):
    """One layer's certified choice, and what it cost."""

    keep: Tensor  # bool [heads, rows, blocks]
    dropped_mass_bound: Tensor  # [heads, rows, group] float64
    planes: Tensor  # [heads, rows, blocks] int64, planes of the block's keys that were read
    unread: Tensor  # [heads, rows, group, blocks] ln of the upper bound on what was left out, -inf where read


def certified_cascade(
    levels: Levels,
    exact: Tensor,
    always: Tensor,
    mass_budget: Tensor | float,
    values: BlockValues | None = None,
    output_budget: Tensor | float | None = None,
) -> Cascade:
    """levels: -inf outside the context. exact: [heads, rows, group, blocks] ln e_b, of which only what is read is used.

    always: bool, broadcast to [heads, rows, blocks], read in any case. Budgets: one, or broadcast to [heads, rows, 1].
    With `output_budget` (and `values`) reading stops by the bound on the output; how closely blocks are looked at then follows
    the mass it allows as far as the value balls tell. "heads" are KV heads; a block is read for all query heads of a group if
    any of them needs it.
    """
    heads, rows, _, blocks = exact.shape
    inside = exact[:, :, 0] > -math.inf
    always = always.expand(heads, rows, blocks) & inside
    budget = torch.as_tensor(mass_budget, dtype=exact.dtype)
    guide = budget if budget.ndim == 0 else budget[..., None]
    if output_budget is not None:
        assert values is not None
        moves = torch.as_tensor(output_budget, dtype=torch.float64)
        moves = moves if moves.ndim == 0 else moves[..., None]

        def guide_of(mass: Tensor) -> Tensor:
            return (moves * _mass_a_move_allows(mass, values)).to(exact.dtype)

        bound, read, planes = _look(levels, exact, inside, always, guide_of)
    else:
        bound, read, planes = _look(levels, exact, inside, always, lambda mass: guide)
    # In the order of their bounds, until what is left is small against what has been read.
    top = torch.maximum(bound.amax(dim=3, keepdim=True), exact.amax(dim=3, keepdim=True))
    share = (bound - bound.logsumexp(dim=3, keepdim=True)).amax(dim=2)
    share = torch.where(read, math.inf, torch.where(inside, share, -math.inf))
    order = share.sort(dim=2, descending=True, stable=True).indices
    spread = order[:, :, None].expand_as(bound)
    sums = (exact - top).exp().gather(3, spread).double()
    seen = sums.cumsum(dim=3)
    unread = torch.where(inside[:, :, None], (bound - top).exp(), 0.0).gather(3, spread).double()
    left = _after(unread)
    dropped = torch.where(left > 0.0, left / (seen + left), 0.0)
    if output_budget is None:
        met = dropped <= torch.as_tensor(mass_budget, dtype=torch.float64)[..., None]
    else:
        assert values is not None
        moved, size = _output_bounds(order, sums, seen, unread, dropped, values)
        met = moved <= torch.as_tensor(output_budget, dtype=torch.float64)[..., None] * size
    enough = met.all(dim=2) & (torch.arange(blocks, device=exact.device) + 1 >= read.sum(dim=2)[:, :, None])
    enough[..., -1] = True  # all of them: nothing is dropped
    count = enough.to(torch.int8).argmax(dim=2) + 1
    keep = torch.zeros_like(inside).scatter_(2, order, torch.arange(blocks, device=exact.device) < count[:, :, None])
    keep &= inside
    certified = dropped.gather(3, (count - 1)[:, :, None, None].expand(heads, rows, exact.shape[2], 1))[..., 0]
    return Cascade(keep, certified, planes, torch.where((inside & ~keep)[:, :, None], bound, -math.inf))


def output_bound(made: Cascade, exact: Tensor, values: BlockValues) -> Tensor:
    """The bound on |o - o_K| of a choice, [heads, rows, group] float64."""
    keep = made.keep[:, :, None]
    top = torch.where(keep, exact, -math.inf).amax(dim=3, keepdim=True)
    sums = torch.where(keep, (exact - top).exp(), 0.0).double()
    read = sums.sum(dim=3)
    output = (sums[..., None, :] @ values.mean.double())[..., 0, :] / read[..., None]
    covered = values.centre.shape[1] * values.group_blocks
    unread = (made.unread[..., :covered] - top).exp().double().unflatten(3, (-1, values.group_blocks)).sum(dim=4)
    reach = (values.centre.double()[:, None, None] - output[..., None, :]).norm(dim=4)
    reach = reach + values.radius.double()[:, None, None]
    farthest = torch.where(unread > 0.0, reach, 0.0).amax(dim=3) if covered else torch.zeros_like(read)
    return torch.minimum(made.dropped_mass_bound * farthest, (unread * reach).sum(dim=3) / read) * OUTWARD


def _look(
    levels: Levels, exact: Tensor, inside: Tensor, always: Tensor, budget_of: Callable[[Tensor], Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """(tightest bound, read without further ado, planes): after each level a block is read if its estimate alone puts it
    among those that cannot go, left out if its bound is small enough to go with all smaller ones in a small part of the budget
    (`COARSE`), and else looked at more closely. `budget_of`: from estimated masses of the blocks to the mass that may go."""
    _, _, bound = levels[0]
    open_, read = inside & ~always, always.clone()
    bound, planes = bound.clone(), torch.zeros(open_.shape, dtype=torch.int64, device=exact.device)
    for place, (num_planes, estimate, upper) in enumerate(levels):
        planes[open_] = num_planes
        bound = torch.where(open_[:, :, None], upper, bound)
        if place == len(levels) - 1:
            break
        guess = torch.where(always[:, :, None], exact, estimate)
        total = guess.logsumexp(dim=3, keepdim=True)
        mass = (guess - total).exp()
        budget = budget_of(mass)
        if num_planes > 0:
            surely = open_ & (_mass_up_to(mass.amax(dim=2), open_, mass) > budget).any(dim=2)
            read |= surely
            open_ = open_ & ~surely
        mass = (bound - total).exp()
        open_ = open_ & (_mass_up_to(mass.amax(dim=2), open_, mass) > COARSE * budget).any(dim=2)
        if not bool(open_.any()):
            break
    return bound, read, planes


def _mass_up_to(share: Tensor, candidates: Tensor, mass: Tensor) -> Tensor:
    """Mass of all candidates up to and including each, in rising `share`: [heads, rows, group, blocks], 0 elsewhere."""
    order = torch.where(candidates, share, math.inf).sort(dim=2).indices[:, :, None].expand_as(mass)
    summed = torch.where(candidates[:, :, None], mass, 0.0).gather(3, order).cumsum(dim=3)
    return torch.zeros_like(mass).scatter(3, order, summed) * candidates[:, :, None]


def _mass_a_move_allows(mass: Tensor, values: BlockValues) -> Tensor:
    """|o| / R as the balls of the values tell, [heads, rows, group, 1]: how much mass may go for a change of the output by |o|."""
    groups = values.centre.shape[1]
    covered = groups * values.group_blocks
    if groups == 0:
        return torch.ones_like(mass[..., :1]).double()
    by_group = mass[..., :covered].double().unflatten(3, (groups, values.group_blocks)).sum(dim=4)
    centre = values.centre.double()[:, None, None]
    rest = (mass[..., covered:, None] * values.mean[..., covered:, :]).double().sum(dim=3)  # these are read in any case
    output = (by_group[..., None] * centre).sum(dim=3) + rest
    reach = (centre - output[..., None, :]).norm(dim=4) + values.radius.double()[:, None, None]
    allowed = output.norm(dim=3) / reach.mean(dim=3).clamp_min(1e-30)
    return allowed.clamp_max(10.0)[..., None]


def _after(values: Tensor) -> Tensor:
    """Sum of all that follow each, along the last dimension, by adding only."""
    later = values.flip(-1).cumsum(dim=-1).flip(-1)[..., 1:]
    return torch.cat([later, torch.zeros_like(values[..., :1])], dim=-1)


def _output_bounds(
    order: Tensor, sums: Tensor, seen: Tensor, unread: Tensor, dropped: Tensor, values: BlockValues
) -> tuple[Tensor, Tensor]:
    """(bound on |o - o_K|, |o_K|) after each number of blocks read in `order`, [heads, rows, group, blocks] float64."""
    group, groups = sums.shape[2], values.centre.shape[1]
    if groups == 0:
        return torch.zeros_like(dropped), torch.ones_like(dropped)
    index = order[:, :, None, :, None].expand(-1, -1, group, -1, values.mean.shape[4])
    mean = values.mean.gather(3, index).double()
    output = (sums[..., None] * mean).cumsum(dim=3) / seen[..., None]
    size = output.norm(dim=4)
    centre = values.centre.double()[:, None, None]
    apart = size[..., None] ** 2 + (centre**2).sum(dim=4)[..., None, :] - 2.0 * (output @ centre.mT)
    reach = apart.clamp_min(0.0).sqrt() + values.radius.double()[:, None, None, None] + 1e-7 * size[..., None]
    one = torch.nn.functional.one_hot((order // values.group_blocks).clamp_max(groups - 1), groups)
    by_group = unread[..., None] * one[:, :, None].to(unread.dtype)
    later = by_group.flip(3).cumsum(dim=3).flip(3)[:, :, :, 1:]
    later = torch.cat([later, torch.zeros_like(by_group[:, :, :, :1])], dim=3)
    farthest = torch.where(later > 0.0, reach, 0.0).amax(dim=4)
    return torch.minimum(dropped * farthest, (later * reach).sum(dim=4) / seen) * OUTWARD, size
