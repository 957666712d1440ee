"""Numbers a + b sqrt(m) with rational a, b: exact arithmetic where a critical gain is a quadratic irrational."""

from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Surd:
    """a + b sqrt(m), m a non-square integer shared by all operands."""

    a: Fraction
    b: Fraction
    m: int

    def _like(self, other: "Surd | Fraction | int") -> "Surd":
        if isinstance(other, Surd):
            if other.m != self.m:
                raise ValueError(f"sqrt({self.m}) and sqrt({other.m}) do not mix")
            return other
        return Surd(Fraction(other), Fraction(0), self.m)

    def __add__(self, other: "Surd | Fraction | int") -> "Surd":
        o = self._like(other)
        return Surd(self.a + o.a, self.b + o.b, self.m)

    __radd__ = __add__

    def __neg__(self) -> "Surd":
        return Surd(-self.a, -self.b, self.m)

    def __sub__(self, other: "Surd | Fraction | int") -> "Surd":
        return self + (-self._like(other))

    def __rsub__(self, other: "Surd | Fraction | int") -> "Surd":
        return self._like(other) - self

    def __mul__(self, other: "Surd | Fraction | int") -> "Surd":
        o = self._like(other)
        return Surd(self.a * o.a + self.m * self.b * o.b, self.a * o.b + self.b * o.a, self.m)

    __rmul__ = __mul__

    def __truediv__(self, other: "Surd | Fraction | int") -> "Surd":
        o = self._like(other)
        norm = o.a * o.a - self.m * o.b * o.b
        if norm == 0:
            raise ZeroDivisionError("division by zero")
        return self * Surd(o.a / norm, -o.b / norm, self.m)

    def sign(self) -> int:
        """-1, 0 or 1, decided by squaring: exact."""
        parts = (self.a > 0) - (self.a < 0), (self.b > 0) - (self.b < 0)
        if parts[0] * parts[1] >= 0:
            return max(parts, key=abs)
        larger = self.a * self.a - self.m * self.b * self.b
        return parts[0] * ((larger > 0) - (larger < 0))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (Surd, Fraction, int)) and (self - other).sign() == 0

    def __hash__(self) -> int:
        return hash((self.a, self.b, self.m))

    def __lt__(self, other: "Surd | Fraction | int") -> bool:
        return (self - other).sign() < 0

    def __le__(self, other: "Surd | Fraction | int") -> bool:
        return (self - other).sign() <= 0

    def __gt__(self, other: "Surd | Fraction | int") -> bool:
        return (self - other).sign() > 0

    def __ge__(self, other: "Surd | Fraction | int") -> bool:
        return (self - other).sign() >= 0

    def __float__(self) -> float:
        return float(self.a) + float(self.b) * self.m**0.5
