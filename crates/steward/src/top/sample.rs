//! A machine as the daemon might describe it, for tests: two CPUs, a film that was put out, a compilation, a web
//! server without enough, a task whose name is an attack on the terminal.

use libsteward::api;

/// The moment of a reading, in nanoseconds of `CLOCK_MONOTONIC`.
pub const START_NS: u64 = 5_000_000_000_000;
/// Between two readings.
pub const STEP_NS: u64 = 1_000_000_000;

fn forecast(actual: f64, desired: f64, predicted: f64, potential: f64) -> api::Forecast {
    let over = |divisor: f64| (desired > 0.0 && divisor > 0.0).then(|| desired / divisor);
    api::Forecast {
        actual_ms_per_s: actual,
        desired_ms_per_s: desired,
        predicted_ms_per_s: predicted,
        potential_ms_per_s: potential,
        slowdown: over(actual),
        future_slowdown: over(predicted),
        potential_slowdown: over(potential),
    }
}

fn domain(
    name: &str,
    parent: Option<&str>,
    guaranteed: f64,
    tasks: u32,
    of: api::Forecast,
) -> api::DomainForecast {
    api::DomainForecast {
        name: name.to_owned(),
        parent: parent.map(str::to_owned),
        tasks,
        runnable: tasks.min(2),
        guaranteed,
        suspended: false,
        forecast: of,
    }
}

fn task(tid: i32, name: &str, domain: &str, reserved: Option<f64>, of: api::Forecast) -> api::TaskForecast {
    api::TaskForecast {
        tid,
        pid: tid,
        name: name.to_owned(),
        user: if domain.starts_with("user") { 1000 } else { 0 },
        domain: domain.to_owned(),
        weight: 100.0,
        reserved,
        runnable: of.actual_ms_per_s > 100.0,
        forecast: of,
    }
}

/// What ListForecasts says after that many seconds.
pub fn forecasts(second: u64) -> api::Forecasts {
    let wave = 20.0 * (second % 5) as f64;
    let film = forecast(83.0 + wave, 180.0, 90.0, 300.0);
    let user = "user.slice/user-1000.slice";
    api::Forecasts {
        at_ns: START_NS + second * STEP_NS,
        window_ns: STEP_NS,
        model: "steward".into(),
        source: "bpf".into(),
        cpus: 2,
        hidden: 12,
        machine: forecast(1950.0, 3400.0, 1980.0, 2000.0),
        others: forecast(1950.0, 3400.0, 1980.0, 2000.0),
        domains: vec![
            domain("/", None, 1.0, 8, forecast(1950.0, 3400.0, 1980.0, 2000.0)),
            domain("batch", Some("/"), 0.2, 3, forecast(1520.0, 2000.0, 1500.0, 1600.0)),
            domain("user.slice", Some("/"), 0.3, 3, forecast(230.0 + wave, 600.0, 280.0, 900.0)),
            domain(user, Some("user.slice"), 0.3, 3, forecast(230.0 + wave, 600.0, 280.0, 900.0)),
            domain("web", Some("/"), 0.3, 1, forecast(200.0, 600.0, 200.0, 600.0)),
            domain("system.slice", Some("/"), 0.1, 1, forecast(0.0, 0.0, 0.0, 400.0)),
        ],
        tasks: vec![
            task(77, "cron", "system.slice", None, forecast(0.0, 0.0, 0.0, 400.0)),
            task(4000, "make", "batch", None, forecast(600.0, 700.0, 600.0, 800.0)),
            task(4001, "cc1", "batch", None, forecast(460.0, 700.0, 450.0, 800.0)),
            task(4002, "cc1", "batch", None, forecast(460.0, 700.0, 450.0, 800.0)),
            task(4321, "mplayer", user, None, film),
            task(4400, "vim", user, Some(0.05), forecast(2.5, 2.5, 2.5, 500.0)),
            task(4500, "ev\u{1b}[31mil", user, None, forecast(50.0, 60.0, 50.0, 500.0)),
            task(5000, "nginx", "web", None, forecast(200.0, 600.0, 200.0, 600.0)),
        ],
        slowed: Vec::new(),
    }
}

fn promised(
    tid: i32,
    name: &str,
    standing: api::Standing,
    budget_ms: u64,
    period_ms: u64,
    second: u64,
) -> api::Task {
    api::Task {
        tid,
        pid: tid,
        name: name.into(),
        cpu: 0,
        standing,
        grant: api::Grant {
            reservation: api::Reservation {
                budget_ns: budget_ms * 1_000_000,
                period_ns: period_ms * 1_000_000,
            },
            inherit: false,
            revocable: true,
            spec: None,
        },
        budget_left_ns: 0,
        deadline_ns: 0,
        periods: 100 + second * 1000 / period_ms,
        deadlines_missed: 2,
        budgets_exhausted: 0,
        reserved_time_ns: 0,
        best_effort_time_ns: 0,
        overrun_max_ns: 0,
        complaints: 0,
    }
}

/// What Status says after that many seconds.
pub fn status(second: u64) -> api::StatusReply {
    let kind = Some(api::MechanismKind::SchedExt);
    api::StatusReply {
        version: "0.1.0".into(),
        pid: 1,
        owner: Some("1000".into()),
        specs: 2,
        events_lost: 0,
        cpu: api::CpuState {
            mechanism: api::MechanismState { kind, ..api::MechanismState::default() },
            thresholds: api::Thresholds { reactivate_below: 0.7, admit_below: 0.8, revoke_above: 0.9 },
            cpus: Vec::new(),
            tasks: vec![
                promised(4321, "mplayer", api::Standing::Revoked, 5, 30, second),
                promised(4400, "vim", api::Standing::Admitted, 2, 40, second),
            ],
        },
        memory: api::MemoryState::default(),
        disks: Vec::new(),
        problems: Vec::new(),
    }
}

/// What ListDomains says.
pub fn domains() -> api::DomainList {
    let domain = |name: &str, parent: Option<&str>, cpu: Option<f64>| api::Domain {
        name: name.into(),
        path: format!("/{name}"),
        parent: parent.map(str::to_owned),
        cpu,
        ..api::Domain::default()
    };
    let mut web = domain("web", Some("/"), Some(0.3));
    web.memory = Some(api::DomainMemory { used: 300 << 20, ..api::DomainMemory::default() });
    web.memory_min = Some(64 << 20);
    web.usage = Some(api::DomainUsage { throttled: true, ..api::DomainUsage::default() });
    api::DomainList {
        domains: vec![
            domain("/", None, None),
            domain("batch", Some("/"), Some(0.2)),
            domain("user.slice", Some("/"), None),
            domain("user.slice/user-1000.slice", Some("user.slice"), None),
            web,
            domain("system.slice", Some("/"), None),
        ],
        best_effort: api::BestEffort::default(),
    }
}

/// What was decided: the film was put out.
pub fn events() -> Vec<api::Event> {
    vec![api::Event {
        at_ns: START_NS - STEP_NS,
        kind: api::EventKind::RevokedHungriest,
        task: Some(api::EventTask { tid: 4321, pid: 4321, name: "mplayer".into() }),
        domain: None,
        cpu: Some(api::CpuFigures { cpu: Some(0), load: 0.95, bandwidth: 0.17, threshold: 0.9 }),
        memory: None,
        reason: None,
        text: "mplayer was revoked: CPU 0 had 95 % load, above 90 %, and it was the hungriest".into(),
    }]
}
