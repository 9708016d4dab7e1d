//! HAProxy's runtime API: `show stat` tells the queue and the limit of a server, `set maxconn server` changes the limit
//! at once.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;

use super::server::{PoolArguments, Server, Undo};

/// Size the pool of any server behind HAProxy, by the server's maxconn
///
/// HAProxy lets that many connections through to the server and keeps the others in its queue. It is told through its
/// runtime API, which needs a line like `stats socket /run/haproxy/admin.sock level admin` in its `global` section;
/// nothing is reloaded. --domain is that of the server behind it.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  \
        steward pool haproxy --server web/apache1 --domain system.slice/apache2.service --max 150")]
pub struct HaproxyArguments {
    #[command(flatten)]
    pub pool: PoolArguments,
    /// HAProxy's runtime API.
    #[arg(long, value_name = "SOCKET", default_value = "/run/haproxy/admin.sock")]
    pub control: PathBuf,
    /// The server, as HAProxy names it.
    #[arg(long, value_name = "BACKEND/SERVER", value_parser = parse_server)]
    pub server: ServerName,
}

/// HAProxy answers at once or not at all.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// `BACKEND/SERVER`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerName {
    /// The `backend` or `listen` section.
    pub backend: String,
    /// The `server` line in it.
    pub server: String,
}

impl std::fmt::Display for ServerName {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}/{}", self.backend, self.server)
    }
}

/// Reads `BACKEND/SERVER`. Only characters that HAProxy allows in names, so that no other command can be smuggled in.
pub fn parse_server(text: &str) -> Result<ServerName, String> {
    let is_name = |name: &str| {
        !name.is_empty()
            && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ':'))
    };
    match text.split_once('/') {
        Some((backend, server)) if is_name(backend) && is_name(server) => {
            Ok(ServerName { backend: backend.to_owned(), server: server.to_owned() })
        }
        _ => {
            Err("write BACKEND/SERVER, with the names in HAProxy's configuration, such as web/apache1"
                .to_owned())
        }
    }
}

/// What the undo file and messages call it.
pub fn target(control: &Path, server: &ServerName) -> String {
    format!("haproxy {} {server}", control.display())
}

/// A server behind HAProxy.
pub struct Haproxy {
    control: PathBuf,
    server: ServerName,
    original: u32,
    /// The process that had it.
    instance: Option<String>,
    /// The limit that was last put in force.
    set: Option<u32>,
}

/// What `show stat` says about a server.
#[derive(Debug, PartialEq, Eq)]
struct Standing {
    /// Requests that wait for it or for its backend.
    waiting: u64,
    /// Its limit; 0 for none.
    maxconn: u32,
}

impl Haproxy {
    /// Looks at the server.
    ///
    /// # Errors
    /// When HAProxy does not answer, or knows no such server.
    pub fn open(control: &Path, server: ServerName) -> anyhow::Result<Haproxy> {
        let standing = standing(control, &server)?;
        let (original, instance) = (standing.maxconn, instance(control)?);
        Ok(Haproxy { control: control.to_owned(), server, original, instance, set: None })
    }
}

impl Server for Haproxy {
    fn name(&self) -> String {
        format!("haproxy {}", self.server)
    }

    fn size(&self) -> Option<u32> {
        Some(self.set.unwrap_or(self.original)).filter(|size| *size > 0)
    }

    fn waiting(&mut self) -> anyhow::Result<Option<u64>> {
        let standing = standing(&self.control, &self.server)?;
        if self.set.is_some_and(|size| size != standing.maxconn) {
            // Somebody else set it, or HAProxy was started anew: what it is configured for is to be put back then.
            let instance = instance(&self.control)?;
            if instance != self.instance {
                (self.original, self.instance) = (standing.maxconn, instance);
            }
            self.set = None;
            bail!("its maxconn was changed to {} by someone else", standing.maxconn);
        }
        Ok(Some(standing.waiting))
    }

    fn set(&mut self, workers: u32) -> anyhow::Result<()> {
        set_maxconn(&self.control, &self.server, workers)?;
        self.set = Some(workers);
        Ok(())
    }

    fn patience(&self) -> Duration {
        // A change is in force at once; forecasts look back over a second.
        Duration::from_secs(1)
    }

    fn undo(&self) -> Undo {
        Undo::Haproxy {
            control: self.control.clone(),
            backend: self.server.backend.clone(),
            server: self.server.server.clone(),
            maxconn: self.original,
            instance: self.instance.clone(),
        }
    }
}

/// Sets the limit of a server; 0 for none.
///
/// # Errors
/// What HAProxy says, with its socket.
pub fn set_maxconn(control: &Path, server: &ServerName, maxconn: u32) -> anyhow::Result<()> {
    let said = ask(control, &format!("set maxconn server {server} {maxconn}"))?;
    match said.trim() {
        "" => Ok(()),
        said => {
            bail!("HAProxy at {} refused to set maxconn of {server} to {maxconn}: {said}", control.display())
        }
    }
}

/// Which process of HAProxy's answers there: `Pid` and, where it says so, `Start_time_sec` of `show info`. `None` where
/// it says neither.
///
/// # Errors
/// When it does not answer.
pub fn instance(control: &Path) -> anyhow::Result<Option<String>> {
    let info = ask(control, "show info")?;
    let of = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    Ok(of("Pid:").map(|pid| format!("{pid} {}", of("Start_time_sec:").unwrap_or(""))))
}

fn standing(control: &Path, server: &ServerName) -> anyhow::Result<Standing> {
    read_standing(&ask(control, "show stat")?, server).with_context(|| {
        format!("HAProxy at {} knows no server {server} (`show stat` lists what there is)", control.display())
    })
}

/// Reads the table of `show stat`: a head `# pxname,svname,qcur,...`, then a line for each frontend, server and
/// backend.
fn read_standing(table: &str, server: &ServerName) -> Option<Standing> {
    let mut lines = table.lines();
    let head: Vec<&str> = lines.next()?.trim_start_matches("# ").split(',').collect();
    let column = |name: &str| head.iter().position(|field| *field == name);
    let (backend, name, queue, limit) =
        (column("pxname")?, column("svname")?, column("qcur")?, column("slim")?);
    let (mut waiting, mut maxconn) = (0, None);
    for fields in lines.map(|line| line.split(',').collect::<Vec<_>>()) {
        if fields.get(backend) != Some(&server.backend.as_str()) {
            continue;
        }
        let is_server = fields.get(name) == Some(&server.server.as_str());
        if is_server || fields.get(name) == Some(&"BACKEND") {
            waiting += fields.get(queue).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        }
        if is_server {
            // Without a limit the field is empty.
            maxconn = Some(fields.get(limit).and_then(|text| text.parse().ok()).unwrap_or(0));
        }
    }
    Some(Standing { waiting, maxconn: maxconn? })
}

/// One command, and all that is said to it.
fn ask(control: &Path, command: &str) -> anyhow::Result<String> {
    let talk = || -> std::io::Result<String> {
        let mut stream = UnixStream::connect(control)?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
        stream.write_all(format!("{command}\n").as_bytes())?;
        let mut said = String::new();
        stream.read_to_string(&mut said)?;
        Ok(said)
    };
    talk().with_context(|| {
        format!(
            "cannot ask HAProxy at {} (`{command}`); its configuration needs `stats socket {} level admin`",
            control.display(),
            control.display()
        )
    })
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::os::unix::net::UnixListener;

    use super::*;

    const TABLE: &str = "# pxname,svname,qcur,qmax,scur,smax,slim,stot,\n\
        front,FRONTEND,,,9,12,2000,40,\nweb,a,3,5,8,8,8,40,\nweb,b,1,1,8,8,,40,\nweb,BACKEND,4,9,16,20,200,80,\n\
        other,a,7,7,1,1,2,1,\n\n";

    fn server(text: &str) -> ServerName {
        parse_server(text).expect("a name")
    }

    /// Plays HAProxy: answers one command after another.
    fn haproxy(control: &Path, answers: &'static [&'static str]) -> std::thread::JoinHandle<Vec<String>> {
        let listener = UnixListener::bind(control).expect("a socket");
        std::thread::spawn(move || {
            let answer = |answer: &&str| {
                let (mut stream, _) = listener.accept().expect("a client");
                let mut command = String::new();
                BufReader::new(&stream).read_line(&mut command).expect("a command");
                stream.write_all(answer.as_bytes()).expect("sent");
                command
            };
            answers.iter().map(answer).collect()
        })
    }

    #[test]
    fn the_table_tells_the_queue_of_server_and_backend_and_the_limit() {
        assert_eq!(read_standing(TABLE, &server("web/a")), Some(Standing { waiting: 7, maxconn: 8 }));
        assert_eq!(read_standing(TABLE, &server("web/b")), Some(Standing { waiting: 5, maxconn: 0 }));
        assert_eq!(read_standing(TABLE, &server("web/c")), None);
        assert_eq!(read_standing("Unknown command\n", &server("web/a")), None);
    }

    #[test]
    fn the_limit_is_set_by_a_command_and_what_was_there_is_known() {
        let directory = tempfile::tempdir().expect("a directory");
        let control = directory.path().join("admin.sock");
        const INFO: &str = "Name: HAProxy\nPid: 7\nStart_time_sec: 12\n";
        let thread = haproxy(&control, &[TABLE, INFO, "\n", TABLE, INFO]);
        let mut haproxy = Haproxy::open(&control, server("web/a")).expect("open");
        haproxy.set(5).expect("set");
        // It says 8 still: somebody else has set that.
        let error = haproxy.waiting().expect_err("not ours");
        assert!(format!("{error:#}").contains("changed to 8"), "{error:#}");
        assert!(
            matches!(haproxy.undo(), Undo::Haproxy { maxconn: 8, instance: Some(by), .. } if by == "7 12")
        );
        let commands = thread.join().expect("no panic");
        assert_eq!(
            commands,
            ["show stat\n", "show info\n", "set maxconn server web/a 5\n", "show stat\n", "show info\n"]
        );
    }

    #[test]
    fn a_refusal_is_told_with_the_socket_and_nobody_there_with_what_to_configure() {
        let directory = tempfile::tempdir().expect("a directory");
        let control = directory.path().join("admin.sock");
        let error = format!("{:#}", set_maxconn(&control, &server("web/a"), 3).expect_err("nobody"));
        assert!(error.contains("admin.sock") && error.contains("level admin"), "{error}");
        let thread = haproxy(&control, &["Permission denied\n"]);
        let error = format!("{:#}", set_maxconn(&control, &server("web/a"), 3).expect_err("refused"));
        assert!(error.contains("Permission denied") && error.contains("admin.sock"), "{error}");
        thread.join().expect("no panic");
    }

    #[test]
    fn a_name_cannot_carry_another_command() {
        assert!(parse_server("web").is_err() && parse_server("web/").is_err());
        assert!(parse_server("web/a; shutdown sessions server web/a").is_err());
        assert!(parse_server("web/a\nshow env").is_err());
    }
}
