//! `steward events`: what was decided, and what is being decided.

use std::path::Path;

use clap::Args;
use libsteward::{Client, api};

use crate::arguments::JsonFlag;
use crate::output::{print, print_json_line};

/// Show decisions: who was admitted, refused, revoked, and why
///
/// With --json each decision is one line with one object.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  steward events\n  steward events --follow --json")]
pub struct EventsArguments {
    /// Go on with each decision as it is taken.
    #[arg(long, short)]
    pub follow: bool,
    #[command(flatten)]
    pub output: JsonFlag,
}

/// `steward events`.
pub fn events(socket: &Path, arguments: &EventsArguments) -> anyhow::Result<()> {
    let mut client = Client::connect(socket)?;
    if !arguments.follow {
        let list = client.call(&api::ListEvents {})?;
        return list.events.iter().try_for_each(|event| print_event(event, 0, arguments.output.json));
    }
    for monitored in client.stream(&api::Monitor { history: Some(true) })? {
        let monitored = monitored?;
        print_event(&monitored.event, monitored.lost, arguments.output.json)?;
    }
    Ok(())
}

fn print_event(event: &api::Event, lost: u64, json: bool) -> anyhow::Result<()> {
    if json {
        return print_json_line(&api::Monitored { event: event.clone(), lost });
    }
    if lost > 0 {
        print(&format!("({lost} decisions were lost here: they came too fast)\n"))?;
    }
    print(&(event_line(event) + "\n"))
}

/// Seconds since boot, as in the kernel's log, and the sentence.
pub fn event_line(event: &api::Event) -> String {
    format!("[{:12.6}] {}", event.at_ns as f64 / 1e9, event.text)
}
