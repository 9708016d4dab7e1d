"""The client against a socket that says what a test wants, and against a daemon where there is one.

A test of the daemon's own starts one and names its socket in STEWARD_TEST_SOCKET; without it those tests are skipped.
"""

import collections
import inspect
import json
import os
import pathlib
import re
import select
import socket
import tempfile
import threading
import unittest

import steward

INTERFACE = pathlib.Path(__file__).resolve().parents[2] / "crates/libsteward/src/io.steward.varlink"
DAEMON = os.environ.get("STEWARD_TEST_SOCKET")


class Scripted:
    """A daemon that answers each connection with fixed bytes and remembers what it was asked."""

    def __init__(self, *answers):
        self.directory = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.directory.name, "socket")
        self.asked = []
        self.answers = list(answers)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen()
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        for answer in self.answers:
            connection, _ = self.listener.accept()
            with connection:
                message = b""
                while not message.endswith(b"\0"):
                    chunk = connection.recv(4096)
                    if not chunk:
                        return
                    message += chunk
                self.asked.append(json.loads(message[:-1]))
                for part in answer if isinstance(answer, list) else [answer]:
                    connection.sendall(part)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        # Wakes a server that waits for a connection that does not come.
        if self.thread.is_alive():
            with socket.socket(socket.AF_UNIX) as waker:
                waker.connect(self.path)
        self.listener.close()
        self.directory.cleanup()


def reply(parameters, **more):
    return json.dumps({"parameters": parameters, **more}).encode() + b"\0"


class Calls(unittest.TestCase):
    def test_a_call_carries_what_was_given_and_nothing_else(self):
        with Scripted(reply({"standing": "admitted"})) as daemon, steward.connect(daemon.path) as client:
            self.assertEqual(client.run(cpu="5ms/30ms", inherit=True), {"standing": "admitted"})
        cpu = {"budget_ns": 5_000_000, "period_ns": 30_000_000}
        self.assertEqual(daemon.asked, [{"method": "io.steward.Run", "parameters": {"cpu": cpu, "inherit": True}}])

    def test_settings_of_a_domain_travel_together(self):
        with Scripted(reply({})) as daemon, steward.connect(daemon.path) as client:
            client.domain_set("batch", cpu=0.25, reset=["weight"])
        settings = {"cpu": 0.25, "reset": ["weight"]}
        self.assertEqual(daemon.asked[0]["parameters"], {"domain": "batch", "settings": settings})
        with Scripted(reply({})) as daemon, steward.connect(daemon.path) as client:
            with self.assertRaisesRegex(TypeError, "cpus is no setting"):
                client.domain_create("batch", cpus=1)

    def test_a_refusal_is_an_exception_of_its_name_with_what_was_said(self):
        refusal = {"error": "io.steward.PermissionDenied", "parameters": {"reason": "user 7 may not"}}
        with Scripted(json.dumps(refusal).encode() + b"\0") as daemon, steward.connect(daemon.path) as client:
            with self.assertRaises(steward.PermissionDenied) as caught:
                client.release(1)
        self.assertEqual(str(caught.exception), "PermissionDenied: user 7 may not")
        self.assertEqual(caught.exception.name, "io.steward.PermissionDenied")

    def test_an_error_that_is_not_known_keeps_its_name(self):
        with Scripted(b'{"error":"a.B","parameters":{"x":1}}\0') as daemon, steward.connect(daemon.path) as client:
            with self.assertRaises(steward.ApiError) as caught:
                client.status()
        self.assertEqual((caught.exception.name, str(caught.exception)), ("a.B", "B: x 1"))

    def test_a_daemon_that_is_starting_is_waited_for_and_one_that_has_ended_is_not(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "socket")
            daemon = socket.socket(socket.AF_UNIX)
            daemon.bind(path)
            connected = []
            waits = threading.Thread(target=lambda: connected.append(steward.connect(path)))
            waits.start()
            # Whether it has asked by now or asks later, it gets in.
            daemon.listen()
            waits.join()
            self.assertEqual(len(connected), 1)
            connected[0].close()
            daemon.close()
            with self.assertRaisesRegex(steward.CannotConnect, "is it running"):
                steward.connect(path)

    def test_a_daemon_that_is_not_there_or_talks_nonsense_is_an_error_of_ours(self):
        with self.assertRaisesRegex(steward.CannotConnect, "/no/such/socket"):
            steward.connect("/no/such/socket")
        for answer, kind in [(b"", steward.Broken), (b"{]\0", steward.Malformed), (b"[]\0", steward.Malformed)]:
            with Scripted(answer) as daemon, steward.connect(daemon.path) as client:
                with self.assertRaises(kind):
                    client.status()
                with self.assertRaises(steward.Broken):
                    client.status()

    def test_a_reply_that_comes_in_pieces_is_put_together(self):
        whole = reply({"released": 3})
        with Scripted([whole[:5], whole[5:]]) as daemon, steward.connect(daemon.path) as client:
            self.assertEqual(client.release(1), 3)


class Streams(unittest.TestCase):
    def test_a_stream_gives_each_reply_and_ends_with_the_last(self):
        replies = [reply({"lost": 0}, continues=True), reply({"lost": 1})]
        with Scripted(b"".join(replies)) as daemon:
            events = steward._client.Events(connected(daemon.path))
            self.assertEqual([event["lost"] for event in events], [0, 1])
            with self.assertRaises(steward.Broken):
                events.next_ready()

    def test_what_has_come_is_given_without_waiting(self):
        one, other = socket.socketpair()
        with one, other:
            connection = steward._client._Connection.__new__(steward._client._Connection)
            connection._buffer, connection._scanned, connection.socket = bytearray(), 0, one
            events = steward._client.Events(connection)
            self.assertIsNone(events.next_ready())
            other.sendall(reply({"lost": 0}, continues=True) + b'{"para')
            self.assertEqual(select.select([events], [], [], 10)[0], [events])
            self.assertEqual(events.next_ready(), {"lost": 0})
            self.assertIsNone(events.next_ready())
            other.sendall(b'meters":{"lost":1},"continues":true}\0')
            self.assertEqual(next(events), {"lost": 1})


def told(available):
    return reply({"domain": "a", "at_ns": 1, "used": 7, "available": available, "available_at_once": available,
                  "time_to_free_ns": 0}, continues=True)


class Availabilities(unittest.TestCase):
    def test_what_is_told_is_known_until_the_next_and_while_the_daemon_starts_again(self):
        with Scripted(told(100) + told(200), told(50)) as daemon:
            with steward.AvailabilityWatcher("a", path=daemon.path) as watcher:
                # The first daemon says two things and goes; the next is found without being asked to.
                seen = []
                while 50 not in seen:
                    self.assertEqual(select.select([watcher], [], [], 60)[0], [watcher])
                    seen.append(watcher.poll().available)
                self.assertIn(200, seen)
                self.assertEqual(watcher.poll(), ("a", 1, 7, 50, 50, 0))
                self.assertEqual(select.select([watcher], [], [], 0)[0], [])
                self.assertIsNone(watcher.wait(0.001))
        asked = {"method": "io.steward.WatchAvailability", "parameters": {"domain": "a"}, "more": True}
        self.assertEqual(daemon.asked, [asked, asked])

    def test_a_callback_is_called_until_the_watcher_is_closed(self):
        called = []
        with Scripted(told(100) + told(200)) as daemon:
            watcher = steward.AvailabilityWatcher(path=daemon.path, callback=called.append)
            while len(called) < 2:
                watcher.wait(0.01)
            watcher.close()
        self.assertEqual([one.available for one in called], [100, 200])
        self.assertEqual(daemon.asked[0]["parameters"], {})

    def test_without_a_daemon_nothing_is_known_and_the_reason_is(self):
        with steward.AvailabilityWatcher(path="/no/such/socket") as watcher:
            while watcher.problem is None:
                watcher.wait(0.01)
            self.assertIsInstance(watcher.problem, steward.CannotConnect)
            self.assertIsNone(watcher.poll())
            watcher.close()
            self.assertEqual(list(watcher), [])

    def test_it_tells_all_that_is_described(self):
        replies = re.findall(r"method WatchAvailability\([^)]*\) -> \(([^)]*)\)", INTERFACE.read_text())
        self.assertEqual(re.findall(r"(\w+):", replies[0]), list(steward.Availability._fields))


def connected(path):
    connection = steward._client._Connection(path)
    connection.send("io.steward.Monitor", {}, more=True)
    return connection


class Reservations(unittest.TestCase):
    def test_a_reservation_is_read_as_people_write_it(self):
        self.assertEqual(steward.Reservation.of("0.5ms/1s"), (500_000, 1_000_000_000))
        self.assertEqual(steward.Reservation.of((1, 2)), (1, 2))
        for text in ["5ms", "5/30", "ms/30ms", "-5ms/30ms", "0.0000001us/1s", "5ms/30m"]:
            with self.assertRaises(ValueError, msg=text):
                steward.Reservation.of(text)


def described(kind):
    """What the description says of the types or methods: by name, the fields or parameters with what they hold."""
    text = re.sub(r"#[^\n]*", "", INTERFACE.read_text())
    found = re.findall(rf"\b{kind} (\w+)\s*\(([^)]*)\)", text)
    return {name: dict(re.findall(r"(\w+):\s*(\??[\w\[\]]+)", fields)) for name, fields in found}


def flattened(kind, before=""):
    """The fields of a type with what they hold; those of a field that is a type itself have its name before theirs."""
    types = described("type")
    flat = {}
    for name, holds in types[kind].items():
        below = holds.lstrip("?")
        if types.get(below):
            flat.update(flattened(below, f"{before}{name}_"))
        else:
            flat[before + name] = below
    return flat


def enumerations():
    """The types that are one of some names: by the type, the first of them."""
    text = re.sub(r"#[^\n]*", "", INTERFACE.read_text())
    return dict(re.findall(r"\btype (\w+)\s*\(\s*(\w+)\s*[,)]", text))


#: A value for what a field or parameter holds, and for what an argument is said to be.
VALUES = {"int": 7, "float": 0.5, "bool": True, "string": "text", **enumerations()}
ARGUMENTS = [("Reservation", "5ms/30ms"), ("Sequence", ("cpu",)), ("bool", True), ("int", 7), ("float", 0.5), ("str", "text")]


class Recording(steward.Client):
    """A client without a connection, which remembers what it would call."""

    def __init__(self):
        self.called = {}

    def call(self, method, **parameters):
        self.called[method] = parameters
        return collections.defaultdict(int)

    stream = call


class Interface(unittest.TestCase):
    def called(self):
        """What every function of the client calls when it is given every argument that it takes."""
        client = Recording()
        for name, function in inspect.getmembers(steward.Client, inspect.isfunction):
            if name.startswith("_") or name in ("call", "stream", "close"):
                continue
            arguments = {}
            for argument in list(inspect.signature(function).parameters.values())[1:]:
                if argument.kind == argument.VAR_KEYWORD:
                    settings = flattened("DomainSettings").items()
                    arguments.update({name: VALUES[holds] for name, holds in settings if name != "reset"})
                else:
                    said = str(argument.annotation)
                    arguments[argument.name] = next(value for part, value in ARGUMENTS if part in said)
            function(client, **arguments)
        return client.called

    def test_every_error_of_the_interface_has_its_name_here(self):
        errors = re.findall(r"^error (\w+)", INTERFACE.read_text(), re.MULTILINE)
        self.assertGreater(len(errors), 8)
        for error in errors:
            self.assertTrue(issubclass(getattr(steward, error), steward.ApiError), error)
            self.assertIs(steward._errors._BY_NAME[f"io.steward.{error}"], getattr(steward, error))

    def test_every_method_takes_the_parameters_that_are_described(self):
        methods, called = described("method"), self.called()
        self.assertGreater(len(methods), 20)
        self.assertEqual(sorted(called), sorted(methods))
        for method, parameters in methods.items():
            self.assertEqual(sorted(called[method]), sorted(parameters), method)
            for name, holds in parameters.items():
                # One of some names is a text to whoever calls.
                plain = VALUES["string"] if holds.lstrip("?") in enumerations() else VALUES.get(holds.lstrip("?"))
                if plain is not None:
                    self.assertEqual(called[method][name], plain, f"{name} of {method}")

    def test_reservations_and_settings_have_the_fields_that_are_described(self):
        self.assertEqual(sorted(steward._client._SETTINGS + ["reset"]), sorted(flattened("DomainSettings")))
        called = self.called()
        self.assertEqual(sorted(called["SetDomain"]["settings"]), sorted(flattened("DomainSettings")))
        for method in ("Run", "Set"):
            self.assertEqual(sorted(called[method]["cpu"]), sorted(described("type")["Reservation"]))


@unittest.skipUnless(DAEMON, "no daemon to talk to (STEWARD_TEST_SOCKET)")
class WithDaemon(unittest.TestCase):
    def setUp(self):
        self.client = steward.connect(DAEMON)
        self.addCleanup(self.client.close)

    def test_this_process_gets_and_loses_a_reservation(self):
        self.assertEqual(self.client.run(cpu="1ms/100ms"), {"standing": "admitted"})
        pids = [task["pid"] for task in self.client.status()["cpu"]["tasks"]]
        self.assertIn(os.getpid(), pids)
        self.assertEqual(self.client.release(os.getpid()), 1)
        self.assertIn("best-effort", self.client.explain(os.getpid())["text"])
        with self.assertRaises(steward.AdmissionRefused):
            self.client.set(os.getpid(), "99ms/100ms")
        with self.assertRaises(steward.NoSuchTask):
            self.client.release(999_999_999)

    def test_a_domain_is_made_changed_and_removed(self):
        made = self.client.domain_create("python", cpu=0.5, weight=200, keep=True)["domain"]
        self.assertEqual((made["name"], made["cpu"], made["weight"]), ("python", 0.5, 200))
        with self.assertRaises(steward.DomainExists):
            self.client.domain_create("python")
        with self.assertRaises(steward.Overcommitted) as caught:
            self.client.domain_create("too-much", cpu=0.9)
        self.assertEqual(caught.exception.parameters["asked"], 0.9)
        with self.assertRaises(steward.InvalidParameter):
            self.client.domain_set("python", cpu=1.5)
        changed = self.client.domain_set("python", reset=["cpu"])["domain"]
        self.assertIsNone(changed.get("cpu"))
        self.assertIn("python", [domain["name"] for domain in self.client.domain_list()["domains"]])
        self.client.domain_remove("python")
        with self.assertRaises(steward.NoSuchDomain):
            self.client.domain_show("python")

    def test_streams_tell_what_happens(self):
        with self.client.watch_domains(present=True) as changes, self.client.monitor(history=False) as decisions:
            self.assertIn("domain", next(changes))
            # A second stream's call is taken by the time that a later call of another is answered.
            self.client.status()
            self.client.domain_create("streamed")
            kinds = (change["event"]["kind"] for change in changes if change.get("event"))
            self.assertEqual(next(kinds), "domain_created")
            self.assertEqual(next(decisions)["event"]["domain"]["name"], "streamed")
            self.client.domain_remove("streamed")

    def test_forecasts_are_given_once_and_again(self):
        once = self.client.forecasts(domains_only=True)
        self.assertEqual((once["domains"][0]["name"], once["tasks"]), ("/", []))
        with self.client.watch_forecasts("/", every_ms=100) as replies:
            self.assertGreater(next(replies)["at_ns"], 0)
        with self.assertRaises(steward.NoSuchTask):
            self.client.forecasts(pid=999_999_999)

    def test_a_domain_is_suspended_until_it_is_let_go(self):
        self.client.domain_create("held", keep=True)
        self.assertTrue(self.client.domain_suspend("held"))
        self.assertFalse(self.client.domain_suspend("held", False))
        self.client.domain_remove("held")

    def test_a_domain_is_lowered_until_it_is_raised(self):
        self.client.domain_create("low", keep=True)
        self.assertTrue(self.client.domain_lower("low"))
        self.assertTrue(self.client.domain_show("low")["domain"]["lowered"])
        self.assertFalse(self.client.domain_lower("low", False))
        self.client.domain_remove("low")

    def test_how_much_memory_there_is_is_told(self):
        with steward.AvailabilityWatcher("/", path=DAEMON) as watcher:
            told = next(watcher)
        self.assertEqual(told.domain, "/")
        self.assertGreater(told.available, 0)
        with self.client.watch_availability("/") as replies:
            self.assertEqual(next(replies)["available"], told.available)
        with steward.AvailabilityWatcher("no-such-domain", path=DAEMON) as watcher:
            while watcher.problem is None:
                watcher.wait(0.01)
            self.assertIsInstance(watcher.problem, steward.NoSuchDomain)

    def test_complaints_are_counted(self):
        before = self.client.complain(1)
        self.assertEqual(self.client.complain(2, of="frames"), before + 2)

    def test_threads_share_a_client(self):
        problems = []

        def ask():
            try:
                for _ in range(50):
                    self.client.domain_list()
            except steward.Error as error:
                problems.append(error)

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(problems, [])


if __name__ == "__main__":
    unittest.main()
