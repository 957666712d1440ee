"""Polynomials written as text, read into exact rational arithmetic (flint) or into z3, without `eval`.

Allowed: names, integers, + - * / (by integers only) and ** (by a small integer). The same text is what a witness file
shows, what the checker expands and what the solver is asked about.
"""

import ast
from collections.abc import Callable, Sequence
from typing import Any

import flint
import z3


def _evaluate(text: str, names: Sequence[str], leaf: Callable[[str], Any], number: Callable[[int, int], Any]) -> Any:
    def walk(node: ast.expr) -> Any:
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return number(node.value, 1)
        if isinstance(node, ast.Name) and node.id in names:
            return leaf(node.id)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -walk(node.operand)
        if isinstance(node, ast.BinOp):
            right = node.right.value if isinstance(node.right, ast.Constant) else None
            if isinstance(node.op, ast.Pow) and isinstance(right, int) and 0 <= right <= 12:
                product, base = number(1, 1), walk(node.left)
                for _ in range(right):
                    product = product * base
                return product
            if isinstance(node.op, ast.Div) and isinstance(right, int) and right != 0:
                return walk(node.left) * number(1, right)
            if isinstance(node.op, (ast.Add, ast.Sub, ast.Mult)):
                left, right = walk(node.left), walk(node.right)
                if isinstance(node.op, ast.Add):
                    return left + right
                return left - right if isinstance(node.op, ast.Sub) else left * right
        raise ValueError(f"not a polynomial in {', '.join(names)}: {text!r}")

    return walk(ast.parse(text, mode="eval").body)


def exact(text: str, names: Sequence[str]) -> flint.fmpq_mpoly:
    """The polynomial over the rationals."""
    context = flint.fmpq_mpoly_ctx.get(tuple(names), "lex")
    generators = dict(zip(names, context.gens(), strict=True))
    return _evaluate(text, names, generators.__getitem__, lambda p, q: context.constant(flint.fmpq(p, q)))


def solver_term(text: str, names: Sequence[str]) -> z3.ArithRef:
    """The same polynomial as a z3 real term."""
    return _evaluate(text, names, z3.Real, lambda p, q: z3.RealVal(p) / q)
