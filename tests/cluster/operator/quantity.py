"""Quantities of Kubernetes (`300m`, `3Gi`): read, add up, and written as it writes them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_DECIMAL = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "": Fraction(1),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
}


@dataclass(frozen=True, slots=True)
class Quantity:
    amount: Fraction = Fraction(0)
    binary: bool = False
    """Written with Ki, Mi …"""

    @classmethod
    def parse(cls, text: object) -> Quantity:
        message = str(text).strip()
        if message[-2:] in _BINARY:
            return cls(Fraction(message[:-2]) * _BINARY[message[-2:]], True)
        if message[-1:] in _DECIMAL and not message[-1:].isdigit():
            return cls(Fraction(message[:-1]) * _DECIMAL[message[-1]])
        return cls(Fraction(message))

    @property
    def whole(self) -> int:
        """Rounded up, as Kubernetes does."""
        return -int(-self.amount // 1)

    def times(self, count: int) -> Quantity:
        return Quantity(self.amount * count, self.binary)

    def __str__(self) -> str:
        if not self.amount:
            return "0"
        if self.binary:
            for suffix, size in reversed(_BINARY.items()):
                if self.amount % size == 0:
                    return f"{self.amount // size}{suffix}"
            return str(self.whole)
        for suffix in ("E", "P", "T", "G", "M", "k", "", "m", "u", "n"):
            if self.amount % _DECIMAL[suffix] == 0:
                return f"{self.amount / _DECIMAL[suffix]}{suffix}"
        return str(self.whole)


def total(parts: Iterable[Quantity]) -> Quantity:
    """Their sum, in the form of the first that is not zero."""
    amount, binary, seen = Fraction(0), False, False
    for part in parts:
        if part.amount and not seen:
            binary, seen = part.binary, True
        amount += part.amount
    return Quantity(amount, binary)
