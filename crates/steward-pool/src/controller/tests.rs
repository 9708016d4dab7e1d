//! The controller against a simulated server: clients in closed loops, workers that share the CPUs evenly.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

const STEP_NS: u64 = 100_000_000;

/// What a kind of request needs: CPU time, then a wait for something else, in milliseconds.
#[derive(Clone, Copy, Debug)]
struct Kind {
    cpu_ms: f64,
    wait_ms: f64,
}

/// A request that a worker has.
#[derive(Clone, Copy, Debug)]
struct Running {
    kind: usize,
    cpu_left_ms: f64,
    wait_left_ms: f64,
}

/// Clients, each of which asks for its own kind again and again.
struct Server {
    kinds: Vec<Kind>,
    cpus: f64,
    queue: VecDeque<usize>,
    running: Vec<Running>,
    /// How many of them computed in the last step.
    computing: u32,
    /// Workers that computed, and CPU time that was used as a fraction, in each of the last ten looks: figures are of a
    /// second.
    second: VecDeque<(f64, f64)>,
}

impl Server {
    fn new(kinds: Vec<Kind>, clients_of_each: usize, cpus: f64) -> Self {
        let queue = (0..clients_of_each * kinds.len()).map(|client| client % kinds.len()).collect();
        Server { kinds, cpus, queue, running: Vec::new(), computing: 0, second: VecDeque::new() }
    }

    /// Lets 100 ms pass, in steps of 2 ms, with at most so many requests at work.
    fn pass(&mut self, workers: usize) {
        const STEPS: usize = 50;
        const STEP_MS: f64 = 2.0;
        let (mut used_ms, mut computing) = (0.0, 0.0);
        for _ in 0..STEPS {
            while self.running.len() < workers
                && let Some(kind) = self.queue.pop_front()
            {
                let Kind { cpu_ms, wait_ms } = self.kinds[kind];
                self.running.push(Running { kind, cpu_left_ms: cpu_ms, wait_left_ms: wait_ms });
            }
            let count = self.running.iter().filter(|request| request.cpu_left_ms > 0.0).count() as f64;
            self.computing = count as u32;
            let share_ms = STEP_MS * (self.cpus / count.max(1.0)).min(1.0);
            for request in &mut self.running {
                if request.cpu_left_ms > 0.0 {
                    used_ms += share_ms.min(request.cpu_left_ms);
                    request.cpu_left_ms -= share_ms;
                } else {
                    request.wait_left_ms -= STEP_MS;
                }
            }
            computing += count;
            let queue = &mut self.queue;
            self.running.retain(|request| {
                let is_over = request.cpu_left_ms <= 0.0 && request.wait_left_ms <= 0.0;
                if is_over {
                    queue.push_back(request.kind);
                }
                !is_over
            });
        }
        self.second.push_back((computing / STEPS as f64, used_ms / (STEP_MS * STEPS as f64 * self.cpus)));
        if self.second.len() > 10 {
            self.second.pop_front();
        }
    }

    /// How many workers shared each CPU in the last second, and which part of the CPU was idle.
    fn lately(&self) -> (f64, f64) {
        let looks = self.second.len() as f64;
        let (computing, used) =
            self.second.iter().fold((0.0, 0.0), |sum, look| (sum.0 + look.0, sum.1 + look.1));
        (computing / looks / self.cpus, (1.0 - used / looks).max(0.0))
    }

    fn observed(&self) -> Observed {
        let waiting = Some(self.queue.len() as u64);
        Observed { runnable: self.computing, cpus: self.cpus as u32, idle: self.lately().1, waiting }
    }
}

fn kind() -> impl Strategy<Value = Kind> {
    (2.0f64..80.0, prop_oneof![Just(0.0), 10.0f64..400.0])
        .prop_map(|(cpu_ms, wait_ms)| Kind { cpu_ms, wait_ms })
}

/// How long the controller has to find its way, and how long it is watched then, in looks.
const TO_SETTLE: usize = 600;
const WATCHED: usize = 300;

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// From any start, for any two kinds of requests: within the bounds always; in the end little idle CPU while
    /// requests wait, unless the largest pool leaves it; and workers about within the limit on average, but where
    /// requests come in waves, so that a crowd and idle CPU alternate: there within what is borne. (The simulated
    /// server has no chance in it, so that waves never end.)
    #[test]
    fn the_cpu_is_neither_idle_beside_waiting_requests_nor_shared_too_thinly(
        first in kind(),
        second in kind(),
        clients in 30usize..120,
        cpus in 1u32..5,
        start in 1u32..256,
    ) {
        let settings = Settings { smallest: 1, largest: 200, ..Settings::default() };
        let mut pool = WorkerPool::new(settings, start).expect("valid settings");
        let mut server = Server::new(vec![first, second], clients, f64::from(cpus));
        let (mut wasted, mut mean) = (0.0, 0.0);
        for look in 0..TO_SETTLE + WATCHED {
            server.pass(pool.size() as usize);
            pool.observe(look as u64 * STEP_NS, &server.observed());
            prop_assert!((1..=200).contains(&pool.size()));
            if look >= TO_SETTLE {
                let (slowdown, idle) = server.lately();
                if !server.queue.is_empty() && pool.size() < 200 {
                    wasted += idle / WATCHED as f64;
                }
                mean += slowdown / WATCHED as f64;
            }
        }
        prop_assert!(wasted < 0.2, "{wasted} of the CPU was idle while requests waited");
        // One CPU's share more than the limit is the next worker's doing.
        let most = if wasted > 0.01 { CROWD } else { 1.3 } * settings.slowdown_limit;
        prop_assert!(mean < most, "{mean} workers shared each CPU, and {wasted} of it was idle");
    }

    /// Whatever is seen, in whichever order: no panic, and a size within the bounds.
    #[test]
    fn nothing_that_can_be_seen_leads_out_of_the_bounds(
        seen in prop::collection::vec((0u32..1_000, 0u32..9, prop::num::f64::ANY, prop::option::of(0u64..9)), 1..100),
        between_ns in 0u64..5_000_000_000,
        smallest in 1u32..50,
        extra in 0u32..50,
    ) {
        let settings = Settings { smallest, largest: smallest + extra, patience_ns: 0, ..Settings::default() };
        let mut pool = WorkerPool::new(settings, 25).expect("valid settings");
        for (look, (runnable, cpus, idle, waiting)) in seen.into_iter().enumerate() {
            pool.observe(look as u64 * between_ns, &Observed { runnable, cpus, idle, waiting });
            prop_assert!((smallest..=smallest + extra).contains(&pool.size()));
            prop_assert!(!pool.reason().is_empty());
        }
    }
}

/// Lets a pool look at the same ten times a second, until its size changes; after so many looks at most.
fn changed(pool: &mut WorkerPool, looks: u64, observed: Observed) -> Option<u32> {
    (0..looks).find_map(|look| pool.observe(look * STEP_NS, &observed))
}

fn pool(workers: u32) -> WorkerPool {
    WorkerPool::new(Settings { patience_ns: 0, ..Settings::default() }, workers).expect("valid settings")
}

#[test]
fn a_reply_gives_who_is_runnable_and_what_nobody_uses() {
    let tasks =
        [true, false, true].map(|runnable| api::TaskForecast { runnable, ..api::TaskForecast::default() });
    let domains = [7, 4].map(|runnable| api::DomainForecast { runnable, ..api::DomainForecast::default() });
    let machine = api::Forecast { actual_ms_per_s: 1_500.0, ..api::Forecast::default() };
    let forecasts = api::Forecasts {
        tasks: tasks.to_vec(),
        domains: domains.to_vec(),
        machine,
        cpus: 2,
        ..api::Forecasts::default()
    };
    let expected = |runnable| Observed { runnable, cpus: 2, idle: 0.25, waiting: Some(1) };
    assert_eq!(Observed::of_tasks(&forecasts, Some(1)), expected(2));
    assert_eq!(Observed::of_domain(&forecasts, Some(1)), expected(7));
}

#[test]
fn a_reply_about_nothing_gives_no_number_that_is_none() {
    let machine = api::Forecast { actual_ms_per_s: f64::NAN, ..api::Forecast::default() };
    let nothing = api::Forecasts { machine, ..api::Forecasts::default() };
    assert_eq!(Observed::of_tasks(&nothing, None), Observed::default());
    assert_eq!(Observed::of_domain(&nothing, None), Observed::default());
}

#[test]
fn a_pool_in_which_nobody_is_busy_stays_unless_requests_wait() {
    let idle = |waiting| Observed { cpus: 1, idle: 1.0, waiting, ..Observed::default() };
    assert_eq!(changed(&mut pool(8), 100, idle(Some(0))), None);
    assert_eq!(changed(&mut pool(8), 100, idle(None)), None);
    assert_eq!(changed(&mut pool(8), 100, idle(Some(3))), Some(18));
}

#[test]
fn a_server_that_cannot_say_whether_requests_wait_gets_more_workers_while_the_cpu_is_idle() {
    let seen = |idle| Observed { runnable: 2, cpus: 1, idle, waiting: None };
    assert_eq!(changed(&mut pool(8), 100, seen(0.0)), None);
    assert_eq!(changed(&mut pool(8), 100, seen(0.5)), Some(18));
}

#[test]
fn a_crowd_beside_idle_cpu_is_borne_up_to_three_times_the_limit() {
    let seen = |runnable| Observed { runnable, cpus: 1, idle: 0.1, waiting: Some(9) };
    assert!(changed(&mut pool(40), 100, seen(29)) > Some(40));
    assert!(changed(&mut pool(40), 100, seen(31)) < Some(40));
    let busy = Observed { idle: 0.0, ..seen(15) };
    assert_eq!(changed(&mut pool(30), 100, busy), Some(24));
}

#[test]
fn beside_other_programs_that_use_what_it_leaves_a_pool_of_few_workers_grows() {
    let seen = |runnable| Observed { runnable, cpus: 1, idle: 0.0, waiting: Some(9) };
    assert_eq!(changed(&mut pool(4), 100, seen(1)), Some(10));
    assert_eq!(changed(&mut pool(4), 100, seen(4)), None);
}

#[test]
fn what_is_plain_is_judged_soon_and_what_is_not_by_the_mean() {
    let seen = |idle| Observed { runnable: 3, cpus: 1, idle, waiting: Some(9) };
    let looks = |idle| (1..100).find(|looks| changed(&mut pool(8), *looks, seen(idle)).is_some());
    assert_eq!((looks(0.5), looks(0.1)), (Some(6), Some(31)));
    // The time between two looks is never the same.
    let at = |look: u64| look * 97_000_000 + look * look % 7_000_000;
    let mut uneven = pool(8);
    assert!((0..60).any(|look| uneven.observe(at(look), &seen(0.1)).is_some()));
    // Three looks of idle CPU in every ten are too many, in every thirty they are not.
    let waves = |every: u64| {
        let mut pool = pool(16);
        let idle = |look: u64| if look % every < 3 { 0.25 } else { 0.0 };
        (0..600).find_map(|look| pool.observe(look * STEP_NS, &seen(idle(look))))
    };
    assert!(waves(10).is_some() && waves(30).is_none());
}

#[test]
fn after_a_time_without_looks_what_was_before_does_not_count() {
    let mut pool = pool(8);
    let idle = Observed { runnable: 1, cpus: 1, idle: 0.9, waiting: Some(9) };
    assert_eq!(pool.observe(0, &idle), None);
    let busy = Observed { runnable: 8, idle: 0.0, ..idle };
    assert!((0..100).all(|look| pool.observe(60_000_000_000 + look * STEP_NS, &busy).is_none()));
}

#[test]
fn requests_of_a_larger_pool_are_waited_for_and_not_for_ever() {
    let mut pool = pool(100);
    let crowded = Observed { runnable: 100, cpus: 1, idle: 0.0, waiting: Some(9) };
    let sizes: Vec<(u64, u32)> =
        (0..150).filter_map(|look| Some((look, pool.observe(look * STEP_NS, &crowded)?))).collect();
    let [(first, nine), (second, fewer), ..] = sizes[..] else { panic!("{sizes:?}") };
    assert_eq!((first, nine), (5, 9));
    assert!(second - first > 100 && fewer < 9, "{sizes:?}");
}

#[test]
fn a_size_that_the_server_refuses_is_asked_for_again_after_a_minute() {
    let mut pool = pool(8);
    let more = Observed { runnable: 8, cpus: 8, idle: 0.5, waiting: Some(5) };
    let mut changes = (0..1_000).filter_map(|look| {
        let size = pool.observe(look * STEP_NS, &more)?;
        pool.refused(8);
        Some((look, size, pool.size()))
    });
    let (first, second) = (changes.next().expect("a size"), changes.next().expect("another"));
    assert_eq!((first.1, first.2), (18, 8));
    assert_eq!((second.1, second.2), (18, 8));
    assert!((second.0 - first.0) * STEP_NS >= RETRY_NS, "{first:?} {second:?}");
}

#[test]
fn settings_that_no_pool_can_follow_are_refused() {
    let complaint = |settings: Settings| WorkerPool::new(settings, 1).expect_err("a mistake").to_string();
    let base = Settings::default();
    assert!(complaint(Settings { smallest: 0, ..base }).contains("at least one worker"));
    assert!(
        complaint(Settings { smallest: 9, largest: 3, ..base }).contains("at least 9 workers and at most 3")
    );
    for limit in [1.0, 0.0, f64::NAN, f64::INFINITY] {
        assert!(complaint(Settings { slowdown_limit: limit, ..base }).contains("cannot be held"));
    }
}
