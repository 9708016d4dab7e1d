//! The socket with clients of many users, over handlers that tests play.

use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::server::watch::ForecastWatch;
use crate::turn::clock::cpu_time_ns;

/// One text of this many bytes is more than a socket takes.
const LONG_BYTES: usize = 1 << 20;

fn watched(server: &mut Server) -> UnixStream {
    let mut client = UnixStream::connect(&server.path).expect("it listens");
    client.write_all(b"{\"method\":\"a.B\",\"more\":true}\0").expect("sent");
    let request = libsteward::api::WatchForecasts::default();
    for _ in 0..2 {
        turn(server, &mut |_, _| {
            let about = Watched::Forecasts(ForecastWatch::new(request.clone(), true));
            Answer::Watch(Watch { about, every_ns: 100 })
        });
    }
    client
}

fn server() -> (tempfile::TempDir, Server) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("socket");
    let server = Server::bind(&path, Box::new(crate::server::peer::from_kernel)).expect("it is free");
    server.listen().expect("it listens");
    (directory, server)
}

#[test]
fn nobody_connects_before_there_are_answers_and_no_other_daemon_takes_the_place_meanwhile() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("socket");
    let bind = || Server::bind(&path, Box::new(crate::server::peer::from_kernel));
    let server = bind().expect("it is free");
    let refused = UnixStream::connect(&path).expect_err("nobody listens").kind();
    assert_eq!(refused, ErrorKind::ConnectionRefused);
    let starting = libsteward::Client::connect_within(&path, std::time::Duration::ZERO);
    assert!(matches!(starting, Err(libsteward::Error::Starting { .. })), "{starting:?}");
    let error = bind().err().expect("it is taken").to_string();
    assert!(error.contains("another stewardd"), "{error}");
    server.listen().expect("it listens");
    UnixStream::connect(&path).expect("it listens");
    server.close();
    assert_eq!(std::fs::read_dir(directory.path()).expect("it is there").count(), 0);
    // One that was killed leaves both files behind, and is in nobody's way.
    drop(bind().expect("it is free"));
    bind().expect("it is free").close();
}

#[test]
fn no_client_can_leave_a_file_with_the_daemon_for_it_to_close() {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    let (_keep, mut server) = server();
    let client = UnixStream::connect(&server.path).expect("it listens");
    let file = [client.as_fd()];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut files = SendAncillaryBuffer::new(&mut space);
    assert!(files.push(SendAncillaryMessage::ScmRights(&file)));
    let sent = sendmsg(&client, &[io::IoSlice::new(b"x")], &mut files, SendFlags::empty());
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("Linux says its version");
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    if (numbers.next(), numbers.next()) >= (Some(6), Some(16)) {
        assert_eq!(sent, Err(Errno::PERM), "on Linux {release}");
    }
    (&client).write_all(b"{\"method\":\"a.B\"}\0").expect("all else goes on");
    server.accept();
    turn(&mut server, &mut |_, _| Answer::Reply(Map::new()));
    let mut bytes = [0; 200];
    assert_ne!((&client).read(&mut bytes).expect("an answer"), 0);
}

#[test]
fn watchers_are_served_on_a_common_beat() {
    let (_keep, mut server) = server();
    let _clients = [watched(&mut server), watched(&mut server)];
    let mut answers = 0;
    for now_ns in [1030, 1040, 1099, 1100, 1350] {
        server.serve_watchers(now_ns, &mut |_, _| {
            answers += 1;
            Ok(Next::Reply("{}".into()))
        });
    }
    assert_eq!((answers, server.watcher_due_ns()), (6, Some(1400)));
}

#[test]
fn one_who_does_not_read_has_at_most_one_reply_waiting() {
    let (_keep, mut server) = server();
    let _client = watched(&mut server);
    let mut answers = 0;
    for beat in 1..1000 {
        server.serve_watchers(beat * 100, &mut |_, _| {
            answers += 1;
            Ok(Next::Reply("1".repeat(LONG_BYTES).into()))
        });
    }
    assert_eq!((answers, server.clients.len()), (1, 1));
    assert!(server.clients[0].output.len() <= LONG_BYTES + 100);
}

/// A client that has asked, as this user.
fn asking(server: &mut Server, uid: u32) -> UnixStream {
    server.user_of = Box::new(move |_| Ok(uid));
    server.identify = Box::new(move |stream| {
        let caller = crate::server::peer::from_kernel(stream)?;
        Ok(Caller { uid, payer: uid, ..caller })
    });
    let mut client = UnixStream::connect(&server.path).expect("it listens");
    client.write_all(b"{\"method\":\"a.B\"}\0").expect("sent");
    server.accept();
    client
}

/// Keeps the CPU busy for so long, however many others want it.
fn work_for(time_ns: u64) {
    let begun_ns = cpu_time_ns();
    while cpu_time_ns() - begun_ns < time_ns {}
}

fn turn(server: &mut Server, handle: &mut dyn FnMut(&Caller, Put) -> Answer) {
    let ready = vec![PollFlags::IN; 1 + server.clients.len()];
    server.take_turn(&ready, handle);
}

#[test]
fn what_waits_to_be_read_is_bounded_after_each_answer_and_a_shared_text_counts_once() {
    let (_keep, mut server) = server();
    let _crowd: Vec<UnixStream> = (0..60).map(|_| asking(&mut server, 1000)).collect();
    let shared: Arc<str> = "1".repeat(LONG_BYTES).into();
    while server.clients.iter().any(|client| client.output.is_empty()) {
        turn(&mut server, &mut |_, _| Answer::Text(Arc::clone(&shared)));
    }
    assert_eq!(server.clients.len(), 60, "the same text for all");

    let (_keep, mut server) = self::server();
    let _crowd: Vec<UnixStream> = (0..60).map(|_| asking(&mut server, 1000)).collect();
    let _other = asking(&mut server, 1001);
    let (mut answered, mut most) = (0, 0);
    while answered < 61 {
        let mut texts = Vec::new();
        turn(&mut server, &mut |_, _| {
            let text: Arc<str> = "1".repeat(LONG_BYTES).into();
            answered += 1;
            // Who has been sent it, and not gone, holds it.
            texts.push(Arc::downgrade(&text));
            Answer::Text(text)
        });
        most = most.max(server.clients.iter().map(Client::held_bytes).sum());
    }
    assert!(most <= HELD_BYTES_MAX, "{most}");
    assert!(server.clients.iter().any(|client| client.caller.uid == 1001), "who holds little stays");
}

#[test]
fn of_two_users_the_one_with_many_costly_calls_keeps_the_other_waiting_for_one_turn() {
    let (_keep, mut server) = server();
    let _crowd: Vec<UnixStream> = (0..60).map(|_| asking(&mut server, 1000)).collect();
    let costly = &mut |_: &Caller, _: Put| {
        work_for(turns::TURN_NS);
        Answer::Reply(Map::new())
    };
    turn(&mut server, costly);
    let answered = |server: &Server, uid: u32| {
        let of_uid = server.clients.iter().filter(|client| client.caller.uid == uid);
        of_uid.filter(|client| client.last_turn > 1 || (uid == 1000 && client.last_turn > 0)).count()
    };
    assert_eq!(answered(&server, 1000), 1, "one turn, one costly call");
    let _other = asking(&mut server, 1001);
    turn(&mut server, costly);
    assert_eq!((answered(&server, 1000), answered(&server, 1001)), (1, 1), "first, however many wait");
}

#[test]
fn an_answer_that_is_made_in_pieces_keeps_another_user_waiting_for_one_and_is_finished_before_the_next() {
    const PIECES: usize = 10;
    let (_keep, mut server) = server();
    let _crowd: Vec<UnixStream> = (0..20).map(|_| asking(&mut server, 1000)).collect();
    let made_of = |answers: &mut usize, caller: &Caller, put: Put| {
        if caller.uid != 1000 {
            return Answer::Reply(Map::new());
        }
        *answers += 1;
        work_for(turns::TURN_NS);
        match put.made.and_then(Unfinished::into_work::<usize>).unwrap_or(0) + 1 {
            PIECES => Answer::Reply(Map::new()),
            made => Answer::Again(Unfinished::new(made, LONG_BYTES, true)),
        }
    };
    let mut pieces = 0;
    turn(&mut server, &mut |caller, put| made_of(&mut pieces, caller, put));
    assert_eq!(pieces, 1, "one turn, one piece");
    assert!(server.has_calls(), "there is nothing to wait for");
    let held: usize = server.clients.iter().map(Client::held_bytes).sum();
    assert!(held > LONG_BYTES, "what is made so far counts");
    let mut other = asking(&mut server, 1001);
    turn(&mut server, &mut |caller, put| made_of(&mut pieces, caller, put));
    let mut bytes = [0; 200];
    assert_ne!(other.read(&mut bytes).expect("an answer"), 0);
    while pieces < PIECES {
        turn(&mut server, &mut |caller, put| made_of(&mut pieces, caller, put));
    }
    assert!(server.clients.iter().all(|client| client.unanswered.is_none()), "one after the other");
}

#[test]
fn a_reply_to_a_watcher_that_is_made_in_pieces_is_due_until_it_is_whole() {
    let (_keep, mut server) = server();
    let client = watched(&mut server);
    let mut pieces = 0;
    for _ in 0..5 {
        server.serve_watchers(1030, &mut |_, _| {
            pieces += 1;
            Ok(if pieces == 3 { Next::Reply("{}".into()) } else { Next::Again })
        });
    }
    assert_eq!((pieces, server.watcher_due_ns()), (3, Some(1100)));
    let mut bytes = [0; 200];
    assert_ne!((&client).read(&mut bytes).expect("a reply"), 0);
}

#[test]
fn who_has_all_connections_that_one_may_have_costs_little_by_connecting_again_and_again() {
    let (_keep, mut server) = server();
    let _crowd: Vec<UnixStream> =
        (0..room::CLIENTS_PER_USER_MAX).map(|_| asking(&mut server, 1000)).collect();
    let identified = Arc::new(AtomicUsize::new(0));
    let newcomers_as = |server: &mut Server, uid: u32| -> Vec<UnixStream> {
        let count = Arc::clone(&identified);
        server.user_of = Box::new(move |_| Ok(uid));
        server.identify = Box::new(move |stream| {
            count.fetch_add(1, Ordering::Relaxed);
            Ok(Caller { uid, payer: uid, ..peer::from_kernel(stream)? })
        });
        // As many as ever may wait again.
        server.newcomers.calm_down(u64::MAX, &server.listener);
        (0..100).map(|_| UnixStream::connect(&server.path).expect("it listens")).collect()
    };
    // In each turn again: a newer connection does go before an older one.
    for _ in 0..2 {
        let _newcomers = newcomers_as(&mut server, 1000);
        identified.store(0, Ordering::Relaxed);
        server.accept();
        assert_eq!(identified.load(Ordering::Relaxed), newcomers::REPLACED_PER_TURN);
    }
    for (uid, let_in, whose) in [(0, 100, "never root"), (1001, room::CLIENTS_PER_USER_MAX, "who has none")] {
        let _newcomers = newcomers_as(&mut server, uid);
        (0..100).for_each(|_| server.accept());
        let of_user = server.clients.iter().filter(|client| client.caller.uid == uid);
        assert_eq!(of_user.count(), let_in, "{whose}");
    }
}

/// Connects until the kernel lets no more wait.
fn connect_all(server: &Server) -> Vec<UnixStream> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
    let address = SocketAddrUnix::new(&server.path).expect("a path");
    let connected = std::iter::from_fn(|| {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).expect("a socket");
        connect(&socket, &address).ok().map(|()| UnixStream::from(socket))
    });
    connected.collect()
}

#[test]
fn while_newcomers_of_a_user_are_turned_away_few_may_wait_to_be_let_in() {
    let (_keep, mut server) = server();
    let _crowd: Vec<UnixStream> =
        (0..room::CLIENTS_PER_USER_MAX).map(|_| asking(&mut server, 1000)).collect();
    let at_rest = connect_all(&server);
    assert!(at_rest.len() > 100, "{}", at_rest.len());
    server.accept();
    let waiting = connect_all(&server);
    assert!(!waiting.is_empty() && waiting.len() <= 20, "{}", waiting.len());
    server.accept();
    assert_eq!(connect_all(&server).len(), waiting.len(), "all were taken in in one turn");
    server.newcomers.calm_down(u64::MAX, &server.listener);
    assert!(connect_all(&server).len() > 100, "a second after the last was turned away");
}

#[test]
fn whoever_goes_for_newcomers_or_is_turned_away_learns_it_once_no_more_are_taken_in() {
    let (_keep, mut server) = server();
    let mut crowd: Vec<UnixStream> =
        (0..room::CLIENTS_PER_USER_MAX).map(|_| asking(&mut server, 1000)).collect();
    crowd.extend(connect_all(&server));
    let all: Vec<UnixStream> = crowd.iter().map(|client| client.try_clone().expect("a descriptor")).collect();
    let ended = |all: &[UnixStream]| {
        let mut waiting: Vec<PollFd<'_>> =
            all.iter().map(|client| PollFd::new(client, PollFlags::empty())).collect();
        let at_once = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut waiting, Some(&at_once)).expect("they can be asked about")
    };
    let most = Arc::new(AtomicUsize::new(0));
    let most_seen = Arc::clone(&most);
    server.user_of = Box::new(move |_| {
        most_seen.fetch_max(ended(&all), Ordering::Relaxed);
        Ok(1000)
    });
    server.accept();
    assert_eq!(most.load(Ordering::Relaxed), 0, "while others are taken in");
    assert!(ended(&crowd) > 100, "then");
}

#[test]
fn a_newcomer_is_answered_in_the_turn_in_which_it_is_let_in() {
    let (_keep, mut server) = server();
    let mut client = UnixStream::connect(&server.path).expect("it listens");
    client.write_all(b"{\"method\":\"a.B\"}\0").expect("sent");
    turn(&mut server, &mut |_, _| Answer::Reply(Map::new()));
    client.set_nonblocking(true).expect("set");
    assert_ne!(client.read(&mut [0; 200]).expect("an answer"), 0);
}

#[test]
fn a_user_of_whom_one_was_let_in_is_heard_before_it_is_asked_at_length_who_else_there_is() {
    let (_keep, mut server) = server();
    let asked = AtomicUsize::new(0);
    server.identify = Box::new(move |stream| {
        work_for(turns::TURN_NS);
        // Two of each user.
        let uid = 1000 + asked.fetch_add(1, Ordering::Relaxed) as u32 / 2;
        Ok(Caller { uid, payer: uid, ..peer::from_kernel(stream)? })
    });
    let _newcomers = connect_all(&server);
    // The second of one user is asked about before the first of another is heard.
    for let_in in [1, 3, 5] {
        server.accept();
        assert_eq!(server.clients.len(), let_in);
    }
}

#[test]
fn an_error_ends_the_watch_and_not_the_connection() {
    let (_keep, mut server) = server();
    let client = watched(&mut server);
    server.serve_watchers(1, &mut |_, _| Err(ApiError::NoSuchTask { pid: 7 }));
    assert_eq!(server.watcher_due_ns(), None);
    let mut bytes = [0; 200];
    let count = (&client).read(&mut bytes).expect("an answer");
    assert!(String::from_utf8_lossy(&bytes[..count]).contains("io.steward.NoSuchTask"));
    assert!(server.clients[0].wants_input());
}
