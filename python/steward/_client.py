"""The connection and its calls."""

from __future__ import annotations

import errno
import json
import os
import socket
import threading
import time
from types import TracebackType
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple, Type, Union

from . import _errors
from ._reservation import AnyReservation, Reservation

#: Where the daemon listens.
SOCKET_PATH = "/run/steward/io.steward"

_ANSWER_TIMEOUT_S = 150.0
#: How long connecting waits for a daemon that has its socket and does not listen yet, or takes nobody in.
_START_TIMEOUT_S = 30.0
_LOOK_EVERY_S = 0.02
_REPLY_BYTES_MAX = 32 * 1024 * 1024
_CHUNK_BYTES = 64 * 1024

Json = Dict[str, Any]


def connect(path: Union[str, "os.PathLike[str]", None] = None) -> Client:
    """Connects to the daemon at path; unless given, at $STEWARD_SOCKET or the usual place.

    Waits for a daemon that is starting, 30 s at most. Raises CannotConnect when there is none, or that is over.
    """
    return Client(_where(path))


def _where(path: Union[str, "os.PathLike[str]", None]) -> str:
    return os.fspath(path) if path is not None else os.environ.get("STEWARD_SOCKET") or SOCKET_PATH


def _connected(path: str, patience_s: float) -> socket.socket:
    patience_ends = time.monotonic() + patience_s
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(_START_TIMEOUT_S)
            connection.connect(path)
            connection.settimeout(None)
            return connection
        except OSError as error:
            connection.close()
            advice = "is it running? (systemctl start stewardd)"
            if isinstance(error, ConnectionRefusedError) and _is_had_by_a_process(path):
                if time.monotonic() < patience_ends:
                    time.sleep(_LOOK_EVERY_S)
                    continue
                advice = f"it is starting, and does not listen after {patience_s:.0f} s (journalctl -u stewardd)"
            raise _errors.CannotConnect(f"cannot reach stewardd at {path}: {error.strerror or error}; {advice}") from error


def _is_had_by_a_process(path: str) -> bool:
    """Whether a process has the socket that streams at path, listening or not: the kernel refuses another type of connection to it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        return probe.connect_ex(path) == errno.EPROTOTYPE


class _Connection:
    """A socket and what came over it; not more than one user at a time."""

    def __init__(self, path: str, patience_s: float = _START_TIMEOUT_S) -> None:
        self._buffer = bytearray()
        self._scanned = 0
        self.socket = _connected(path, patience_s)

    def send(self, method: str, parameters: Json, more: bool = False) -> None:
        call: Json = {"method": method, "parameters": parameters}
        if more:
            call["more"] = True
        try:
            self.socket.sendall(json.dumps(call, allow_nan=False).encode() + b"\0")
        except OSError as error:
            raise _errors.Broken(f"the connection to stewardd broke: {error}") from error

    def receive(self) -> Tuple[Json, bool]:
        """The next reply, and whether more follow."""
        while True:
            reply = self.received()
            if reply is not None:
                return reply
            self.read_more()

    def received(self) -> Optional[Tuple[Json, bool]]:
        """The next reply if all of it is here already."""
        end = self._buffer.find(b"\0", self._scanned)
        if end < 0:
            self._scanned = len(self._buffer)
            if self._scanned > _REPLY_BYTES_MAX:
                raise _errors.Malformed(f"a reply is longer than {_REPLY_BYTES_MAX} bytes")
            return None
        message = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        self._scanned = 0
        try:
            reply = json.loads(message)
            parameters = reply.get("parameters") or {}
            error = reply.get("error")
            continues = reply.get("continues") is True
        except (ValueError, AttributeError) as problem:
            raise _errors.Malformed(f"stewardd answered what this program does not understand: {problem}") from problem
        if error is not None:
            raise _errors.from_wire(str(error), parameters)
        return parameters, continues

    def read_more(self) -> None:
        try:
            chunk = self.socket.recv(_CHUNK_BYTES)
        except BlockingIOError:
            raise
        except socket.timeout as error:
            raise _errors.Broken(f"stewardd did not answer within {_ANSWER_TIMEOUT_S:.0f} s") from error
        except OSError as error:
            raise _errors.Broken(f"the connection to stewardd broke: {error}") from error
        if not chunk:
            raise _errors.Broken("stewardd closed the connection without an answer; its log says why")
        self._buffer += chunk

    def close(self) -> None:
        self.socket.close()


class Events(Iterator[Json]):
    """The replies of a stream, on a connection of its own: an iterator that waits for each.

    A program with a loop of its own waits for fileno() to become readable, and then calls next_ready() until that
    returns None.
    """

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection
        self._finished = False

    def __iter__(self) -> Events:
        return self

    def __next__(self) -> Json:
        if self._finished:
            raise StopIteration
        try:
            reply, continues = self._connection.receive()
        except _errors.Error:
            self.close()
            raise
        if not continues:
            self.close()
        return reply

    def next_ready(self) -> Optional[Json]:
        """The next reply if it is here already, or None until more comes. Raises Broken once the stream has ended."""
        if self._finished:
            raise _errors.Broken("the stream has ended")
        try:
            received = self._connection.received()
            if received is None:
                self._connection.socket.setblocking(False)
                try:
                    while received is None:
                        self._connection.read_more()
                        received = self._connection.received()
                except BlockingIOError:
                    return None
                finally:
                    self._connection.socket.setblocking(True)
        except _errors.Error:
            self.close()
            raise
        reply, continues = received
        if not continues:
            self.close()
        return reply

    def fileno(self) -> int:
        """The descriptor to wait for, as select and selectors want it."""
        return self._connection.socket.fileno()

    def close(self) -> None:
        """Ends the stream."""
        self._finished = True
        self._connection.close()

    def __enter__(self) -> Events:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()


class Client:
    """A connection to the daemon. Threads may share one: calls wait for each other.

    What calls return is the reply of the interface io.steward as a dictionary. Every call raises ApiError (PermissionDenied,
    NoSuchTask and so on) when the daemon refuses, and Broken or Malformed when there was no answer.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._connection = _Connection(path)
        self._connection.socket.settimeout(_ANSWER_TIMEOUT_S)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection. What was reserved stays."""
        self._connection.close()

    def call(self, method: str, **parameters: Any) -> Json:
        """Calls any method that has one reply ("Explain", or a full name); parameters that are None are left out."""
        with self._lock:
            try:
                self._connection.send(_full(method), _given(parameters))
                reply, _ = self._connection.receive()
            except (_errors.Broken, _errors.Malformed):
                # An answer that comes too late must not be taken for that of the next call.
                self._connection.close()
                raise
        return reply

    def stream(self, method: str, **parameters: Any) -> Events:
        """Calls a method that answers with a stream, on a connection of its own."""
        connection = _Connection(self._path)
        try:
            connection.send(_full(method), _given(parameters), more=True)
        except _errors.Error:
            connection.close()
            raise
        return Events(connection)

    # Processes

    def run(
        self,
        cpu: Optional[AnyReservation] = None,
        *,
        inherit: Optional[bool] = None,
        revocable: Optional[bool] = None,
        keep_if_refused: Optional[bool] = None,
        domain: Optional[str] = None,
        memory_min: Optional[int] = None,
        memory_max: Optional[int] = None,
        protect: Optional[int] = None,
        io: Optional[str] = None,
        disk: Optional[float] = None,
        io_max_bytes: Optional[int] = None,
        io_max_requests: Optional[int] = None,
        memory_pressure: Optional[bool] = None,
    ) -> Json:
        """For this process. With cpu ("5ms/30ms"), reserves it and keeps it over exec; without, and without domain, lets
        the process take up the specification of the next program that it executes. With domain, moves it there first.
        With memory_min, memory_max (bytes), protect (nanoseconds: how long a page may go unused before it may be taken), io
        ("interactive", "normal", "background"), disk (a fraction of the disk's time), io_max_bytes or io_max_requests (at most
        so many a second of each disk), moves it to a domain of its own that has these, below domain if given.
        With memory_pressure, the reply may have the FIFO that the program is to have in MEMORY_PRESSURE_WATCH.
        """
        return self.call(
            "Run",
            cpu=_wire(cpu),
            inherit=inherit,
            revocable=revocable,
            keep_if_refused=keep_if_refused,
            domain=domain,
            memory_min=memory_min,
            memory_max=memory_max,
            protect=protect,
            io=io,
            disk=disk,
            io_max_bytes=io_max_bytes,
            io_max_requests=io_max_requests,
            memory_pressure=memory_pressure,
        )

    def set(
        self,
        pid: int,
        cpu: AnyReservation,
        *,
        inherit: Optional[bool] = None,
        revocable: Optional[bool] = None,
        keep_if_refused: Optional[bool] = None,
        requests_at: Optional[int] = None,
    ) -> Json:
        """Reserves for a running process: its main thread, or with inherit all its threads and their children.
        requests_at is the address, in its own memory, of a number of 32 bits that a server's thread changes when it
        begins with another request.
        """
        return self.call(
            "Set",
            pid=pid,
            cpu=_wire(cpu),
            inherit=inherit,
            revocable=revocable,
            keep_if_refused=keep_if_refused,
            requests_at=requests_at,
        )

    def release(self, pid: int) -> int:
        """Makes a running process best-effort; returns how many of its threads had a reservation."""
        return int(self.call("Release", pid=pid)["released"])

    def complain(self, missed: int, of: Optional[str] = None) -> int:
        """Says that this process was too late missed times (1 to 1,000,000) since it last said so: frames, deadlines,
        requests. steward tune goes by it. Returns the sum so far.
        """
        return int(self.call("Complain", missed=missed, of=of)["complaints"])

    def status(self) -> Json:
        """Everything, at one moment."""
        return self.call("Status")

    def explain(self, pid: int) -> Json:
        """Why a process has what it has, in sentences."""
        return self.call("Explain", pid=pid)

    def list_specs(self) -> Json:
        """The specifications in force, and what is wrong with the others."""
        return self.call("ListSpecs")

    def list_events(self) -> Json:
        """The latest decisions, oldest first."""
        return self.call("ListEvents")

    def reload(self) -> Json:
        """Has the daemon read its configuration and specifications again."""
        return self.call("Reload")

    # Domains

    def domain_list(self) -> Json:
        """All domains, parents before children, and the order among them."""
        return self.call("ListDomains")

    def domain_show(self, domain: Optional[str] = None, *, pid: Optional[int] = None) -> Json:
        """One domain with its own processes: by name, by a process in it, or with neither that of this process."""
        return self.call("ShowDomain", domain=domain, pid=pid)

    def domain_create(
        self,
        domain: str,
        *,
        user: Optional[int] = None,
        keep: Optional[bool] = None,
        **settings: Any,
    ) -> Json:
        """Makes a domain. settings are of priority, weight, own_priority, own_weight, cpu, cpu_reservable, memory_min,
        memory_max (bytes), protect (nanoseconds), io ("interactive", "normal", "background"), disk, io_max_bytes,
        io_max_requests (a second): cpu=0.2 reserves a fifth of what the parent has. It goes away with its last process
        unless keep is true.
        """
        return self.call("CreateDomain", domain=domain, user=user, keep=keep, settings=_settings(settings))

    def domain_set(
        self,
        domain: str,
        *,
        user: Optional[int] = None,
        keep: Optional[bool] = None,
        reset: Sequence[str] = (),
        **settings: Any,
    ) -> Json:
        """Changes what a domain has, at once; settings as for domain_create(). Those named in reset get their default
        again. Nothing is changed when any part of it is refused.
        """
        wire = _settings(settings) or {}
        if reset:
            wire["reset"] = list(reset)
        return self.call("SetDomain", domain=domain, user=user, keep=keep, settings=wire or None)

    def domain_remove(self, domain: str, *, kill: Optional[bool] = None) -> Json:
        """Removes a domain with all below it. Its processes move to its parent, or end with kill."""
        return self.call("RemoveDomain", domain=domain, kill=kill)

    def domain_move(self, domain: str, pid: Optional[int] = None) -> Json:
        """Moves a process, or this one, with all its threads to a domain that Steward made."""
        return self.call("MoveProcess", domain=domain, pid=pid)

    def memory_set(
        self,
        pid: int,
        *,
        memory_min: Optional[int] = None,
        memory_max: Optional[int] = None,
        protect: Optional[int] = None,
        reset: Sequence[str] = (),
    ) -> Json:
        """Promises memory to a running process and those that descend from it (bytes), allows them at most so much, or
        keeps what they use (nanoseconds), in the domain that they have to themselves or else in one of their own, to
        which they are moved. What reset names is taken back.
        """
        return self.call(
            "SetMemory",
            pid=pid,
            memory_min=memory_min,
            memory_max=memory_max,
            protect=protect,
            reset=list(reset) or None,
        )

    def domain_suspend(self, domain: str, suspended: bool = True) -> bool:
        """Suspends a domain with all below it, or resumes it. It goes on when this client is closed, too. Returns
        whether it is suspended now, by this client or another.
        """
        return bool(self.call("SuspendDomain", domain=domain, suspended=suspended)["suspended"])

    def domain_lower(self, domain: str, lowered: bool = True) -> bool:
        """Lowers a domain behind all its siblings, or no longer. It has its own place again when this client is closed,
        too. Returns whether it is lowered now, by this client or another.
        """
        return bool(self.call("LowerDomain", domain=domain, lowered=lowered)["lowered"])

    def domain_audit(self, domain: Optional[str] = None) -> Json:
        """Whether a domain (unless named, that of this process) got what it was promised in the last minute, hour and
        day.
        """
        return self.call("AuditDomain", domain=domain)

    def domain_explain(self, domain: Optional[str] = None) -> Json:
        """Why a domain (unless named, that of this process) has the memory that it has, in sentences, and what was decided
        about it.
        """
        return self.call("ExplainDomain", domain=domain)

    # Forecasts

    def forecasts(
        self,
        domain: Optional[str] = None,
        *,
        pid: Optional[int] = None,
        domains_only: Optional[bool] = None,
    ) -> Json:
        """What all tasks and domains, or those of a domain or process, got, wanted, will get and could get of the CPU,
        in milliseconds per second.
        """
        return self.call("ListForecasts", domain=domain, pid=pid, domains_only=domains_only)

    # Streams

    def watch_forecasts(
        self,
        domain: Optional[str] = None,
        *,
        pid: Optional[int] = None,
        domains_only: Optional[bool] = None,
        every_ms: Optional[int] = None,
        slowed: Optional[bool] = None,
    ) -> Events:
        """The same again and again, every 100 ms unless every_ms (100 to 60,000) says otherwise; with slowed, also who
        outside of the domain is slowed, and by what.
        """
        return self.stream(
            "WatchForecasts", domain=domain, pid=pid, domains_only=domains_only, every_ms=every_ms, slowed=slowed
        )

    def monitor(self, *, history: Optional[bool] = None) -> Events:
        """The decisions as they are taken, first those that the daemon remembers with history: {"event", "lost"}."""
        return self.stream("Monitor", history=history)

    def watch_availability(self, domain: Optional[str] = None) -> Events:
        """How much memory a domain, unless named that of this process, may use (bytes): at once, and then each change
        of 5 % or more. AvailabilityWatcher does the same beyond the end of this daemon.
        """
        return self.stream("WatchAvailability", domain=domain)

    def watch_domains(self, *, present: Optional[bool] = None) -> Events:
        """The changes among domains as they happen, first all that there are with present."""
        return self.stream("WatchDomains", present=present)


_SETTINGS: List[str] = [
    "priority",
    "weight",
    "own_priority",
    "own_weight",
    "cpu",
    "cpu_reservable",
    "memory_min",
    "memory_max",
    "protect",
    "io",
    "disk",
    "io_max_bytes",
    "io_max_requests",
]


def _settings(settings: Json) -> Optional[Json]:
    for name in settings:
        if name not in _SETTINGS:
            raise TypeError(f"{name} is no setting of a domain; there are {', '.join(_SETTINGS)}")
    return _given(settings) or None


def _full(method: str) -> str:
    return method if "." in method else f"io.steward.{method}"


def _given(parameters: Json) -> Json:
    return {name: value for name, value in parameters.items() if value is not None}


def _wire(cpu: Optional[AnyReservation]) -> Optional[Json]:
    return None if cpu is None else dict(Reservation.of(cpu).to_wire())
