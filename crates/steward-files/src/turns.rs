//! Threads that answer one request after another, of each user in turn. However many one user has waiting, no more than
//! a few of them are under way at a time, so that another's need not wait until one of those is done.

use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// How many requests of one user can wait; far more than anybody has who means well.
const WAITING_PER_USER_MAX: usize = 1024;
/// How many of one user's are under way at a time.
pub(crate) const BUSY_PER_USER_MAX: usize = 2;

/// What is to be done; with `false` it is to be refused.
pub(crate) type Job = Box<dyn FnOnce(bool) + Send>;

/// What one user has.
#[derive(Default)]
struct OfUser {
    waiting: VecDeque<Job>,
    /// How many are under way.
    busy: usize,
}

impl OfUser {
    fn is_next(&self) -> bool {
        !self.waiting.is_empty() && self.busy < BUSY_PER_USER_MAX
    }
}

#[derive(Default)]
struct Queues {
    of_user: HashMap<u32, OfUser>,
    /// Users of whom something can be begun, in the order in which they get their turn.
    order: VecDeque<u32>,
    closed: bool,
}

impl Queues {
    /// The job itself when there is no room for it.
    fn push(&mut self, user: u32, job: Job) -> Result<(), Job> {
        let own = self.of_user.entry(user).or_default();
        if own.waiting.len() >= WAITING_PER_USER_MAX {
            return Err(job);
        }
        let was_next = own.is_next();
        own.waiting.push_back(job);
        if !was_next && own.is_next() {
            self.order.push_back(user);
        }
        Ok(())
    }

    /// The next job, with its user: [`Queues::is_done`] is to be told of it.
    fn pop(&mut self) -> Option<(u32, Job)> {
        let user = self.order.pop_front()?;
        let own = self.of_user.get_mut(&user)?;
        let job = own.waiting.pop_front()?;
        own.busy += 1;
        if own.is_next() {
            self.order.push_back(user);
        }
        Some((user, job))
    }

    fn is_done(&mut self, user: u32) {
        let Some(own) = self.of_user.get_mut(&user) else { return };
        let was_next = own.is_next();
        own.busy -= 1;
        if !was_next && own.is_next() {
            self.order.push_back(user);
        }
        if own.busy == 0 && own.waiting.is_empty() {
            self.of_user.remove(&user);
        }
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
            let (user, job) = loop {
                match queues.pop() {
                    Some(next) => break next,
                    None if queues.closed => return,
                    None => queues = self.woken.wait(queues).unwrap_or_else(PoisonError::into_inner),
                }
            };
            drop(queues);
            // The hook has said what went wrong; the thread and the user's turns are still needed.
            let _ = catch_unwind(AssertUnwindSafe(|| job(true)));
            self.lock().is_done(user);
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
    fn one_users_jobs_that_take_long_keep_nobody_elses_waiting() {
        let turns = Turns::new(BUSY_PER_USER_MAX + 1);
        let (go_on, wait) = sync_channel::<()>(0);
        let wait = Arc::new(Mutex::new(wait));
        let (told, done) = sync_channel(100);
        for _ in 0..10 {
            let (wait, told) = (Arc::clone(&wait), told.clone());
            let job = move |_| {
                wait.lock().expect("whole").recv().expect("told to go on");
                told.send(1).expect("listened to");
            };
            turns.put(1, Box::new(job));
        }
        for user in [2, 3] {
            let told = told.clone();
            turns.put(user, Box::new(move |_| told.send(user).expect("listened to")));
        }
        assert_eq!(done.iter().take(2).collect::<Vec<_>>(), [2, 3]);
        (0..10).for_each(|_| go_on.send(()).expect("they wait"));
        assert_eq!(done.iter().take(10).collect::<Vec<_>>(), [1; 10]);
    }

    #[test]
    fn a_job_that_panics_costs_neither_a_thread_nor_a_turn() {
        let turns = Turns::new(1);
        let (told, done) = sync_channel(1);
        (0..=BUSY_PER_USER_MAX).for_each(|_| turns.put(1, Box::new(|_| panic!("as it is to"))));
        turns.put(1, Box::new(move |is_done| told.send(is_done).expect("listened to")));
        assert_eq!(done.recv(), Ok(true));
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
