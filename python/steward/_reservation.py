"""CPU time as people write it: 5ms/30ms."""

from __future__ import annotations

import decimal
import re
from typing import Dict, NamedTuple, Tuple, Union

_UNITS_NS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ns|us|ms|s)", re.ASCII)


class Reservation(NamedTuple):
    """CPU time: budget_ns in every period_ns."""

    #: CPU time per period, in nanoseconds.
    budget_ns: int
    #: Length of a period, in nanoseconds.
    period_ns: int

    @classmethod
    def of(cls, value: AnyReservation) -> Reservation:
        """A reservation from text such as "5ms/30ms", or from a pair of nanoseconds.

        Raises ValueError when it is neither. Whether it can be promised, the daemon says.
        """
        if isinstance(value, str):
            budget, slash, period = value.partition("/")
            if not slash:
                raise ValueError(f'{value!r} is no reservation: write CPU time/period, as in "5ms/30ms"')
            return cls(_nanoseconds(budget), _nanoseconds(period))
        budget_ns, period_ns = value
        return cls(int(budget_ns), int(period_ns))

    def to_wire(self) -> Dict[str, int]:
        """As it travels."""
        return {"budget_ns": self.budget_ns, "period_ns": self.period_ns}


#: What is taken for a reservation.
AnyReservation = Union[Reservation, Tuple[int, int], str]


def _nanoseconds(text: str) -> int:
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f'{text!r} is no duration: write a number and ns, us, ms or s, as in "5ms"')
    exact = decimal.Decimal(match[1]) * _UNITS_NS[match[2]]
    if exact != exact.to_integral_value():
        raise ValueError(f"{text!r} is finer than a nanosecond")
    return int(exact)
