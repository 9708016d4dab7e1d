//! `steward background` against a daemon that says what a test tells it to. Time is what the forecasts say it is.

#[path = "../../libsteward/tests/daemon/mod.rs"]
mod daemon;

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use libsteward::api::{self, ApiError, Forecast, Forecasts, Method};
use libsteward::wire::Call;
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
    slowed: Vec<api::Slowed>,
    /// The scheduler's model; not Steward's own unless said.
    model: String,
    own: Forecast,
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
        let shared = Arc::clone(&daemon.shared);
        daemon::serve(&daemon.socket(), move |client| serve(client, &shared));
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

fn serve(mut client: daemon::Connection, shared: &Shared) {
    let generation = shared.script().generation;
    while let Some(call) = client.next_call() {
        let reply = {
            let mut script = shared.script();
            if script.generation != generation {
                return;
            }
            script.calls.push((call.method.clone(), call.parameters.clone()));
            shared.changed.notify_all();
            answer(&mut script, &call)
        };
        if call.method != api::WatchForecasts::NAME || reply.is_err() {
            assert!(client.answer(reply), "it is read");
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
            if !client.tell(&forecasts) {
                return;
            }
            let is_wanted = |script: &mut Script| script.generation == generation;
            drop(shared.changed.wait_timeout_while(shared.script(), BEAT, is_wanted));
        }
    }
}

fn answer(script: &mut Script, call: &Call) -> Result<Map<String, Value>, ApiError> {
    let method = call.method.as_str();
    if let Some(place) = script.refusals.iter().position(|(of, _)| of == method) {
        return Err(script.refusals.remove(place).1);
    }
    Ok(match method {
        api::SuspendDomain::NAME => daemon::parameters(&json!({"suspended": true})),
        api::LowerDomain::NAME => daemon::parameters(&json!({"lowered": call.parameters["lowered"]})),
        api::ShowDomain::NAME => daemon::parameters(&api::DomainShown::default()),
        api::RemoveDomain::NAME => daemon::parameters(&json!({"removed": 1, "moved": 0})),
        api::Run::NAME => Map::new(),
        _ => daemon::parameters(&json!({ "domain": api::Domain::default() })),
    })
}

/// The name of the domain that was made with this call.
fn created((method, parameters): &(String, Map<String, Value>)) -> Option<String> {
    let name = (method == api::CreateDomain::NAME).then(|| parameters["domain"].as_str());
    name.flatten().map(str::to_owned)
}

fn forecasts(script: &mut Script) -> Forecasts {
    script.at_ns += TENTH_NS;
    let machine = Forecast { actual_ms_per_s: 1000.0, ..Forecast::default() };
    let domain = api::DomainForecast {
        name: script.calls.iter().find_map(created).unwrap_or_default(),
        tasks: u32::from(script.calls.iter().any(|(method, _)| method == api::Run::NAME)),
        runnable: 1,
        forecast: script.own,
        ..api::DomainForecast::default()
    };
    Forecasts {
        at_ns: script.at_ns,
        cpus: 1,
        machine,
        others: script.others,
        slowed: script.slowed.clone(),
        model: script.model.clone(),
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
    assert_eq!(daemon.calls_of(api::CreateDomain::NAME)[0]["domain"], json!("x"));
    let lowered = daemon.calls_of(api::LowerDomain::NAME);
    assert_eq!((&lowered[0]["domain"], &lowered[0]["lowered"]), (&json!("x"), &json!(true)));
    assert_eq!(daemon.calls_of(api::Run::NAME)[0]["domain"], json!("x"));
    let order: Vec<String> = daemon.script().calls.iter().map(|(method, _)| method.clone()).collect();
    let place = |method: &str| order.iter().position(|called| called == method).expect("it was called");
    assert!(place(api::LowerDomain::NAME) < place(api::Run::NAME), "its first instruction is in its place");
    assert_eq!(daemon.calls_of(api::RemoveDomain::NAME)[0]["domain"], json!("x"));
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
    let watch = &daemon.calls_of(api::WatchForecasts::NAME)[0];
    assert_eq!((&watch["domain"], &watch["slowed"]), (&json!("x"), &json!(true)));
    daemon.others_are_slower(2.0);
    daemon.until_called(api::SuspendDomain::NAME, 1);
    daemon.others_are_slower(1.0);
    daemon.until_called(api::SuspendDomain::NAME, 2);
    let calls = daemon.calls_of(api::SuspendDomain::NAME);
    assert_eq!((&calls[0]["suspended"], &calls[1]["suspended"]), (&json!(true), &json!(false)));
    assert_eq!(calls[0]["domain"], json!("x"));
    drop(child.stdin.take());
    let (code, errors) = errors_of(child);
    assert_eq!(code, Some(0));
    let said =
        "suspended: others together are 2.00 times slower for want of a CPU; others use 50 % of the CPU";
    assert!(errors.contains(said), "{errors}");
}

#[test]
fn under_stewards_own_scheduler_it_is_suspended_only_for_who_wants_for_something_else_than_the_cpu() {
    let daemon = Daemon::start();
    daemon.others_are_slower(9.0);
    daemon.script().model = "steward".into();
    let mut child = daemon.command(&["--name", "x", "--verbose", "--", "cat"]).spawn().expect("it runs");
    daemon.until_called(api::WatchForecasts::NAME, 1);
    let begun_ns = daemon.script().at_ns;
    while daemon.script().at_ns < begun_ns + 50 * TENTH_NS {
        std::thread::yield_now();
    }
    assert!(daemon.calls_of(api::SuspendDomain::NAME).is_empty(), "they wait for each other");
    // Nobody wants for anything that it takes: it looks seldom, and often again once somebody does.
    daemon.until_called(api::WatchForecasts::NAME, 2);
    let name = Some("database.service".to_owned());
    daemon.script().slowed = vec![api::Slowed { by: api::Lack::Disk, id: 77, name, slowdown: 3.0 }];
    daemon.until_called(api::SuspendDomain::NAME, 1);
    daemon.until_called(api::WatchForecasts::NAME, 3);
    let watches = daemon.calls_of(api::WatchForecasts::NAME);
    let every_ms: Vec<&Value> = watches.iter().map(|watch| &watch["every_ms"]).collect();
    assert_eq!(every_ms[..3], [&json!(100), &json!(1000), &json!(100)]);
    assert_eq!((&watches[1]["domain"], &watches[1]["slowed"]), (&json!("x"), &json!(true)));
    drop(child.stdin.take());
    // What is suspended in earnest would not read the end of its input.
    let (code, errors) = errors_of(child);
    assert_eq!(code, Some(0));
    let said = "suspended: the domain database.service is 3.00 times slower for want of the disk";
    assert!(errors.contains(said), "{errors}");
}

/// A daemon that has no room for another stream: the command looks on as often as it did, and controls what it runs.
#[test]
fn where_another_pace_is_refused_it_looks_on_at_the_one_that_there_is() {
    let daemon = Daemon::start();
    daemon.script().model = "steward".into();
    let mut child = daemon.command(&["--name", "x", "--verbose", "--", "cat"]).spawn().expect("it runs");
    daemon.until_called(api::WatchForecasts::NAME, 1);
    daemon.refuse(api::WatchForecasts::NAME, ApiError::PermissionDenied { reason: "too many".into() });
    daemon.until_called(api::WatchForecasts::NAME, 2);
    daemon.script().slowed = vec![api::Slowed { by: api::Lack::Disk, id: 77, name: None, slowdown: 3.0 }];
    daemon.until_called(api::SuspendDomain::NAME, 1);
    drop(child.stdin.take());
    let (code, errors) = errors_of(child);
    assert_eq!(code, Some(0));
    assert!(errors.contains("suspended") && !errors.contains("uncontrolled"), "{errors}");
    assert_eq!(daemon.calls_of(api::LowerDomain::NAME).len(), 1, "the connections stay");
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
    let order: Vec<String> = daemon.script().calls.iter().map(|(method, _)| method.clone()).collect();
    let place = |method: &str| order.iter().position(|called| called == method).expect("it was called");
    assert!(place(api::Run::NAME) < place(api::SuspendDomain::NAME), "nothing to suspend before it is there");
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
    let calls = after_the_signal(&daemon, &mut child);
    assert_eq!(calls[0], ("LowerDomain".to_owned(), json!({"domain": "x", "lowered": false})));

    let daemon = Daemon::start();
    let arguments = ["--max-slowdown", "5", "--name", "x", "--in", "mine", "--", "cat"];
    let mut child = daemon.command(&arguments).spawn().expect("it runs");
    let _input = child.stdin.take();
    daemon.until_called(api::WatchForecasts::NAME, 1);
    daemon.until_called(api::Run::NAME, 1);
    let calls = after_the_signal(&daemon, &mut child);
    let set = calls
        .iter()
        .find(|(method, of)| method == "SetDomain" && of["settings"]["reset"] == json!(["weight"]));
    assert_eq!(set.expect("an ordinary weight").1["domain"], json!("mine/x"));
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
    assert_eq!(daemon.calls_of(api::LowerDomain::NAME).len(), 2, "it is put in its place again");
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
fn where_it_cannot_be_put_last_it_is_told_and_where_nothing_decides_it_is_not_started() {
    let daemon = Daemon::start();
    daemon.refuse(api::LowerDomain::NAME, ApiError::MechanismFailed { reason: "no weights".into() });
    let (code, errors) = ended(&daemon, &["--name", "x", "--", "true"]);
    assert_eq!(code, Some(0));
    assert!(errors.contains("x keeps an ordinary place, and is only suspended: no weights"), "{errors}");
    let runs = daemon.calls_of(api::Run::NAME).len();
    daemon.refuse(api::LowerDomain::NAME, ApiError::MechanismGone { reason: "nothing is loaded".into() });
    let (code, errors) = ended(&daemon, &["--name", "x", "--", "true"]);
    assert!(code == Some(125) && errors.contains("nothing is loaded"), "{code:?} {errors}");
    assert_eq!(daemon.calls_of(api::Run::NAME).len(), runs);
    assert_eq!(daemon.calls_of(api::RemoveDomain::NAME).len(), 2, "its domain is not left behind");
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
