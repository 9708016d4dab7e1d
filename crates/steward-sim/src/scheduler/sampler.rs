//! Once a second: the load of every CPU, and what follows from it, as in `sampler.bpf.h` (Yang 2009, 8.1).

use steward_sched::decide::{LOAD_ONE, LOAD_SAMPLE_NS, LOAD_WINDOW, load_victim_rank};

use super::Scheduler;
use super::interactive::{Decision, Standing};
use crate::event::Event;
use crate::kernel::Kernel;

/// The most tasks that one CPU puts out in one second (`REVOCATIONS_MAX`).
const REVOCATIONS_MAX: u32 = 8;

impl Scheduler {
    pub(crate) fn start_sampler(&mut self, k: &mut Kernel) {
        self.sampled_ns = k.now_ns;
        k.events.push(k.now_ns + LOAD_SAMPLE_NS, Event::Sample);
    }

    /// Makes an admitted task its CPU's candidate for revocation if none so far suits better.
    fn consider_victim(&mut self, index: u32) {
        let slot = &self.slots[index as usize];
        let exhausted = slot.exhausted_sample != 0
            && self.samples.wrapping_sub(slot.exhausted_sample) < LOAD_WINDOW as u32;
        let rank = load_victim_rank(slot.revocable, exhausted, slot.used);
        let state = &mut self.cpu_states[slot.cpu as usize];
        if rank > state.victim_rank {
            state.victim_rank = rank;
            state.victim = index;
        }
    }

    /// Measures one slot and makes it its CPU's candidate if it is the best so far.
    fn sample_slot(&mut self, index: u32, span_ns: u64) {
        let (samples, room) = (self.samples, self.room);
        let slot = &mut self.slots[index as usize];
        let used_ns = slot.reserved_time_ns - slot.sampled_reserved_ns;
        slot.sampled_reserved_ns = slot.reserved_time_ns;
        slot.used =
            if used_ns < span_ns { (used_ns * u64::from(LOAD_ONE) / span_ns) as u32 } else { LOAD_ONE };
        if slot.edf.exhausted != slot.sampled_exhausted {
            slot.sampled_exhausted = slot.edf.exhausted;
            slot.exhausted_sample = samples;
        }
        if slot.standing == Standing::Admitted {
            return self.consider_victim(index);
        }
        // One that fits nowhere must not keep those behind it waiting.
        let state = &mut self.cpu_states[slot.cpu as usize];
        let since_ns = slot.waiting_since_ns;
        if slot.bandwidth < room && state.waiting.is_none_or(|(oldest_ns, _)| since_ns < oldest_ns) {
            state.waiting = Some((since_ns, index));
        }
    }

    fn present_slots(&self) -> impl Iterator<Item = u32> + use<> {
        let present: Vec<u32> = (0..self.slots.len() as u32)
            .filter(|index| self.slots[*index as usize].standing != Standing::None)
            .collect();
        present.into_iter()
    }

    /// Puts tasks out until what remains is expected below the threshold of admission.
    fn relieve(&mut self, k: &mut Kernel, cpu: u32) {
        for _ in 0..REVOCATIONS_MAX {
            let state = &self.cpu_states[cpu as usize];
            let victim = state.victim;
            if state.victim_rank == 0 || state.load.measured < self.thresholds.admit_below {
                return;
            }
            if self.slots[victim as usize].standing != Standing::Admitted {
                return;
            }
            let used = self.slots[victim as usize].used;
            self.revoke(victim, k.now_ns);
            let state = &mut self.cpu_states[cpu as usize];
            state.load.relieve(used);
            state.victim_rank = 0;
            for index in self.present_slots() {
                let slot = &self.slots[index as usize];
                if slot.cpu == cpu && slot.standing == Standing::Admitted {
                    self.consider_victim(index);
                }
            }
        }
    }

    /// Takes the task that has waited longest back, if it passes admission here.
    fn reactivate(&mut self, k: &mut Kernel, cpu: u32, index: u32) {
        let slot = &self.slots[index as usize];
        if !matches!(slot.standing, Standing::Refused | Standing::Revoked)
            || !k.task(slot.task).may_run_on(cpu)
            || !self.reserve_on(index, cpu)
        {
            return;
        }
        let load = &mut self.cpu_states[cpu as usize].load;
        load.last_activation = load.samples;
        self.begin(index, k.now_ns);
        self.report(Decision::Reactivated);
        self.watch_period(k, index);
    }

    pub(crate) fn take_sample(&mut self, k: &mut Kernel) {
        let span_ns = k.now_ns - self.sampled_ns;
        self.start_sampler(k);
        self.samples += 1;
        let admit_below = self.thresholds.admit_below;
        self.room = 0;
        for state in &mut self.cpu_states {
            state.victim_rank = 0;
            state.waiting = None;
            self.room = self.room.max(admit_below.saturating_sub(state.load.expected()));
        }
        self.find_all_overdue(k);
        for index in self.present_slots() {
            self.sample_slot(index, span_ns);
        }
        let oldest = self.cpu_states.iter().filter_map(|state| state.waiting).min();
        for cpu in 0..k.cpu_count() {
            let state = &mut self.cpu_states[cpu as usize];
            let used_ns = state.reserved_time_ns - state.sampled_ns;
            state.sampled_ns = state.reserved_time_ns;
            state.load.sample(used_ns, span_ns);
            if state.load.overloaded(self.thresholds.revoke_above) {
                self.relieve(k, cpu);
            } else if state.load.underloaded(self.thresholds.reactivate_below)
                && let Some((_, index)) = oldest
            {
                // Whoever waits longest anywhere may move here (Yang 2009, 8.3).
                self.reactivate(k, cpu, index);
            }
        }
    }
}
