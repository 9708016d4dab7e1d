//! `steward explain`: why a process has what it has.

use std::path::Path;

use clap::Args;
use libsteward::{Client, api};

use crate::arguments::JsonFlag;
use crate::events::event_line;
use crate::output::{print, print_json};
use crate::who::{self, Several, Who};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  steward explain mplayer\n  steward explain 4321 --json")]
pub struct ExplainArguments {
    /// The process, by number or name, or one of its threads.
    #[arg(value_name = "PROCESS", value_parser = crate::who::parse)]
    pub process: Who,
    #[command(flatten)]
    pub several: Several,
    #[command(flatten)]
    pub output: JsonFlag,
}

/// `steward explain`. With JSON, one object for each process.
pub fn explain(socket: &Path, arguments: &ExplainArguments) -> anyhow::Result<()> {
    let mut client = Client::connect(socket)?;
    let pids = who::resolve(&arguments.process, arguments.several)?;
    for (place, pid) in pids.into_iter().enumerate() {
        if place > 0 && !arguments.output.json {
            print("\n")?;
        }
        explain_one(&mut client, pid, arguments.output.json)?;
    }
    Ok(())
}

fn explain_one(client: &mut Client, pid: i32, json: bool) -> anyhow::Result<()> {
    let explanation = client.call(&api::Explain { pid })?;
    if json {
        return print_json(&explanation);
    }
    let mut text = explanation.text;
    if !explanation.events.is_empty() {
        text.push_str("\nWhat was decided about it:\n");
        for event in &explanation.events {
            text.push_str(&format!("  {}\n", event_line(event)));
        }
    }
    print(&text)
}
