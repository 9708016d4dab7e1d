//! A daemon in memory: it answers what `steward top` asks with the sample, refuses more than half the machine, and can
//! go away and come back.

use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

use libsteward::api::{self, ApiError, Method};
use libsteward::wire::Call;
use serde_json::{Map, Value};

use crate::daemon::{Connection, parameters};
use crate::sample;

/// What it knows.
#[derive(Default)]
pub struct State {
    /// How many forecasts were asked for: the sample's second.
    pub second: u64,
    /// All calls that change something, with their parameters.
    pub changes: Vec<(String, Value)>,
    /// The last question for forecasts.
    pub asked: Value,
    /// Says that there are no domains, as on a machine without cgroup v2.
    pub no_domains: bool,
    connections: Vec<UnixStream>,
    stopped: bool,
}

/// The daemon; gone when dropped.
pub struct StandIn {
    pub socket: PathBuf,
    state: Arc<Mutex<State>>,
    thread: Option<JoinHandle<()>>,
}

impl StandIn {
    /// Listens at that path.
    pub fn start(socket: &Path) -> Self {
        let listener = UnixListener::bind(socket).expect("nobody listens there yet");
        let state = Arc::new(Mutex::new(State::default()));
        let shared = state.clone();
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.expect("a connection");
                let mut state = shared.lock().expect("no connection panicked");
                if state.stopped {
                    return;
                }
                state.connections.push(stream.try_clone().expect("a descriptor is left"));
                let shared = shared.clone();
                // It ends with its connection.
                std::thread::spawn(move || serve(Connection::new(stream), &shared));
            }
        });
        StandIn { socket: socket.to_owned(), state, thread: Some(thread) }
    }

    /// What it knows now.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no connection panicked")
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        let mut state = self.state();
        state.stopped = true;
        // Those that have gone already are no matter.
        state.connections.iter().for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
        drop(state);
        // Wakes the thread that accepts.
        drop(UnixStream::connect(&self.socket));
        let _ = std::fs::remove_file(&self.socket);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(mut client: Connection, state: &Mutex<State>) {
    while let Some(call) = client.next_call() {
        if call.method == api::Monitor::NAME {
            continue; // Nothing is decided here.
        }
        let answer = state.lock().expect("no connection panicked").answer(&call);
        if !client.answer(answer) {
            return;
        }
    }
}

impl State {
    fn answer(&mut self, call: &Call) -> Result<Map<String, Value>, ApiError> {
        let asked = Value::Object(call.parameters.clone());
        match call.method.as_str() {
            api::ListForecasts::NAME => {
                self.asked = asked;
                let forecasts = sample::forecasts(self.second);
                self.second += 1;
                Ok(parameters(&forecasts))
            }
            api::Status::NAME => Ok(parameters(&sample::status(self.second))),
            api::ListDomains::NAME if self.no_domains => {
                let reason = "there are no domains here: no cgroup v2".to_owned();
                Err(ApiError::MechanismFailed { reason })
            }
            api::ListDomains::NAME => Ok(parameters(&sample::domains())),
            api::ListEvents::NAME => Ok(parameters(&api::EventList { events: sample::events(), lost: 0 })),
            _ => {
                self.changes.push((call.method.clone(), asked.clone()));
                change(&call.method, asked)
            }
        }
    }
}

fn change(method: &str, asked: Value) -> Result<Map<String, Value>, ApiError> {
    match method {
        api::Set::NAME => {
            Ok(parameters(&api::Standings { standing: Some(api::Standing::Admitted), reads_requests: None }))
        }
        api::Release::NAME => Ok(parameters(&api::Released { released: 1 })),
        api::SetDomain::NAME => {
            let set: api::SetDomain = serde_json::from_value(asked).expect("as the interface says");
            let cpu = set.settings.cpu;
            if let Some(asked) = cpu.filter(|asked| *asked > 0.5) {
                let reason = format!("no room: {asked} was asked, 0.5 is left");
                return Err(ApiError::Overcommitted {
                    resource: "cpu".to_owned(),
                    reason,
                    asked,
                    reserved: 0.45,
                    limit: 0.95,
                });
            }
            let domain = api::Domain { name: set.domain, cpu, cpu_guaranteed: 0.4, ..api::Domain::default() };
            Ok(parameters(&api::DomainState { domain }))
        }
        _ => Err(ApiError::MethodNotFound { method: method.to_owned() }),
    }
}
