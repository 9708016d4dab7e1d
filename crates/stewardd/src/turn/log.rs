//! The daemon's log: lines on standard error, for journald or a terminal.
//!
//! One line per decision, with stable fields (`decision=`, `pid=`, ...). Under journald each line carries its
//! priority (sd-daemon(3)) and no time of its own. Lines go through a bounded queue to a thread that writes
//! them: journald may itself be starved by what the daemon is there to bound, and the daemon must never wait for
//! it. What does not fit is dropped and counted.

use std::fmt;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use steward_core::printable::printable;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::{Format, FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::{FmtContext, MakeWriter};
use tracing_subscriber::registry::LookupSpan;

/// How many lines may wait to be written.
const LINES_MAX: usize = 4096;

/// Libraries that say too much: what anybody does with the control files is no line in the log.
const QUIET: &str = "fuser=off";

/// Starts logging what `filter` lets through, in tracing's filter language: `info`, `debug`, `info,bpf=debug`.
///
/// # Errors
/// What is wrong with the filter.
pub fn start(filter: &str) -> Result<(), String> {
    let filter = EnvFilter::try_new(format!("{QUIET},{filter}")).map_err(|error| error.to_string())?;
    let journald = std::env::var_os("JOURNAL_STREAM").is_some();
    let format =
        Prefixed { journald, inner: Format::default().with_target(false).with_ansi(false).without_time() };
    // A second start in one process (tests) keeps the first.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .event_format(format)
        .with_writer(Queue::start(journald))
        .try_init();
    Ok(())
}

/// Waits until what was logged is written, a second at most. Call it before the process ends.
pub fn finish() {
    let Some(queue) = QUEUE.get() else { return };
    let (done, written) = sync_channel(1);
    if queue.lines.try_send(Message::Flush(done)).is_ok() {
        let _ = written.recv_timeout(Duration::from_secs(1));
    }
}

/// The usual format; under journald with the priority in front, which replaces the time and the level's name.
struct Prefixed {
    journald: bool,
    inner: Format<tracing_subscriber::fmt::format::Full, ()>,
}

impl<S, N> FormatEvent<S, N> for Prefixed
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        if self.journald {
            write!(writer, "<{}>", priority(event.metadata().level()))?;
        }
        self.inner.format_event(context, writer, event)
    }
}

/// The priorities of syslog(3).
fn priority(level: &Level) -> u8 {
    match *level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}

enum Message {
    Line(Vec<u8>),
    /// Answered once everything before it is written.
    Flush(SyncSender<()>),
}

/// The way to the thread that writes.
#[derive(Clone)]
struct Queue {
    lines: SyncSender<Message>,
    dropped: Arc<AtomicU64>,
}

static QUEUE: OnceLock<Queue> = OnceLock::new();

impl Queue {
    fn start(journald: bool) -> Self {
        QUEUE
            .get_or_init(|| {
                let (lines, received) = sync_channel::<Message>(LINES_MAX);
                let dropped = Arc::new(AtomicU64::new(0));
                let counted = dropped.clone();
                std::thread::spawn(move || {
                    for message in received {
                        let line = match message {
                            Message::Line(line) => line,
                            Message::Flush(done) => {
                                let _ = done.try_send(());
                                continue;
                            }
                        };
                        let missing = counted.swap(0, Ordering::Relaxed);
                        let mut output = std::io::stderr();
                        if missing > 0 {
                            let level = if journald { "<4>" } else { "" };
                            let _ = writeln!(
                                output,
                                "{level}{missing} lines of this log were dropped: they came too fast"
                            );
                        }
                        // Nobody can be told that the log cannot be written.
                        let _ = output.write_all(&line);
                    }
                });
                Queue { lines, dropped }
            })
            .clone()
    }
}

/// Collects one line and hands it over when it is complete.
pub struct Line {
    queue: Queue,
    bytes: Vec<u8>,
}

impl<'a> MakeWriter<'a> for Queue {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line { queue: self.clone(), bytes: Vec::new() }
    }
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A message as one line, whatever is in it: names of others have come in as [`printable`] text, but not everything
/// that is logged is a name, and a line of its own could have any priority (`<0>`).
fn one_line(message: &[u8]) -> Vec<u8> {
    let message = message.strip_suffix(b"\n").unwrap_or(message);
    let mut line = printable(&String::from_utf8_lossy(message)).into_owned();
    line.push('\n');
    line.into_bytes()
}

impl Drop for Line {
    fn drop(&mut self) {
        if self.queue.lines.try_send(Message::Line(one_line(&self.bytes))).is_err() {
            self.queue.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::Receiver;

    use proptest::prelude::*;

    use super::*;

    /// What is written when this is logged, without the thread that writes.
    fn logged(text: &str, journald: bool) -> String {
        let (lines, received): (_, Receiver<Message>) = sync_channel(4);
        let queue = Queue { lines, dropped: Arc::default() };
        let format = Prefixed {
            journald,
            inner: Format::default().with_target(false).with_ansi(false).without_time(),
        };
        let subscriber = tracing_subscriber::fmt().event_format(format).with_writer(queue).finish();
        tracing::subscriber::with_default(subscriber, || tracing::warn!(name = text, "about {text}"));
        let mut written = Vec::new();
        for message in received.try_iter() {
            let Message::Line(line) = message else { continue };
            written.extend(line);
        }
        String::from_utf8(written).expect("text")
    }

    #[test]
    fn a_name_makes_no_line_of_its_own_priority() {
        let line = logged("x\n<0>panic\u{1b}[2J", true);
        assert_eq!(line.lines().count(), 1, "{line}");
        assert!(line.starts_with("<4>") && line.ends_with('\n') && !line.contains('\u{1b}'), "{line}");
    }

    proptest! {
        #[test]
        fn whatever_is_logged_is_one_line_that_changes_nothing_on_a_terminal(text in "(?s).*", journald: bool) {
            let line = logged(&text, journald);
            let inner = line.strip_suffix('\n').expect("a line");
            prop_assert_eq!(&*printable(inner), inner);
            prop_assert_eq!(line.starts_with("<4>"), journald);
        }
    }
}
