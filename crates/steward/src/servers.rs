//! `steward servers`: the servers of this machine that promise response times, with what their library publishes.

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use clap::Args;
use serde::Serialize;
use steward_core::printable::{printable, printable_name};
use steward_server::{PUBLISHED_NAME, Snapshot};

use crate::output;

/// What is read of one server at most, in bytes: a thousand routes.
const READ_MAX: u64 = 1 << 20;
/// How many servers are shown of one process at most.
const OF_PROCESS_MAX: usize = 16;
/// How often it is read again what was being written.
const TRIES: u32 = 5;
const NONBLOCK: i32 = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();

/// Show the servers that promise response times, and how they keep them
///
/// Programs that use steward-server publish a table, in memory that whoever may look into the process can read: your
/// own, and as root all. It is a second old at most. Needs no daemon.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
        steward servers\n  \
        watch steward servers\n  \
        steward servers --json")]
pub struct ServersArguments {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// A server that was found.
#[derive(Debug, Serialize)]
struct Found {
    pid: i32,
    /// The kernel's name of the process.
    name: String,
    #[serde(flatten)]
    snapshot: Snapshot,
}

#[derive(Debug, Serialize)]
struct Servers {
    servers: Vec<Found>,
}

/// `steward servers`.
pub fn servers(arguments: &ServersArguments) -> anyhow::Result<()> {
    let servers = find(Path::new("/proc"))?;
    if arguments.json {
        return output::print_json(&Servers { servers });
    }
    if servers.is_empty() {
        return output::print("No server of a process that you may look into promises response times.\n");
    }
    let text: Vec<String> = servers
        .iter()
        .map(|found| format!("Process {}, {}:\n{}", found.pid, found.name, found.snapshot))
        .collect();
    output::print(&text.join("\n"))
}

/// All servers, by the number of their process. A process that may not be looked into, or ends meanwhile, has none.
fn find(processes: &Path) -> std::io::Result<Vec<Found>> {
    let mut servers = Vec::new();
    for entry in fs::read_dir(processes)?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let name =
            || printable_name(fs::read(entry.path().join("comm")).unwrap_or_default().trim_ascii_end());
        let snapshots = snapshots_of(&entry.path());
        servers.extend(snapshots.into_iter().map(|snapshot| Found { pid, name: name(), snapshot }));
    }
    servers.sort_by_key(|found| found.pid);
    Ok(servers)
}

/// What the servers of one process publish. Descriptors that are passed on are the same file: it counts once.
fn snapshots_of(process: &Path) -> Vec<Snapshot> {
    use std::os::unix::fs::MetadataExt;
    let Ok(descriptors) = fs::read_dir(process.join("fd")) else { return Vec::new() };
    let published = format!("/memfd:{PUBLISHED_NAME} (deleted)");
    let is_published =
        |path: &Path| fs::read_link(path).is_ok_and(|link| link.as_os_str() == published.as_str());
    let paths = descriptors.flatten().map(|entry| entry.path()).filter(|path| is_published(path));
    let mut files: Vec<(u64, File)> = paths.filter_map(|path| open(&path)).collect();
    files.sort_by_key(|(inode, _)| *inode);
    files.dedup_by_key(|(inode, _)| *inode);
    return files.into_iter().take(OF_PROCESS_MAX).filter_map(|(_, file)| read(&file)).collect();

    /// Another descriptor may have taken its place: nothing is waited for, and only a file is read.
    fn open(path: &Path) -> Option<(u64, File)> {
        let file = OpenOptions::new().read(true).custom_flags(NONBLOCK).open(path).ok()?;
        let facts = file.metadata().ok()?;
        facts.is_file().then(|| (facts.ino(), file))
    }
}

/// A snapshot, with names and reasons as they may be shown: the process could have written anything.
fn read(mut file: &File) -> Option<Snapshot> {
    use std::io::Seek;
    let read = |file: &mut &File| {
        let mut text = String::new();
        file.rewind().ok()?;
        file.take(READ_MAX).read_to_string(&mut text).ok()?;
        serde_json::from_str::<Snapshot>(&text).ok()
    };
    let mut snapshot = (0..TRIES).find_map(|_| read(&mut file))?;
    for route in &mut snapshot.routes {
        route.route = printable(&route.route).into_owned();
        route.note = route.note.take().map(|note| printable(&note).into_owned());
    }
    snapshot.unreserved = snapshot.unreserved.take().map(|why| printable(&why).into_owned());
    Some(snapshot)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use steward_server::{Goal, Server, Settings};

    use super::*;

    #[test]
    fn a_server_of_this_process_is_found_with_what_it_has_served() {
        let goal = Goal::new(Duration::from_secs(10), 0.5).costing(Duration::from_millis(1));
        let settings = Settings { socket: None, cpus: 1, ..Settings::default() };
        let server = Server::start(settings.route("/found\u{1b}", goal)).expect("valid");
        let route = server.route("/found\u{1b}").expect("given");
        (0..3).for_each(|_| server.run(route, || ()).expect("served"));
        let own = std::process::id().cast_signed();
        let since = Instant::now();
        loop {
            let found = find(Path::new("/proc")).expect("there is one");
            let is_it = |found: &&Found| {
                let routes = &found.snapshot.routes;
                found.pid == own && routes.iter().any(|route| route.route == "/found\\u{1b}")
            };
            if let Some(found) = found.iter().find(is_it)
                && found.snapshot.routes[0].counts.met == 3
            {
                break;
            }
            assert!(since.elapsed().as_secs() < 60, "{found:?}");
            std::thread::yield_now();
        }
    }

    #[test]
    fn what_is_no_snapshot_is_left_out() {
        use rustix::fs::{MemfdFlags, memfd_create};
        use std::io::Write;
        for text in ["", "{", "[]", "{\"routes\": 1}"] {
            let mut file = File::from(memfd_create("anything", MemfdFlags::CLOEXEC).expect("memory"));
            file.write_all(text.as_bytes()).expect("memory");
            assert!(read(&file).is_none(), "{text}");
        }
    }
}
