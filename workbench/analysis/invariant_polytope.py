"""A polytope that every switching matrix maps into itself (shrunk by a rate): an exact proof about all switchings.

If each vertex v of a symmetric polytope and each matrix A satisfy A v = sum_j c_j v_j with sum |c_j| <= rate, then the
polytope's norm falls by `rate` a step whatever the order of switching, so the joint spectral radius is at most `rate`.
The coefficients are found with floats and a linear programme, then solved exactly; the check is a sum.
Source: Guglielmi, Wirth, Zennaro 2005 (extremal complex polytopes), real case; the exact recheck is ours.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from workbench.signals import FloatArray

Vector = list[Any]  # entries `Fraction` or `Surd`


@dataclass(frozen=True)
class Polytope:
    """Vertices up to sign, and for each matrix and vertex the pairs (vertex index, coefficient) of the image."""

    vertices: list[Vector]
    images: list[list[list[tuple[int, Any]]]]


def apply(matrix: Sequence[Vector], vector: Vector) -> Vector:
    return [sum((a * x for a, x in zip(row[1:], vector[1:], strict=True)), row[0] * vector[0]) for row in matrix]


def _magnitude(value: Any) -> Any:
    return value if value >= 0 else -value


def is_invariant(matrices: Sequence[Sequence[Vector]], polytope: Polytope, rate: Any) -> bool:
    """The whole check, exact in whatever field the numbers live in."""
    dimension = len(matrices[0])
    if not polytope.vertices or any(len(v) != dimension for v in polytope.vertices) or not _spans(polytope.vertices):
        return False
    if len(polytope.images) != len(matrices):
        return False
    for matrix, images in zip(matrices, polytope.images, strict=True):
        if len(images) != len(polytope.vertices):
            return False
        for vertex, pairs in zip(polytope.vertices, images, strict=True):
            rest, weight = apply(matrix, vertex), Fraction(0)
            for index, coefficient in pairs:
                rest = [r - coefficient * x for r, x in zip(rest, polytope.vertices[index], strict=True)]
                weight = weight + _magnitude(coefficient)
            if any(r != 0 for r in rest) or not weight <= rate:
                return False
    return True


def _spans(vertices: list[Vector]) -> bool:
    """Exact rank by elimination: a symmetric polytope is a norm's unit ball only if its vertices span."""
    rows, rank = [list(v) for v in vertices], 0
    for column in range(len(vertices[0])):
        pivot = next((i for i in range(rank, len(rows)) if rows[i][column] != 0), None)
        if pivot is None:
            continue
        rows[rank], rows[pivot] = rows[pivot], rows[rank]
        for i in range(rank + 1, len(rows)):
            factor = rows[i][column] / rows[rank][column]
            rows[i] = [a - factor * b for a, b in zip(rows[i], rows[rank], strict=True)]
        rank += 1
    return rank == len(vertices[0])


def _hull_weights(vertices: FloatArray, point: FloatArray) -> FloatArray | None:
    """Signed weights with the least sum of magnitudes that give `point`; vertices are columns."""
    from scipy.optimize import linprog  # half a second to import, and only provers need it

    n = vertices.shape[1]
    found = linprog(np.ones(2 * n), A_eq=np.hstack([vertices, -vertices]), b_eq=point, bounds=(0, None))
    return found.x[:n] - found.x[n:] if found.status == 0 else None


def grow(
    matrices: Sequence[Sequence[Vector]],
    start: Sequence[Vector],
    rate: Any,
    rounding: Callable[[Vector], Vector] = lambda v: v,
    most_vertices: int = 400,
    most_rounds: int = 60,
) -> list[Vector] | None:
    """Add images (divided by `rate`) until none lies outside. None if that does not end. Floats decide, nothing else."""
    vertices = [rounding(list(v)) for v in start]
    front = list(vertices)
    for _ in range(most_rounds):
        new = []
        for vertex in front:
            for matrix in matrices:
                image = [x / rate for x in apply(matrix, vertex)]
                as_float = np.array([float(x) for x in image])
                if not as_float.any():
                    continue
                columns = np.array([[float(x) for x in v] for v in vertices]).T
                weights = _hull_weights(columns, as_float)
                if weights is None or np.abs(weights).sum() > 1.0 + 1e-9:
                    vertices.append(rounding(image))
                    new.append(vertices[-1])
                if len(vertices) > most_vertices:
                    return None
        if not new:
            return _essential(vertices)
        front = new
    return None


def _essential(vertices: list[Vector]) -> list[Vector]:
    """Leave out vertices that lie inside the hull of the others."""
    kept = list(vertices)
    for vertex in vertices:
        others = [v for v in kept if v is not vertex]
        columns = np.array([[float(x) for x in v] for v in others]).T
        if columns.size and np.linalg.matrix_rank(columns) == len(vertex):
            weights = _hull_weights(columns, np.array([float(x) for x in vertex]))
            if weights is not None and np.abs(weights).sum() < 1.0 - 1e-9:
                kept = others
    return kept


def with_images(matrices: Sequence[Sequence[Vector]], vertices: list[Vector]) -> Polytope:
    """Exact coefficients: the programme names the vertices, elimination in the field gives the numbers."""
    columns = np.array([[float(x) for x in v] for v in vertices]).T
    images = []
    for matrix in matrices:
        rows = []
        for vertex in vertices:
            image = apply(matrix, vertex)
            weights = _hull_weights(columns, np.array([float(x) for x in image]))
            chosen: list[int] = []
            for index in np.argsort(-np.abs(weights if weights is not None else np.ones(len(vertices)))):
                if np.linalg.matrix_rank(columns[:, [*chosen, int(index)]], tol=1e-9) > len(chosen):
                    chosen.append(int(index))
                if len(chosen) == len(vertex):
                    break
            solved = _solve([vertices[i] for i in chosen], image)
            rows.append([(i, c) for i, c in zip(chosen, solved, strict=True) if c != 0])
        images.append(rows)
    return Polytope(vertices, images)


def _solve(basis: list[Vector], target: Vector) -> Vector:
    """c with sum_j c_j basis_j = target, by elimination."""
    size = len(target)
    rows = [[basis[j][i] for j in range(size)] + [target[i]] for i in range(size)]
    for k in range(size):
        pivot = next(i for i in range(k, size) if rows[i][k] != 0)
        rows[k], rows[pivot] = rows[pivot], rows[k]
        rows[k] = [x / rows[k][k] for x in rows[k]]
        for i in range(size):
            if i != k and rows[i][k] != 0:
                factor = rows[i][k]
                rows[i] = [a - factor * b for a, b in zip(rows[i], rows[k], strict=True)]
    return [row[-1] for row in rows]
