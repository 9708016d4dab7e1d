//! What the files mean: reading, writing, making and removing, without FUSE.

use std::sync::{Mutex, MutexGuard};

use rustix::io::Errno;

use crate::caller::Asker;
use crate::errno::Failure;
use crate::names::{ControlFile, Node, child};
use crate::refusals::Refusals;
use crate::requests::{Backend, Requests};
use crate::{page, value};

/// The directory of all domains, beside `self`.
pub const DOMAINS: &str = "domains";
/// The link to the reader's own domain.
pub const OWN: &str = "self";
/// The file with the forecasts of all tasks.
pub const FORECASTS: &str = "forecasts";

/// The tree over a daemon.
pub struct Tree<B> {
    backend: B,
    refusals: Mutex<Refusals>,
}

impl<B: Backend> Tree<B> {
    /// The tree that asks this daemon.
    pub fn new(backend: B) -> Self {
        Tree { backend, refusals: Mutex::default() }
    }

    /// What has this name in a directory.
    ///
    /// # Errors
    /// `ENOENT` when nothing has, `ENOTDIR` when `parent` is no directory.
    pub fn lookup(&self, asker: Asker, parent: &Node, name: &str) -> Result<Node, Failure> {
        match (parent, Self::fixed(parent, name)) {
            (_, Some(node)) => Ok(node),
            (Node::Root, None) => Err(absent(name)),
            // By the name that the daemon has for it: a path may lead to it too.
            (Node::Domain(domain), None) => {
                Ok(Node::Domain(self.requests(asker).name_of(&child(domain, name))?))
            }
            _ => Err(Failure::new(Errno::NOTDIR, "this is no directory")),
        }
    }

    /// What is there under that name, where nobody has to be asked.
    pub fn fixed(parent: &Node, name: &str) -> Option<Node> {
        match parent {
            Node::Root => match name {
                OWN => Some(Node::Own),
                DOMAINS => Some(Node::Domain(String::new())),
                "last_error" => Some(Node::LastError),
                FORECASTS => Some(Node::Forecasts),
                _ => None,
            },
            Node::Domain(domain) => ControlFile::find(name).map(|file| Node::File(domain.clone(), file)),
            _ => None,
        }
    }

    /// What is in a directory, without `.` and `..`.
    ///
    /// # Errors
    /// `ENOENT` when the domain has gone, `ENOTDIR` when the node is no directory.
    pub fn entries(&self, asker: Asker, node: &Node) -> Result<Vec<(Node, String)>, Failure> {
        match node {
            Node::Root => Ok(vec![
                (Node::Own, OWN.to_owned()),
                (Node::Domain(String::new()), DOMAINS.to_owned()),
                (Node::LastError, "last_error".to_owned()),
                (Node::Forecasts, FORECASTS.to_owned()),
            ]),
            Node::Domain(domain) => {
                let files = ControlFile::ALL.into_iter();
                let files = files.map(|file| (Node::File(domain.clone(), file), file.name().to_owned()));
                let children = self.requests(asker).children(domain)?.into_iter();
                // A child of a control file's name can be reached through the API only.
                let children = children.filter(|name| ControlFile::find(name).is_none());
                let children = children.map(|name| (Node::Domain(child(domain, &name)), name));
                Ok(files.chain(children).collect())
            }
            _ => Err(Failure::new(Errno::NOTDIR, "this is no directory")),
        }
    }

    /// Where `self` leads: the domain of the process that asks, relative to the tree's root.
    ///
    /// # Errors
    /// `ESRCH` when the process has ended.
    pub fn own(&self, asker: Asker) -> Result<String, Failure> {
        let name = self.requests(asker).own()?;
        Ok(if name.is_empty() { DOMAINS.to_owned() } else { format!("{DOMAINS}/{name}") })
    }

    /// The text of a file.
    ///
    /// # Errors
    /// `ENOENT` when the domain has gone, `EISDIR` when the node is no file, `EACCES` where the rules are against it.
    pub fn read(&self, asker: Asker, node: &Node) -> Result<String, Failure> {
        match node {
            Node::LastError | Node::File(_, ControlFile::LastError) => {
                Ok(page::line(self.refusals().of(asker.uid)))
            }
            Node::Forecasts => Ok(page::forecasts(&self.requests(asker).forecasts(None)?, None)),
            Node::File(domain, ControlFile::Forecast) => {
                let forecasts = self.requests(asker).forecasts(Some(domain))?;
                Ok(page::forecasts(&forecasts, forecasts.domains.first()))
            }
            Node::File(domain, ControlFile::MemoryAvailable) => {
                Ok(page::line(&page::bytes(self.requests(asker).available(domain)?)))
            }
            Node::File(domain, ControlFile::Sched) => {
                let requests = self.requests(asker);
                requests.show(domain)?;
                Ok(page::line(&requests.order()?))
            }
            Node::File(domain, file) => {
                let requests = self.requests(asker);
                let shown = requests.show(domain)?;
                let parent = if page::needs_parent(*file) { requests.parent(&shown.domain)? } else { None };
                Ok(page::text(*file, &shown, parent.as_ref()))
            }
            _ => Err(Failure::new(Errno::ISDIR, "this is no file")),
        }
    }

    /// Takes what one write brought: all of it, or nothing.
    ///
    /// # Errors
    /// `EINVAL` for what is no value, and what the daemon refuses; the sentence is in `last_error` then.
    pub fn write(&self, asker: Asker, opened_by: Owner, node: &Node, bytes: &[u8]) -> Result<(), Failure> {
        let Node::File(domain, file) = node else {
            return Err(Failure::new(Errno::ISDIR, "this is no file"));
        };
        let outcome = self.try_write(asker, opened_by, domain, *file, bytes);
        self.note(asker, outcome, || {
            let written = String::from_utf8_lossy(&bytes[..bytes.len().min(value::VALUE_BYTES_MAX)]);
            format!("write {:?} to {} of {}", written.trim_end(), file.name(), shown(domain))
        })
    }

    fn try_write(
        &self,
        asker: Asker,
        opened_by: Owner,
        domain: &str,
        file: ControlFile,
        bytes: &[u8],
    ) -> Result<(), Failure> {
        if opened_by != Owner::of(asker) {
            // Otherwise a program with more rights could be made to write what somebody else wants, by giving it
            // this file as its standard output.
            let sentence = format!(
                "user {} opened the file and user {} writes to it; open it as the user who writes",
                opened_by.uid, asker.uid
            );
            return Err(Failure::new(Errno::ACCESS, sentence));
        }
        let value = value::parse(file, bytes).map_err(|sentence| {
            let errno = if file.is_writable() { Errno::INVAL } else { Errno::ACCESS };
            Failure::new(errno, sentence)
        })?;
        self.requests(asker).change(domain, value)
    }

    /// Makes a domain.
    ///
    /// # Errors
    /// What the daemon refuses; the sentence is in `last_error` then.
    pub fn make(&self, asker: Asker, parent: &Node, name: &str) -> Result<Node, Failure> {
        let outcome = match parent {
            Node::Domain(_) if ControlFile::find(name).is_some() => {
                Err(Failure::new(Errno::EXIST, format!("{name} is a control file; choose another name")))
            }
            Node::Domain(domain) => {
                let name = child(domain, name);
                self.requests(asker).create(&name).map(|()| Node::Domain(name))
            }
            _ => Err(only_domains()),
        };
        self.note(asker, outcome, || format!("mkdir {name}"))
    }

    /// Removes a domain.
    ///
    /// # Errors
    /// What the daemon refuses; the sentence is in `last_error` then.
    pub fn remove(&self, asker: Asker, parent: &Node, name: &str) -> Result<(), Failure> {
        let outcome = match parent {
            Node::Domain(_) if ControlFile::find(name).is_some() => {
                Err(Failure::new(Errno::NOTDIR, format!("{name} is a control file")))
            }
            Node::Domain(domain) => self.requests(asker).remove(&child(domain, name)),
            _ => Err(only_domains()),
        };
        self.note(asker, outcome, || format!("rmdir {name}"))
    }

    fn note<T>(
        &self,
        asker: Asker,
        outcome: Result<T, Failure>,
        what: impl FnOnce() -> String,
    ) -> Result<T, Failure> {
        if let Err(failure) = &outcome {
            self.refusals().note(asker.uid, format!("{}: {}", what(), failure.sentence));
        }
        outcome
    }

    fn requests(&self, asker: Asker) -> Requests<'_> {
        Requests { backend: &self.backend, asker }
    }

    fn refusals(&self) -> MutexGuard<'_, Refusals> {
        // Nothing panics while it is held, and half a map of sentences would do no harm.
        self.refusals.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// With whose rights a file was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The user (`fsuid`).
    pub uid: u32,
    /// The group (`fsgid`).
    pub gid: u32,
}

impl Owner {
    /// The rights of this thread.
    pub fn of(asker: Asker) -> Self {
        Owner { uid: asker.uid, gid: asker.gid }
    }

    /// As the number that the kernel keeps with the open file, so that nothing has to be kept here.
    pub fn to_handle(self) -> u64 {
        u64::from(self.uid) << 32 | u64::from(self.gid)
    }

    /// From that number.
    pub fn from_handle(handle: u64) -> Self {
        Owner { uid: (handle >> 32) as u32, gid: handle as u32 }
    }
}

fn absent(name: &str) -> Failure {
    Failure::new(Errno::NOENT, format!("there is no {name}"))
}

fn only_domains() -> Failure {
    Failure::new(Errno::PERM, format!("domains are made and removed in {DOMAINS}"))
}

/// A domain's name for people.
fn shown(domain: &str) -> &str {
    if domain.is_empty() { "the root of all domains" } else { domain }
}

#[cfg(test)]
mod tests;
