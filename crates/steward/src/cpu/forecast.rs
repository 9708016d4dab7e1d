//! `steward forecast`: what tasks and domains got, wanted, will get and could get.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use libsteward::{Client, api};
use steward_core::quantity::parse_duration;

use crate::domain;
use crate::output::{print, print_json, print_json_line, table};
use crate::who::{self, Newest, NoAnswer, Who};

/// How long the figures' window is to be before they are shown, in nanoseconds, and how long that is waited for.
const WINDOW_NS: u64 = 500_000_000;
const WINDOW_WAITS_MAX: u32 = 15;
const WINDOW_WAIT: Duration = Duration::from_millis(100);

/// Show what tasks and domains got, wanted, will get and could get of the CPU
///
/// In milliseconds of CPU time per second: ACTUAL in the last second; DESIRED, what it would have been on an idle
/// machine; PREDICTED for the next second; POTENTIAL, the most that it could be. SLOWDOWN is desired over actual,
/// EXPECTED desired over predicted: 1.0 is undisturbed. The figures of other users' tasks are shown if the rules allow
/// it, and in all sums.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
        steward forecast                       all domains, and the tasks that want the CPU\n  \
        steward forecast batch --domains       one domain and those below it\n  \
        steward forecast mplayer               one program\n  \
        steward forecast 4321 --watch --json   a line for each moment, for a program to read")]
pub struct ForecastArguments {
    /// Only this domain and what is below it, by name, or this process, by number or name.
    #[arg(value_name = "PROCESS|DOMAIN", value_parser = who::parse)]
    pub target: Option<Who>,
    #[command(flatten)]
    pub newest: Newest,
    /// Leave the tasks out.
    #[arg(long)]
    pub domains: bool,
    /// Show tasks that want nothing, too.
    #[arg(long, short, conflicts_with = "domains")]
    pub all: bool,
    /// Go on, again and again.
    #[arg(long, short)]
    pub watch: bool,
    /// Time from one to the next, 100ms to 60s; 1s unless said.
    #[arg(long, value_name = "TIME", requires = "watch", value_parser = parse_every_ms)]
    pub every: Option<u64>,
    /// Print one JSON object with its "schema"; with --watch, one on each line.
    #[arg(long)]
    pub json: bool,
}

fn parse_every_ms(text: &str) -> Result<u64, String> {
    let every_ms = parse_duration(text).map_err(|error| error.to_string())? / 1_000_000;
    if api::FORECAST_EVERY_MS.contains(&every_ms) {
        Ok(every_ms)
    } else {
        Err("write a time from 100ms to 60s".to_owned())
    }
}

/// Carries it out.
pub fn forecast(socket: &Path, arguments: &ForecastArguments) -> anyhow::Result<()> {
    let mut client = Client::connect(socket)?;
    let (domain, pid) = target(&mut client, arguments)?;
    let domains_only = Some(arguments.domains);
    if !arguments.watch {
        let request = api::ListForecasts { domain, pid, domains_only };
        let forecasts = once_there_is_a_window(&mut client, &request)?;
        return if arguments.json { print_json(&forecasts) } else { print(&page(&forecasts, arguments.all)) };
    }
    let every_ms = Some(arguments.every.unwrap_or(1000));
    let watch = api::WatchForecasts { domain, pid, domains_only, every_ms, slowed: None };
    for forecasts in client.watch_forecasts(&watch)? {
        let forecasts = forecasts?;
        if arguments.json {
            print_json_line(&forecasts)?;
        } else {
            print(&(page(&forecasts, arguments.all) + "\n"))?;
        }
    }
    anyhow::bail!("stewardd ended the stream; its log says why (journalctl -u stewardd)")
}

/// The domain or the process that is asked about. A name is a domain's, where there is one of that name.
fn target(
    client: &mut Client,
    arguments: &ForecastArguments,
) -> anyhow::Result<(Option<String>, Option<i32>)> {
    let Some(target) = &arguments.target else { return Ok((None, None)) };
    if let Who::Name(name) = target
        && !arguments.newest.newest
        && domain::exists(client, name)?
    {
        return Ok((Some(name.clone()), None));
    }
    let process = who::resolve_process(target, arguments.newest).map_err(|error| {
        match (error.downcast_ref(), target) {
            (Some(NoAnswer::Nobody(_)), Who::Name(name)) => {
                anyhow::anyhow!(
                    "there is neither a domain nor a process called {name:?}; steward top shows both"
                )
            }
            _ => error,
        }
    });
    Ok((None, Some(process?)))
}

/// A daemon that has just started, or that reads tasks only when it is asked to, has to see them twice first.
fn once_there_is_a_window(
    client: &mut Client,
    request: &api::ListForecasts,
) -> anyhow::Result<api::Forecasts> {
    let mut forecasts = client.call(request)?;
    for _ in 0..WINDOW_WAITS_MAX {
        if forecasts.window_ns >= WINDOW_NS {
            break;
        }
        std::thread::sleep(WINDOW_WAIT);
        forecasts = client.call(request).context("while waiting for the first figures")?;
    }
    Ok(forecasts)
}

fn page(forecasts: &api::Forecasts, all: bool) -> String {
    let mut text = headline(forecasts);
    if !forecasts.domains.is_empty() {
        text.push('\n');
        text.push_str(&domain_table(forecasts));
    }
    let wanted = |task: &&api::TaskForecast| all || task.forecast.desired_ms_per_s > 0.0;
    let mut tasks: Vec<&api::TaskForecast> = forecasts.tasks.iter().filter(wanted).collect();
    tasks.sort_by(|one, other| other.forecast.desired_ms_per_s.total_cmp(&one.forecast.desired_ms_per_s));
    let left_out = forecasts.tasks.len() - tasks.len();
    if !tasks.is_empty() {
        text.push('\n');
        text.push_str(&task_table(&tasks));
    }
    if left_out > 0 {
        text.push_str(&format!("\nTasks that want nothing, not shown (--all): {left_out}.\n"));
    }
    if forecasts.hidden > 0 {
        text.push_str(&format!("\nTasks of others that you may not see: {}.\n", forecasts.hidden));
    }
    text
}

fn headline(forecasts: &api::Forecasts) -> String {
    let api::Forecasts { window_ns, model, source, cpus, .. } = forecasts;
    let plural = if *cpus == 1 { "" } else { "s" };
    format!(
        "The last {:.1} s on {cpus} CPU{plural}, in ms of CPU time per second (model {model}, counters from {source}).\n",
        *window_ns as f64 / 1e9
    )
}

const FIGURES: [&str; 6] = ["ACTUAL", "DESIRED", "PREDICTED", "POTENTIAL", "SLOWDOWN", "EXPECTED"];

fn figures(forecast: &api::Forecast) -> [String; 6] {
    let slowdown = |figure: Option<f64>| figure.map_or("-".to_owned(), |figure| format!("{figure:.1}"));
    [
        format!("{:.0}", forecast.actual_ms_per_s),
        format!("{:.0}", forecast.desired_ms_per_s),
        format!("{:.0}", forecast.predicted_ms_per_s),
        format!("{:.0}", forecast.potential_ms_per_s),
        slowdown(forecast.slowdown),
        slowdown(forecast.future_slowdown),
    ]
}

fn domain_table(forecasts: &api::Forecasts) -> String {
    let mut rows = vec![header(&["DOMAIN", "TASKS"])];
    for domain in &forecasts.domains {
        let mark = if domain.suspended { " (suspended)" } else { "" };
        let name = format!("{}{mark}", domain.name.escape_debug());
        rows.push([name, domain.tasks.to_string()].into_iter().chain(figures(&domain.forecast)).collect());
    }
    table(&rows, &[1, 2, 3, 4, 5, 6, 7])
}

fn task_table(tasks: &[&api::TaskForecast]) -> String {
    let mut rows = vec![header(&["TASK", "PROCESS", "NAME"])];
    rows[0].push("DOMAIN".to_owned());
    for task in tasks {
        let name = task.name.escape_debug().to_string();
        let who = [task.tid.to_string(), task.pid.to_string(), name];
        let domain = task.domain.escape_debug().to_string();
        rows.push(who.into_iter().chain(figures(&task.forecast)).chain([domain]).collect());
    }
    table(&rows, &[0, 1, 3, 4, 5, 6, 7, 8])
}

fn header(first: &[&str]) -> Vec<String> {
    first.iter().chain(&FIGURES).map(|cell| (*cell).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(tid: i32, desired: f64) -> api::TaskForecast {
        let forecast = api::Forecast {
            actual_ms_per_s: desired / 2.0,
            desired_ms_per_s: desired,
            slowdown: (desired > 0.0).then_some(2.0),
            ..api::Forecast::default()
        };
        let (name, domain) = ("a\u{1b}[2J".to_owned(), "/".to_owned());
        api::TaskForecast { tid, pid: tid, name, domain, forecast, ..api::TaskForecast::default() }
    }

    #[test]
    fn the_hungriest_come_first_and_nothing_in_a_name_reaches_the_terminal() {
        let forecasts = api::Forecasts {
            window_ns: 1_000_000_000,
            cpus: 2,
            hidden: 3,
            domains: vec![api::DomainForecast { name: "/".into(), suspended: true, ..Default::default() }],
            tasks: vec![task(1, 100.0), task(2, 0.0), task(3, 800.0)],
            ..api::Forecasts::default()
        };
        let text = page(&forecasts, false);
        let order: Vec<usize> =
            ["(suspended)", "    3  ", "    1  ", "not shown (--all): 1", "may not see: 3"]
                .iter()
                .map(|part| text.find(part).unwrap_or_else(|| panic!("{part:?} is not in\n{text}")))
                .collect();
        assert!(order.is_sorted() && text.contains(" 800 ") && text.contains(" 2.0 "), "{text}");
        assert!(!text.contains('\u{1b}') && text.contains("a\\u{1b}[2J"), "{text}");
        assert!(page(&forecasts, true).contains("    2  "));
    }

    #[test]
    fn a_time_between_two_is_held_to_what_the_daemon_takes() {
        assert_eq!((parse_every_ms("100ms"), parse_every_ms("1min")), (Ok(100), Ok(60_000)));
        for text in ["99ms", "61s", "", "-1s", "soon"] {
            assert!(parse_every_ms(text).is_err(), "{text}");
        }
    }
}
