//! What the kernel would count for the herald ([`steward_core::cpu::forecast`]), of a machine in memory.

use steward_core::cpu::forecast::{DomainSample, SchedulingClass, TaskSample};
use steward_core::cpu::policy::DomainPolicy;
use steward_sched::decide::ROOT_DOMAIN;

use crate::cpu::machine::Machine;
use crate::cpu::scheduler::Standing;

impl Machine {
    /// All tasks that have started and not ended, as they are counted now, ordered by thread id. A task's domain is
    /// its index in the scheduler's table, and its thread id its number in the scenario plus one.
    pub fn task_samples(&self) -> Vec<TaskSample> {
        let now_ns = self.kernel.now_ns;
        let sample = |index: usize| {
            let (task, kernel_task) = (&self.tasks[index], &self.kernel.tasks[index]);
            let started_ns = task.started_ns.filter(|_| !task.ended)?;
            let reserved = self
                .scheduler
                .slots
                .iter()
                .find(|slot| slot.task == index as u32 && slot.standing == Standing::Admitted)
                .map_or(0.0, |slot| slot.reservation.bandwidth());
            Some(TaskSample {
                tid: index as i32 + 1,
                pid: index as i32 + 1,
                started_ns,
                uid: 0,
                cgroup_id: u64::from(task.domain),
                name: [0; 16],
                class: SchedulingClass::Fair,
                weight: f64::from(self.scenario.tasks[task.entry as usize].weight),
                run_ns: kernel_task.used_ns,
                wait_ns: kernel_task.ready_until(now_ns) - kernel_task.used_ns,
                runnable: kernel_task.runnable,
                reserved,
            })
        };
        (0..self.tasks.len()).filter_map(sample).collect()
    }

    /// The domains, the root first.
    pub fn domain_samples(&self) -> Vec<DomainSample> {
        let root = DomainSample {
            cgroup_id: u64::from(ROOT_DOMAIN),
            parent_id: 0,
            policy: DomainPolicy { weight: Some(100), ..DomainPolicy::default() },
            limit_cpus: f64::INFINITY,
            suspended: false,
        };
        let below = self.scenario.domains.iter().zip(&self.domains).map(|(domain, index)| DomainSample {
            cgroup_id: u64::from(*index),
            parent_id: u64::from(domain.parent.map_or(ROOT_DOMAIN, |parent| self.domains[parent])),
            policy: DomainPolicy {
                priority: domain.priority,
                weight: Some(domain.weight),
                reserved: domain.reserved,
                own_priority: domain.own_priority,
                own_weight: domain.own_weight,
            },
            limit_cpus: domain
                .quota
                .map_or(f64::INFINITY, |(quota_ns, period_ns)| quota_ns as f64 / period_ns as f64),
            suspended: false,
        });
        std::iter::once(root).chain(below).collect()
    }
}
