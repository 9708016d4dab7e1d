//! Tasks in memory, for tests: each uses and waits for the CPU at a rate of its own.

use std::sync::{Arc, Mutex, MutexGuard};

use steward_core::cpu::forecast::{Changed, SchedulingClass, TaskReading, TaskSample};
use steward_tasks::{Source, TasksError};

/// A task that goes on and on.
#[derive(Clone, Debug)]
pub struct FakeTask {
    /// Thread id.
    pub tid: i32,
    /// Process id.
    pub pid: i32,
    /// Its user.
    pub uid: u32,
    /// Its cgroup's id.
    pub cgroup_id: u64,
    /// Its name, at most 15 bytes of it.
    pub name: String,
    /// The fraction of a CPU that it uses.
    pub run: f64,
    /// The fraction of time that it waits.
    pub wait: f64,
}

impl FakeTask {
    /// A process of one thread.
    pub fn new(pid: i32, uid: u32, cgroup_id: u64, run: f64, wait: f64) -> Self {
        FakeTask { tid: pid, pid, uid, cgroup_id, name: format!("task-{pid}"), run, wait }
    }

    fn sample(&self, now_ns: u64) -> TaskSample {
        let mut name = [0; 16];
        let count = self.name.len().min(name.len() - 1);
        name[..count].copy_from_slice(&self.name.as_bytes()[..count]);
        TaskSample {
            tid: self.tid,
            pid: self.pid,
            started_ns: 1,
            uid: self.uid,
            cgroup_id: self.cgroup_id,
            name,
            class: SchedulingClass::Fair,
            weight: 100.0,
            run_ns: (self.run * now_ns as f64) as u64,
            wait_ns: (self.wait * now_ns as f64) as u64,
            runnable: self.run + self.wait > 0.5,
            reserved: 0.0,
        }
    }
}

/// All tasks; shared between the test and every daemon that reads them.
#[derive(Clone, Debug, Default)]
pub struct FakeTasks {
    tasks: Arc<Mutex<Vec<FakeTask>>>,
    samples: Vec<TaskSample>,
}

impl FakeTasks {
    /// Looks at the tasks, or changes them.
    ///
    /// # Panics
    /// When a test panicked while it looked.
    pub fn tasks(&self) -> MutexGuard<'_, Vec<FakeTask>> {
        self.tasks.lock().expect("no test panicked while it held the tasks")
    }
}

impl Source for FakeTasks {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn read(&mut self, now_ns: u64) -> Result<TaskReading<'_>, TasksError> {
        let mut samples: Vec<TaskSample> = self.tasks().iter().map(|task| task.sample(now_ns)).collect();
        samples.sort_by_key(|sample| sample.tid);
        self.samples = samples;
        Ok(TaskReading { at_ns: now_ns, tasks: &self.samples, changed: Changed::All })
    }
}
