//! `steward explain`: why a process, or a domain, has what it has.

use std::path::Path;

use clap::Args;
use libsteward::{Client, api};

use crate::arguments::JsonFlag;
use crate::events::event_line;
use crate::output::{print, print_json};
use crate::who::{self, NoAnswer, Several, Who};

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
        steward explain mplayer\n  \
        steward explain 4321 --json\n  \
        steward explain --domain web")]
pub struct ExplainArguments {
    /// The process, by number or name, or one of its threads; or a domain, where no process is called so.
    #[arg(value_name = "PROCESS", value_parser = crate::who::parse)]
    pub process: Who,
    /// It is the name of a domain, whatever processes are called.
    #[arg(long, conflicts_with_all = ["all", "newest"])]
    pub domain: bool,
    #[command(flatten)]
    pub several: Several,
    #[command(flatten)]
    pub output: JsonFlag,
}

/// `steward explain`. With JSON, one object for each process.
pub fn explain(socket: &Path, arguments: &ExplainArguments) -> anyhow::Result<()> {
    let mut client = Client::connect(socket)?;
    let json = arguments.output.json;
    if arguments.domain {
        let name = match &arguments.process {
            Who::Number(number) => number.to_string(),
            Who::Name(name) => name.clone(),
        };
        return explain_domain(&mut client, &name, json);
    }
    let pids = match (who::resolve(&arguments.process, arguments.several), &arguments.process) {
        (Err(error), Who::Name(name)) if is_nobody(&error) && crate::domain::exists(&mut client, name)? => {
            return explain_domain(&mut client, name, json);
        }
        (resolved, _) => resolved?,
    };
    for (place, pid) in pids.into_iter().enumerate() {
        if place > 0 && !json {
            print("\n")?;
        }
        let explanation = client.call(&api::Explain { pid })?;
        if json { print_json(&explanation)? } else { show(explanation.text, &explanation.events)? }
    }
    Ok(())
}

/// Whether no process was meant.
fn is_nobody(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(NoAnswer::Nobody(_)))
}

fn explain_domain(client: &mut Client, name: &str, json: bool) -> anyhow::Result<()> {
    let explanation = client.call(&api::ExplainDomain { domain: Some(name.to_owned()) })?;
    if json { print_json(&explanation) } else { show(explanation.text, &explanation.events) }
}

fn show(mut text: String, events: &[api::Event]) -> anyhow::Result<()> {
    if !events.is_empty() {
        text.push_str("\nWhat was decided about it:\n");
        for event in events {
            text.push_str(&format!("  {}\n", event_line(event)));
        }
    }
    print(&text)
}
