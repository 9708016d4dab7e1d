//! Random histories of the disk machine.

use proptest::prelude::*;
use steward_core::disk::plan::Plan;
use steward_core::disk::{Class, Settings};
use steward_sim::Amount;
use steward_sim::disk::decide::Decide;
use steward_sim::disk::machine::Machine;
use steward_sim::disk::measure::Outcome;
use steward_sim::disk::scenario::{
    Behaviour, CacheSettings, CgroupSpec, DeviceSettings, ProgramSpec, Scenario, StewardSettings,
};

pub const MS: u64 = 1_000_000;
pub const SECOND: u64 = 1_000 * MS;
pub const KIB: u64 = 1 << 10;

/// One in the root's own cgroup, from the start on.
pub fn program(behaviour: Behaviour) -> ProgramSpec {
    ProgramSpec {
        cgroup: None,
        start_ns: 0,
        end_ns: None,
        class: None,
        process: None,
        starts_anew: false,
        period_ns: None,
        behaviour,
    }
}

/// The same, whose specification says that it is served first.
pub fn interactive(behaviour: Behaviour) -> ProgramSpec {
    ProgramSpec { class: Some(Class::Interactive), period_ns: Some(30 * MS), ..program(behaviour) }
}

pub fn reader(bytes: u64) -> Behaviour {
    Behaviour::Direct { bytes, think: Amount::Fixed(0), pieces: None }
}

/// In an interactive domain that has so many programs: one process after the other, each of which ends after so many
/// pieces, and others beside it that read all the time.
pub fn short_lived(programs: usize, pieces: &[u32], others: usize, bytes: u64) -> Scenario {
    let mut scenario = scenario(Vec::new());
    scenario.cgroups.push(domain("loop", Some(Class::Interactive), None));
    for place in 0..programs {
        let pieces = Some(pieces[place % pieces.len()]);
        let behaviour = Behaviour::Direct { bytes, think: Amount::Fixed(0), pieces };
        let spec = ProgramSpec { cgroup: Some(0), starts_anew: true, ..program(behaviour) };
        scenario.programs.push(spec);
    }
    scenario.programs.extend(std::iter::repeat_n(program(reader(4 * KIB)), others));
    scenario
}

pub fn save() -> Behaviour {
    Behaviour::Save { bytes: 30 * KIB, every_ns: 2 * SECOND }
}

/// On the disk of 10 ms, with Steward and without cgroups.
pub fn scenario(programs: Vec<ProgramSpec>) -> Scenario {
    Scenario {
        seed: 1,
        device: DeviceSettings::rotating(),
        cache: CacheSettings::default(),
        cgroups: Vec::new(),
        programs,
        changes: Vec::new(),
        steward: Some(StewardSettings::default()),
    }
}

pub fn stock(of: &Scenario) -> Scenario {
    Scenario { steward: None, ..of.clone() }
}

/// A domain that Steward made.
pub fn domain(name: &str, class: Option<Class>, reserved: Option<f64>) -> CgroupSpec {
    CgroupSpec { path: format!("steward.{name}"), given: Settings { class, reserved, ..Settings::default() } }
}

/// Programs that keep a disk busy.
pub fn load() -> impl Strategy<Value = Behaviour> {
    let bytes = || prop_oneof![Just(4 * KIB), Just(64 * KIB), Just(512 * KIB), Just(1024 * KIB)];
    prop_oneof![
        bytes().prop_map(reader),
        (bytes(), 1..20_u64).prop_map(|(bytes, think)| Behaviour::Direct {
            bytes,
            think: Amount::Exponential(think * MS),
            pieces: None
        }),
        Just(Behaviour::Sync { bytes: 4 * KIB, think: Amount::Fixed(0) }),
        (10..100_u64).prop_map(|rate| Behaviour::Buffered { bytes_per_second: rate << 20 }),
        (50..500_u64).prop_map(|every| Behaviour::Frames { bytes: 512 * KIB, every_ns: every * MS }),
    ]
}

/// Loads without those that fsync or write into the cache: beside these it depends on whose transaction is being
/// committed.
pub fn load_past_the_cache() -> impl Strategy<Value = Behaviour> {
    load().prop_filter("it goes through the cache", |load| {
        !matches!(load, Behaviour::Sync { .. } | Behaviour::Buffered { .. })
    })
}

/// A disk that rotates, of any speed, which varies.
pub fn any_rotating() -> impl Strategy<Value = DeviceSettings> {
    (2..15_u64, 50..300_u64, 0.0..0.5_f64).prop_map(|(request_ms, mb, variation)| DeviceSettings {
        request_ns: request_ms * MS,
        bytes_per_second: mb * 1_000_000,
        variation,
        ..DeviceSettings::rotating()
    })
}

pub fn run_with(scenario: &Scenario, seconds: u64, decides: Box<dyn Decide>) -> Outcome {
    let mut machine = Machine::with(scenario, decides);
    machine.run_until(seconds * SECOND);
    machine.outcome()
}

pub fn run(scenario: &Scenario, seconds: u64) -> Outcome {
    run_with(scenario, seconds, Box::<Plan>::default())
}

/// The part of the device's time that the programs of each cgroup had between two moments, of what all of them had.
pub fn parts(scenario: &Scenario, decides: Box<dyn Decide>, from: u64, to: u64) -> Vec<f64> {
    let mut machine = Machine::with(scenario, decides);
    let mut times = |seconds: u64| -> Vec<u64> {
        machine.run_until(seconds * SECOND);
        let outcome = machine.outcome();
        let of = |cgroup: usize| {
            let programs = scenario.programs.iter().zip(&outcome.programs);
            programs.filter(|(spec, _)| spec.cgroup == Some(cgroup)).map(|(_, counts)| counts.device_ns).sum()
        };
        (0..scenario.cgroups.len()).map(of).collect()
    };
    let (before, after) = (times(from), times(to));
    let had: Vec<f64> = after.iter().zip(&before).map(|(after, before)| (after - before) as f64).collect();
    let all: f64 = had.iter().sum();
    had.iter().map(|had| had / all).collect()
}

/// What a level's domains are due when all want all of it: f + (1 - S) c / C (Eclipse 1998, sections 3 and 5.2).
pub fn due(given: &[Settings]) -> Vec<f64> {
    let part = |settings: &Settings| match settings.class.unwrap_or_default() {
        Class::Interactive => 1000.0,
        Class::Normal => 100.0,
        Class::Background => 10.0,
    };
    let reserved = |settings: &Settings| settings.reserved.unwrap_or(0.0);
    let (all, sum): (f64, f64) = (given.iter().map(part).sum(), given.iter().map(reserved).sum());
    given.iter().map(|settings| reserved(settings) + (1.0 - sum) * part(settings) / all).collect()
}
