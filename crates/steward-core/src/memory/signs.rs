//! What shows that somebody uses a program, out of what a stock kernel tells.
//!
//! Edwards & Cao (section 3.1.3) had the kernel count the reads from terminals and sockets of each process, and its
//! page faults. A stock kernel says when a terminal or an input device is read, and counts CPU time and faults, but no
//! reads of sockets one by one; and that a graphical program is woken says little, since its timers and the window
//! system do that too. So there are four signs, surest first:
//!
//! - **Terminal**: a program in the foreground of its terminal has read what was typed. That is use.
//! - **Input**: it ran when somebody used a keyboard, mouse or touchpad of the machine, for longer than its timers have
//!   it run. It is likely to be the one that was meant; the others that ran then are taken for used too.
//! - **Work**: over a minute it had [`WORK_PART`] of a CPU. A film, a compiler: nobody may touch it, and it is in use
//!   all the same. What only ticks a timer stays well below that.
//! - **Faults**: it had to have pages read back. That is all that is to be seen where somebody uses a program over the
//!   network and it does little for that. A timer whose pages were taken looks the same, so it counts only where no
//!   terminal would show better.

/// The part of one CPU that is work rather than timers: 1 of so many.
const WORK_PART: u64 = 50;
/// Over which time that is judged at most, in nanoseconds.
const WORK_NS: u64 = 60_000_000_000;
/// What a program runs at least for what is typed or clicked, in nanoseconds.
const REACTION_NS: u64 = 1_000_000;
/// And so many times what it runs anyway in that time.
const REACTION_TIMES: u64 = 4;
/// What runs anyway is averaged over so many looks.
const USUAL_LOOKS: u64 = 16;
/// So many faults that waited for a disk, within this time in nanoseconds: few enough for a slow one under load.
const FAULTS: u64 = 16;
const FAULTS_NS: u64 = 4_000_000_000;

/// What can show that a domain is in use, surest last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Evidence {
    /// Nothing yet: it has only just been protected.
    Protected,
    /// It had pages read back.
    Faults,
    /// It has much to do.
    Work,
    /// It ran when somebody used an input device of the machine.
    Input,
    /// Its foreground program read from its terminal.
    Terminal,
}

impl Evidence {
    /// Its name: `protected`, `terminal`, `input`, `work`, `faults`.
    pub fn name(self) -> &'static str {
        match self {
            Evidence::Protected => "protected",
            Evidence::Terminal => "terminal",
            Evidence::Input => "input",
            Evidence::Work => "work",
            Evidence::Faults => "faults",
        }
    }

    /// What was seen, to go after "it".
    pub fn words(self) -> &'static str {
        match self {
            Evidence::Protected => "was protected",
            Evidence::Terminal => "read from its terminal",
            Evidence::Input => "ran when somebody used the keyboard or the mouse",
            Evidence::Work => "had much to do",
            Evidence::Faults => "had pages read back",
        }
    }
}

/// That a domain was in use at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sign {
    /// What shows it.
    pub evidence: Evidence,
    /// When, in nanoseconds.
    pub at_ns: u64,
}

/// What the kernel has counted for a domain with all below it so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// CPU time, in nanoseconds.
    pub cpu_ns: u64,
    /// Faults that waited for a disk.
    pub major_faults: u64,
}

/// What is to be known of a domain beside what is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Circumstances {
    /// Whether an input device of the machine was read since the last look.
    pub was_input: bool,
    /// Whether one of its programs is in the foreground of a terminal: then that would show its use.
    pub has_terminal: bool,
}

/// A moment, and what had been counted then.
type Mark = (u64, u64);

/// Turns what is counted for one domain into signs, look by look.
#[derive(Clone, Debug, Default)]
pub struct Meter {
    last: Option<(u64, Counted)>,
    /// What it runs in looks without input, in nanoseconds per second.
    usual_ns_per_s: u64,
    work_from: Option<Mark>,
    faults_from: Option<Mark>,
}

impl Meter {
    /// What this look shows, surest first. `idle_ns` is after which time without a sign a domain is idle: work is
    /// judged three times in it at least.
    pub fn look(
        &mut self,
        now_ns: u64,
        idle_ns: u64,
        counted: Counted,
        circumstances: Circumstances,
    ) -> Option<Evidence> {
        let reacts = self.reacts(now_ns, counted.cpu_ns, circumstances.was_input);
        let work_ns = WORK_NS.min(idle_ns / 3);
        let works = over(&mut self.work_from, now_ns, work_ns, counted.cpu_ns, work_ns / WORK_PART);
        let faults = over(&mut self.faults_from, now_ns, FAULTS_NS, counted.major_faults, FAULTS);
        self.last = Some((now_ns, counted));
        if reacts {
            Some(Evidence::Input)
        } else if works {
            Some(Evidence::Work)
        } else {
            (faults && !circumstances.has_terminal).then_some(Evidence::Faults)
        }
    }

    fn reacts(&mut self, now_ns: u64, cpu_ns: u64, was_input: bool) -> bool {
        let Some((last_ns, last)) = self.last else { return false };
        let elapsed_ns = u128::from(now_ns.saturating_sub(last_ns).max(1));
        let ran_ns = cpu_ns.saturating_sub(last.cpu_ns);
        if was_input {
            let usual_ns = u128::from(self.usual_ns_per_s) * elapsed_ns / 1_000_000_000;
            return ran_ns >= REACTION_NS && u128::from(ran_ns) >= u128::from(REACTION_TIMES) * usual_ns;
        }
        let ran_ns_per_s = u64::try_from(u128::from(ran_ns) * 1_000_000_000 / elapsed_ns).unwrap_or(u64::MAX);
        let others = self.usual_ns_per_s / USUAL_LOOKS * (USUAL_LOOKS - 1);
        self.usual_ns_per_s = others.saturating_add(ran_ns_per_s / USUAL_LOOKS);
        false
    }
}

/// Whether a counter has grown by so much since its mark, and no longer ago than `window_ns`. The mark is set anew when
/// that is so, and when the time is over.
fn over(from: &mut Option<Mark>, now_ns: u64, window_ns: u64, counted: u64, much: u64) -> bool {
    let (from_ns, from_counted) = *from.get_or_insert((now_ns, counted));
    let is_much = counted.saturating_sub(from_counted) >= much;
    if is_much || now_ns.saturating_sub(from_ns) >= window_ns {
        *from = Some((now_ns, counted));
    }
    is_much && much > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const SECOND_NS: u64 = 1_000 * MS;
    const IDLE_NS: u64 = 1_800 * SECOND_NS;

    /// Looks once a second, at which it has run and faulted so much more; what the last one shows.
    struct Program {
        meter: Meter,
        now_ns: u64,
        counted: Counted,
    }

    impl Program {
        fn new() -> Self {
            let mut program = Program { meter: Meter::default(), now_ns: 0, counted: Counted::default() };
            assert_eq!(program.second(0, 0, Circumstances::default()), None);
            program
        }

        fn second(&mut self, ran_ns: u64, faults: u64, circumstances: Circumstances) -> Option<Evidence> {
            self.now_ns += SECOND_NS;
            self.counted.cpu_ns += ran_ns;
            self.counted.major_faults += faults;
            self.meter.look(self.now_ns, IDLE_NS, self.counted, circumstances)
        }

        /// All that shows in that many seconds like this.
        fn seconds(&mut self, count: u64, ran_ns: u64, was_input: bool) -> Vec<Evidence> {
            let circumstances = Circumstances { was_input, ..Circumstances::default() };
            (0..count).filter_map(|_| self.second(ran_ns, 0, circumstances)).collect()
        }
    }

    #[test]
    fn what_only_ticks_a_timer_is_not_in_use_however_long_it_does() {
        // A clock, a blinking cursor; an animation takes no more than this.
        for ran_ns in [0, MS / 2, 3 * MS, 15 * MS] {
            assert_eq!(Program::new().seconds(7_200, ran_ns, false), [], "{ran_ns}");
        }
    }

    #[test]
    fn what_works_shows_it_each_minute_and_a_rare_burst_is_no_work() {
        let mut film = Program::new();
        let shown = film.seconds(600, 30 * MS, false);
        assert!(shown.len() >= 10 && shown.iter().all(|shown| *shown == Evidence::Work), "{shown:?}");
        let mut saves = Program::new();
        for _ in 0..20 {
            assert_eq!(saves.second(900 * MS, 0, Circumstances::default()), None, "once in five minutes");
            assert_eq!(saves.seconds(299, 0, false), []);
        }
    }

    #[test]
    fn who_runs_on_input_for_longer_than_usual_is_used_and_others_are_not() {
        let input = |program: &mut Program, ran_ns| program.seconds(1, ran_ns, true);
        let mut editor = Program::new();
        editor.seconds(60, MS / 2, false);
        assert_eq!(input(&mut editor, 3 * MS), [Evidence::Input]);
        assert_eq!(input(&mut editor, MS / 2), [], "another one was meant");
        let mut animation = Program::new();
        animation.seconds(60, 15 * MS, false);
        assert_eq!(input(&mut animation, 15 * MS), []);
        assert_eq!(input(&mut animation, 80 * MS), [Evidence::Input]);
        let mut still = Program::new();
        assert_eq!(still.seconds(3_600, 0, true), [], "it does not run at all");
    }

    #[test]
    fn pages_read_back_are_a_sign_where_no_terminal_would_show_better() {
        let with = |has_terminal| Circumstances { has_terminal, ..Circumstances::default() };
        let mut server = Program::new();
        assert_eq!(server.second(MS, 8, with(false)), None);
        assert_eq!(server.second(MS, 8, with(false)), Some(Evidence::Faults));
        let mut editor = Program::new();
        assert_eq!(editor.second(MS, 100, with(true)), None);
        let mut few = Program::new();
        for _ in 0..600 {
            assert_eq!(few.second(0, 2, with(false)), None);
        }
    }

    #[test]
    fn a_counter_that_falls_because_a_cgroup_was_made_anew_is_no_sign() {
        let mut program = Program::new();
        program.seconds(10, 10 * MS, false);
        program.counted = Counted::default();
        assert_eq!(program.seconds(60, MS, true), []);
    }
}
