//! Clients of a web server in closed loops: each asks, waits for the whole answer, and asks again (CPU Futures, section
//! 5.3).
//!
//! `web-load --address 127.0.0.1:80 --clients 125:/index.html --clients 125:/cgi-bin/page --seconds 60 [--think-ms 0]
//! [--alternate 10 --light 0.2 | --rise --light 0.2] [--delay 0] [--real-time]`
//!
//! With `--alternate S` all clients ask for S seconds, then only the fraction `--light` of each group for as long, and
//! so on; with `--rise` their number grows from that fraction to all. `--real-time` runs as `SCHED_FIFO`: the clients
//! stand for other machines, which do not compete with the server for its CPU. An answer that is not 2xx, or none, is a
//! failure, after which the client waits 100 ms. It prints every second, and at the end, what the library's table says.

use std::collections::BTreeMap;
use std::net::SocketAddrV4;

use steward_lab_workloads::http::{Progress, Request};
use steward_lab_workloads::{clock, number, output, scheduling};

const SECOND_NS: u64 = 1_000_000_000;
/// After a failure, so that a server that refuses is not asked as fast as it can refuse.
const AFTER_FAILURE_NS: u64 = SECOND_NS / 10;
/// Longest wait for descriptors, so that clients that begin to ask do so in time.
const LOOK_MS: i32 = 20;
/// Behind the lab's agent (50), ahead of every server.
const PRIORITY: u32 = 40;

struct Options {
    address: SocketAddrV4,
    /// How many clients ask for which path.
    groups: Vec<(usize, String)>,
    think_ms: f64,
    load: Load,
    light: f64,
    seconds: f64,
    delay: f64,
    real_time: bool,
}

/// How the number of clients that ask changes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Load {
    Even,
    /// All, then few, in turns of this many seconds.
    Alternating(f64),
    /// From few to all.
    Rising,
}

fn parse() -> Result<Options, lexopt::Error> {
    use lexopt::prelude::*;
    let mut options = Options {
        address: SocketAddrV4::new([127, 0, 0, 1].into(), 80),
        groups: Vec::new(),
        think_ms: 0.0,
        load: Load::Even,
        light: 0.2,
        seconds: 30.0,
        delay: 0.0,
        real_time: false,
    };
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("address") => options.address = number(&mut parser)?,
            Long("clients") => {
                let text = parser.value()?.string()?;
                let (count, path) = text.split_once(':').ok_or("--clients wants COUNT:PATH")?;
                options
                    .groups
                    .push((count.parse().map_err(|_| "--clients wants COUNT:PATH")?, path.to_owned()));
            }
            Long("think-ms") => options.think_ms = number(&mut parser)?,
            Long("alternate") => options.load = Load::Alternating(number(&mut parser)?),
            Long("rise") => options.load = Load::Rising,
            Long("light") => options.light = number(&mut parser)?,
            Long("seconds") => options.seconds = number(&mut parser)?,
            Long("delay") => options.delay = number(&mut parser)?,
            Long("real-time") => options.real_time = true,
            other => return Err(other.unexpected()),
        }
    }
    if options.groups.iter().all(|(count, _)| *count == 0) {
        return Err("no clients: give --clients COUNT:PATH".into());
    }
    Ok(options)
}

impl Load {
    /// Which fraction of the clients asks `at_s` seconds after the start of a run of `seconds`.
    fn fraction(self, light: f64, at_s: f64, seconds: f64) -> f64 {
        match self {
            Load::Even => 1.0,
            Load::Alternating(turn_s) if ((at_s / turn_s) as u64).is_multiple_of(2) => 1.0,
            Load::Alternating(_) => light,
            Load::Rising => light + (1.0 - light) * at_s / seconds,
        }
    }
}

/// A client: it asks for one path, or will from a moment on.
struct Client {
    /// Its group.
    group: usize,
    /// Its place among its group, 0 to 1: it asks when more than this fraction does.
    place: f64,
    open: Option<(Request, u64)>,
    not_before_ns: u64,
}

/// What was counted.
#[derive(Default)]
struct Counts {
    done: u64,
    failed: u64,
    /// Answers of this second by their time in tenths of a millisecond, to three significant digits.
    latencies: BTreeMap<u64, u64>,
}

/// Tenths of a millisecond, to three significant digits: enough for percentiles, and few lines.
fn rounded_tenths(ns: u64) -> u64 {
    let tenths = (ns + 50_000) / 100_000;
    let mut unit = 1;
    while tenths / unit >= 1000 {
        unit *= 10;
    }
    (tenths + unit / 2) / unit * unit
}

/// As a line has it, in milliseconds.
fn ms(tenths: u64) -> f64 {
    tenths as f64 / 10.0
}

impl Counts {
    /// Tells of the last second, and forgets its latencies.
    fn tell(&mut self, now_ns: u64) {
        output::line(format_args!("w {} {:.3}", self.done, output::ms(now_ns)));
        for (latency, count) in std::mem::take(&mut self.latencies) {
            output::line(format_args!("q {} {count}", ms(latency)));
        }
    }
}

/// All clients, and what they do.
struct Clients {
    address: SocketAddrV4,
    paths: Vec<String>,
    think_ns: u64,
    clients: Vec<Client>,
    counts: Counts,
    descriptors: Vec<libc::pollfd>,
    /// Whose each descriptor is.
    owners: Vec<usize>,
}

impl Clients {
    fn new(options: &Options) -> Clients {
        let clients = options.groups.iter().enumerate().flat_map(|(group, (count, _))| {
            let place = move |index| index as f64 / *count as f64;
            (0..*count).map(move |index| Client { group, place: place(index), open: None, not_before_ns: 0 })
        });
        Clients {
            address: options.address,
            paths: options.groups.iter().map(|(_, path)| path.clone()).collect(),
            think_ns: (options.think_ms * 1e6) as u64,
            clients: clients.collect(),
            counts: Counts::default(),
            descriptors: Vec::new(),
            owners: Vec::new(),
        }
    }

    /// Those who may, ask; then waits for answers, for a short time.
    fn round(&mut self, fraction: f64) {
        let now_ns = clock::now_ns();
        self.descriptors.clear();
        self.owners.clear();
        for (index, client) in self.clients.iter_mut().enumerate() {
            if client.open.is_none() && client.place < fraction && client.not_before_ns <= now_ns {
                match Request::begin(self.address, &self.paths[client.group]) {
                    Ok(request) => client.open = Some((request, now_ns)),
                    Err(_) => {
                        self.counts.failed += 1;
                        client.not_before_ns = now_ns + AFTER_FAILURE_NS;
                    }
                }
            }
            if let Some((request, _)) = &client.open {
                self.descriptors.push(request.interest());
                self.owners.push(index);
            }
        }
        let count = self.descriptors.len() as libc::nfds_t;
        // SAFETY: the vector is as long as it says.
        if unsafe { libc::poll(self.descriptors.as_mut_ptr(), count, LOOK_MS) } > 0 {
            for place in 0..self.descriptors.len() {
                if self.descriptors[place].revents != 0 {
                    self.advance(self.owners[place]);
                }
            }
        }
    }

    fn advance(&mut self, index: usize) {
        let client = &mut self.clients[index];
        let Some((request, since_ns)) = &mut client.open else { return };
        let progress = request.advance();
        if progress == Progress::Waiting {
            return;
        }
        let now_ns = clock::now_ns();
        if matches!(progress, Progress::Answered(200..300)) {
            self.counts.done += 1;
            *self.counts.latencies.entry(rounded_tenths(now_ns - *since_ns)).or_default() += 1;
            client.not_before_ns = now_ns + self.think_ns;
        } else {
            self.counts.failed += 1;
            client.not_before_ns = now_ns + AFTER_FAILURE_NS;
        }
        client.open = None;
    }

    /// Tells what is still open, and what failed.
    fn finish(mut self) {
        let now_ns = clock::now_ns();
        self.counts.tell(now_ns);
        let mut open: BTreeMap<u64, u64> = BTreeMap::new();
        for (_, since_ns) in self.clients.iter().filter_map(|client| client.open.as_ref()) {
            *open.entry(rounded_tenths(now_ns - since_ns)).or_default() += 1;
        }
        for (age, count) in open {
            output::line(format_args!("o {} {count}", ms(age)));
        }
        output::line(format_args!("x {}", self.counts.failed));
    }
}

fn main() -> anyhow::Result<()> {
    let options = parse()?;
    if options.real_time
        && let Err(error) = scheduling::become_fifo(PRIORITY)
    {
        eprintln!("web-load: stays in the default class: SCHED_FIFO: {error}");
    }
    clock::wait_seconds(options.delay);
    let mut clients = Clients::new(&options);
    let start_ns = clock::now_ns();
    let mut told_s = 0;
    let mut fraction = f64::NAN;
    loop {
        let now_ns = clock::now_ns();
        let at_s = (now_ns - start_ns) as f64 / SECOND_NS as f64;
        if at_s >= options.seconds {
            break;
        }
        let next = options.load.fraction(options.light, at_s, options.seconds);
        if matches!(options.load, Load::Alternating(_)) && next != fraction {
            // The work until here belongs to the phase that ends.
            clients.counts.tell(now_ns);
            let name = if next == 1.0 { "heavy" } else { "light" };
            output::line(format_args!("phase {name} {:.3}", output::ms(now_ns)));
        }
        if at_s as u64 > told_s || fraction.is_nan() {
            told_s = at_s as u64;
            clients.counts.tell(now_ns);
        }
        fraction = next;
        clients.round(fraction);
    }
    clients.finish();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_alternates_in_turns_and_rises_to_all() {
        let alternating = Load::Alternating(10.0);
        let at = |at_s| alternating.fraction(0.2, at_s, 60.0);
        assert_eq!((at(0.0), at(9.9), at(10.0), at(19.9), at(20.0)), (1.0, 1.0, 0.2, 0.2, 1.0));
        assert_eq!(Load::Rising.fraction(0.5, 30.0, 60.0), 0.75);
        assert_eq!(Load::Even.fraction(0.2, 30.0, 60.0), 1.0);
    }

    #[test]
    fn latencies_keep_three_digits() {
        let rounded = [0, 1, 999, 1_004, 10_049, 10_050].map(|tenths| rounded_tenths(tenths * 100_000));
        assert_eq!(rounded, [0, 1, 999, 1_000, 10_000, 10_100]);
        assert_eq!((ms(rounded_tenths(12_349_999)), ms(rounded_tenths(1_234_000_000))), (12.3, 1_230.0));
    }
}
