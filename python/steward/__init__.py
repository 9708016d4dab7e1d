"""A client for Steward's daemon: reservations, domains and what is decided about them.

>>> import steward
>>> with steward.connect() as s:                    # doctest: +SKIP
...     s.domain_create("batch", cpu=0.2)
...     s.run(cpu="5ms/30ms")

The daemon speaks varlink over a Unix socket. It knows the process that connected: call connect() in the process that
a call is about, and again in a child after a fork. Times are in nanoseconds, moments are of CLOCK_MONOTONIC, loads and
bandwidths are fractions of one CPU, and what a domain has is a fraction of what its parent has.
"""

from ._availability import Availability, AvailabilityWatcher
from ._client import SOCKET_PATH, Client, Events, connect
from ._errors import (
    AdmissionRefused,
    ApiError,
    Broken,
    CannotConnect,
    DomainExists,
    Error,
    ExpectedMore,
    InterfaceNotFound,
    InvalidParameter,
    Malformed,
    MechanismFailed,
    MechanismGone,
    MethodNotFound,
    NoSuchDomain,
    NoSuchTask,
    Overcommitted,
    PermissionDenied,
)
from ._reservation import Reservation

__all__ = [
    "SOCKET_PATH",
    "AdmissionRefused",
    "ApiError",
    "Availability",
    "AvailabilityWatcher",
    "Broken",
    "CannotConnect",
    "Client",
    "DomainExists",
    "Error",
    "Events",
    "ExpectedMore",
    "InterfaceNotFound",
    "InvalidParameter",
    "Malformed",
    "MechanismFailed",
    "MechanismGone",
    "MethodNotFound",
    "NoSuchDomain",
    "NoSuchTask",
    "Overcommitted",
    "PermissionDenied",
    "Reservation",
    "connect",
]
