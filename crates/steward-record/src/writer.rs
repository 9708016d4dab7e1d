//! Writes a recording down: reports of the BPF program become lines.

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};

use steward_sim::cpu::recording::{Cycle, DomainLine, End, Header, Line, Sleep, TaskLine};

use crate::skeleton::types;
use crate::{Summary, cgroups};

const REPORT_TASK: u32 = 1;
const REPORT_BLOCKED: u32 = 3;
const REPORT_ENDED: u32 = 4;
const PHASE_RUNNING: u32 = 1;
const PHASE_WAITING: u32 = 2;

/// Where a recording goes, and what is in it already.
pub(crate) struct Writer<W> {
    output: W,
    begin_ns: u64,
    cgroups: HashMap<u64, DomainLine>,
    written: HashSet<u64>,
    threads: HashSet<i32>,
    cycles: u64,
    failure: Option<io::Error>,
}

impl<W: Write> Writer<W> {
    pub(crate) fn new(output: W) -> Self {
        Writer {
            output,
            begin_ns: 0,
            cgroups: cgroups::all(),
            written: HashSet::new(),
            threads: HashSet::new(),
            cycles: 0,
            failure: None,
        }
    }

    pub(crate) fn header(&mut self, header: &Header) -> io::Result<()> {
        self.write(&Line::Header(header.clone()))
    }

    /// The moment that times are counted from.
    pub(crate) fn begin(&mut self, now_ns: u64) {
        self.begin_ns = now_ns;
    }

    pub(crate) fn end(&mut self, end: &End) -> io::Result<()> {
        self.write(&Line::End { end: *end })?;
        self.output.flush()
    }

    pub(crate) fn summary(&self) -> Summary {
        Summary { tasks: self.threads.len() as u64, cycles: self.cycles, ..Summary::default() }
    }

    /// The first thing that went wrong.
    pub(crate) fn check(&mut self) -> io::Result<()> {
        self.failure.take().map_or(Ok(()), Err)
    }

    fn write(&mut self, line: &Line) -> io::Result<()> {
        serde_json::to_writer(&mut self.output, line)?;
        self.output.write_all(b"\n")
    }

    fn note(&mut self, line: &Line) {
        if self.failure.is_none()
            && let Err(error) = self.write(line)
        {
            self.failure = Some(error);
        }
    }

    pub(crate) fn report(&mut self, report: &types::report) {
        if report.kind == REPORT_TASK {
            return self.task(report);
        }
        let sleep = match report.kind {
            REPORT_BLOCKED => Sleep::D,
            REPORT_ENDED => Sleep::X,
            _ => Sleep::S,
        };
        self.cycle(report.tid, report.at_ns, [report.ran_ns, report.waited_ns, report.slept_ns], sleep);
    }

    fn cycle(&mut self, tid: i32, at_ns: u64, [ran_ns, waited_ns, slept_ns]: [u64; 3], sleep: Sleep) {
        // A thread that was first seen as it woke has done nothing yet.
        if ran_ns + waited_ns + slept_ns == 0 {
            return;
        }
        self.cycles += 1;
        let at_ns = at_ns.saturating_sub(self.begin_ns);
        self.note(&Line::Cycle(Cycle(tid, at_ns, ran_ns, waited_ns, slept_ns, sleep)));
    }

    fn task(&mut self, report: &types::report) {
        if !self.cgroups.contains_key(&report.cgroup_id) && report.cgroup_id > 1 {
            self.cgroups.extend(cgroups::all());
        }
        let domain = self.cgroups.get(&report.cgroup_id).cloned();
        if let Some(domain) = domain.clone().filter(|_| self.written.insert(report.cgroup_id)) {
            self.note(&Line::Domain { domain });
        }
        self.threads.insert(report.tid);
        let name: Vec<u8> =
            report.name.iter().take_while(|byte| **byte != 0).map(|byte| *byte as u8).collect();
        self.note(&Line::Task {
            task: TaskLine {
                tid: report.tid,
                pid: report.pid,
                name: String::from_utf8_lossy(&name).into_owned(),
                nice: report.nice.clamp(-20, 19),
                domain: domain.map_or_else(String::new, |domain| domain.path),
                pinned: u32::try_from(report.pinned).ok(),
            },
        });
    }

    /// Writes down what a thread had done of its cycle when the recording ended.
    pub(crate) fn unfinished(&mut self, tid: i32, thread: &types::thread, end_ns: u64) {
        let spent_ns = end_ns.saturating_sub(thread.since_ns);
        let mut times = [thread.ran_ns, thread.waited_ns, thread.slept_ns];
        match thread.phase {
            PHASE_RUNNING => times[0] += spent_ns,
            PHASE_WAITING => times[1] += spent_ns,
            _ => times[2] += spent_ns,
        }
        if times[0] > 0 {
            self.cycle(tid, end_ns, times, Sleep::X);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(write: impl FnOnce(&mut Writer<&mut Vec<u8>>)) -> Vec<Line> {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes);
        writer.begin(1_000);
        write(&mut writer);
        writer.check().unwrap();
        let text = String::from_utf8(bytes).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn a_thread_is_named_once_and_its_cycles_count_from_the_begin() {
        let mut report =
            types::report { kind: REPORT_TASK, tid: 7, pid: 6, nice: 5, pinned: -1, ..Default::default() };
        report.name[..3].copy_from_slice(&[b'a' as _, b'b' as _, b'c' as _]);
        let slept = types::report { kind: 2, tid: 7, at_ns: 1_500, ran_ns: 100, slept_ns: 300, ..report };
        let lines = lines(|writer| {
            writer.report(&report);
            writer.report(&slept);
        });
        let Line::Task { task } = &lines[0] else { panic!("{lines:?}") };
        assert_eq!((task.tid, task.pid, task.name.as_str(), task.nice, task.pinned), (7, 6, "abc", 5, None));
        assert_eq!(lines[1], Line::Cycle(Cycle(7, 500, 100, 0, 300, Sleep::S)));
    }

    #[test]
    fn what_is_not_over_at_the_end_counts_up_to_it() {
        let running =
            types::thread { since_ns: 2_000, ran_ns: 50, phase: PHASE_RUNNING, ..Default::default() };
        let asleep = types::thread { since_ns: 2_000, phase: 3, ..Default::default() };
        let lines = lines(|writer| {
            writer.unfinished(7, &running, 3_000);
            writer.unfinished(8, &asleep, 3_000);
        });
        assert_eq!(
            lines,
            [Line::Cycle(Cycle(7, 2_000, 1_050, 0, 0, Sleep::X))],
            "who only slept did nothing"
        );
    }
}
