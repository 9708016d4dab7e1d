//! Clients that misbehave cost the others nothing.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use crate::common::{Machine, Running, Sleeper, reservation, set};
use libsteward::api;

fn connect(daemon: &Running) -> UnixStream {
    UnixStream::connect(&daemon.socket).expect("the daemon listens")
}

/// What the daemon says until it closes the connection.
fn rest(mut stream: UnixStream) -> String {
    let mut text = Vec::new();
    // A reset is as good an end as any: the daemon closed while we still wrote.
    let _ = stream.read_to_end(&mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// The reply to one call.
fn call(stream: &mut UnixStream, message: &str) -> serde_json::Value {
    stream.write_all(message.as_bytes()).expect("sent");
    stream.write_all(b"\0").expect("sent");
    let mut text = Vec::new();
    let mut byte = [0];
    while stream.read(&mut byte).expect("an answer") == 1 && byte[0] != 0 {
        text.push(byte[0]);
    }
    serde_json::from_slice(&text).expect("JSON")
}

#[test]
fn what_is_not_a_call_is_answered_and_ends_the_connection() {
    let machine = Machine::new();
    let daemon = machine.start();
    for garbage in [
        "\0",
        "not json\0",
        "[]\0",
        "{}\0",
        "{\"method\":7}\0",
        "{\"method\":\"io.steward.Status\"",
        "\u{7f}\0",
    ] {
        let mut client = connect(&daemon);
        client.write_all(garbage.as_bytes()).expect("sent");
        client.shutdown(std::net::Shutdown::Write).expect("shut down");
        let answer = rest(client);
        assert_eq!(answer.is_empty(), !garbage.ends_with('\0'), "{garbage:?}: {answer}");
        assert!(answer.is_empty() || answer.contains("io.steward.InvalidParameter"), "{answer}");
    }
    daemon.status();
}

#[test]
fn a_method_or_parameter_that_is_not_known_ends_nothing_but_the_call() {
    let machine = Machine::new();
    let daemon = machine.start();
    let mut client = connect(&daemon);
    let unknown = call(&mut client, r#"{"method":"io.steward.Fly"}"#);
    assert_eq!(unknown["error"], "org.varlink.service.MethodNotFound");
    for parameters in
        [r#"{"pid":"x"}"#, r#"{"pid":1.5}"#, r#"{"pid":99999999999}"#, r#"{"pid":1,"more":2}"#, "{}"]
    {
        let message = format!(r#"{{"method":"io.steward.Explain","parameters":{parameters}}}"#);
        assert_eq!(call(&mut client, &message)["error"], "io.steward.InvalidParameter", "{parameters}");
    }
    let status = call(&mut client, r#"{"method":"io.steward.Status"}"#);
    assert_eq!(status["parameters"]["cpu"]["mechanism"]["kind"], "sched_ext");
}

#[test]
fn the_service_describes_itself_as_varlink_asks() {
    let machine = Machine::new();
    let daemon = machine.start();
    let mut client = connect(&daemon);
    let info = call(&mut client, r#"{"method":"org.varlink.service.GetInfo","parameters":{}}"#);
    assert_eq!(info["parameters"]["interfaces"][0], "io.steward");
    let description = call(
        &mut client,
        r#"{"method":"org.varlink.service.GetInterfaceDescription","parameters":{"interface":"io.steward"}}"#,
    );
    assert_eq!(description["parameters"]["description"], libsteward::INTERFACE_DESCRIPTION);
    let other = call(
        &mut client,
        r#"{"method":"org.varlink.service.GetInterfaceDescription","parameters":{"interface":"a.b"}}"#,
    );
    assert_eq!(other["error"], "org.varlink.service.InterfaceNotFound");
}

#[test]
fn ten_megabytes_are_cut_short() {
    let machine = Machine::new();
    let daemon = machine.start();
    let mut client = connect(&daemon);
    let megabyte = vec![b'x'; 1024 * 1024];
    let written = (0..10).map(|_| client.write_all(&megabyte)).find(Result::is_err);
    assert!(written.is_some_and(|result| result.is_err()), "the daemon stops reading and closes");
    daemon.status();
}

#[test]
fn silent_and_vanished_clients_leave_room_for_others() {
    let machine = Machine::new();
    let daemon = machine.start();
    let mut silent = Vec::new();
    for _ in 0..300 {
        let mut client = connect(&daemon);
        client.write_all(b"{\"method\":").expect("sent");
        silent.push(client);
        // One that asks and does not wait for the answer.
        let mut vanishing = connect(&daemon);
        vanishing.write_all(b"{\"method\":\"io.steward.Status\"}\0").expect("sent");
    }
    daemon.status();
}

#[test]
fn a_client_who_never_reads_is_not_waited_for() {
    let machine = Machine::new();
    let daemon = machine.start();
    let sleeper = Sleeper::start(&machine.program("program"));
    let mut deaf = connect(&daemon);
    deaf.set_nonblocking(true).expect("set");
    // Asks until the daemon takes no more, because the answers are not read.
    while deaf.write_all(b"{\"method\":\"io.steward.Status\"}\0").is_ok() {}
    let monitor = daemon.client().stream(&api::Monitor::default()).expect("sent");
    for _ in 0..2000 {
        daemon.client().call(&set(sleeper.pid(), reservation(1, 100))).expect("the daemon answers others");
    }
    let received: Vec<_> = monitor.take(3).map(|event| event.expect("an event").event.pid()).collect();
    assert_eq!(received, [Some(sleeper.pid()); 3]);
}

#[test]
fn calls_that_are_sent_at_once_are_answered_in_order() {
    let machine = Machine::new();
    let daemon = machine.start();
    let mut client = connect(&daemon);
    let calls =
        "{\"method\":\"io.steward.A\"}\0{\"method\":\"io.steward.B\"}\0{\"method\":\"io.steward.C\"}\0";
    client.write_all(calls.as_bytes()).expect("sent");
    client.shutdown(std::net::Shutdown::Write).expect("shut down");
    let answer = rest(client);
    let positions: Vec<_> =
        ["io.steward.A", "io.steward.B", "io.steward.C"].map(|name| answer.find(name)).to_vec();
    assert!(positions.iter().all(Option::is_some) && positions.is_sorted(), "{answer}");
}

#[test]
fn two_hundred_clients_at_once_all_get_their_answers() {
    let machine = Machine::new();
    let daemon = machine.start();
    let mut clients: Vec<UnixStream> = (0..200).map(|_| connect(&daemon)).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        let create = format!(
            "{{\"method\":\"io.steward.CreateDomain\",\"parameters\":{{\"domain\":\"d{number}\",\
             \"settings\":{{\"cpu\":0.004}}}}}}\0"
        );
        client.write_all(create.as_bytes()).expect("sent");
        client.write_all(b"{\"method\":\"io.steward.ShowDomain\"}\0").expect("sent");
    }
    for (number, client) in clients.iter_mut().enumerate() {
        let mut answers = Vec::new();
        let mut byte = [0];
        while answers.iter().filter(|byte| **byte == 0).count() < 2 {
            assert_eq!(client.read(&mut byte).expect("an answer"), 1, "client {number} was dropped");
            answers.push(byte[0]);
        }
        let answers = String::from_utf8_lossy(&answers);
        assert!(answers.contains(&format!("\"name\":\"d{number}\"")), "{answers}");
        assert!(!answers.contains("\"error\""), "{answers}");
    }
    let list = daemon.client().call(&api::ListDomains {}).expect("everyone may read").domains;
    assert_eq!(list.iter().filter(|domain| domain.made).count(), 200);
    assert!((list[0].cpu_sum - 0.8).abs() < 1e-9);
}

#[test]
fn a_domain_that_was_asked_for_is_made_whether_or_not_the_client_waits() {
    let machine = Machine::new();
    let daemon = machine.start();
    for number in 0..50 {
        let mut vanishing = connect(&daemon);
        let call = format!(
            "{{\"method\":\"io.steward.CreateDomain\",\"parameters\":{{\"domain\":\"d{number}\"}}}}\0"
        );
        vanishing.write_all(call.as_bytes()).expect("sent");
        // Half a message more, and gone.
        vanishing.write_all(b"{\"method\":\"io.steward.RemoveDomain\",\"par").expect("sent");
    }
    let mut names = Vec::new();
    while names.len() < 50 {
        let list = daemon.client().call(&api::ListDomains {}).expect("everyone may read").domains;
        names = list.into_iter().filter(|domain| domain.made).map(|domain| domain.name).collect();
    }
}
