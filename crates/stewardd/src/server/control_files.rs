//! The control files as one more way to ask: their requests are answered by the daemon's loop, as those of the socket.
//!
//! The file system has threads of its own, which wait; the loop never waits for them. It takes what they ask out of a
//! bounded queue with a bell ([`front`]). The daemon itself must not touch the mount (the file
//! system refuses it: EDEADLK), because only the loop could answer.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use libsteward::ApiError;
use libsteward::wire::Call;
use serde_json::{Map, Value};
use steward_files::{Backend, Credentials, Mounted};

use crate::daemon::Daemon;
use crate::health::Topic;
use crate::server::Answer;
use crate::server::peer::Caller;
use crate::server::pieces::Put;
use crate::server::turns::Turns;
use crate::turn::clock::now_ns;
use crate::turn::front::{self, Inbox, Outlet};

/// How many requests can wait for the loop; the file system never has more threads than this.
const WAITING_MAX: usize = 64;
/// How long a request waits for its answer: longer than a person may take to give permission.
const ANSWER_WITHIN: Duration = Duration::from_secs(150);

type Outcome = Result<Map<String, Value>, ApiError>;

/// A reply as the loop gives it. One that is text already is read by the thread that waits for it.
enum Given {
    Parameters(Map<String, Value>),
    Text(Arc<str>),
}

impl Given {
    fn parameters(self) -> Outcome {
        match self {
            Given::Parameters(parameters) => Ok(parameters),
            Given::Text(text) => serde_json::from_str(&text)
                .map_err(|error| ApiError::MechanismFailed { reason: error.to_string() }),
        }
    }
}

/// One call, and where its answer goes.
struct Request {
    caller: Caller,
    put: Put,
    answer: SyncSender<Result<Given, ApiError>>,
}

/// The mounted tree, as the loop sees it. Unmounted when dropped.
pub struct ControlFiles {
    queue: Queue,
    _mounted: Mounted,
}

/// The loop's end.
struct Queue {
    inbox: Inbox<Request>,
    /// Those that are not answered yet.
    new: Vec<Request>,
    turns: Turns,
    /// Those for whom somebody is asked for permission.
    waiting: Vec<Request>,
}

/// The file system's end.
struct Front(Outlet<Request>);

impl Daemon {
    /// Mounts the control files. Without them the daemon does all else, and `status` says why they are not there.
    pub fn mount_control_files(&mut self, path: &Path) -> Option<ControlFiles> {
        match ControlFiles::mount(path) {
            Ok(files) => {
                tracing::info!(decision = "mounted", "control files are at {}", path.display());
                Some(files)
            }
            Err(error) => {
                let sentence = format!("{error:#} (stewardd --no-control-files does without)");
                self.health.set(Topic::ControlFiles, vec![sentence]);
                None
            }
        }
    }
}

impl ControlFiles {
    /// Mounts the tree.
    ///
    /// # Errors
    /// When there is no FUSE or it refuses; says what to do.
    pub fn mount(path: &Path) -> anyhow::Result<Self> {
        let (queue, front) = Queue::new()?;
        let mounted = steward_files::mount(path, front)?;
        Ok(ControlFiles { queue, _mounted: mounted })
    }

    /// Readable when there are requests.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.inbox.bell().as_fd()
    }

    /// Answers what has come.
    pub fn take_turn(&mut self, handle: &mut dyn FnMut(&Caller, Put) -> Answer) {
        self.queue.take_turn(handle);
    }

    /// Puts every call again that waits for its answer, if `now`: there may be one.
    pub fn answer_waiting(&mut self, now: bool, handle: &mut dyn FnMut(&Caller, Put) -> Answer) {
        if now {
            self.queue.answer_waiting(handle);
        }
    }

    /// Whether requests wait already, so that there is nothing to wait for.
    pub fn has_requests(&self) -> bool {
        self.queue.has_requests()
    }

    /// Whether this caller waits for an answer.
    pub fn is_waiting(&self, caller_id: u64) -> bool {
        self.queue.waiting.iter().any(|request| request.caller.id == caller_id)
    }
}

impl Queue {
    fn new() -> anyhow::Result<(Self, Front)> {
        let (inbox, outlet) = front::queue(WAITING_MAX)?;
        let queue = Queue { inbox, new: Vec::new(), turns: Turns::default(), waiting: Vec::new() };
        Ok((queue, Front(outlet)))
    }

    fn take_turn(&mut self, handle: &mut dyn FnMut(&Caller, Put) -> Answer) {
        self.new.extend(self.inbox.take());
        let new = self.new.drain(..).map(|request| (request.caller.payer, request));
        let (waiting, mut again) = (&mut self.waiting, Vec::new());
        self.new = self.turns.share(new.collect::<Vec<_>>(), &now_ns, &mut |request| match answer(
            request, handle,
        ) {
            Left::Nothing => {}
            Left::Waits(request) => waiting.push(request),
            Left::Again(request) => again.push(request),
        });
        self.new.append(&mut again);
    }

    /// Whether some are not answered yet, so that there is nothing to wait for.
    fn has_requests(&self) -> bool {
        !self.new.is_empty()
    }

    fn answer_waiting(&mut self, handle: &mut dyn FnMut(&Caller, Put) -> Answer) {
        for request in std::mem::take(&mut self.waiting) {
            match answer(request, handle) {
                Left::Nothing => {}
                Left::Waits(request) => self.waiting.push(request),
                Left::Again(request) => self.new.push(request),
            }
        }
    }
}

/// What is left of a request that was put.
enum Left {
    /// It is answered.
    Nothing,
    /// Somebody is asked for permission, or for something else.
    Waits(Request),
    /// More of its answer is to be made.
    Again(Request),
}

/// Answers a request, if that can be now.
fn answer(request: Request, handle: &mut dyn FnMut(&Caller, Put) -> Answer) -> Left {
    let Request { caller, put, answer } = request;
    let call = put.call.clone();
    let outcome = match handle(&caller, put) {
        Answer::Reply(parameters) => Ok(Given::Parameters(parameters)),
        Answer::Text(text) => Ok(Given::Text(text)),
        Answer::Texts(parts) => Ok(Given::Text(parts.concat().into())),
        Answer::Error(error) => Err(error),
        Answer::Stream(..) | Answer::Watch(_) => Err(ApiError::ExpectedMore),
        Answer::Wait => return Left::Waits(Request { caller, put: call.into(), answer }),
        Answer::Later(made) => {
            return Left::Waits(Request { caller, put: Put { call, made: Some(made) }, answer });
        }
        Answer::Again(made) => {
            return Left::Again(Request { caller, put: Put { call, made: Some(made) }, answer });
        }
    };
    // It has room for one, and whoever gave up waiting needs none.
    let _ = answer.try_send(outcome);
    Left::Nothing
}

impl Backend for Front {
    fn call(&self, asker: Credentials, call: Call) -> Outcome {
        let failed = |reason: &str| ApiError::MechanismFailed { reason: reason.to_owned() };
        let mut caller = Caller::of_process(asker.uid, asker.gid, asker.pid);
        caller.can_wait = asker.can_wait;
        let (answer, answered) = sync_channel(1);
        self.0.put(Request { caller, put: call.into(), answer }).map_err(|error| match error {
            TrySendError::Full(_) => failed("too many requests wait for stewardd; try again"),
            TrySendError::Disconnected(_) => failed("stewardd is about to stop"),
        })?;
        match answered.recv_timeout(ANSWER_WITHIN) {
            Ok(outcome) => outcome.and_then(Given::parameters),
            Err(RecvTimeoutError::Timeout) => {
                Err(failed("stewardd did not answer in time; its log says why"))
            }
            Err(RecvTimeoutError::Disconnected) => Err(failed("stewardd is about to stop")),
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;
    use crate::server::pieces::Unfinished;

    fn ask(front: &Front, method: &str) -> Outcome {
        let caller = Credentials { uid: 7, gid: 8, pid: std::process::id() as i32, can_wait: true };
        front.call(caller, Call { method: method.to_owned(), ..Call::default() })
    }

    #[test]
    fn a_request_wakes_the_loop_and_is_answered_with_its_callers_rights() {
        let (mut queue, front) = Queue::new().expect("a queue");
        let asking = std::thread::spawn(move || [ask(&front, "a.B"), ask(&front, "a.C")]);
        for _ in 0..2 {
            poll(&mut [PollFd::new(queue.inbox.bell(), PollFlags::IN)], None).expect("woken");
            queue.take_turn(&mut |caller, Put { call, .. }| {
                assert_eq!((caller.uid, caller.gids[0], caller.is_alive()), (7, 8, true));
                match call.method.as_str() {
                    "a.B" => Answer::Reply(Map::new()),
                    method => Answer::Error(ApiError::MethodNotFound { method: method.to_owned() }),
                }
            });
        }
        let answers = asking.join().expect("answered");
        assert_eq!(answers, [Ok(Map::new()), Err(ApiError::MethodNotFound { method: "a.C".into() })]);
    }

    #[test]
    fn a_request_that_needs_permission_waits_and_is_put_again() {
        let (mut queue, front) = Queue::new().expect("a queue");
        let asking = std::thread::spawn(move || ask(&front, "a.B"));
        poll(&mut [PollFd::new(queue.inbox.bell(), PollFlags::IN)], None).expect("woken");
        queue.take_turn(&mut |_, _| Answer::Wait);
        assert_eq!(queue.waiting.len(), 1);
        queue.answer_waiting(&mut |_, _| Answer::Reply(Map::new()));
        assert_eq!((asking.join().expect("answered"), queue.waiting.len()), (Ok(Map::new()), 0));
    }

    #[test]
    fn an_answer_that_is_made_in_pieces_is_gone_on_with_in_the_next_turn() {
        let (mut queue, front) = Queue::new().expect("a queue");
        let asking = std::thread::spawn(move || ask(&front, "a.B"));
        poll(&mut [PollFd::new(queue.inbox.bell(), PollFlags::IN)], None).expect("woken");
        for turn in 0..3 {
            queue.take_turn(
                &mut |_, put| match put.made.and_then(Unfinished::into_work::<i32>).unwrap_or(0) {
                    2 => Answer::Reply(Map::new()),
                    made => Answer::Again(Unfinished::new(made + 1, 0, true)),
                },
            );
            assert_eq!(queue.has_requests(), turn < 2, "there is nothing to wait for");
        }
        assert_eq!(asking.join().expect("answered"), Ok(Map::new()));
    }

    #[test]
    fn nobody_waits_for_a_loop_that_has_ended_or_is_full() {
        let (queue, front) = Queue::new().expect("a queue");
        drop(queue);
        assert!(ask(&front, "a.B").expect_err("no loop").to_string().contains("about to stop"));
        let (_queue, front) = Queue::new().expect("a queue");
        for _ in 0..WAITING_MAX {
            let (answer, _) = sync_channel(1);
            let caller = Caller::of_process(0, 0, 0);
            let request = Request { caller, put: Call::default().into(), answer };
            front.0.put(request).unwrap_or_else(|_| panic!("there is room"));
        }
        assert!(ask(&front, "a.B").expect_err("full").to_string().contains("too many"));
    }
}
