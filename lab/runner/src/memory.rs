//! Experiments on memory: a disk in the guest's own time, what root can set by hand, and what memory went through.
//!
//! A scenario is one of these when its machine has a `timed_disk`. What root sets by hand stands in the scenario,
//! because that is what it takes: somebody who knows how large each program is, or who the others are.

use anyhow::bail;
use steward_lab_guest::{FreeMemory, MachineMemory, MemorySetup, Program, ProgramMemory};

use crate::metrics::Metrics;
use crate::scenario::{Contender, ProgramRow, Scenario};
use crate::size;

const PAGES_PER_MIB: f64 = 256.0;

/// What the agent is to set up for memory under `contender`; nothing in other experiments.
pub fn planned(scenario: &Scenario, contender: Contender) -> Option<MemorySetup> {
    scenario.machine.timed_disk.as_ref()?;
    let ceiling_mib = scenario.ceiling_mib.filter(|_| contender == Contender::HighByHand);
    Some(MemorySetup { ceiling_bytes: ceiling_mib.map(size::bytes) })
}

/// Gives a program what `contender` has for those that are to be protected: a minimum by hand, or Steward's own.
pub fn protect(scenario: &Scenario, row: &ProgramRow, contender: Contender, program: Program) -> Program {
    if !row.protect {
        // In an experiment on the disk it is what the person at the machine looks at.
        let protected = scenario.machine.timed_disk.as_ref().is_some_and(|disk| disk.elevator.is_some());
        return Program { protected: protected && row.foreground, ..program };
    }
    let size_bytes = row.memory_size_mib.map(size::bytes);
    let mut program = Program { protected: true, ..program };
    match contender {
        Contender::MinByHand => program.memory_min_bytes = size_bytes,
        // As somebody would guess who looks at it in a quiet moment.
        Contender::MinWrong => program.memory_min_bytes = size_bytes.map(|bytes| bytes / 3),
        _ => {}
    }
    program
}

/// What contenders need to know is there, and what is there means something.
///
/// # Errors
/// Says what is missing.
pub fn check(scenario: &Scenario) -> anyhow::Result<()> {
    let protected: Vec<&ProgramRow> = scenario.programs.iter().filter(|row| row.protect).collect();
    let is_about_memory = scenario.machine.timed_disk.is_some();
    if !is_about_memory && (!protected.is_empty() || scenario.ceiling_mib.is_some()) {
        bail!("protect and ceiling are for experiments on memory, whose machine has a [machine.timed_disk]");
    }
    if let Some(row) = scenario.programs.iter().find(|row| row.memory_size_mib.is_some() && !row.protect) {
        bail!("program `{}` has a memory_size, and nothing protects it (protect = true)", row.name);
    }
    for contender in &scenario.contenders {
        match contender {
            Contender::MinByHand | Contender::MinWrong
                if protected.is_empty() || protected.iter().any(|row| row.memory_size_mib.is_none()) =>
            {
                bail!(
                    "{contender} must be told the memory_size of each program with protect = true, of at least one"
                )
            }
            Contender::HighByHand if scenario.ceiling_mib.is_none() => {
                bail!("{contender} must be told the ceiling of all programs without protect = true")
            }
            _ => {}
        }
    }
    if scenario.machine.timed_disk.is_some() && scenario.machine.icount_shift.is_none_or(|shift| shift > 3) {
        bail!(
            "a timed disk needs icount_shift, at most 3: without it the disk is not in the guest's time, and above it what \
             frees memory is bound by the CPU"
        );
    }
    Ok(())
}

/// `major_faults`: pages that a program waited for a disk for while it was to answer. Nothing where it does not say.
pub fn fault_metrics(text: &str) -> Metrics {
    let told = text.lines().filter_map(|line| line.strip_prefix("m ")?.trim().parse::<f64>().ok());
    told.reduce(|sum, faults| sum + faults)
        .map(|faults| ("major_faults".to_owned(), faults))
        .into_iter()
        .collect()
}

/// `programs_without_faults`: of several programs that tell their faults, how many had none, and answered at all.
pub fn without_faults(programs: &[(String, Metrics)]) -> Metrics {
    let told: Vec<f64> =
        programs.iter().filter_map(|(_, metrics)| metrics.get("major_faults")).copied().collect();
    let without = told.iter().filter(|faults| **faults == 0.0).count() as f64;
    let is_told = programs.len() > 1 && !told.is_empty();
    is_told.then(|| ("programs_without_faults".to_owned(), without)).into_iter().collect()
}

/// `collector_share`, the part of a program's time that its collector of garbage took, and `collections`, how many
/// there were. Nothing where it does not say.
pub fn collector_metrics(text: &str) -> Metrics {
    let numbers = |kind: &'static str| {
        let of_kind = text.lines().filter_map(move |line| line.strip_prefix(kind)?.split_once(' '));
        let pairs = of_kind.filter_map(|(one, other)| Some((one.parse().ok()?, other.trim().parse().ok()?)));
        pairs.collect::<Vec<(f64, f64)>>()
    };
    let (collected, worked) = (numbers("g "), numbers("w "));
    let ends = |reports: &[(f64, f64)]| Some((*reports.first()?, *reports.last()?));
    let (Some((before, after)), Some((begin, end))) = (ends(&collected), ends(&worked)) else {
        return Metrics::new();
    };
    let share = (after.0 - before.0) / (end.1 - begin.1);
    let share = share.is_finite().then(|| ("collector_share".to_owned(), share));
    share.into_iter().chain([("collections".to_owned(), after.1 - before.1)]).collect()
}

/// How long after a domain has come or gone the others are to have their shares, in milliseconds.
const SHARES_SETTLE_MS: f64 = 5_000.0;
/// For how long a domain of which the last program has ended may still be listed, in milliseconds: it uses nothing any
/// more, and others are told so.
const SHARES_GONE_MS: f64 = 1_000.0;

/// How far domains are from their shares by weight, as fractions of these, in the worst case: `off_share_used` by what
/// each uses, `off_share_available` by what each is told that it may use. Both are means over the time in which no
/// domain comes or goes, from five seconds after one did to one second before the next does; where there is only one
/// domain nothing is to be shared.
pub fn share_metrics(text: &str) -> Metrics {
    let mut looks: Vec<(f64, Vec<Shared>)> = Vec::new();
    for (at_ms, shared) in text.lines().filter_map(shared) {
        match looks.last_mut().filter(|look| look.0 == at_ms) {
            Some(look) => look.1.push(shared),
            None => looks.push((at_ms, vec![shared])),
        }
    }
    let names = |look: &(f64, Vec<Shared>)| look.1.iter().map(|of| of.name.clone()).collect::<Vec<_>>();
    let mut errors = [0.0_f64; 2];
    let mut is_any = false;
    for stretch in looks.chunk_by(|one, other| names(one) == names(other)) {
        let from_ms = stretch[0].0 + SHARES_SETTLE_MS;
        let until_ms = stretch[stretch.len() - 1].0 - SHARES_GONE_MS;
        let is_settled = |look: &&(f64, _)| (from_ms..=until_ms).contains(&look.0);
        let settled: Vec<&Vec<Shared>> = stretch.iter().filter(is_settled).map(|look| &look.1).collect();
        let Some(first) = settled.first().filter(|first| first.len() > 1) else { continue };
        is_any = true;
        let weight_sum: f64 = first.iter().map(|of| of.weight).sum();
        for (error, amount) in errors.iter_mut().zip([0, 1]) {
            let sum_of = |place: usize| settled.iter().map(|look| look[place].kib[amount]).sum::<f64>();
            let whole: f64 = (0..first.len()).map(sum_of).sum();
            for (place, of) in first.iter().enumerate() {
                let due = whole * of.weight / weight_sum;
                *error = error.max((sum_of(place) / due - 1.0).abs());
            }
        }
    }
    let named = ["off_share_used", "off_share_available"].map(str::to_owned).into_iter().zip(errors);
    named.filter(|_| is_any).collect()
}

/// A domain among others that share memory: what it uses and what it may use, in KiB.
struct Shared {
    name: String,
    weight: f64,
    kib: [f64; 2],
}

/// The moment and the domain of a line `a AT NAME WEIGHT USED AVAILABLE`.
fn shared(line: &str) -> Option<(f64, Shared)> {
    let words: Vec<&str> = line.strip_prefix("a ")?.split_ascii_whitespace().collect();
    let [at_ms, name, weight, used_kib, available_kib] = words[..] else { return None };
    let kib = [used_kib.parse().ok()?, available_kib.parse().ok()?];
    Some((at_ms.parse().ok()?, Shared { name: name.to_owned(), weight: weight.parse().ok()?, kib }))
}

/// What a program's cgroup tells: `cgroup_major_faults_NAME`, `throttled_NAME`, `low_breached_NAME`, `oom_kills_NAME`.
pub fn program_metrics(name: &str, seen: &ProgramMemory) -> Metrics {
    let numbers = [
        ("cgroup_major_faults", seen.major_faults),
        ("throttled", seen.throttled),
        ("low_breached", seen.low_breached),
        ("oom_kills", seen.oom_kills),
    ];
    numbers.iter().map(|(metric, count)| (format!("{metric}_{name}"), *count as f64)).collect()
}

/// What the machine's memory went through: `direct_reclaims`, `oom_kills`, `swapped_in_mib`, `swapped_out_mib`.
pub fn machine_metrics(seen: &MachineMemory) -> Metrics {
    let numbers = [
        ("direct_reclaims", seen.direct_reclaims as f64),
        ("oom_kills", seen.oom_kills as f64),
        ("swapped_in_mib", seen.swapped_in as f64 / PAGES_PER_MIB),
        ("swapped_out_mib", seen.swapped_out as f64 / PAGES_PER_MIB),
    ];
    numbers.iter().map(|(metric, number)| ((*metric).to_owned(), *number)).collect()
}

/// What was free when a run began: all contenders are to begin alike.
pub fn start_metrics(free: &FreeMemory) -> Metrics {
    let numbers = [
        ("free_at_start_mib", free.pages as f64 / PAGES_PER_MIB),
        ("free_together_at_start", free.huge_pages as f64 / free.pages.max(1) as f64),
    ];
    numbers.iter().map(|(metric, number)| ((*metric).to_owned(), *number)).collect()
}

#[cfg(test)]
mod tests;
