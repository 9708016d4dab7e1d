//! A watcher against a daemon that the test plays.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::mpsc::channel;

use super::*;
use crate::ApiError;

/// A directory with the daemon's socket. It goes when it is dropped.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("steward-watch-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a temporary directory");
        Place(path)
    }

    fn socket(&self) -> PathBuf {
        self.0.join("socket")
    }

    /// A daemon begins to listen.
    fn listen(&self) -> UnixListener {
        let _ = std::fs::remove_file(self.socket());
        UnixListener::bind(self.socket()).expect("it is free")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The next who watches, with what is asked.
fn accept(listener: &UnixListener) -> (UnixStream, String) {
    let (mut stream, _) = listener.accept().expect("somebody connects");
    let mut asked = Vec::new();
    let mut byte = [0];
    while stream.read(&mut byte).expect("it asks") == 1 && byte[0] != 0 {
        asked.push(byte[0]);
    }
    (stream, String::from_utf8(asked).expect("JSON"))
}

fn tell(stream: &mut UnixStream, available: u64) {
    let told = Availability { domain: "a".into(), at_ns: 1, used: 7, available, ..Availability::default() };
    let parameters = serde_json::to_string(&told).expect("JSON");
    let message = format!("{{\"parameters\":{parameters},\"continues\":true}}\0");
    stream.write_all(message.as_bytes()).expect("sent");
}

fn available(told: io::Result<Option<&Availability>>) -> Option<u64> {
    told.expect("there are descriptors").map(|told| told.available)
}

fn is_readable(watcher: &Watcher) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(watcher, PollFlags::IN)], Some(&now)).expect("polled") == 1
}

#[test]
fn what_is_told_is_known_and_waited_for_and_nothing_waits_for_the_daemon() {
    let place = Place::new("told");
    let listener = place.listen();
    let mut watcher = Watcher::of_domain(place.socket(), "a").expect("descriptors");
    let (mut daemon, asked) = accept(&listener);
    assert!(asked.contains("WatchAvailability") && asked.contains("\"domain\":\"a\""), "{asked}");
    assert!(asked.contains("\"more\":true"), "{asked}");
    assert_eq!(available(watcher.poll()), None);
    assert_eq!(available(watcher.wait(Some(Duration::from_millis(1)))), None);
    assert!(!is_readable(&watcher));
    tell(&mut daemon, 100);
    assert!(is_readable(&watcher));
    assert_eq!(available(watcher.wait(None)), Some(100));
    assert_eq!(available(watcher.wait(Some(Duration::from_millis(1)))), None, "nothing new");
    assert_eq!(available(watcher.poll()), Some(100), "but still known");
    tell(&mut daemon, 200);
    tell(&mut daemon, 300);
    assert_eq!(available(watcher.poll()), Some(300), "the last");
    assert!(!is_readable(&watcher));
}

#[test]
fn a_daemon_that_starts_later_or_again_is_found() {
    let place = Place::new("again");
    let mut watcher = Watcher::of_own_domain(place.socket()).expect("descriptors");
    assert_eq!(available(watcher.poll()), None);
    assert!(matches!(watcher.problem(), Some(Error::Connect { .. })), "{:?}", watcher.problem());
    let listener = place.listen();
    let waiting = std::thread::spawn(move || {
        assert_eq!(available(watcher.wait(None)), Some(100));
        watcher
    });
    let (mut daemon, asked) = accept(&listener);
    assert!(!asked.contains("domain"), "{asked}");
    tell(&mut daemon, 100);
    let mut watcher = waiting.join().expect("told");
    let descriptor = watcher.as_fd().try_clone_to_owned().expect("descriptors");
    drop((daemon, listener));
    assert!(is_readable(&watcher));
    assert_eq!(available(watcher.poll()), Some(100), "it is soon there again");
    assert!(watcher.problem().is_some() && !is_readable(&watcher));
    let listener = place.listen();
    let waiting = std::thread::spawn(move || {
        // As a loop does that has had this descriptor from the beginning.
        while available(watcher.poll()) != Some(50) {
            poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], None).expect("polled");
        }
    });
    tell(&mut accept(&listener).0, 50);
    waiting.join().expect("told");
}

#[test]
fn a_refusal_is_kept_as_the_reason_and_asked_about_again_ever_more_rarely() {
    let place = Place::new("refused");
    let listener = place.listen();
    let mut watcher = Watcher::of_own_domain(place.socket()).expect("descriptors");
    let mut last = Duration::ZERO;
    for _ in 0..3 {
        let (mut daemon, _) = accept(&listener);
        daemon
            .write_all(b"{\"error\":\"io.steward.NoSuchDomain\",\"parameters\":{\"domain\":\"a\"}}\0")
            .expect("sent");
        while watcher.problem().is_none() {
            watcher.poll().expect("descriptors");
        }
        let problem = watcher.problem();
        assert!(matches!(problem, Some(Error::Api(ApiError::NoSuchDomain { .. }))), "{problem:?}");
        let Connection::Lost { since, retry_at, .. } = &watcher.daemon else { panic!("it was refused") };
        let after = retry_at.duration_since(*since);
        assert!(after > last, "{after:?} after {last:?}");
        last = after;
        while watcher.problem().is_some() {
            poll(&mut [PollFd::new(&watcher, PollFlags::IN)], None).expect("polled");
            watcher.poll().expect("descriptors");
        }
    }
}

#[test]
fn what_was_told_long_ago_is_believed_no_more() {
    let place = Place::new("long-ago");
    let mut watcher = Watcher::of_own_domain(place.socket()).expect("descriptors");
    watcher.latest = Some(Availability::default());
    let now = Instant::now();
    let lost = |since, retry_at| Connection::Lost { since, retry_at, why: None };
    let Some(before) = now.checked_sub(BELIEVED_FOR) else { return };
    watcher.daemon = lost(before + Duration::from_secs(5), now + BELIEVED_FOR);
    assert!(watcher.poll().expect("descriptors").is_some());
    watcher.daemon = lost(before, now + BELIEVED_FOR);
    assert!(watcher.poll().expect("descriptors").is_none());
}

#[test]
fn a_thread_calls_back_until_it_is_ended() {
    let place = Place::new("thread");
    let listener = place.listen();
    let (sender, told) = channel();
    let watcher = Watcher::of_own_domain(place.socket()).expect("descriptors");
    let watching = watcher.spawn(move |told| sender.send(told.available).expect("it is read"));
    let watching = watching.expect("a thread");
    let (mut daemon, _) = accept(&listener);
    for available in [100, 200] {
        tell(&mut daemon, available);
        assert_eq!(told.recv(), Ok(available));
    }
    drop(watching);
    assert!(told.recv().is_err(), "the thread has gone");
    assert_eq!(daemon.read(&mut [0]).expect("closed"), 0);
}
