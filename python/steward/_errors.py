"""What can go wrong. Errors of the daemon's have the names that its interface gives them."""

from __future__ import annotations

from typing import Any, Dict, Type


class Error(Exception):
    """Anything that this package raises."""


class CannotConnect(Error):
    """Nobody listens at the socket, or the daemon takes nobody in for 30 s."""


class Broken(Error):
    """The connection broke or was closed, or no answer came in time. Connect again."""


class Malformed(Error):
    """The daemon answered what this package does not understand."""


class ApiError(Error):
    """The daemon refused, and said why. One that this package does not know by name is this class itself."""

    def __init__(self, name: str, parameters: Dict[str, Any]) -> None:
        super().__init__(name, parameters)
        #: The full name, such as io.steward.PermissionDenied.
        self.name = name
        #: What the daemon says about it, by name.
        self.parameters = parameters

    def __str__(self) -> str:
        short = self.name.rpartition(".")[2]
        reason = self.parameters.get("reason")
        if reason is None:
            reason = ", ".join(f"{key} {value}" for key, value in self.parameters.items())
        return f"{short}: {reason}" if reason else short


class PermissionDenied(ApiError):
    """The caller may not do this; the reason names the rule."""


class InvalidParameter(ApiError):
    """A parameter is missing or wrong."""


class NoSuchTask(ApiError):
    """There is no such process, or it ended meanwhile."""


class AdmissionRefused(ApiError):
    """There is no room for the reservation on any CPU."""


class NoSuchDomain(ApiError):
    """There is no such domain, or it has gone meanwhile."""


class DomainExists(ApiError):
    """There is a domain of that name already."""


class Overcommitted(ApiError):
    """A level of domains would reserve more than it has."""


class MechanismGone(ApiError):
    """Nothing enforces reservations now."""


class MechanismFailed(ApiError):
    """The kernel refused; the reason says what was tried and what to do."""


class MethodNotFound(ApiError):
    """The daemon has no such method; it may be older than this package."""


class InterfaceNotFound(ApiError):
    """The daemon has no such interface."""


class ExpectedMore(ApiError):
    """The method answers with a stream: use Client.stream()."""


_BY_NAME: Dict[str, Type[ApiError]] = {
    **{
        f"io.steward.{kind.__name__}": kind
        for kind in (
            PermissionDenied,
            InvalidParameter,
            NoSuchTask,
            AdmissionRefused,
            NoSuchDomain,
            DomainExists,
            Overcommitted,
            MechanismGone,
            MechanismFailed,
        )
    },
    **{
        f"org.varlink.service.{kind.__name__}": kind
        for kind in (MethodNotFound, InterfaceNotFound, InvalidParameter, ExpectedMore)
    },
}


def from_wire(name: str, parameters: Dict[str, Any]) -> ApiError:
    """The exception for an error that the daemon sent."""
    return _BY_NAME.get(name, ApiError)(name, parameters)
