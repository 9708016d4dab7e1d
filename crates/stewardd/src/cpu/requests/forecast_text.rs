//! The text of a long reply about forecasts, written without a value for each task in between: a user may have
//! thousands of tasks, and while their text is made nobody else is answered.
//!
//! It reads as [`api::TaskForecast`] is serialised, which a test holds it to. Most tasks of a machine are idle, and
//! what is said of one is said of the next but for its numbers and its name, so that it is made once.

use std::collections::HashMap;
use std::fmt::Write;

use libsteward::api;
use steward_core::cpu::forecast::{Forecast, TaskSample};
use steward_core::printable::printable_name;

use crate::cpu::reply::{forecast, rounded};

/// Above this, figures are written as they are, not to a thousandth.
const ROUNDED_MAX: f64 = 1e12;

/// What decides about the end of a task's text.
type Alike = (usize, f64, f64, bool, Forecast);

/// The texts of tasks, one after the other.
#[derive(Default)]
pub(crate) struct TaskTexts {
    /// The names of domains as JSON, by the index of the group.
    names: HashMap<usize, String>,
    text: String,
    /// Whether there is one yet, or a domain while those are written.
    any: bool,
    has_all_domains: bool,
    /// The end of the text of the last task.
    last: Option<(Alike, String)>,
}

impl TaskTexts {
    /// The text of `reply` without its domains and tasks, of which there are none yet: first domains are added.
    pub(crate) fn begin(reply: &api::Forecasts) -> Self {
        let text = serde_json::to_string(reply).expect("replies are plain JSON");
        // Before it there are numbers, and words of the daemon's own.
        let mut text = text.replacen("\"domains\":[],", "", 1);
        debug_assert!(text.ends_with(",\"tasks\":[]}"), "tasks are the last field, and there are none");
        text.truncate(text.len() - "\"tasks\":[]}".len());
        text.push_str("\"domains\":[");
        TaskTexts { text, ..TaskTexts::default() }
    }

    /// One domain more.
    pub(crate) fn push_domain(&mut self, domain: &api::DomainForecast) {
        let separator = if std::mem::replace(&mut self.any, true) { "," } else { "" };
        self.text.push_str(separator);
        self.text.push_str(&serde_json::to_string(domain).expect("replies are plain JSON"));
    }

    /// These were all domains: from now on tasks are added.
    pub(crate) fn end_domains(&mut self) {
        self.text.push_str("],\"tasks\":[");
        (self.any, self.has_all_domains) = (false, true);
    }

    /// Whether all domains were added.
    pub(crate) fn has_all_domains(&self) -> bool {
        self.has_all_domains
    }

    /// One task more, which is in the group with this index, of the domain of that name.
    pub(crate) fn push(&mut self, sample: &TaskSample, group: usize, domain: &str, figures: &Forecast) {
        let alike = (group, sample.weight, sample.reserved, sample.runnable, *figures);
        if self.last.as_ref().is_none_or(|(last, _)| *last != alike) {
            let domain = self.names.entry(group).or_insert_with(|| quoted(domain));
            let end = end_of(sample, domain, figures);
            self.last = Some((alike, end));
        }
        let separator = if std::mem::replace(&mut self.any, true) { "," } else { "" };
        // Writing into a string cannot fail.
        let _ = write!(self.text, "{separator}{{\"tid\":{},\"pid\":{},\"name\":", sample.tid, sample.pid);
        push_name(&mut self.text, &sample.name);
        let _ = write!(self.text, ",\"user\":{}", sample.uid);
        self.text.push_str(self.last.as_ref().map_or("", |(_, end)| end));
    }

    /// What it takes of memory, in bytes.
    pub(crate) fn held_bytes(&self) -> usize {
        self.text.capacity()
    }

    /// The whole reply, with the tasks so far.
    pub(crate) fn into_reply(mut self) -> String {
        self.text.push_str("]}");
        self.text
    }
}

/// What of a task's text comes after its user; `domain` is JSON.
fn end_of(sample: &TaskSample, domain: &str, figures: &Forecast) -> String {
    let mut text = String::with_capacity(320);
    text.push_str(",\"domain\":");
    text.push_str(domain);
    push_figure(&mut text, ",\"weight\":", rounded(sample.weight));
    if sample.reserved > 0.0 {
        push_figure(&mut text, ",\"reserved\":", sample.reserved);
    }
    text.push_str(if sample.runnable { ",\"runnable\":true" } else { ",\"runnable\":false" });
    let api::Forecast {
        actual_ms_per_s,
        desired_ms_per_s,
        predicted_ms_per_s,
        potential_ms_per_s,
        slowdown,
        future_slowdown,
        potential_slowdown,
    } = forecast(figures);
    push_figure(&mut text, ",\"forecast\":{\"actual_ms_per_s\":", actual_ms_per_s);
    push_figure(&mut text, ",\"desired_ms_per_s\":", desired_ms_per_s);
    push_figure(&mut text, ",\"predicted_ms_per_s\":", predicted_ms_per_s);
    push_figure(&mut text, ",\"potential_ms_per_s\":", potential_ms_per_s);
    let slowdowns = [
        (",\"slowdown\":", slowdown),
        (",\"future_slowdown\":", future_slowdown),
        (",\"potential_slowdown\":", potential_slowdown),
    ];
    for (key, figure) in slowdowns {
        if let Some(figure) = figure {
            push_figure(&mut text, key, figure);
        }
    }
    text.push_str("}}");
    text
}

fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("text is plain JSON")
}

fn push_name(text: &mut String, name: &[u8]) {
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    let is_plain = |byte: &u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
    match std::str::from_utf8(&name[..end]) {
        Ok(plain) if plain.as_bytes().iter().all(is_plain) => {
            text.push('"');
            text.push_str(plain);
            text.push('"');
        }
        _ => text.push_str(&quoted(&printable_name(name))),
    }
}

/// A figure that is rounded to a thousandth, or any other.
fn push_figure(text: &mut String, key: &str, figure: f64) {
    text.push_str(key);
    let thousandths = (figure * 1000.0).round();
    if !(0.0..ROUNDED_MAX).contains(&thousandths) || thousandths / 1000.0 != figure {
        text.push_str(&serde_json::to_string(&figure).expect("a figure is plain JSON"));
        return;
    }
    let thousandths = thousandths as u64;
    let (whole, mut part, mut digits) = (thousandths / 1000, thousandths % 1000, 3);
    while part % 10 == 0 && digits > 1 {
        (part, digits) = (part / 10, digits - 1);
    }
    // Writing into a string cannot fail.
    let _ = write!(text, "{whole}.{part:0digits$}");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use steward_core::cpu::forecast::SchedulingClass;

    use super::*;

    fn figure() -> impl Strategy<Value = f64> {
        prop_oneof![
            Just(0.0),
            Just(1.0),
            0.0..2.0,
            0.0..4000.0,
            0.0..1e15,
            Just(f64::NAN),
            Just(f64::INFINITY)
        ]
    }

    prop_compose! {
        fn task()(
            numbers in (1i32.., 1i32.., any::<u32>(), any::<bool>(), 0usize..2),
            name in prop_oneof![any::<[u8; 16]>(), Just(*b"kworker/0:1\0xyzw")],
            weight in figure(),
            reserved in prop_oneof![Just(0.0), 0.0..1.0],
            figures in prop_oneof![Just([0.0; 4]), [figure(), figure(), figure(), figure()]],
        ) -> (TaskSample, usize, Forecast) {
            let (tid, pid, uid, runnable, group) = numbers;
            let [actual_ms_per_s, desired_ms_per_s, predicted_ms_per_s, potential_ms_per_s] = figures;
            let class = SchedulingClass::Fair;
            let (started_ns, cgroup_id, run_ns, wait_ns) = (0, 0, 0, 0);
            let sample = TaskSample {
                tid, pid, started_ns, uid, cgroup_id, name, class, weight, run_ns, wait_ns, runnable, reserved
            };
            (sample, group, Forecast { actual_ms_per_s, desired_ms_per_s, predicted_ms_per_s, potential_ms_per_s })
        }
    }

    /// As the interface has it.
    fn typed(sample: &TaskSample, domain: &str, figures: &Forecast) -> api::TaskForecast {
        api::TaskForecast {
            tid: sample.tid,
            pid: sample.pid,
            name: printable_name(&sample.name),
            user: sample.uid,
            domain: domain.to_owned(),
            weight: rounded(sample.weight),
            reserved: (sample.reserved > 0.0).then_some(sample.reserved),
            runnable: sample.runnable,
            forecast: forecast(figures),
        }
    }

    proptest! {
        #[test]
        fn the_text_is_that_of_the_interfaces_own_types(tasks in proptest::collection::vec(task(), 0..20)) {
            let domains = ["/", "a \"b\"/\\n"];
            let reply = api::Forecasts { model: "steward".to_owned(), cpus: 2, ..api::Forecasts::default() };
            let mut texts = TaskTexts::begin(&reply);
            let listed: Vec<api::DomainForecast> = domains[..tasks.len().min(2)].iter().map(|name| api::DomainForecast {
                name: (*name).to_owned(), ..api::DomainForecast::default()
            }).collect();
            listed.iter().for_each(|domain| texts.push_domain(domain));
            texts.end_domains();
            for (sample, group, figures) in &tasks {
                texts.push(sample, *group, domains[*group], figures);
            }
            let text = texts.into_reply();
            let tasks = tasks.iter().map(|(sample, group, figures)| typed(sample, domains[*group], figures));
            let typed = api::Forecasts { domains: listed.clone(), tasks: tasks.collect(), ..reply };
            let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect("JSON");
            prop_assert_eq!(value(&text), value(&serde_json::to_string(&typed).expect("plain")));
        }
    }
}
