//! Threads that answer one request after another, of each user in turn: however many one user has waiting, another's
//! waits for as many as there are threads.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// How many requests of one user can wait; far more than anybody has who means well.
const WAITING_PER_USER_MAX: usize = 1024;

/// What is to be done; with `false` it is to be refused.
pub(crate) type Job = Box<dyn FnOnce(bool) + Send>;

#[derive(Default)]
struct Queues {
    of_user: HashMap<u32, VecDeque<Job>>,
    /// Users who have something waiting, in the order in which they get their turn.
    order: VecDeque<u32>,
    closed: bool,
}

impl Queues {
    /// The job itself when there is no room for it.
    fn push(&mut self, user: u32, job: Job) -> Result<(), Job> {
        let queue = self.of_user.entry(user).or_default();
        if queue.len() >= WAITING_PER_USER_MAX {
            return Err(job);
        }
        if queue.is_empty() {
            self.order.push_back(user);
        }
        queue.push_back(job);
        Ok(())
    }

    fn pop(&mut self) -> Option<Job> {
        let user = self.order.pop_front()?;
        let queue = self.of_user.get_mut(&user)?;
        let job = queue.pop_front();
        if queue.is_empty() {
            self.of_user.remove(&user);
        } else {
            self.order.push_back(user);
        }
        job
    }
}

struct Shared {
    queues: Mutex<Queues>,
    woken: Condvar,
}

impl Shared {
    /// What is kept behind the lock is whole at every moment, so that a panic elsewhere does not matter.
    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        loop {
            let mut queues = self.lock();
            let job = loop {
                match queues.pop() {
                    Some(job) => break job,
                    None if queues.closed => return,
                    None => queues = self.woken.wait(queues).unwrap_or_else(PoisonError::into_inner),
                }
            };
            drop(queues);
            job(true);
        }
    }
}

/// The threads. They end when this is dropped, after what waits is done.
pub(crate) struct Turns {
    shared: Arc<Shared>,
    threads: usize,
}

impl Turns {
    /// So many threads, or fewer where the machine has no more.
    pub(crate) fn new(threads: usize) -> Self {
        let shared = Arc::new(Shared { queues: Mutex::default(), woken: Condvar::new() });
        let start = |_: &usize| {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new().name("control-files".into()).spawn(move || shared.work()).is_ok()
        };
        let threads = (0..threads).filter(start).count();
        Turns { shared, threads }
    }

    /// Has a job done for a user when it is that user's turn, or refused at once when too many of that user wait.
    pub(crate) fn put(&self, user: u32, job: Job) {
        if self.threads == 0 {
            return job(true);
        }
        match self.shared.lock().push(user, job) {
            Ok(()) => self.shared.woken.notify_one(),
            Err(job) => job(false),
        }
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.woken.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;

    #[test]
    fn one_who_comes_last_is_served_after_one_job_of_each_other_however_many_they_have() {
        let turns = Turns::new(1);
        let (done, all_done) = sync_channel(10_000);
        let (go_on, wait) = sync_channel::<()>(0);
        let (begun, has_begun) = sync_channel(1);
        // The thread is held while all come, and does not count among those that wait.
        turns.put(
            1,
            Box::new(move |_| {
                begun.send(()).expect("listened to");
                wait.recv().expect("told to go on");
            }),
        );
        has_begun.recv().expect("the thread is there");
        let put = |user: u32| {
            let done = done.clone();
            turns.put(user, Box::new(move |is_done| done.send((user, is_done)).expect("listened to")));
        };
        (0..WAITING_PER_USER_MAX).for_each(|_| put(1));
        (0..500).for_each(|_| put(2));
        put(3);
        go_on.send(()).expect("it waits");
        let first: Vec<u32> = all_done.iter().take(3).map(|(user, _)| user).collect();
        assert_eq!(first, [1, 2, 3]);
        drop(turns);
        assert_eq!(
            all_done.iter().take(WAITING_PER_USER_MAX + 498).filter(|(_, is_done)| *is_done).count(),
            WAITING_PER_USER_MAX + 498
        );
    }

    #[test]
    fn more_than_the_limit_of_one_user_is_refused_and_nobody_elses() {
        let turns = Turns::new(1);
        let (go_on, wait) = sync_channel::<()>(0);
        let (told, refused) = sync_channel(10_000);
        turns.put(1, Box::new(move |_| wait.recv().expect("told to go on")));
        // The thread may have the first in hand or not.
        for user in std::iter::repeat_n(1, WAITING_PER_USER_MAX + 1).chain([2]) {
            let told = told.clone();
            turns.put(
                user,
                Box::new(move |is_done| {
                    if !is_done {
                        told.send(user).expect("listened to");
                    }
                }),
            );
        }
        assert_eq!(refused.recv(), Ok(1));
        go_on.send(()).expect("it waits");
        drop((turns, told));
        assert!(refused.iter().all(|user| user == 1));
    }
}
