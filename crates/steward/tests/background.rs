//! `steward background` against a daemon that says what a test tells it to. Time is what the forecasts say it is.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use libsteward::api::{self, ApiError, Forecast, Forecasts, Method};
use libsteward::wire::{self, Call, Reply};
use serde_json::{Map, Value, json};

const TENTH_NS: u64 = 100_000_000;
/// When something never comes.
const GIVE_UP: Duration = Duration::from_secs(60);
/// Time between two forecasts, so that they are read one by one.
const BEAT: Duration = Duration::from_millis(1);

/// What the daemon knows, and answers.
#[derive(Default)]
struct Script {
    calls: Vec<(String, Map<String, Value>)>,
    /// Answers to methods, by name, taken one by one; then the usual ones.
    refusals: Vec<(String, ApiError)>,
    others: Forecast,
    own: Forecast,
    /// Which processes are in which domain.
    processes: Vec<(String, i32)>,
    at_ns: u64,
    /// Increased to end every connection.
    generation: u64,
}

#[derive(Default)]
struct Shared {
    script: Mutex<Script>,
    /// Something in the script has changed.
    changed: Condvar,
}

impl Shared {
    fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().expect("no panic")
    }
}

struct Daemon {
    directory: tempfile::TempDir,
    shared: Arc<Shared>,
}

impl Daemon {
    fn start() -> Self {
        let daemon =
            Daemon { directory: tempfile::tempdir().expect("a temporary directory"), shared: Arc::default() };
        let listener = UnixListener::bind(daemon.socket()).expect("bound");
        let shared = Arc::clone(&daemon.shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || serve(stream, &shared));
            }
        });
        daemon
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.shared.script()
    }

    fn refuse(&self, method: &str, error: ApiError) {
        self.script().refusals.push((method.to_owned(), error));
    }

    /// Others that use half of the machine and are so much slower.
    fn others_are_slower(&self, slowdown: f64) {
        self.script().others = Forecast {
            actual_ms_per_s: 500.0,
            desired_ms_per_s: 500.0 * slowdown,
            slowdown: Some(slowdown),
            ..Forecast::default()
        };
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_steward"));
        command.arg("--socket").arg(self.socket()).arg("background").args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn calls_of(&self, method: &str) -> Vec<Map<String, Value>> {
        let script = self.script();
        let calls = script.calls.iter().filter(|(name, _)| name == method);
        calls.map(|(_, parameters)| parameters.clone()).collect()
    }

    /// Waits for as many calls of a method.
    fn until_called(&self, method: &str, count: usize) {
        let too_few =
            |script: &mut Script| script.calls.iter().filter(|(name, _)| name == method).count() < count;
        let changed = &self.shared.changed;
        let waited = changed.wait_timeout_while(self.script(), GIVE_UP, too_few).expect("no panic");
        assert!(!waited.1.timed_out(), "{method} was not called {count} times: {:?}", waited.0.calls);
    }
}

fn serve(mut stream: UnixStream, shared: &Shared) {
    let generation = shared.script().generation;
    let mut reader = BufReader::new(stream.try_clone().expect("cloned"));
    loop {
        let mut message = Vec::new();
        if reader.read_until(0, &mut message).unwrap_or(0) == 0 {
            return;
        }
        message.pop();
        let call: Call = serde_json::from_slice(&message).expect("a call");
        let watches = call.method == api::WatchForecasts::NAME;
        let reply = {
            let mut script = shared.script();
            if script.generation != generation {
                return;
            }
            script.calls.push((call.method.clone(), call.parameters.clone()));
            shared.changed.notify_all();
            answer(&mut script, &call)
        };
        if !watches {
            stream.write_all(&wire::encode(&reply)).expect("read");
            continue;
        }
        loop {
            let forecasts = {
                let mut script = shared.script();
                if script.generation != generation {
                    return;
                }
                forecasts(&mut script)
            };
            let parameters = object(serde_json::to_value(forecasts).expect("JSON"));
            let reply = Reply { parameters, continues: Some(true), error: None };
            if stream.write_all(&wire::encode(&reply)).is_err() {
                return;
            }
            let is_wanted = |script: &mut Script| script.generation == generation;
            drop(shared.changed.wait_timeout_while(shared.script(), BEAT, is_wanted));
        }
    }
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        other => panic!("not an object: {other}"),
    }
}

fn answer(script: &mut Script, call: &Call) -> Reply {
    let method = call.method.as_str();
    if let Some(place) = script.refusals.iter().position(|(of, _)| of == method) {
        let (name, parameters) = script.refusals.remove(place).1.to_wire();
        return Reply { error: Some(name), parameters, continues: None };
    }
    let domain = api::Domain::default();
    let reply = match method {
        api::SuspendDomain::NAME => json!({"suspended": true}),
        api::ShowDomain::NAME => {
            let is_in = |(domain, _): &&(String, i32)| call.parameters.get("domain") == Some(&json!(domain));
            let processes = script.processes.iter().filter(is_in).map(|(_, pid)| *pid).collect();
            serde_json::to_value(api::DomainShown { processes, ..Default::default() }).expect("JSON")
        }
        api::MoveProcess::NAME => {
            let domain = call.parameters["domain"].as_str().expect("a name").to_owned();
            let pid = call.parameters["pid"].as_i64().expect("a number") as i32;
            script.processes.retain(|(_, known)| *known != pid);
            script.processes.push((domain, pid));
            json!({"domain": "", "from": ""})
        }
        api::RemoveDomain::NAME => json!({"removed": 1, "moved": 0}),
        api::Run::NAME => json!({}),
        _ => json!({ "domain": domain }),
    };
    Reply { parameters: object(reply), ..Reply::default() }
}

fn forecasts(script: &mut Script) -> Forecasts {
    script.at_ns += TENTH_NS;
    let machine = Forecast { actual_ms_per_s: 1000.0, ..Forecast::default() };
    let domain = api::DomainForecast {
        name: "x".into(),
        runnable: 1,
        forecast: script.own,
        ..api::DomainForecast::default()
    };
    Forecasts {
        at_ns: script.at_ns,
        cpus: 1,
        machine,
        others: script.others,
        domains: vec![domain],
        ..Forecasts::default()
    }
}

fn errors_of(child: Child) -> (Option<i32>, String) {
    let output = child.wait_with_output().expect("it ends");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn ended(daemon: &Daemon, arguments: &[&str]) -> (Option<i32>, String) {
    errors_of(daemon.command(arguments).spawn().expect("it runs"))
}

#[test]
fn the_program_runs_in_a_domain_below_all_others_and_its_exit_code_is_the_commands() {
    let daemon = Daemon::start();
    let (code, errors) = ended(&daemon, &["--name", "x", "--", "sh", "-c", "exit 7"]);
    assert_eq!((code, errors.as_str()), (Some(7), ""));
    let made = daemon.calls_of(api::CreateDomain::NAME);
    assert_eq!((&made[0]["domain"], &made[0]["settings"]["priority"]), (&json!("background"), &json!(0)));
    assert_eq!(made[1]["domain"], json!("background/x"));
    assert_eq!(daemon.calls_of(api::Run::NAME)[0]["domain"], json!("background/x"));
    assert_eq!(daemon.calls_of(api::RemoveDomain::NAME)[0]["domain"], json!("background/x"));
    assert_eq!(ended(&daemon, &["--", "sh", "-c", "kill -9 $$"]).0, Some(137));
    let (code, errors) = ended(&daemon, &["--", "/nonexistent/program"]);
    assert!(code == Some(127) && errors.contains("/nonexistent/program"), "{code:?} {errors}");
}

#[test]
fn it_is_suspended_while_others_are_slower_because_of_it() {
    let daemon = Daemon::start();
    daemon.others_are_slower(1.0);
    let mut child = daemon.command(&["--name", "x", "--verbose", "--", "cat"]).spawn().expect("it runs");
    daemon.until_called(api::WatchForecasts::NAME, 1);
    assert_eq!(daemon.calls_of(api::WatchForecasts::NAME)[0]["domain"], json!("background"));
    daemon.others_are_slower(2.0);
    daemon.until_called(api::SuspendDomain::NAME, 1);
    daemon.others_are_slower(1.0);
    daemon.until_called(api::SuspendDomain::NAME, 2);
    let calls = daemon.calls_of(api::SuspendDomain::NAME);
    assert_eq!((&calls[0]["suspended"], &calls[1]["suspended"]), (&json!(true), &json!(false)));
    assert_eq!(calls[0]["domain"], json!("background/x"));
    drop(child.stdin.take());
    let (code, errors) = errors_of(child);
    assert_eq!(code, Some(0));
    assert!(errors.contains("suspended: others are 2.00 times slower, and use 50 %"), "{errors}");
}

#[test]
fn a_signal_that_ends_it_lets_the_program_go_on_first() {
    let daemon = Daemon::start();
    daemon.others_are_slower(2.0);
    let mut child = daemon.command(&["--", "cat"]).spawn().expect("it runs");
    // Kept open: the end of its input would end the program too, and with another code.
    let _input = child.stdin.take();
    daemon.until_called(api::SuspendDomain::NAME, 1);
    let sent = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
    assert!(sent.expect("there is kill").success());
    let (code, errors) = errors_of(child);
    assert_eq!(code, Some(128 + 15), "{errors}");
    let last = daemon.calls_of(api::SuspendDomain::NAME).pop().expect("some");
    assert_eq!(last["suspended"], json!(false));
}

/// The calls from the signal on that change something, by their last word and what they are about.
fn after_the_signal(daemon: &Daemon, child: &mut Child) -> Vec<(String, Value)> {
    let before = daemon.script().calls.len();
    let sent = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
    assert!(sent.expect("there is kill").success());
    assert_eq!(child.wait().expect("it ends").code(), Some(128 + 15));
    let script = daemon.script();
    let calls = script.calls[before..].iter().filter(|(method, _)| method != api::ShowDomain::NAME);
    let about = |(method, parameters): &(String, Map<String, Value>)| {
        let last = method.rsplit('.').next().expect("a word").to_owned();
        (last, Value::Object(parameters.clone()))
    };
    calls.map(about).collect()
}

#[test]
fn a_program_that_is_to_end_is_let_out_of_the_place_behind_everybody_first() {
    let daemon = Daemon::start();
    let mut child = daemon.command(&["--name", "x", "--", "cat"]).spawn().expect("it runs");
    // Kept open: the end of its input would end the program too, and with another code.
    let _input = child.stdin.take();
    daemon.until_called(api::WatchForecasts::NAME, 1);
    daemon.until_called(api::Run::NAME, 1);
    daemon.script().processes = vec![("background/x".into(), 71), ("background/x".into(), 72)];
    let calls = after_the_signal(&daemon, &mut child);
    let (first, rest) = calls.split_first().expect("some");
    assert_eq!((first.0.as_str(), &first.1["domain"]), ("CreateDomain", &json!("x")));
    assert_eq!(
        first.1.get("settings").and_then(|settings| settings.get("priority")),
        None,
        "an ordinary place"
    );
    let moved: Vec<&Value> =
        rest.iter().filter(|(method, _)| method == "MoveProcess").map(|(_, of)| of).collect();
    assert_eq!(moved, [&json!({"pid": 71, "domain": "x"}), &json!({"pid": 72, "domain": "x"})]);

    let daemon = Daemon::start();
    let mut child = daemon.command(&["--name", "x", "--in", "mine", "--", "cat"]).spawn().expect("it runs");
    let _input = child.stdin.take();
    daemon.until_called(api::WatchForecasts::NAME, 1);
    daemon.until_called(api::Run::NAME, 1);
    let calls = after_the_signal(&daemon, &mut child);
    assert_eq!((calls[0].0.as_str(), &calls[0].1["domain"]), ("SetDomain", &json!("mine/x")));
    assert_eq!(calls[0].1["settings"], json!({"reset": ["priority", "weight"]}));
}

#[test]
fn a_daemon_that_goes_away_is_waited_for_and_the_program_goes_on() {
    let daemon = Daemon::start();
    let mut child = daemon.command(&["--", "cat"]).spawn().expect("it runs");
    daemon.until_called(api::WatchForecasts::NAME, 1);
    // Before, the program itself could not be started without a daemon.
    daemon.until_called(api::Run::NAME, 1);
    daemon.script().generation += 1;
    daemon.shared.changed.notify_all();
    daemon.until_called(api::WatchForecasts::NAME, 2);
    child.stdin.take().expect("a pipe").write_all(b"still here\n").expect("read");
    let mut text = String::new();
    child.stdout.take().expect("a pipe").read_to_string(&mut text).expect("text");
    let (code, errors) = errors_of(child);
    assert_eq!((code, text.as_str()), (Some(0), "still here\n"));
    assert!(errors.contains("goes on uncontrolled until stewardd is back"), "{errors}");
}

#[test]
fn without_a_daemon_a_right_or_a_name_nothing_is_started() {
    let daemon = Daemon::start();
    let exists = ApiError::DomainExists { domain: "x".into() };
    daemon.refuse(api::CreateDomain::NAME, exists);
    let (code, errors) = ended(&daemon, &["--max-slowdown", "5", "--name", "x", "--", "true"]);
    assert!(code == Some(125) && errors.contains("there is a domain x already"), "{errors}");
    daemon.refuse(api::CreateDomain::NAME, ApiError::PermissionDenied { reason: "user 7 may not".into() });
    let (code, errors) = ended(&daemon, &["--", "true"]);
    assert!(code == Some(125) && errors.contains("user 7 may not") && errors.contains("--in"), "{errors}");
    assert!(daemon.calls_of(api::Run::NAME).is_empty());
    let mut command = Command::new(env!("CARGO_BIN_EXE_steward"));
    let output = command.args(["--socket", "/nonexistent/socket", "background", "--", "true"]).output();
    let output = output.expect("it runs");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(125) && errors.contains("is it running?"), "{errors}");
}

#[test]
fn where_nobody_knows_priorities_it_has_the_least_weight_and_a_domain_for_something_else_is_left_alone() {
    let daemon = Daemon::start();
    daemon.refuse(api::CreateDomain::NAME, ApiError::MechanismFailed { reason: "no priorities".into() });
    assert_eq!(ended(&daemon, &["--", "true"]).0, Some(0));
    assert_eq!(daemon.calls_of(api::CreateDomain::NAME)[1]["settings"]["weight"], json!(1));
    let exists = || ApiError::DomainExists { domain: "background".into() };
    daemon.refuse(api::CreateDomain::NAME, exists());
    assert_eq!(ended(&daemon, &["--", "true"]).0, Some(0), "that one has priority 0, and is shared");
    // Gone again in between: made once more.
    daemon.refuse(api::CreateDomain::NAME, exists());
    daemon.refuse(api::CreateDomain::NAME, ApiError::NoSuchDomain { domain: "background".into() });
    assert_eq!(ended(&daemon, &["--", "true"]).0, Some(0));
}

#[test]
fn its_slowdown_is_kept_by_weight_and_a_refusal_is_told_once() {
    let daemon = Daemon::start();
    daemon.script().own = Forecast {
        desired_ms_per_s: 1000.0,
        predicted_ms_per_s: 100.0,
        actual_ms_per_s: 100.0,
        ..Forecast::default()
    };
    let arguments = ["--max-slowdown", "5", "--name", "x", "--", "cat"];
    let mut child = daemon.command(&arguments).spawn().expect("it runs");
    daemon.until_called(api::SetDomain::NAME, 3);
    let weights: Vec<i64> = daemon
        .calls_of(api::SetDomain::NAME)
        .iter()
        .filter_map(|call| call["settings"]["weight"].as_i64())
        .collect();
    assert!(weights[..3].windows(2).all(|pair| pair[0] < pair[1]) && weights[0] > 100, "{weights:?}");
    drop(child.stdin.take());
    assert_eq!(errors_of(child).0, Some(0));

    daemon.script().calls.clear();
    daemon.refuse(api::SetDomain::NAME, ApiError::PermissionDenied { reason: "user 7 may not".into() });
    let mut child = daemon.command(&arguments).spawn().expect("it runs");
    daemon.until_called(api::SetDomain::NAME, 1);
    let begun_ns = daemon.script().at_ns;
    while daemon.script().at_ns < begun_ns + 30 * TENTH_NS {
        std::thread::yield_now();
    }
    drop(child.stdin.take());
    let (code, errors) = errors_of(child);
    assert_eq!(code, Some(0));
    assert_eq!(errors.matches("was refused").count(), 1, "{errors}");
    assert_eq!(daemon.calls_of(api::SetDomain::NAME).len(), 1);
}
