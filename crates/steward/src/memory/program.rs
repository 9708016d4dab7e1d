//! `steward set PID --memory-min` and its like: memory of a program that runs.

use libsteward::{Client, api};
use steward_core::quantity::{approximate_size, format_duration, format_size};

use super::arguments::MemoryArguments;
use crate::domain::arguments::{SettingArguments, Wanted};
use crate::output;

/// Asks for it, and says what became of it.
///
/// # Errors
/// What the daemon says.
pub fn set(client: &mut Client, pid: i32, asked: &MemoryArguments<Wanted<i64>>) -> anyhow::Result<()> {
    let settings = SettingArguments { memory: asked.clone(), ..SettingArguments::default() }.to_api();
    let request = api::SetMemory {
        pid,
        memory_min: settings.memory_min,
        memory_max: settings.memory_max,
        protect: settings.protect,
        reset: settings.reset,
    };
    let reply = client.call(&request)?;
    output::print(&text(pid, asked, &reply))
}

fn text(pid: i32, asked: &MemoryArguments<Wanted<i64>>, set: &api::MemorySet) -> String {
    let domain = &set.domain;
    let mut text = match (&set.from, set.moved) {
        (Some(from), 0 | 1) => format!("Process {pid} was moved from {from} to {domain}"),
        (Some(from), moved) => {
            format!("Process {pid} and {} that descend from it were moved from {from} to {domain}", moved - 1)
        }
        (None, _) => format!("Process {pid} stays in {domain}"),
    };
    text = format!("{text}: {}.\n", given(asked).join(", "));
    if set.stayed > 0 {
        text += &format!(
            "Not moved: {} that descend from it, because they are not yours to move, or the kernel does not let them go.\n",
            set.stayed
        );
    }
    if !set.whole {
        text += "Not all that descend from it were moved: some begin others faster than they can be moved. Those that are left stay \
                 where they were.\n";
    }
    if let Some(bytes) = set.left_bytes {
        text += &format!(
            "{} that they had before stay charged to where they were, and are neither kept nor limited in {domain} until they are started \
             anew.\n",
            approximate_size(bytes)
        );
    }
    text
}

/// What was asked, in parts of a sentence.
fn given(asked: &MemoryArguments<Wanted<i64>>) -> Vec<String> {
    let amount = |bytes: i64| format_size(u64::try_from(bytes).unwrap_or(0));
    let min = asked.memory_min.map(|min| match min {
        Wanted::Value(bytes) => format!("{} of memory are promised there", amount(bytes)),
        Wanted::Default => "no memory of its own is promised to it".to_owned(),
    });
    let max = asked.memory_max.map(|max| match max {
        Wanted::Value(bytes) => format!("at most {} may be used there", amount(bytes)),
        Wanted::Default => "it has no maximum of its own".to_owned(),
    });
    let protect = asked.protect.map(|period| match period {
        Wanted::Value(period_ns) => format!(
            "what was used there within {} is kept in memory",
            format_duration(u64::try_from(period_ns).unwrap_or(0))
        ),
        Wanted::Default => "its pages are not protected".to_owned(),
    });
    [min, max, protect].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_done_is_said_and_what_was_not() {
        let asked = MemoryArguments {
            memory_min: Some(Wanted::Value(64 << 20)),
            memory_max: Some(Wanted::Value(1 << 30)),
            protect: None,
        };
        let moved = api::MemorySet {
            domain: "program-7".into(),
            from: Some("/".into()),
            moved: 3,
            stayed: 1,
            whole: false,
            left_bytes: Some(3 << 20),
        };
        let in_place = api::MemorySet { domain: "run-7".into(), whole: true, ..api::MemorySet::default() };
        let back = MemoryArguments {
            memory_min: Some(Wanted::Default),
            memory_max: Some(Wanted::Default),
            protect: Some(Wanted::Default),
        };
        let said = [
            "Process 7 and 2 that descend from it were moved from / to program-7: 64M of memory are promised there, at most 1G may be used \
             there.",
            "Not moved: 1 that descend from it, because they are not yours to move, or the kernel does not let them go.",
            "Not all that descend from it were moved: some begin others faster than they can be moved. Those that are left stay where they \
             were.",
            "3M that they had before stay charged to where they were, and are neither kept nor limited in program-7 until they are started \
             anew.",
        ];
        assert_eq!(text(7, &asked, &moved).lines().collect::<Vec<_>>(), said);
        let said = "Process 7 stays in run-7: no memory of its own is promised to it, it has no maximum of its own, its pages are not \
                    protected.\n";
        assert_eq!(text(7, &back, &in_place), said);
    }
}
