//! What is left for the worker to do, kept beside its jobs: a job takes what is wanted once its turn has come. So
//! whoever puts everything back at the end can take what no job has begun, and nothing is written after that.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// What is left to be done.
#[derive(Debug, Default)]
pub struct Outstanding<T> {
    left: Mutex<T>,
    /// Held from when something is taken until it is done.
    turn: Mutex<()>,
}

impl<T> Outstanding<T> {
    /// Changes what is left to be done. It does not wait for what is being done.
    pub fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        change(&mut lock(&self.left))
    }

    /// Takes something of what is left and does it, once whoever has taken something before has done that.
    pub fn take_on<P, R>(&self, take: impl FnOnce(&mut T) -> P, work: impl FnOnce(P) -> R) -> R {
        let _turn = lock(&self.turn);
        let taken = take(&mut lock(&self.left));
        work(taken)
    }
}

/// A panic of another leaves what is left as it is.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_is_taken_is_done_before_anything_else_is_and_more_can_be_left_meanwhile() {
        let outstanding = Outstanding::<Vec<u32>>::default();
        outstanding.change(|left| left.push(1));
        let done = Mutex::new(Vec::new());
        let (begun, has_begun) = mpsc::channel();
        let (second, is_second_done) = mpsc::channel();
        std::thread::scope(|scope| {
            let (outstanding, done) = (&outstanding, &done);
            scope.spawn(move || {
                outstanding.take_on(std::mem::take, |taken| {
                    begun.send(()).expect("it is waited for");
                    // Nobody comes in between, however long this takes.
                    let _ = is_second_done.recv_timeout(Duration::from_millis(100));
                    lock(done).extend(taken);
                });
            });
            has_begun.recv().expect("it begins");
            outstanding.change(|left| left.push(2));
            outstanding.take_on(std::mem::take, |taken| lock(done).extend(taken));
            let _ = second.send(());
        });
        assert_eq!(*lock(&done), [1, 2]);
        assert!(outstanding.change(|left| left.is_empty()));
    }
}
