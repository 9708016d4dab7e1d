//! Who holds up somebody that waits for the disk, and where: from what was counted while it waited.
//!
//! A save waits for three things (Yang 2009, sections 10.1 and 10.2): for its turn in the disk's queue, for commits of
//! the journal that all share, and, before anything of it is written, for others' pages when too many are not written
//! yet. The kernel says for how long it was in which of its functions, but not who was served meanwhile: while one's
//! own commit is being written it stands in the same queue. So of somebody who waits for the journal it is looked who
//! had the disk's time: those who wait for commits themselves (the journal) or those who do not (the queue).

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use super::ledger::{Kind, LONG_NS, Served, Wait, Work};

/// Where somebody waits for the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// Its requests, or those of its commit, stand behind those of others.
    #[default]
    Queue,
    /// Too many pages are not written yet: who changes more has to wait.
    DirtyLimit,
    /// The journal is written for others who bring something to the disk, and for it only then, or together with them.
    Journal,
}

impl Reason {
    /// All of them.
    pub const ALL: [Reason; 3] = [Reason::Queue, Reason::DirtyLimit, Reason::Journal];

    /// In a word or two.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Queue => "queue",
            Reason::DirtyLimit => "dirty limit",
            Reason::Journal => "journal",
        }
    }
}

/// Somebody who had time of the disk while another one waited.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// The cgroup's id.
    pub cgroup_id: u64,
    /// What the program is called; `None` where the kernel wrote pages for the cgroup that programs had changed before.
    pub program: Option<String>,
    /// How long the disk was at work for it, in nanoseconds, with its part of the journal.
    pub device_ns: u64,
}

/// What was found about a wait.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Where it waited.
    pub reason: Reason,
    /// For how long the disk was at work for itself, in nanoseconds.
    pub own_ns: u64,
    /// For whom else it was at work, who had most first.
    pub by: Vec<Part>,
}

/// What disks did while somebody waited, by for whom.
#[derive(Default)]
struct Meanwhile {
    own_ns: u64,
    /// For others who waited for commits themselves.
    of_committers_ns: u64,
    /// For others who did not.
    of_others_ns: u64,
    /// For the journals, by the cgroup and the name of the thread that writes them.
    journals_ns: BTreeMap<(u64, String), u64>,
    by: BTreeMap<(u64, Option<String>), u64>,
}

/// Where somebody waited, and who had the disk meanwhile, from lines of what disks did.
pub fn judge<'a>(wait: &Wait, served: impl Iterator<Item = &'a Served> + Clone) -> Verdict {
    let is_meanwhile = |line: &&Served| {
        let is_there = wait.disk.is_none_or(|disk| disk == line.disk);
        is_there && line.at_ns > wait.began_ns && line.at_ns <= wait.ended_ns
    };
    // Who waits for the same commit is told of it at the same time, and noted a moment later.
    let is_around = |line: &&Served| {
        line.what == Work::Committed
            && line.at_ns > wait.began_ns
            && line.at_ns <= wait.ended_ns.saturating_add(LONG_NS)
    };
    let is_other = |line: &Served| line.pid != wait.pid;
    let committed: Vec<&Served> = served.clone().filter(is_around).collect();
    let committers: BTreeSet<i32> =
        committed.iter().filter(|line| is_other(line)).map(|line| line.pid).collect();
    let mut meanwhile = Meanwhile::default();
    for line in served.filter(is_meanwhile) {
        meanwhile.add(line, wait, &committers);
    }
    meanwhile.divide_journal(&committed, wait);
    let reason = reason(wait, &meanwhile, !committers.is_empty());
    let mut by: Vec<Part> = meanwhile
        .by
        .into_iter()
        .map(|((cgroup_id, program), device_ns)| Part { cgroup_id, program, device_ns })
        .collect();
    by.sort_by_key(|part| std::cmp::Reverse(part.device_ns));
    Verdict { reason, own_ns: meanwhile.own_ns, by }
}

impl Meanwhile {
    fn add(&mut self, line: &Served, wait: &Wait, committers: &BTreeSet<i32>) {
        let Work::Requests(kind) = line.what else { return };
        if kind == Kind::Journal {
            let of = self.journals_ns.entry((line.cgroup_id, line.name.clone())).or_default();
            *of = of.saturating_add(line.device_ns);
            return;
        }
        if kind == Kind::Own && line.pid == wait.pid {
            self.own_ns = self.own_ns.saturating_add(line.device_ns);
            return;
        }
        let is_for_commit = kind == Kind::ForCommit || committers.contains(&line.pid);
        let sum = if is_for_commit { &mut self.of_committers_ns } else { &mut self.of_others_ns };
        *sum = sum.saturating_add(line.device_ns);
        let program = (line.pid != 0).then(|| line.name.clone());
        let part = self.by.entry((line.cgroup_id, program)).or_default();
        *part = part.saturating_add(line.device_ns);
    }

    /// The journal's own blocks are of those who waited for commits, each time that they did. Where nobody is known to
    /// wait for any (the kernel tells that of jbd2 only), it is told which thread wrote them.
    fn divide_journal(&mut self, committed: &[&Served], wait: &Wait) {
        let journal_ns = self.journals_ns.values().fold(0_u64, |sum, ns| sum.saturating_add(*ns));
        let Some(each_ns) = journal_ns.checked_div(committed.len() as u64) else {
            if wait.journal_ns == 0 {
                let named = std::mem::take(&mut self.journals_ns).into_iter();
                self.by.extend(named.map(|((cgroup_id, name), ns)| ((cgroup_id, Some(name)), ns)));
            }
            return;
        };
        for line in committed {
            if line.pid == wait.pid {
                self.own_ns = self.own_ns.saturating_add(each_ns);
                continue;
            }
            self.of_committers_ns = self.of_committers_ns.saturating_add(each_ns);
            let part = self.by.entry((line.cgroup_id, Some(line.name.clone()))).or_default();
            *part = part.saturating_add(each_ns);
        }
    }
}

fn reason(wait: &Wait, meanwhile: &Meanwhile, has_committers: bool) -> Reason {
    let is_most = |ns: u64| ns > 0 && ns >= wait.waited_ns() / 2;
    if is_most(wait.dirty_ns) {
        return Reason::DirtyLimit;
    }
    let Meanwhile { of_committers_ns, of_others_ns, .. } = *meanwhile;
    let is_journal = if of_committers_ns == 0 && of_others_ns == 0 {
        has_committers && is_most(wait.journal_ns)
    } else {
        wait.journal_ns > 0 && of_committers_ns > of_others_ns
    };
    if is_journal || is_most(wait.others_commit_ns) { Reason::Journal } else { Reason::Queue }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;
    const SAVER: i32 = 7;
    const DISK: u32 = 8 << 20;

    fn wait(journal_ms: u64, dirty_ms: u64) -> Wait {
        Wait {
            began_ns: 1_000 * MS,
            ended_ns: 1_160 * MS,
            cgroup_id: 1,
            disk: Some(DISK),
            pid: SAVER,
            journal_ns: journal_ms * MS,
            dirty_ns: dirty_ms * MS,
            ..Wait::default()
        }
    }

    fn line(at_ms: u64, pid: i32, name: &str, device_ms: u64, what: Work) -> Served {
        let (at_ns, device_ns) = (at_ms * MS, device_ms * MS);
        Served { at_ns, cgroup_id: 2, disk: DISK, pid, name: name.into(), device_ns, what }
    }

    fn own(at_ms: u64, pid: i32, name: &str, device_ms: u64) -> Served {
        line(at_ms, pid, name, device_ms, Work::Requests(Kind::Own))
    }

    /// A save as it goes: its data, its commit of two requests.
    fn save() -> Vec<Served> {
        let journal = Work::Requests(Kind::Journal);
        vec![
            own(1_040, SAVER, "save", 10),
            line(1_080, 0, "jbd2", 10, journal),
            line(1_150, 0, "jbd2", 10, journal),
            line(1_160, SAVER, "save", 0, Work::Committed),
        ]
    }

    #[test]
    fn beside_a_direct_writer_it_is_the_queue_although_the_commit_takes_most_of_the_time() {
        let mut served = save();
        served.extend((0..10).map(|at| own(1_005 + at * 15, 8, "writer", 13)));
        let verdict = judge(&wait(121, 0), served.iter());
        assert_eq!((verdict.reason, verdict.own_ns), (Reason::Queue, 30 * MS));
        let writer = Part { cgroup_id: 2, program: Some("writer".into()), device_ns: 130 * MS };
        assert_eq!(verdict.by, [writer]);
    }

    #[test]
    fn beside_those_who_fsync_it_is_the_journal_and_they_pay_for_its_blocks() {
        let mut served = save();
        for pid in 20..27 {
            served.push(own(1_045 + pid as u64, pid, "storm", 10));
            // Told at the same time, some of them a moment later.
            served.push(line(1_155 + (pid - 20) as u64 * 3, pid, "storm", 0, Work::Committed));
        }
        let verdict = judge(&wait(40, 0), served.iter());
        assert_eq!(verdict.reason, Reason::Journal);
        assert_eq!(verdict.by.len(), 1);
        // Of 20 ms of the journal's, 7 of 8 parts.
        assert_eq!(verdict.by[0].device_ns, 70 * MS + 7 * (20 * MS / 8));
        assert_eq!(
            judge(&wait(0, 0), served.iter()).reason,
            Reason::Queue,
            "it did not wait for the journal"
        );
    }

    #[test]
    fn who_is_held_back_because_too_much_is_not_written_is_told_so_and_whose_it_is() {
        let served: Vec<Served> =
            (0..15).map(|at| line(1_010 + at * 10, 0, "kworker", 10, Work::Requests(Kind::Own))).collect();
        let verdict = judge(&wait(0, 150), served.iter());
        assert_eq!(verdict.reason, Reason::DirtyLimit);
        assert_eq!(verdict.by, [Part { cgroup_id: 2, program: None, device_ns: 150 * MS }]);
    }

    #[test]
    fn data_that_a_commit_waits_for_are_the_journals_matter() {
        let mut served = save();
        served.extend((0..8).map(|at| line(1_085 + at * 8, 0, "jbd2", 8, Work::Requests(Kind::ForCommit))));
        assert_eq!(judge(&wait(110, 0), served.iter()).reason, Reason::Journal);
        let first = Wait { others_commit_ns: 100 * MS, ..wait(110, 0) };
        assert_eq!(judge(&first, save().iter()).reason, Reason::Journal, "another commit came first");
    }

    #[test]
    fn where_nobody_is_known_to_wait_for_a_journal_it_is_told_by_its_name_and_is_no_other() {
        let thread = |at_ms| line(at_ms, 0, "xfsaild/sda1", 10, Work::Requests(Kind::Journal));
        let served = [own(1_040, SAVER, "save", 10), thread(1_060), thread(1_080)];
        let verdict = judge(&wait(0, 0), served.iter());
        assert_eq!((verdict.reason, verdict.own_ns), (Reason::Queue, 10 * MS));
        let log = Part { cgroup_id: 2, program: Some("xfsaild/sda1".into()), device_ns: 20 * MS };
        assert_eq!(verdict.by, [log]);
        // While a commit that it waits for is being written, the blocks are its own as well as others'.
        assert_eq!(judge(&wait(100, 0), served.iter()).by, []);
    }

    #[test]
    fn what_other_disks_do_is_nothing_to_it() {
        let mut served = save();
        served.extend((0..10).map(|at| Served { disk: 9, ..own(1_005 + at * 15, 8, "writer", 13) }));
        assert_eq!(judge(&wait(121, 0), served.iter()).by, []);
        let anywhere = Wait { disk: None, ..wait(121, 0) };
        assert_eq!(judge(&anywhere, served.iter()).by.len(), 1, "where nobody knows which it is");
    }

    #[test]
    fn of_what_nothing_is_known_the_queue_is_said_and_nobody() {
        assert_eq!(judge(&wait(0, 0), [].iter()), Verdict::default());
    }

    fn any_line() -> impl Strategy<Value = Served> {
        let what = prop_oneof![
            Just(Work::Requests(Kind::Own)),
            Just(Work::Requests(Kind::Journal)),
            Just(Work::Requests(Kind::ForCommit)),
            Just(Work::Committed),
        ];
        (900_u64..1_300, 0_i32..12, 0_u64..30, what).prop_map(|(at_ms, pid, device_ms, what)| {
            let device_ms = if what == Work::Committed { 0 } else { device_ms };
            line(at_ms, pid, &format!("program{}", pid % 3), device_ms, what)
        })
    }

    proptest! {
        #[test]
        fn nobody_is_said_to_have_had_more_than_the_disk_did_meanwhile(
            served in proptest::collection::vec(any_line(), 0..60),
            (journal_ms, dirty_ms) in (0_u64..160, 0_u64..160),
        ) {
            let wait = wait(journal_ms, dirty_ms);
            let verdict = judge(&wait, served.iter());
            let done_ns: u64 = served
                .iter()
                .filter(|line| line.at_ns > wait.began_ns && line.at_ns <= wait.ended_ns)
                .map(|line| line.device_ns)
                .sum();
            let said_ns = verdict.own_ns + verdict.by.iter().map(|part| part.device_ns).sum::<u64>();
            prop_assert!(said_ns <= done_ns, "{said_ns} of {done_ns}");
            prop_assert!(verdict.by.is_sorted_by(|one, other| one.device_ns >= other.device_ns));
        }

        #[test]
        fn what_the_disk_did_before_and_after_changes_nothing(
            served in proptest::collection::vec(any_line(), 0..60),
            journal_ms in 0_u64..160,
        ) {
            let wait = wait(journal_ms, 0);
            let around: Vec<Served> = served
                .iter()
                .filter(|line| line.at_ns > wait.began_ns && line.at_ns <= wait.ended_ns + LONG_NS)
                .cloned()
                .collect();
            prop_assert_eq!(judge(&wait, served.iter()), judge(&wait, around.iter()));
        }

        #[test]
        fn without_anybody_who_commits_it_is_never_the_journal(
            served in proptest::collection::vec(any_line(), 0..60),
            journal_ms in 0_u64..160,
        ) {
            let alone: Vec<Served> = served
                .into_iter()
                .filter(|line| matches!(line.what, Work::Requests(Kind::Own | Kind::Journal)))
                .collect();
            prop_assert_ne!(judge(&wait(journal_ms, 0), alone.iter()).reason, Reason::Journal);
        }
    }
}
