//! Tasks that belong together: the threads of a process, and those of the kernel itself in a domain. Pure.

use std::collections::BTreeMap;

use libsteward::api::Forecast;

use super::cpu::promise::Promise;
use super::row::{Key, TaskRow};
use super::text::NOTHING_MS_PER_S;

/// Several tasks as one row.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupRow {
    /// Which: [`Key::Process`] or [`Key::Kernel`].
    pub key: Key,
    /// What it is called: as the process's first thread.
    pub name: String,
    /// The domain that it is in: of a process, that of its first thread.
    pub domain: String,
    /// The user of the first thread.
    pub user: u32,
    /// The numbers and names of the threads.
    pub members: Vec<(i32, String)>,
    /// What they got, wanted and will get together. They could get the sum of what each could, at most the machine.
    pub forecast: Forecast,
    /// Of the promises to the threads, the one that is kept worst.
    pub promise: Option<Promise>,
}

impl GroupRow {
    /// The process's number.
    pub fn pid(&self) -> Option<i32> {
        match self.key {
            Key::Process(pid) => Some(pid),
            _ => None,
        }
    }

    /// The name with how many there are.
    pub fn title(&self) -> String {
        format!("{} ({})", self.name, self.members.len())
    }
}

/// What the kernel's own threads are called together.
const KERNEL: &str = "kernel";

/// The groups of two and more, in the order of their first task.
pub fn of(tasks: &[TaskRow], cpus: u32) -> Vec<GroupRow> {
    let mut places: BTreeMap<Key, usize> = BTreeMap::new();
    let mut groups: Vec<Vec<&TaskRow>> = Vec::new();
    for row in tasks {
        let place = *places.entry(key(row)).or_insert(groups.len());
        match groups.get_mut(place) {
            Some(group) => group.push(row),
            None => groups.push(vec![row]),
        }
    }
    groups.into_iter().filter(|group| group.len() > 1).map(|group| together(&group, cpus)).collect()
}

/// The group that a task belongs to, whether there is one or not.
pub fn key(row: &TaskRow) -> Key {
    if row.kernel { Key::Kernel(row.task.domain.clone()) } else { Key::Process(row.task.pid) }
}

fn together(rows: &[&TaskRow], cpus: u32) -> GroupRow {
    let first = rows.iter().find(|row| row.task.tid == row.task.pid).unwrap_or(&rows[0]);
    let sum = |figure: fn(&Forecast) -> f64| rows.iter().map(|row| figure(&row.task.forecast)).sum::<f64>();
    let (actual, desired) = (sum(|of| of.actual_ms_per_s), sum(|of| of.desired_ms_per_s));
    let predicted = sum(|of| of.predicted_ms_per_s);
    let potential = sum(|of| of.potential_ms_per_s).min(f64::from(cpus.max(1)) * 1e3);
    let over = |got: f64| (desired >= NOTHING_MS_PER_S && got > 0.0).then(|| desired / got);
    let worst = rows.iter().filter_map(|row| row.promise.as_ref()).min_by_key(|promise| promise.state as u8);
    GroupRow {
        key: key(first),
        name: if first.kernel { KERNEL.to_owned() } else { first.task.name.clone() },
        domain: first.task.domain.clone(),
        user: first.task.user,
        members: rows.iter().map(|row| (row.task.tid, row.task.name.clone())).collect(),
        forecast: Forecast {
            actual_ms_per_s: actual,
            desired_ms_per_s: desired,
            predicted_ms_per_s: predicted,
            potential_ms_per_s: potential,
            slowdown: over(actual),
            future_slowdown: over(predicted),
            potential_slowdown: over(potential),
        },
        promise: worst.cloned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::testing;
    use super::*;

    #[test]
    fn the_threads_of_a_process_and_those_of_the_kernel_are_one_row_each() {
        let mut model = super::super::model::Model::default();
        model.take(testing::reading_with_threads());
        let groups = &model.snapshot().groups;
        let shown: Vec<(String, &Key)> = groups.iter().map(|group| (group.title(), &group.key)).collect();
        let kernel = Key::Kernel("/".into());
        assert_eq!(shown, [("mplayer (3)".to_owned(), &Key::Process(4321)), ("kernel (2)".into(), &kernel)]);
        let film = &groups[0];
        assert_eq!((film.forecast.actual_ms_per_s, film.forecast.desired_ms_per_s), (103.0, 210.0));
        assert_eq!(film.forecast.slowdown, Some(210.0 / 103.0));
        assert_eq!(film.promise.as_ref().map(|promise| promise.reserved.as_str()), Some("5ms/30ms"));
        assert!(film.forecast.potential_ms_per_s <= 2000.0);
    }
}
