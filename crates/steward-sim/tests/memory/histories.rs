//! Random histories of the memory machine.

use proptest::prelude::*;
use steward_sim::Amount;
use steward_sim::memory::scenario::{
    Behaviour, DomainSpec, Interactive, MachineSettings, ProgramSpec, ProtectedSpec, Scenario,
    StewardSettings,
};

pub const MIB: u64 = 1 << 20;
pub const MS: u64 = 1_000_000;
pub const SECOND: u64 = 1_000 * MS;

/// One program in a domain of its own.
#[derive(Clone, Debug)]
pub struct Part {
    pub domain: DomainSpec,
    pub start_ns: u64,
    pub end_ns: Option<u64>,
    pub behaviour: Behaviour,
}

pub fn scenario(seed: u64, machine: MachineSettings, files: Vec<u64>, parts: &[Part]) -> Scenario {
    let programs = parts.iter().enumerate().map(|(place, part)| ProgramSpec {
        domain: place,
        start_ns: part.start_ns,
        end_ns: part.end_ns,
        behaviour: part.behaviour.clone(),
    });
    Scenario {
        seed,
        machine,
        files,
        domains: parts.iter().map(|part| part.domain).collect(),
        programs: programs.collect(),
        changes: Vec::new(),
        steward: Some(StewardSettings::default()),
    }
}

/// From memory that is compressed to a disk that turns.
pub fn device() -> impl Strategy<Value = u64> {
    prop_oneof![Just(100_000), Just(700_000), Just(5 * MS), Just(16 * MS)]
}

pub fn any_machine(swap: impl Strategy<Value = u64>) -> impl Strategy<Value = MachineSettings> {
    (150..400_u64, 16..40_u64, (1..5_u64, 1..5_u64, 1..8_u64), swap, device(), device()).prop_map(
        |(total, kernel, (min, low, high), swap_mib, swap_ns, disk_ns)| MachineSettings {
            total_bytes: total * MIB,
            kernel_bytes: kernel * MIB,
            min_watermark_bytes: min * MIB,
            low_watermark_bytes: (min + low) * MIB,
            high_watermark_bytes: (min + low + high) * MIB,
            swap_bytes: swap_mib * MIB,
            swap_ns,
            disk_ns,
        },
    )
}

/// An interactive program that grows by no more than what is kept for growth.
pub fn interactive() -> impl Strategy<Value = Part> {
    (
        8..60_u64,
        0..3_usize,
        100..1500_u64,
        (0..40_u64, prop_oneof![1..6_u32, Just(u32::MAX)]),
        0..8_u64,
        (2..8_u64, any::<bool>()),
    )
        .prop_map(|(own, file, pause_ms, (rare, rare_every), burst, (period, is_revocable))| Part {
            domain: DomainSpec {
                protected: Some(ProtectedSpec { period_ns: period * SECOND, is_revocable }),
                ..DomainSpec::default()
            },
            start_ns: 0,
            end_ns: None,
            behaviour: Behaviour::Interactive(Interactive {
                bytes: own * MIB,
                file: (file < 2).then_some(file),
                pause: Amount::Uniform(pause_ms * MS / 2, pause_ms * MS),
                rare_bytes: rare * MIB,
                rare_every,
                burst_bytes: burst * MIB / 2,
                burst_every_ns: 400 * MS,
                most_bytes: own * MIB * 2,
            }),
        })
}

pub fn behaviour() -> impl Strategy<Value = Behaviour> {
    prop_oneof![
        (50..600_u64, 100_000..2 * MS)
            .prop_map(|(bytes, group_ns)| Behaviour::Hog { bytes: bytes * MIB, group_ns }),
        (10..200_u64, 10..300_u64)
            .prop_map(|(rate, bytes)| Behaviour::Grower { bytes_per_second: rate * MIB, bytes: bytes * MIB }),
        (20..300_u64).prop_map(|rate| Behaviour::Reader { file: 2, bytes_per_second: rate * MIB }),
        (10..300_u64).prop_map(|bytes| Behaviour::Adaptive { bytes: bytes * MIB }),
    ]
}

pub fn other() -> impl Strategy<Value = Part> {
    (behaviour(), 0..8_u64, prop::option::of(1..10_u64), 0..8_u8, 1..100_u32).prop_map(
        |(behaviour, start, length, priority, weight)| Part {
            domain: DomainSpec { priority, weight, ..DomainSpec::default() },
            start_ns: start * SECOND,
            end_ns: length.map(|length| (start + length) * SECOND),
            behaviour,
        },
    )
}

pub fn files() -> impl Strategy<Value = Vec<u64>> {
    (0..10_u64, 0..10_u64, 50..600_u64)
        .prop_map(|(one, other, large)| vec![one * MIB, other * MIB, large * MIB])
}

pub fn any_history(swap: impl Strategy<Value = u64>) -> impl Strategy<Value = Scenario> {
    let parts = (prop::collection::vec(interactive(), 1..4), prop::collection::vec(other(), 1..5));
    (any::<u16>(), any_machine(swap), files(), parts).prop_map(
        |(seed, machine, files, (mut parts, others))| {
            parts.extend(others);
            // A file belongs to one: what another touched first is charged there.
            for (place, part) in parts.iter_mut().enumerate() {
                if let Behaviour::Interactive(interactive) = &mut part.behaviour {
                    interactive.file = interactive.file.filter(|file| *file == place);
                }
            }
            scenario(u64::from(seed), machine, files, &parts)
        },
    )
}

/// Histories in which the protected domains belong to three users, may all be demoted, and seldom all fit.
pub fn of_users() -> impl Strategy<Value = Scenario> {
    let part = (interactive(), 0..3_u32, 1..4_u64, 0..6_u64).prop_map(|(mut part, user, times, start)| {
        part.domain.user = user;
        part.start_ns = start * SECOND;
        if let Some(protected) = &mut part.domain.protected {
            protected.is_revocable = true;
        }
        if let Behaviour::Interactive(interactive) = &mut part.behaviour {
            interactive.file = None;
            interactive.bytes *= times;
            interactive.most_bytes *= times;
        }
        part
    });
    let parts = (prop::collection::vec(part, 2..6), prop::collection::vec(other(), 1..3));
    (any::<u16>(), any_machine(Just(2000)), files(), parts).prop_map(
        |(seed, machine, files, (mut parts, others))| {
            parts.extend(others);
            scenario(u64::from(seed), machine, files, &parts)
        },
    )
}

pub fn swaps() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), 50..400_u64, Just(2000)]
}

/// Histories in which the demand does not depend on who manages the memory.
pub fn fixed_demand(swap: impl Strategy<Value = u64>) -> impl Strategy<Value = Scenario> {
    any_history(swap).prop_map(|mut scenario| {
        for program in &mut scenario.programs {
            if let Behaviour::Adaptive { bytes } = program.behaviour {
                program.behaviour = Behaviour::Grower { bytes_per_second: 2000 * MIB, bytes };
            }
        }
        scenario
    })
}

/// After so many seconds those in [`holders`] have what they will have.
pub const HOLDERS_SECONDS: u64 = 40;

/// Such as take memory and keep it, some of them promised a part, protected or with a limit of what may be swapped out
/// of them; and one that then uses all that is
/// available to it.
pub fn holders() -> impl Strategy<Value = Scenario> {
    let swap_max = prop::option::of(prop_oneof![Just(0), 0..100_u64]);
    let holder = (10..150_u64, 1..100_u32, 0..8_u8, 0..60_u64, swap_max).prop_map(
        |(mib, weight, priority, min_mib, swap_max_mib)| Part {
            domain: DomainSpec {
                weight,
                priority,
                min_bytes: min_mib * MIB / 2,
                swap_max_bytes: swap_max_mib.map(|mib| mib * MIB),
                ..DomainSpec::default()
            },
            start_ns: 0,
            end_ns: None,
            behaviour: Behaviour::Grower { bytes_per_second: 200 * MIB, bytes: mib * MIB },
        },
    );
    let parts = (prop::collection::vec(holder, 1..5), prop::option::of(interactive()), 1..100_u32, 0..8_u8);
    (any::<u16>(), any_machine(swaps()), files(), parts).prop_map(
        |(seed, machine, files, (mut parts, protected, weight, priority))| {
            parts.extend(protected.map(|mut part| {
                if let Behaviour::Interactive(interactive) = &mut part.behaviour {
                    (interactive.burst_bytes, interactive.rare_bytes) = (0, 0);
                }
                part
            }));
            parts.push(Part {
                domain: DomainSpec { weight, priority, ..DomainSpec::default() },
                start_ns: HOLDERS_SECONDS * SECOND,
                end_ns: None,
                behaviour: Behaviour::Adaptive { bytes: 1 << 40 },
            });
            scenario(u64::from(seed), machine, files, &parts)
        },
    )
}
