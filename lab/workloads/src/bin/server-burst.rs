//! A server inside one process, and the requests that come to it (Yang 2009, 12.3): a burst, or a stream at some rate.
//!
//! `server-burst [--threads N | --steward P | --limit N | --gradient | --vegas | --envoy] [--requests 200] [--cpu-ms
//! 10] [--goal-ms 1000] [--warm-up 60] [--rate PER_SECOND --seconds S] [--streams N] [--mixed] [--seed N] [--refuse]
//! [--watch] [--read DIRECTORY]`
//!
//! Each request computes for `--cpu-ms` of CPU time; `--mixed` gives one in ten, drawn by its number and `--seed`,
//! nine times as much as the others, with the same mean. (Every tenth would be in step with the pools: which of ten
//! places is free when the next one comes then decides how many dear ones they take, and a rate that differs by little
//! turns that round.) The server is a fixed pool of threads with one queue (`--threads`), the same that refuses what
//! no thread is free for (`--limit`, as a tower concurrency limit that sheds load does), one whose limit follows the
//! response times (`--gradient`, `--vegas`, `--envoy`: `limits.rs`), or Steward's (`steward-server`) with the part P
//! of the CPU (`--steward`). With `--refuse` Steward's refuses what it does not accept. With `--read` a request then
//! reads a page past the cache, from one of 500 files of a page in that directory, in no order; with `--requests 0`
//! they are made, and nothing else is done. Some requests come one by one before it begins, so that costs are known;
//! they are not counted. With `--streams` all of that comes so many times, one after the other, each of other requests.
//! What it prints is what the library's table says: `goal` is when a request is late, `x` counts
//! what was refused, and `dear` says the same of the dear ones among them as `q` of all. With `--watch` Steward's
//! server shows its table four times a second of a stream, and others their limit, on standard error.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, bail};
use steward_lab_workloads::direct::{DirectBuffer, PAGE};
use steward_lab_workloads::limits::{Envoy, Fixed, Gradient, Limit, Vegas};
use steward_lab_workloads::{clock, number, output};
use steward_server::{Goal, Otherwise, RouteId, Server, Settings};

/// How many threads stand ready where a limit says how many of them may be at work.
const THREADS_MAX: usize = 200;
/// The longest time for which reservations are waited for.
const PATIENCE_S: f64 = 60.0;
/// For how long as many workers have had one, when all have that are to.
const SETTLED_S: f64 = 2.0;
/// How many files there are to be read from.
const FILES: usize = 500;

struct Options {
    kind: Kind,
    requests: usize,
    cpu_ms: f64,
    goal_ms: u64,
    warm_up: usize,
    /// Requests in a second, and for how many seconds; without, all come at once.
    rate: Option<(f64, f64)>,
    /// As many times all of that, one after the other, each of other requests.
    streams: usize,
    is_mixed: bool,
    seed: u64,
    refuses: bool,
    watches: bool,
    read: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Threads(usize),
    Steward(f64),
    Limit(usize),
    Gradient,
    Vegas,
    Envoy,
}

fn parse() -> Result<Options, lexopt::Error> {
    use lexopt::prelude::*;
    let mut options = Options {
        kind: Kind::Threads(10),
        requests: 200,
        cpu_ms: 10.0,
        goal_ms: 1_000,
        warm_up: 60,
        rate: None,
        streams: 1,
        is_mixed: false,
        seed: 0,
        refuses: false,
        watches: false,
        read: None,
    };
    let (mut rate, mut seconds) = (None, 10.0);
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("threads") => options.kind = Kind::Threads(number(&mut parser)?),
            Long("steward") => options.kind = Kind::Steward(number(&mut parser)?),
            Long("limit") => options.kind = Kind::Limit(number(&mut parser)?),
            Long("gradient") => options.kind = Kind::Gradient,
            Long("vegas") => options.kind = Kind::Vegas,
            Long("envoy") => options.kind = Kind::Envoy,
            Long("requests") => options.requests = number(&mut parser)?,
            Long("cpu-ms") => options.cpu_ms = number(&mut parser)?,
            Long("goal-ms") => options.goal_ms = number(&mut parser)?,
            Long("warm-up") => options.warm_up = number(&mut parser)?,
            Long("rate") => rate = Some(number(&mut parser)?),
            Long("streams") => options.streams = number(&mut parser)?,
            Long("seconds") => seconds = number(&mut parser)?,
            Long("mixed") => options.is_mixed = true,
            Long("seed") => options.seed = number(&mut parser)?,
            Long("read") => options.read = Some(parser.value()?.into()),
            Long("refuse") => options.refuses = true,
            Long("watch") => options.watches = true,
            other => return Err(other.unexpected()),
        }
    }
    options.rate = rate.map(|rate| (rate, seconds));
    Ok(options)
}

/// What a request needs and when it came, in nanoseconds.
#[derive(Clone, Debug)]
struct Request {
    arrived_ns: u64,
    cpu_ns: u64,
    /// Whether it costs more than the mean.
    is_dear: bool,
    /// Whose first page it reads when it has computed.
    file: Option<Arc<File>>,
}

/// A request that was answered.
struct Answered {
    /// How long it took since its arrival, in nanoseconds.
    took_ns: u64,
    is_dear: bool,
}

/// Computes and reads, and tells that the request was answered.
fn serve(request: &Request, tell: &Sender<Answered>) {
    clock::burn_until(clock::thread_cpu_ns() + request.cpu_ns);
    if let Some(file) = &request.file {
        let read = file.read_exact_at(DirectBuffer::new(PAGE).bytes(), 0);
        read.expect("the files are a page long, and the lab's disk does not fail");
    }
    let (took_ns, is_dear) = (clock::now_ns() - request.arrived_ns, request.is_dear);
    let _ = tell.send(Answered { took_ns, is_dear });
}

/// A fixed pool of threads that take from one queue, which a limit may keep short.
struct Pool {
    queue: Sender<Request>,
    limited: Option<Arc<Mutex<Limited>>>,
}

struct Limited {
    limit: Box<dyn Limit>,
    at_work: usize,
}

impl Pool {
    fn new(kind: Kind, tell: &Sender<Answered>) -> Self {
        let (threads, limit): (usize, Option<Box<dyn Limit>>) = match kind {
            Kind::Threads(count) => (count, None),
            Kind::Limit(count) => (count, Some(Box::new(Fixed(count)))),
            Kind::Vegas => (THREADS_MAX, Some(Box::new(Vegas::default()))),
            Kind::Envoy => (THREADS_MAX, Some(Box::new(Envoy::default()))),
            Kind::Gradient | Kind::Steward(_) => (THREADS_MAX, Some(Box::new(Gradient::default()))),
        };
        let limited = limit.map(|limit| Arc::new(Mutex::new(Limited { limit, at_work: 0 })));
        let (queue, requests) = channel::<Request>();
        let requests = Arc::new(Mutex::new(requests));
        for _ in 0..threads {
            let (requests, tell, limited) = (requests.clone(), tell.clone(), limited.clone());
            std::thread::spawn(move || {
                loop {
                    let next = requests.lock().expect("no panic").recv();
                    let Ok(request) = next else { return };
                    serve(&request, &tell);
                    if let Some(limited) = &limited {
                        let now_ns = clock::now_ns();
                        let mut limited = limited.lock().expect("no panic");
                        let at_work = limited.at_work;
                        limited.limit.ended(now_ns, now_ns - request.arrived_ns, at_work);
                        limited.at_work -= 1;
                    }
                }
            });
        }
        Pool { queue, limited }
    }

    /// Whether it was taken.
    fn offer(&self, request: Request) -> bool {
        if let Some(limited) = &self.limited {
            let mut limited = limited.lock().expect("no panic");
            if limited.at_work >= limited.limit.limit() {
                return false;
            }
            limited.at_work += 1;
        }
        self.queue.send(request).is_ok()
    }

    /// The limit now, where there is one.
    fn limit(&self) -> Option<usize> {
        self.limited.as_ref().map(|limited| limited.lock().expect("no panic").limit.limit())
    }
}

/// Whom requests are given to.
enum Target {
    Pool(Pool),
    Steward(Server, RouteId),
}

impl Target {
    fn new(options: &Options, tell: &Sender<Answered>) -> anyhow::Result<Self> {
        let Kind::Steward(cpu) = options.kind else { return Ok(Target::Pool(Pool::new(options.kind, tell))) };
        let goal = Goal::new(Duration::from_millis(options.goal_ms), cpu);
        let server = Server::start(Settings::default().route("/", goal))?;
        // What takes requests in must notice them while others are served.
        server.reserve_for_this_thread(Duration::from_millis(1), Duration::from_millis(20));
        let route = server.route("/").context("it was given")?;
        Ok(Target::Steward(server, route))
    }

    /// Whether it was taken.
    fn offer(&self, request: Request, tell: &Sender<Answered>) -> bool {
        match self {
            Target::Pool(pool) => pool.offer(request),
            Target::Steward(server, route) => match server.arrive(*route) {
                Ok(place) => {
                    let tell = tell.clone();
                    place.serve(move || serve(&request, &tell));
                    true
                }
                Err(_) => false,
            },
        }
    }

    /// What there is to see of it, on standard error.
    fn show(&self) {
        match self {
            Target::Steward(server, _) => eprint!("{}", server.snapshot()),
            Target::Pool(pool) => {
                if let Some(limit) = pool.limit() {
                    eprintln!("a limit of {limit}");
                }
            }
        }
    }

    /// Waits until costs are known and each specification has its worker.
    fn settle(&self, options: &Options) -> anyhow::Result<()> {
        let (Target::Steward(server, route), Kind::Steward(cpu)) = (self, options.kind) else {
            return Ok(());
        };
        if options.refuses {
            let goal = Goal::new(Duration::from_millis(options.goal_ms), cpu).otherwise(Otherwise::Refuse);
            server.set_goal(*route, goal)?;
        }
        // Workers that wait for others to give back what they have come a moment later.
        let until_ns = clock::now_ns() + (PATIENCE_S * 1e9) as u64;
        let mut since = (0, clock::now_ns());
        loop {
            let seen = server.snapshot();
            if seen.reserved_workers != since.0 || seen.unreserved.is_some() {
                since = (seen.reserved_workers, clock::now_ns());
            }
            if seen.reserved_workers > 0 && clock::now_ns() > since.1 + (SETTLED_S * 1e9) as u64 {
                eprint!("{seen}");
                return Ok(());
            }
            if clock::now_ns() > until_ns {
                bail!("too few reservations in {PATIENCE_S} s: {seen}");
            }
            clock::wait_seconds(0.1);
        }
    }
}

/// Makes the files that are not there; returns all of them.
fn files(directory: &Path) -> anyhow::Result<Vec<Arc<File>>> {
    std::fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    let open = |index: usize| {
        let path = directory.join(index.to_string());
        if !std::fs::metadata(&path).is_ok_and(|metadata| metadata.len() == PAGE as u64) {
            std::fs::write(&path, [b'x'; PAGE])?;
            File::open(&path)?.sync_all()?;
        }
        OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(&path).map(Arc::new)
    };
    let files = (0..FILES).map(open).collect::<std::io::Result<_>>();
    files.with_context(|| format!("cannot make or open files of a page in {}", directory.display()))
}

/// Which file a request reads: by its number alone, so that it is the same in each run and for every server.
fn choose(index: usize) -> usize {
    mix(index as u64) as usize % FILES
}

/// The part of the mean that a request costs, of which one in ten is nine times as dear as the others: by its number
/// and the seed, for the same reason.
fn mixed_cost(index: usize, seed: u64) -> f64 {
    let drawn = draw(draw(seed).wrapping_add(index as u64));
    if drawn % 10 == 9 { 5.0 } else { 5.0 / 9.0 }
}

/// A number that says nothing of those of its neighbours (SplitMix64, Steele 2014): with a linear generator alone every
/// third dear request is followed by another eleven later, and a pool that refuses has most of such refused.
fn draw(number: u64) -> u64 {
    let mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn mix(number: u64) -> u64 {
    number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407) >> 33
}

fn main() -> anyhow::Result<()> {
    let options = parse()?;
    let files = options.read.as_deref().map(files).transpose()?.unwrap_or_default();
    if options.requests == 0 {
        return Ok(());
    }
    let (tell, told) = channel();
    let target = Target::new(&options, &tell)?;
    let request = |index: usize, arrived_ns: u64| {
        let part = if options.is_mixed { mixed_cost(index, options.seed) } else { 1.0 };
        let (cpu_ns, file) = ((options.cpu_ms * 1e6 * part) as u64, files.get(choose(index)).cloned());
        Request { arrived_ns, cpu_ns, is_dear: part > 1.0, file }
    };
    for index in 0..options.warm_up {
        if target.offer(request(index, clock::now_ns()), &tell) {
            let _ = told.recv();
        }
    }
    target.settle(&options)?;
    output::line(format_args!("goal {}", options.goal_ms));
    let count = options.rate.map_or(options.requests, |(rate, seconds)| (rate * seconds) as usize);
    let mut answers = Answers::default();
    for stream in 0..options.streams {
        // So that specifications that were used meanwhile are eligible again.
        clock::wait_seconds(1.0 + 2.0 * options.goal_ms as f64 / 1e3);
        let begin_ns = clock::now_ns();
        if stream == 0 {
            output::line(format_args!("w 0 {:.3}", output::ms(begin_ns)));
        }
        let mut refused = 0;
        for index in 0..count {
            let due_ns = options.rate.map_or(0, |(rate, _)| (index as f64 / rate * 1e9) as u64);
            // A request that is noticed late has come when it was due.
            let arrived_ns = begin_ns + due_ns;
            if options.rate.is_some() {
                clock::sleep_until(arrived_ns);
            }
            let number = options.warm_up + stream * count + index;
            refused += usize::from(!target.offer(request(number, arrived_ns), &tell));
            let quarters =
                |index: usize| options.rate.map_or(0, |(rate, _)| (index as f64 / rate * 4.0) as u64);
            if options.watches && quarters(index + 1) > quarters(index) {
                eprintln!("after {:.2} s", output::ms(clock::now_ns() - begin_ns) / 1e3);
                target.show();
            }
        }
        answers.wait(&told, count - refused);
        answers.refused += refused;
    }
    answers.report();
    target.show();
    Ok(())
}

/// How long requests took, in ms, and how many took as long.
#[derive(Default)]
struct Answers {
    all_ms: BTreeMap<u64, u64>,
    /// Of those, the ones that cost more than the mean.
    dear_ms: BTreeMap<u64, u64>,
    answered: usize,
    refused: usize,
}

impl Answers {
    /// Waits for so many.
    fn wait(&mut self, told: &Receiver<Answered>, count: usize) {
        for Answered { took_ns, is_dear } in told.iter().take(count) {
            let took_ms = took_ns.div_ceil(1_000_000);
            *self.all_ms.entry(took_ms).or_default() += 1;
            if is_dear {
                *self.dear_ms.entry(took_ms).or_default() += 1;
            }
        }
        self.answered += count;
    }

    fn report(&self) {
        for (name, taken_ms) in [("q", &self.all_ms), ("dear", &self.dear_ms)] {
            for (ms, count) in taken_ms {
                output::line(format_args!("{name} {ms} {count}"));
            }
        }
        output::line(format_args!("w {} {:.3}", self.answered, output::ms(clock::now_ns())));
        output::line(format_args!("x {}", self.refused));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whether_a_request_is_dear_says_nothing_of_those_that_follow_it() {
        for seed in 0..4 {
            let is_dear = |index: usize| mixed_cost(index, seed) > 1.0;
            let dear: Vec<usize> = (0..40_000).filter(|index| is_dear(*index)).collect();
            assert!((3_700..4_300).contains(&dear.len()), "{}", dear.len());
            for later in 1..40 {
                let both = dear.iter().filter(|index| is_dear(*index + later)).count();
                let part = both as f64 / dear.len() as f64;
                assert!((0.075..0.125).contains(&part), "{part} of those {later} after a dear one");
            }
        }
    }

    #[test]
    fn one_in_ten_is_dear_in_no_order_and_the_mean_is_what_was_asked_for() {
        for seed in 0..5 {
            let costs: Vec<f64> = (0..10_000).map(|index| mixed_cost(index, seed)).collect();
            let mean = costs.iter().sum::<f64>() / costs.len() as f64;
            assert!((mean - 1.0).abs() < 0.05, "seed {seed}: {mean}");
            // Of the dear ones, one in ten is followed by another, were they drawn one by one.
            let pairs = costs.windows(2).filter(|pair| pair[0] > 1.0 && pair[1] > 1.0).count();
            assert!((50..200).contains(&pairs), "seed {seed}: {pairs}");
            // None of ten phases has far more than its part.
            for phase in 0..10 {
                let dear = costs.iter().skip(phase).step_by(10).filter(|cost| **cost > 1.0).count();
                assert!((60..150).contains(&dear), "seed {seed}, phase {phase}: {dear}");
            }
        }
    }
}
