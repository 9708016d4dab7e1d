"""How much memory a program may use, kept up to date while the daemon comes and goes."""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from types import TracebackType
from typing import Callable, Iterator, NamedTuple, Optional, Type, Union

from . import _client, _errors

#: From losing the daemon to the first attempt to reach it again; later ones come when it has been gone twice as long.
_RETRY_AFTER_S = 0.25
_RETRY_AFTER_MAX_S = 10.0
#: What was told is believed for so long after the daemon has gone: longer than it takes to start again.
_BELIEVED_FOR_S = 10.0


class Availability(NamedTuple):
    """How much memory a domain may use."""

    #: Whom it is about: the domain, or the nearest one above it whose memory is counted.
    domain: str
    #: When it was read, in nanoseconds of CLOCK_MONOTONIC.
    at_ns: int
    #: What it used then with all below it, in bytes.
    used: int
    #: How much it may use, in bytes: what it uses, what nobody uses, and what it can take back from those who use more
    #: than their part. Less than it uses where others lack what it has more than its part.
    available: int
    #: What of that it can have at once, in bytes: what it uses, what is free, and clean pages of files of those who would
    #: pay.
    available_at_once: int
    #: How long it takes at most until it can have the rest, in nanoseconds.
    time_to_free_ns: int


class AvailabilityWatcher(Iterator[Availability]):
    """Watches how much memory a domain, unless named that of this process, may use.

    It has a thread of its own, works without a daemon, and finds the daemon again when that starts again. Ask it with
    poll(); wait with wait() or by iterating; in a loop of your own, wait for fileno() to become readable and then call
    poll(); or give a callback, which the thread calls with each Availability. After a fork make another one.
    """

    def __init__(
        self,
        domain: Optional[str] = None,
        *,
        path: Union[str, "os.PathLike[str]", None] = None,
        callback: Optional[Callable[[Availability], object]] = None,
    ) -> None:
        self._path = path
        self._domain = domain
        self._callback = callback
        self._changed = threading.Condition()
        self._latest: Optional[Availability] = None
        self._is_new = False
        self._ended = False
        self._lost_at: Optional[float] = None
        self._problem: Optional[_errors.Error] = None
        self._news, self._bell = socket.socketpair()
        self._stopped, self._stop = socket.socketpair()
        for end in (self._news, self._bell):
            end.setblocking(False)
        self._thread = threading.Thread(target=self._follow, name="steward", daemon=True)
        self._thread.start()

    def poll(self) -> Optional[Availability]:
        """What was told last, without waiting; None before the first time, and when the daemon has been gone for ten
        seconds.
        """
        with self._changed:
            return self._take()

    def wait(self, timeout_s: Optional[float] = None) -> Optional[Availability]:
        """Waits until something is told that was not given yet; None when the time is over, or this is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_new or self._ended, timeout_s)
            return self._take() if self._is_new else None

    @property
    def problem(self) -> Optional[_errors.Error]:
        """Why nothing is told, where the daemon cannot be reached or has refused."""
        return self._problem

    def fileno(self) -> int:
        """Readable when something was told that was not given yet, as select and selectors want it."""
        return self._news.fileno()

    def __iter__(self) -> AvailabilityWatcher:
        return self

    def __next__(self) -> Availability:
        told = self.wait()
        if told is None:
            raise StopIteration
        return told

    def close(self) -> None:
        """Ends the thread, and waits for a callback that is in progress."""
        self._stop.close()
        if self._thread is not threading.current_thread():
            self._thread.join()
            for end in (self._news, self._bell, self._stopped):
                end.close()

    def __enter__(self) -> AvailabilityWatcher:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()

    def _take(self) -> Optional[Availability]:
        """With the lock held."""
        self._is_new = False
        try:
            self._news.recv(64)
        except OSError:
            pass
        if self._lost_at is not None and time.monotonic() - self._lost_at >= _BELIEVED_FOR_S:
            self._latest = None
        return self._latest

    def _follow(self) -> None:
        try:
            self._follow_until_stopped()
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    def _follow_until_stopped(self) -> None:
        lost_at = time.monotonic()
        is_told = False
        while True:
            try:
                connection = _client._Connection(_client._where(self._path), 0.0)
                with _client.Events(connection) as events:
                    asked = _client._given({"domain": self._domain})
                    connection.send("io.steward.WatchAvailability", asked, more=True)
                    while self._has_come(events):
                        while (reply := events.next_ready()) is not None:
                            is_told = True
                            self._tell(Availability(*(reply[name] for name in Availability._fields)))
                    return
            except _errors.Error as error:
                now = time.monotonic()
                lost_at = now if is_told else lost_at
                is_told = False
                with self._changed:
                    self._problem, self._lost_at = error, self._lost_at or now
                if self._is_stopped(min(max(now - lost_at, _RETRY_AFTER_S), _RETRY_AFTER_MAX_S)):
                    return

    def _has_come(self, events: _client.Events) -> bool:
        """Waits until there is something to read; False when there will not be."""
        waits = select.poll()
        waits.register(events, select.POLLIN)
        waits.register(self._stopped, select.POLLIN)
        return self._stopped.fileno() not in (descriptor for descriptor, _ in waits.poll())

    def _is_stopped(self, within_s: float) -> bool:
        waits = select.poll()
        waits.register(self._stopped, select.POLLIN)
        return bool(waits.poll(within_s * 1000))

    def _tell(self, told: Availability) -> None:
        with self._changed:
            self._latest, self._is_new, self._lost_at, self._problem = told, True, None, None
            try:
                self._bell.send(b"x")
            except OSError:
                pass
            self._changed.notify_all()
        if self._callback is not None:
            self._callback(told)
