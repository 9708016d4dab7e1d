//! Once a second: the load of every CPU, and what follows from it, as in `sampler.bpf.h` (Yang 2009, 8.1).

use std::cmp::Reverse;

use steward_sched::decide::{
    Fit, LOAD_NO_VICTIM, LOAD_ONE, LOAD_SAMPLE_NS, LOAD_WINDOW, Waiter, load_victim_rank, retry_after,
};

use super::state::{Decision, Scheduler, Standing};
use crate::cpu::event::Event;
use crate::cpu::kernel::Kernel;

impl Scheduler {
    pub(crate) fn start_sampler(&mut self, k: &mut Kernel) {
        self.sampled_ns = k.now_ns;
        k.events.push(k.now_ns + LOAD_SAMPLE_NS, Event::Sample);
    }

    fn victim_rank(&self, index: u32) -> u32 {
        let slot = &self.slots[index as usize];
        let exhausted = slot.exhausted_sample != 0
            && self.samples.wrapping_sub(slot.exhausted_sample) < LOAD_WINDOW as u32;
        load_victim_rank(slot.claim.irrevocable == 0, exhausted, slot.used)
    }

    /// Measures one slot: what it counts as a victim, or whether it is to be tried again.
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
        let (standing, cpu, used) = (slot.standing, slot.cpu, slot.used);
        if standing == Standing::Admitted {
            let rank = self.victim_rank(index);
            if rank != LOAD_NO_VICTIM {
                self.cpu_states[cpu as usize].used_by_rank[rank as usize] += used;
            }
        } else if slot.claim.bandwidth < room && samples >= slot.retry_sample {
            // One that fits nowhere, or was tried lately, must not keep those behind it waiting.
            let waiter = Waiter::new(index + 1, slot.claim.uid, slot.waiting_since_ns, slot.failures);
            self.waiters.offer(waiter);
        }
    }

    fn present_slots(&self) -> impl Iterator<Item = u32> + use<> {
        let present: Vec<u32> = (0..self.slots.len() as u32)
            .filter(|index| self.slots[*index as usize].standing != Standing::None)
            .collect();
        present.into_iter()
    }

    /// Puts tasks out on all overloaded CPUs until what remains is expected below the threshold of admission.
    fn relieve_all(&mut self, k: &Kernel) {
        for index in self.present_slots() {
            let slot = &self.slots[index as usize];
            let (cpu, used) = (slot.cpu as usize, slot.used);
            if slot.standing != Standing::Admitted {
                continue;
            }
            let rank = self.victim_rank(index);
            let cut = self.cpu_states[cpu].cut.as_mut();
            if cut.is_some_and(|cut| cut.cuts(rank, used)) {
                self.revoke(index, k.now_ns);
                self.cpu_states[cpu].load.relieve(used);
            }
        }
    }

    /// Takes a task back on the least loaded of the CPUs where that may be done now, if it passes admission there.
    fn reactivate(&mut self, k: &mut Kernel, index: u32) -> bool {
        let slot = &self.slots[index as usize];
        if !matches!(slot.standing, Standing::Refused | Standing::Revoked) {
            return true;
        }
        let below = self.thresholds.reactivate_below;
        let quiet = |cpu: &u32| {
            k.task(slot.task).may_run_on(*cpu)
                && self.cpu_states[*cpu as usize].load.underloaded(below)
                && self.fit(index, *cpu) != Fit::Not
        };
        let cpu = (0..k.cpu_count()).filter(quiet).min_by_key(|cpu| {
            (Reverse(self.fit(index, *cpu)), self.cpu_states[*cpu as usize].load.expected())
        });
        let Some(cpu) = cpu else { return false };
        if !self.reserve_or_claim(index, cpu, k.now_ns).admits() {
            return false;
        }
        let load = &mut self.cpu_states[cpu as usize].load;
        load.last_activation = load.samples;
        self.begin(index, k.now_ns);
        self.report(Decision::Reactivated);
        self.watch_period(k, index);
        true
    }

    /// Tries those that wait, one of each user, and remembers who was tried in vain.
    fn reactivate_some(&mut self, k: &mut Kernel) {
        while let Some(waiter) = self.waiters.take_next() {
            let index = waiter.index - 1;
            if !self.reactivate(k, index) {
                let slot = &mut self.slots[index as usize];
                slot.retry_sample = self.samples + retry_after(slot.failures);
                slot.failures += 1;
            }
        }
    }

    pub(crate) fn take_sample(&mut self, k: &mut Kernel) {
        let span_ns = k.now_ns - self.sampled_ns;
        self.start_sampler(k);
        self.samples += 1;
        let admit_below = self.thresholds.admit_below;
        self.room = 0;
        self.waiters = Default::default();
        for state in &mut self.cpu_states {
            state.used_by_rank = Default::default();
            state.cut = None;
            self.room = self.room.max(admit_below.saturating_sub(state.load.expected()));
        }
        self.find_all_overdue(k);
        for index in self.present_slots() {
            self.sample_slot(index, span_ns);
        }
        let mut under = false;
        for state in &mut self.cpu_states {
            let used_ns = state.reserved_time_ns - state.sampled_ns;
            state.sampled_ns = state.reserved_time_ns;
            state.load.sample(used_ns, span_ns);
            if state.load.overloaded(self.thresholds.revoke_above) {
                state.cut = Some(state.load.find_cut(&state.used_by_rank, admit_below));
            }
            under |= state.load.underloaded(self.thresholds.reactivate_below);
        }
        self.relieve_all(k);
        if under {
            self.reactivate_some(k);
        }
    }
}
