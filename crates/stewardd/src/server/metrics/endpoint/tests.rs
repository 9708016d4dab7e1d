//! The text is held to the format, and the endpoint to its limits, on loopback.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Stdio};
use std::thread::JoinHandle;

use libsteward::api;
use steward_core::cpu::audit::Tally;
use steward_core::cpu::forecast::Forecast;
use steward_core::cpu::mechanism::{MechanismKind, Standing};
use steward_core::disk::explain::{Lately, Use};
use steward_core::disk::latency::Histogram;
use steward_core::disk::minute::Done;
use steward_core::disk::waits::Reason;
use steward_core::memory;

use super::*;
use crate::server::metrics::disk::DiskWork;
use crate::server::metrics::{DomainFigures, MemoryFigures};

fn disk_work() -> DiskWork {
    let mut done = Done { max_ns: 500_000_000, ..Done::default() };
    done.latencies.0[Histogram::step_of(10_000_000)] = 99;
    done.latencies.0[Histogram::step_of(500_000_000)] = 1;
    DiskWork {
        device_ns: Some(750_000_000),
        lately: Some(Lately { seen_ns: 60_000_000_000, done }),
        waits: BTreeMap::from([(Reason::Journal, (2, 250_000_000))]),
        dirty_bytes: Some(12_288),
    }
}

fn figures() -> Figures {
    let tally = Tally { promised_ns: 2_500_000_000, seconds: 7, broken: 2, ..Tally::default() };
    let of_memory = memory::audit::Tally { stalled_ns: 1_500_000_000, refaults: 3, ..Default::default() };
    let memory = MemoryFigures {
        used_bytes: 5 << 30,
        kept_bytes: Some(7),
        taken_bytes: 9,
        available_bytes: Some(6 << 30),
        held_back_ns: 2_250_000_000,
        activity: Some(api::Activity {
            lapsed: true,
            idle_ns: 1_900_000_000_000,
            used_ns: 70_000_000_000,
            ..api::Activity::default()
        }),
        audit: Some(of_memory),
        broken_by: BTreeMap::from([("batch".to_owned(), 4), (String::new(), 2)]),
        ..MemoryFigures::default()
    };
    let web = DomainFigures {
        name: "web/\"front\"\\ \u{e9}".to_owned(),
        reserved: 0.25,
        best_effort_ns: 1_500_000_000,
        waited_ns: 20,
        audit: Some(tally),
        memory: Some(memory),
        disk: Some(Use {
            read_bytes: 4096,
            written_bytes: 8192,
            requests: 3,
            device_time_ns: Some(250_000_000),
            stalled_ns: 1_500_000_000,
        }),
        disk_work: disk_work(),
        ..DomainFigures::default()
    };
    let root = DomainFigures { name: "/".to_owned(), best_effort_ns: u64::MAX, ..DomainFigures::default() };
    Figures {
        version: "1.2.3".to_owned(),
        mechanism: Some(MechanismKind::SchedExt),
        cpus: 4,
        tasks: vec![(Standing::Admitted, 3), (Standing::Refused, 0)],
        decisions: vec![("admitted", 5), ("domain-refused", 1)],
        forecast: Forecast { desired_ms_per_s: 2500.0, ..Forecast::default() },
        spent_on_disks_ns: vec![("looks", 1_500_000_000)],
        domains: vec![root, web],
        ..Figures::default()
    }
}

/// Holds a text against the rules of OpenMetrics 1.0 that a scraper depends on. Returns the samples.
fn parse(text: &str) -> BTreeMap<String, f64> {
    let body = text.strip_suffix("# EOF\n").expect("it ends with # EOF");
    let (mut families, mut samples) = (BTreeMap::new(), BTreeMap::new());
    let (mut current, mut with_unit) = (String::new(), BTreeSet::new());
    for line in body.lines() {
        let parts: Vec<&str> = line.splitn(4, ' ').collect();
        match parts[..] {
            ["#", "HELP", name, help] => {
                assert!(!families.contains_key(name), "{name} is described twice");
                assert!(!help.is_empty() && name.starts_with("steward_"), "{line}");
                current = name.to_owned();
            }
            ["#", "TYPE", name, kind] => {
                assert_eq!(name, current);
                families.insert(name.to_owned(), kind.to_owned());
            }
            ["#", "UNIT", name, unit] => {
                assert!(name == current && name.ends_with(&format!("_{unit}")), "{line}");
                with_unit.insert(name.to_owned());
            }
            _ => {
                let (series, value) = line.rsplit_once(' ').expect("a sample has a value");
                let name = series.split('{').next().expect("a name");
                let suffix = match families.get(&current).map(String::as_str) {
                    Some("counter") => "_total",
                    Some("gauge") => "",
                    other => panic!("{line}: {other:?}"),
                };
                assert_eq!(name, format!("{current}{suffix}"), "{line}");
                assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'), "{line}");
                let value: f64 = value.parse().expect("a number");
                assert!(samples.insert(series.to_owned(), value).is_none(), "{series} twice");
            }
        }
    }
    // Every time has its unit.
    let times = families.keys().filter(|name| name.ends_with("_seconds"));
    assert!(times.clone().all(|name| with_unit.contains(name)), "{with_unit:?}");
    samples
}

#[test]
fn the_text_keeps_to_the_format_and_has_base_units() {
    let samples = parse(&text(&figures()));
    let web = "domain=\"web/\\\"front\\\"\\\\ \u{e9}\"";
    for (series, value) in [
        ("steward_build_info{version=\"1.2.3\"}".to_owned(), 1.0),
        ("steward_mechanism_in_force{mechanism=\"sched_ext\"}".to_owned(), 1.0),
        ("steward_mechanism_in_force{mechanism=\"deadline\"}".to_owned(), 0.0),
        ("steward_cpus".to_owned(), 4.0),
        ("steward_forecast_cpus{allocation=\"desired\"}".to_owned(), 2.5),
        ("steward_tasks{standing=\"admitted\"}".to_owned(), 3.0),
        ("steward_decisions_total{decision=\"domain-refused\"}".to_owned(), 1.0),
        (format!("steward_domain_reserved_ratios{{{web}}}"), 0.25),
        (format!("steward_domain_cpu_seconds_total{{{web},kind=\"best_effort\"}}"), 1.5),
        (format!("steward_domain_promised_seconds_total{{{web}}}"), 2.5),
        (format!("steward_domain_broken_seconds_total{{{web}}}"), 2.0),
        ("steward_disk_own_cpu_seconds_total{work=\"looks\"}".to_owned(), 1.5),
        (format!("steward_disk_read_bytes_total{{{web}}}"), 4096.0),
        (format!("steward_disk_written_bytes_total{{{web}}}"), 8192.0),
        (format!("steward_disk_requests_total{{{web}}}"), 3.0),
        (format!("steward_disk_stalled_seconds_total{{{web}}}"), 1.5),
        (format!("steward_disk_busy_seconds_total{{{web}}}"), 0.25),
        (format!("steward_disk_device_seconds_total{{{web}}}"), 0.75),
        (format!("steward_disk_latency_seconds{{{web},quantile=\"1\"}}"), 0.5),
        (format!("steward_disk_waits_total{{{web},reason=\"journal\"}}"), 2.0),
        (format!("steward_disk_waiting_seconds_total{{{web},reason=\"journal\"}}"), 0.25),
        (format!("steward_disk_dirty_bytes{{{web}}}"), 12_288.0),
        (format!("steward_memory_idle_seconds{{{web}}}"), 1_900.0),
        (format!("steward_memory_lapsed{{{web}}}"), 1.0),
        (format!("steward_memory_in_use_seconds_total{{{web}}}"), 70.0),
    ] {
        assert_eq!(samples.get(&series), Some(&value), "{series} in {samples:#?}");
    }
    assert!(
        !samples.contains_key("steward_domain_broken_seconds_total{domain=\"/\"}"),
        "it is promised nothing"
    );
    let unseen =
        samples.keys().filter(|series| series.starts_with("steward_disk_") && series.contains("\"/\""));
    assert_eq!(unseen.collect::<Vec<_>>(), Vec::<&String>::new(), "nothing is counted of it");
    parse(&text(&Figures::default()));
}

/// What `promtool check metrics` finds wrong with the name of a counter or gauge.
fn faults_of(name: &str) -> Vec<&'static str> {
    const ABBREVIATED: [&str; 16] =
        ["s", "ms", "us", "ns", "sec", "b", "kb", "mb", "gb", "tb", "pb", "m", "h", "d", "pct", "percent"];
    const NOT_BASE: [&str; 14] = [
        "milliseconds",
        "microseconds",
        "nanoseconds",
        "minutes",
        "hours",
        "days",
        "weeks",
        "kilobytes",
        "megabytes",
        "gigabytes",
        "bits",
        "kibibytes",
        "mebibytes",
        "percents",
    ];
    let words: Vec<&str> = name.split('_').collect();
    let has = |list: &[&str]| words.iter().any(|word| list.contains(word));
    let of_a_histogram = ["_count", "_sum", "_bucket"].iter().any(|suffix| name.ends_with(suffix));
    let checks = [
        (has(&ABBREVIATED), "an abbreviated unit"),
        (has(&NOT_BASE), "a unit that is no base unit"),
        (has(&["counter", "gauge", "histogram", "summary"]), "its type"),
        (of_a_histogram, "a suffix of histograms"),
        (
            name.bytes().any(|byte| byte.is_ascii_uppercase() || byte == b':'),
            "letters or colons of other names",
        ),
    ];
    checks.into_iter().filter_map(|(is_so, what)| is_so.then_some(what)).collect()
}

/// Samples as they are, and each described under its own name by a type that this format has.
#[test]
fn the_other_text_says_the_same_in_the_format_of_prometheus_own_tools() {
    let open_metrics = text(&figures());
    let prometheus = prometheus_text(&open_metrics);
    let samples = |text: &str| -> Vec<String> {
        text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    };
    assert_eq!(samples(&prometheus), samples(&open_metrics));
    let mut described = BTreeSet::new();
    for line in prometheus.lines() {
        match line.splitn(4, ' ').collect::<Vec<_>>()[..] {
            ["#", "HELP", name, help] => {
                assert!(described.insert(name), "{name} twice");
                assert!(!help.trim().is_empty(), "{line}");
            }
            ["#", "TYPE", name, kind] => {
                assert!(described.contains(name) && ["counter", "gauge"].contains(&kind), "{line}");
                assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
                assert_eq!(faults_of(name), <[&str; 0]>::default(), "{line}");
            }
            ["#", ..] => panic!("{line}"),
            _ => {
                let name = line.split(['{', ' ']).next().expect("a name");
                assert!(described.contains(name), "{line}");
            }
        }
    }
}

/// What Prometheus' own tool says of every family with a sample, where it is installed.
#[test]
fn promtool_finds_nothing_wrong_with_any_metric() {
    let text = prometheus_text(&text(&figures()));
    let (mut families, mut with_sample) = (BTreeSet::new(), BTreeSet::new());
    for line in text.lines() {
        match line.strip_prefix("# TYPE ").and_then(|rest| rest.split(' ').next()) {
            Some(family) => families.insert(family),
            None => with_sample.insert(line.split(['{', ' ']).next().expect("a name")),
        };
    }
    assert_eq!(families.difference(&with_sample).collect::<Vec<_>>(), <[&&str; 0]>::default());
    let mut command = Command::new("promtool");
    command.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut promtool = match command.spawn() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return println!("skipped: promtool is not installed (Debian's package prometheus has it)");
        }
        started => started.expect("it starts"),
    };
    promtool.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("it reads");
    let output = promtool.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && said.is_empty(), "{}: {said}", output.status);
}

/// An endpoint with a loop that answers until the test ends.
struct Served {
    address: MetricsAddress,
    stop: UnixStream,
    turns: Option<JoinHandle<u64>>,
}

impl Served {
    fn at(address: &MetricsAddress) -> Self {
        let endpoint = Endpoint::start(address).expect("it listens");
        let mut metrics = Metrics { wanted: None, endpoint: Some(endpoint) };
        let address = metrics.address().expect("it listens").clone();
        let (stop, stopped) = UnixStream::pair().expect("a pair");
        let turns = std::thread::spawn(move || {
            let mut asked = 0;
            loop {
                let woken = metrics.descriptor().expect("it listens");
                let mut ready =
                    [PollFd::new(&stopped, PollFlags::IN), PollFd::from_borrowed_fd(woken, PollFlags::IN)];
                poll(&mut ready, None).expect("it waits");
                if !ready[0].revents().is_empty() {
                    return asked;
                }
                metrics.take_turn(&mut |_| {
                    asked += 1;
                    figures()
                });
            }
        });
        Served { address, stop, turns: Some(turns) }
    }

    fn loopback() -> Self {
        Served::at(&MetricsAddress::Tcp("127.0.0.1:0".parse().expect("an address")))
    }

    fn connect(&self) -> TcpStream {
        let MetricsAddress::Tcp(address) = &self.address else { panic!("not on TCP") };
        TcpStream::connect(address).expect("it listens")
    }

    /// The whole answer to these bytes.
    fn ask(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect();
        // It may answer and close before everything is sent.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// How often the loop was asked.
    fn finish(mut self) -> u64 {
        (&self.stop).write_all(b"x").expect("it runs");
        self.turns.take().expect("once").join().expect("it does not panic")
    }
}

#[test]
fn a_scrape_gets_the_text_and_others_are_told_what_is_wrong() {
    let served = Served::loopback();
    let anything = served.ask(b"GET /metrics HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n");
    let (head, body) = anything.split_once("\r\n\r\n").expect("a head and a body");
    assert!(
        head.contains(PROMETHEUS) && body.contains("\n# TYPE steward_decisions_total counter\n"),
        "{anything}"
    );
    let accept = "accept: application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.1";
    let answer = served.ask(format!("GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n{accept}\r\n\r\n").as_bytes());
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains(OPEN_METRICS), "{head}");
    assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
    parse(body);
    let head_only = served.ask(b"HEAD /metrics HTTP/1.0\r\n\r\n");
    assert!(head_only.starts_with("HTTP/1.1 200 OK") && head_only.ends_with("\r\n\r\n"), "{head_only}");
    for (request, status) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], "404"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", "405"),
        (b"GET /metrics\r\n\r\n", "400"),
        (b"\r\n\r\n", "400"),
        (b"\x00\xff\x16\x03\x01\r\n\r\n", "400"),
        (b"GET /metrics HT", "400"),
        (b"", "400"),
        (&[b'a'; 20_000], "431"),
    ] {
        let answer = served.ask(request);
        // An answer may be lost with what the client still sends.
        let is_lost = answer.is_empty() && request.len() > REQUEST_BYTES_MAX;
        assert!(is_lost || answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request:?}: {answer}");
    }
    assert!(served.finish() >= 1);
}

/// Clients that send nothing, or a little now and then, neither keep others out nor the endpoint from ending: in the
/// whole test nobody waits for a time-out, which the connections that stay open at its end show.
#[test]
fn silent_clients_keep_nobody_waiting_and_the_endpoint_ends_and_begins_again_on_the_same_port() {
    let served = Served::loopback();
    let MetricsAddress::Tcp(address) = served.address.clone() else { panic!("not on TCP") };
    let silent: Vec<TcpStream> = (0..CONNECTIONS_MAX / 2)
        .map(|_| {
            let mut stream = served.connect();
            stream.write_all(b"GET /metr").expect("sent");
            stream
        })
        .collect();
    let begun = Instant::now();
    assert!(served.ask(b"GET /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200"));
    // Had the answer waited for them to be late, they would be ended.
    for stream in &silent {
        stream.set_nonblocking(true).expect("set");
        let mut bytes = [0; 1];
        let outcome = (&*stream).read(&mut bytes).map_err(|error| error.kind());
        assert_eq!(outcome, Err(io::ErrorKind::WouldBlock), "it is still waited for");
    }
    served.finish();
    assert!(begun.elapsed() < REQUEST_WITHIN, "the end has waited for one to be late");
    let again = Served::at(&MetricsAddress::Tcp(address));
    assert!(again.ask(b"GET /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200"));
    again.finish();
}

#[test]
fn of_too_many_connections_the_one_goes_that_was_silent_longest() {
    let served = Served::loopback();
    let mut crowd: Vec<TcpStream> = (0..CONNECTIONS_MAX * 3).map(|_| served.connect()).collect();
    assert!(served.ask(b"GET /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200"));
    // The first of them are closed already; the last is not.
    let mut bytes = Vec::new();
    crowd[0].read_to_end(&mut bytes).expect("closed");
    assert_eq!(bytes, b"");
    let mut last = crowd.pop().expect("there are some");
    last.write_all(b"HEAD /metrics HTTP/1.1\r\n\r\n").expect("sent");
    last.read_to_end(&mut bytes).expect("answered");
    assert!(bytes.starts_with(b"HTTP/1.1 200"), "{:?}", String::from_utf8_lossy(&bytes));
    served.finish();
}

#[test]
fn many_scrapes_ask_the_loop_once_a_second() {
    let served = Served::loopback();
    let begun = Instant::now();
    for _ in 0..50 {
        assert!(served.ask(b"GET /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200"));
    }
    let seconds = begun.elapsed().as_secs() + 1;
    assert!(served.finish() <= seconds + 1);
}

#[test]
fn a_socket_is_for_root_only_and_replaces_what_a_killed_daemon_left() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("metrics");
    drop(UnixListener::bind(&path).expect("bound"));
    let served = Served::at(&MetricsAddress::Unix(path.clone()));
    let mode = std::fs::metadata(&path).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut stream = UnixStream::connect(&path).expect("it listens");
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered");
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    served.finish();
    assert!(!path.exists(), "it is removed in the end");
}

#[test]
fn an_address_that_is_taken_is_said_with_what_to_do() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = MetricsAddress::Tcp(taken.local_addr().expect("an address"));
    let error = Endpoint::start(&address).err().expect("it is taken");
    assert!(format!("{error:#}").contains("cannot listen at 127.0.0.1:"), "{error:#}");
}
