//! Calls that make sense one by one, in any order and by anybody: no level of the tree is ever overcommitted, and
//! nobody but root and the owner gets anything that others pay for.
#![no_main]

use std::sync::{LazyLock, Mutex};

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use libsteward::api;
use steward_fuzz::{Machine, OWNER, user};

#[derive(Arbitrary, Debug)]
struct Name(u8);

#[derive(Arbitrary, Debug)]
enum Step {
    Create { name: Name, settings: Settings, of: Option<u8>, keep: Option<bool> },
    Set { name: Name, settings: Settings, of: Option<u8>, keep: Option<bool> },
    Remove { name: Name, kill: Option<bool> },
    Move { name: Name },
    Show { name: Name },
    Run { budget_ns: u64, period_ns: u64, domain: Option<Name> },
    Release,
    Complain { missed: u64 },
}

#[derive(Arbitrary, Debug)]
struct Settings {
    cpu: Option<f64>,
    cpu_percent: Option<u8>,
    weight: Option<i64>,
    priority: Option<i64>,
    cpu_reservable: Option<f64>,
    memory_min: Option<i64>,
    memory_max: Option<i64>,
    protect: Option<i64>,
    protect_seconds: Option<u16>,
    io: Option<u8>,
    disk: Option<f64>,
    io_max_bytes: Option<i64>,
    io_max_requests: Option<i64>,
    reset: Option<u8>,
}

impl Name {
    fn text(&self) -> String {
        let names = [
            "a",
            "b",
            "a/b",
            "a/b/c",
            "b/a",
            "user.slice/user-1001.slice",
            "system.slice",
            "user.slice",
            "/",
            "",
            "..",
            "a/../b",
            "a//b",
            "steward",
            "/a",
            "\u{1b}[31m",
        ];
        names[usize::from(self.0) % names.len()].to_owned()
    }
}

impl Settings {
    fn asked(&self) -> api::DomainSettings {
        let settings = [
            "cpu",
            "weight",
            "priority",
            "cpu_reservable",
            "memory_min",
            "memory_max",
            "protect",
            "io",
            "disk",
            "io_max_bytes",
            "io_max_requests",
            "no such setting",
        ];
        let reset = self.reset.map(|choice| settings[usize::from(choice) % settings.len()].to_owned());
        api::DomainSettings {
            cpu: self.cpu.or(self.cpu_percent.map(|percent| f64::from(percent) / 100.0)),
            weight: self.weight,
            priority: self.priority,
            cpu_reservable: self.cpu_reservable,
            memory_min: self.memory_min,
            memory_max: self.memory_max,
            protect: self.protect.or(self.protect_seconds.map(|seconds| i64::from(seconds) * 1_000_000_000)),
            io: self.io.map(|choice| api::IoClass::ALL[usize::from(choice) % api::IoClass::ALL.len()]),
            disk: self.disk,
            io_max_bytes: self.io_max_bytes,
            io_max_requests: self.io_max_requests,
            reset: reset.into_iter().collect(),
            ..api::DomainSettings::default()
        }
    }
}

static MACHINE: LazyLock<Mutex<Machine>> = LazyLock::new(Mutex::default);

fuzz_target!(|steps: Vec<(u8, Step)>| {
    let mut machine = MACHINE.lock().expect("no input made it panic");
    machine.next_input();
    for (choice, step) in steps {
        let uid = user(choice);
        let may_reserve = uid == 0 || uid == OWNER;
        let before = shares(&mut machine);
        // What is answered is anybody's; what counts is what is so afterwards.
        let _ = match step {
            Step::Create { name, settings, of, keep } => {
                let user = of.map(user);
                let request =
                    api::CreateDomain { domain: name.text(), settings: settings.asked(), user, keep };
                machine.call(uid, &request).map(drop)
            }
            Step::Set { name, settings, of, keep } => {
                let user = of.map(user);
                let request = api::SetDomain { domain: name.text(), settings: settings.asked(), user, keep };
                machine.call(uid, &request).map(drop)
            }
            Step::Remove { name, kill } => {
                machine.call(uid, &api::RemoveDomain { domain: name.text(), kill }).map(drop)
            }
            Step::Move { name } => {
                machine.call(uid, &api::MoveProcess { pid: None, domain: name.text() }).map(drop)
            }
            Step::Show { name } => {
                let request = api::ShowDomain { domain: Some(name.text()), ..Default::default() };
                machine.call(uid, &request).map(drop)
            }
            Step::Run { budget_ns, period_ns, domain } => {
                let cpu = Some(api::Reservation { budget_ns, period_ns });
                let domain = domain.map(|name| name.text());
                let outcome = machine.call(uid, &api::Run { cpu, domain, ..Default::default() });
                assert!(may_reserve || outcome.is_err(), "user {uid} reserved");
                outcome.map(drop)
            }
            Step::Release => machine.call(uid, &api::Release { pid: std::process::id() as i32 }).map(drop),
            Step::Complain { missed } => {
                machine.call(uid, &api::Complain { missed, ..Default::default() }).map(drop)
            }
        };
        machine.check_domains();
        if !may_reserve {
            for Share { name, user, cpu, protect_ns } in shares(&mut machine) {
                let known = before.iter().find(|known| known.name == name);
                let had = known.map_or(0.0, |known| known.cpu);
                let paid_by_own = is_below_domain_of(uid, &name, &before);
                assert!(cpu <= had || paid_by_own, "user {uid} got {cpu} for {name} of user {user}");
                // Nobody's own pays for that.
                let had = known.map_or(0, |known| known.protect_ns);
                assert!(protect_ns <= had, "user {uid} protected {name} of user {user} for {protect_ns} ns");
            }
        }
    }
});

/// What a domain has that others go without.
struct Share {
    name: String,
    user: u32,
    cpu: f64,
    protect_ns: u64,
}

fn shares(machine: &mut Machine) -> Vec<Share> {
    let list = machine.call(OWNER, &api::ListDomains {}).expect("the owner may read");
    let share = |domain: api::Domain| Share {
        name: domain.name,
        user: domain.user,
        cpu: domain.cpu.unwrap_or(0.0),
        protect_ns: domain.protect.unwrap_or(0),
    };
    list.domains.into_iter().map(share).collect()
}

fn is_below_domain_of(uid: u32, name: &str, domains: &[Share]) -> bool {
    domains.iter().any(|above| above.user == uid && name.starts_with(&format!("{}/", above.name)))
}
