//! The tree as FUSE asks for it.
//!
//! The kernel asks again for every name of a domain, and each first read of a file is asked of the daemon, so that
//! everybody sees what holds now; it keeps names that are always there, so that one read takes few requests. Who reads
//! on after that gets the rest of the same text. The thread that takes requests from the kernel answers itself what
//! needs nobody: names that are always there, sizes of values, the end of a file. It answers nothing that the daemon is
//! asked about: it would hold up everybody. Reading is answered by some [threads](crate::turns) that take one request
//! of each user in turn, and few of one user at a time. A change may have to wait for a person's permission, so each
//! has a thread of its own. When there are too many of those, the next change is answered as reading is, and nobody is
//! asked about it.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fuser::{
    AccessFlags, BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation,
    INodeNo, KernelConfig, LockOwner, OpenFlags, PollEvents, PollFlags, PollNotifier, RenameFlags, ReplyAttr,
    ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyPoll, ReplyWrite, ReplyXattr, Request,
    TimeOrNow, WriteFlags,
};

use steward_kernel::Roots;
use steward_kernel::process::user_namespaces;

use crate::caller;
use crate::caller::Asker;
use crate::errno::Failure;
use crate::names::{ControlFile, Node, Numbers};
use crate::nice::be_as_others;
use crate::polls::{LOOK_EVERY, Notify, Polls, Ready};
use crate::requests::Backend;
use crate::tree::{Owner, Tree};
use crate::turns::Turns;

/// For how long the kernel may believe what it was told.
const NOT_AT_ALL: Duration = Duration::ZERO;
/// The same where it is always so: names that are always there, and the sizes of values. It still asks whether the
/// domain is there in whose directory they are.
const ALWAYS: Duration = Duration::from_secs(24 * 3600);
/// The longest name of a directory entry, in bytes.
const NAME_BYTES_MAX: usize = 255;
/// The most that one write brings, in bytes: far above any value, so that a long text is refused in one piece.
const WRITE_BYTES_MAX: u32 = 4096;
/// The size of a file with one value, as sysfs has it: whoever has the kernel copy a file (sendfile) gets no more than
/// its size, and reading says where the end is.
const VALUE_SIZE_BYTES: u64 = 4096;
/// How many texts are kept for those who read on.
const UNFINISHED_MAX: usize = 64;
/// How long they may be together before no other is added, in bytes.
const UNFINISHED_BYTES_MAX: usize = 4 * 1024 * 1024;
/// How many threads answer those who read: some more than are of use to one user.
const READERS: usize = 8;
/// How many changes can have a thread of their own at once, for all users together.
const CHANGES_MAX: usize = 32;
/// How many changes of one user can.
const CHANGES_PER_USER_MAX: usize = 8;

/// The file system.
pub(crate) struct Service<B> {
    shared: Arc<Shared<B>>,
    turns: Turns,
}

/// Who reads what: file, thread, user.
type Reading = (u64, i32, u32);

struct Shared<B> {
    tree: Tree<B>,
    numbers: Mutex<Numbers>,
    /// The texts of files that have not been read to their end.
    unfinished: Mutex<HashMap<Reading, Vec<u8>>>,
    /// How many changes have a thread of their own, by user.
    changes: Mutex<HashMap<u32, usize>>,
    /// Who waits for a file to change.
    polls: Mutex<Polls>,
}

impl<B: Backend> Service<B> {
    pub(crate) fn new(backend: B) -> Self {
        let shared = Shared {
            tree: Tree::new(backend),
            numbers: Mutex::default(),
            unfinished: Mutex::default(),
            changes: Mutex::default(),
            polls: Mutex::default(),
        };
        Service { shared: Arc::new(shared), turns: Turns::new(READERS) }
    }

    /// Answers a request when it is its user's turn.
    fn ask(
        &self,
        request: &Request,
        act: impl FnOnce(&Arc<Shared<B>>, Result<Asker, Failure>) + Send + 'static,
    ) {
        match asker(request) {
            Ok(asker) => self.ask_for(asker, act),
            Err(failure) => act(&self.shared, Err(failure)),
        }
    }

    fn ask_for(
        &self,
        asker: Asker,
        act: impl FnOnce(&Arc<Shared<B>>, Result<Asker, Failure>) + Send + 'static,
    ) {
        let shared = Arc::clone(&self.shared);
        let payer = user_namespaces::payer(asker.uid, asker.tid, &Roots::default());
        let job = move |may: bool| {
            let crowded = || Failure::new(rustix::io::Errno::AGAIN, "too many requests of this user wait");
            act(&shared, may.then_some(asker).ok_or_else(crowded));
        };
        self.turns.put(payer, Box::new(job));
    }

    fn tell_attributes(&self, request: &Request, ino: INodeNo, reply: ReplyAttr) {
        // So that the daemon itself may look whether the tree is there, too.
        if let Ok(node) = self.shared.node(ino)
            && let Some(size_bytes) = size_at_once(&node)
        {
            return reply.attr(&ALWAYS, &attributes(ino.0, &node, size_bytes));
        }
        self.ask(request, move |shared, asker| match asker.and_then(|asker| shared.get(asker, ino)) {
            Ok(attributes) => reply.attr(&NOT_AT_ALL, &attributes),
            Err(failure) => reply.error(number(failure)),
        });
    }

    /// Answers a change, on a thread of its own if there can be one more.
    fn change(
        &self,
        request: &Request,
        act: impl FnOnce(&Arc<Shared<B>>, Result<Asker, Failure>) + Send + 'static,
    ) {
        let asker = match asker(request) {
            Ok(asker) => asker,
            Err(failure) => return act(&self.shared, Err(failure)),
        };
        let Some(place) = Place::take(&self.shared, asker.uid) else { return self.ask_for(asker, act) };
        // Through a slot, so that it is not lost with the closure when there is no thread.
        let slot = Arc::new(Mutex::new(Some(act)));
        let for_thread = slot.clone();
        let started = std::thread::Builder::new().name("control-file".into()).spawn(move || {
            be_as_others();
            if let Some(act) = lock(&for_thread).take() {
                act(&place.shared, Ok(Asker { can_wait: true, ..asker }));
            }
        });
        if started.is_err()
            && let Some(act) = lock(&slot).take()
        {
            self.ask_for(asker, act);
        }
    }
}

impl<B: Backend> Shared<B> {
    /// An open file is polled for the first time: it is to be read.
    fn begin_poll(self: &Arc<Self>, asker: Asker, number: INodeNo, file: u64) -> Result<(), Failure> {
        let node = self.node(number)?;
        let text = self.tree.read(asker, &node)?;
        let crowded = || Failure::new(rustix::io::Errno::MFILE, "too many files are polled");
        let mut polls = lock(&self.polls);
        if !polls.begin(file, asker, node, &text, Instant::now()) {
            return Err(crowded());
        }
        if !polls.is_looked_after {
            let shared = Arc::clone(self);
            let thread = std::thread::Builder::new().name("control-polls".into());
            thread.spawn(move || shared.look_after_polls()).map_err(|_| crowded())?;
            polls.is_looked_after = true;
        }
        Ok(())
    }

    /// Looks at what is waited for, until nothing is polled any more.
    fn look_after_polls(&self) {
        loop {
            std::thread::sleep(LOOK_EVERY);
            let mut polls = lock(&self.polls);
            let Some(waited_for) = polls.waited_for(Instant::now()) else {
                polls.is_looked_after = false;
                return;
            };
            drop(polls);
            for (file, asker, node) in waited_for {
                let text = self.tree.read(asker, &node).ok();
                lock(&self.polls).note(file, text.as_deref(), Instant::now());
            }
        }
    }
}

/// What `poll` is told: as for any file, and that it has changed.
fn events(ready: Ready) -> PollEvents {
    let always = PollEvents::POLLIN | PollEvents::POLLOUT | PollEvents::POLLRDNORM | PollEvents::POLLWRNORM;
    match ready {
        Ready::Read => always,
        Ready::Changed => always | PollEvents::POLLPRI,
    }
}

/// The place of a change that has a thread; free again when dropped.
struct Place<B> {
    shared: Arc<Shared<B>>,
    uid: u32,
}

impl<B> Place<B> {
    fn take(shared: &Arc<Shared<B>>, uid: u32) -> Option<Self> {
        let mut changes = lock(&shared.changes);
        let all: usize = changes.values().sum();
        let own = changes.entry(uid).or_default();
        if all >= CHANGES_MAX || *own >= CHANGES_PER_USER_MAX {
            return None;
        }
        *own += 1;
        Some(Place { shared: shared.clone(), uid })
    }
}

impl<B> Drop for Place<B> {
    fn drop(&mut self) {
        let mut changes = lock(&self.shared.changes);
        if let Some(count) = changes.get_mut(&self.uid) {
            *count -= 1;
            if *count == 0 {
                changes.remove(&self.uid);
            }
        }
    }
}

/// What is kept behind these locks is whole at every moment, so that a panic elsewhere does not matter.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<B: Backend> Shared<B> {
    fn node(&self, number: INodeNo) -> Result<Node, Failure> {
        let gone = || Failure::new(rustix::io::Errno::STALE, "this was forgotten");
        lock(&self.numbers).node(number.0).ok_or_else(gone)
    }

    fn enter(&self, asker: Asker, node: &Node) -> FileAttr {
        let number = lock(&self.numbers).remember(node);
        self.attributes(asker, number, node)
    }

    fn attributes(&self, asker: Asker, number: u64, node: &Node) -> FileAttr {
        let size_of_text = || self.tree.read(asker, node).unwrap_or_default().len() as u64;
        attributes(number, node, size_at_once(node).unwrap_or_else(size_of_text))
    }

    /// What is there under that name, where it is told without asking the daemon.
    fn lookup_at_once(&self, parent: INodeNo, name: &OsStr) -> Option<FileAttr> {
        let node = Tree::<B>::fixed(&self.node(parent).ok()?, name.to_str()?)?;
        let size_bytes = size_at_once(&node)?;
        let number = lock(&self.numbers).remember(&node);
        Some(attributes(number, &node, size_bytes))
    }

    fn get(&self, asker: Asker, number: INodeNo) -> Result<FileAttr, Failure> {
        Ok(self.attributes(asker, number.0, &self.node(number)?))
    }

    fn lookup(&self, asker: Asker, parent: INodeNo, name: &OsStr) -> Result<FileAttr, Failure> {
        let node = self.tree.lookup(asker, &self.node(parent)?, text(name)?)?;
        Ok(self.enter(asker, &node))
    }

    fn make(&self, asker: Asker, parent: INodeNo, name: &OsStr) -> Result<FileAttr, Failure> {
        let node = self.tree.make(asker, &self.node(parent)?, text(name)?)?;
        Ok(self.enter(asker, &node))
    }

    /// What there is to read for who has read all: nothing. `None` where the daemon has to be asked, or there is more.
    fn read_end(&self, reading: Reading, offset: u64) -> Option<Vec<u8>> {
        let mut unfinished = lock(&self.unfinished);
        let length = unfinished.get(&reading)?.len() as u64;
        (offset > 0 && offset >= length).then(|| {
            unfinished.remove(&reading);
            Vec::new()
        })
    }

    fn read(
        &self,
        asker: Asker,
        number: INodeNo,
        offset: u64,
        count_max_bytes: u32,
    ) -> Result<Vec<u8>, Failure> {
        let reading = (number.0, asker.tid, asker.uid);
        let begun = lock(&self.unfinished).remove(&reading).filter(|_| offset > 0);
        let text = match begun {
            Some(text) => text,
            None => self.tree.read(asker, &self.node(number)?)?.into_bytes(),
        };
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(text.len());
        let end = start.saturating_add(count_max_bytes as usize).min(text.len());
        let part = text[start..end].to_vec();
        if !part.is_empty() {
            let mut unfinished = lock(&self.unfinished);
            let bytes: usize = unfinished.values().map(Vec::len).sum();
            if unfinished.len() >= UNFINISHED_MAX || bytes >= UNFINISHED_BYTES_MAX {
                // Whoever reads on gets the text of that moment.
                unfinished.clear();
            }
            unfinished.insert(reading, text);
        }
        Ok(part)
    }

    /// The entries from `offset` on, each with the offset of the next.
    fn list(
        &self,
        asker: Asker,
        number: INodeNo,
        offset: u64,
    ) -> Result<Vec<(u64, u64, FileType, String)>, Failure> {
        let node = self.node(number)?;
        let own = [(node.clone(), ".".to_owned()), (Node::Root, "..".to_owned())];
        let all = own.into_iter().chain(self.tree.entries(asker, &node)?);
        let numbers = lock(&self.numbers);
        let all = all.zip(1..).skip(usize::try_from(offset).unwrap_or(usize::MAX));
        Ok(all.map(|((node, name), next)| (numbers.peek(&node), next, kind(&node), name)).collect())
    }
}

/// Who asks, unless it is ourselves.
fn asker(request: &Request) -> Result<Asker, Failure> {
    let tid = request.pid() as i32;
    if caller::is_own_thread(tid) {
        let sentence = "stewardd would wait for itself; ask its API";
        return Err(Failure::new(rustix::io::Errno::DEADLK, sentence));
    }
    Ok(Asker { tid, uid: request.uid(), gid: request.gid(), can_wait: false })
}

fn text(name: &OsStr) -> Result<&str, Failure> {
    let fits = name.len() <= NAME_BYTES_MAX;
    if !fits {
        return Err(Failure::new(rustix::io::Errno::NAMETOOLONG, "the name is too long"));
    }
    name.to_str().ok_or_else(|| Failure::new(rustix::io::Errno::INVAL, "the name is no UTF-8"))
}

fn number(failure: Failure) -> Errno {
    Errno::from_i32(failure.errno.raw_os_error())
}

fn kind(node: &Node) -> FileType {
    match node {
        Node::Root | Node::Domain(_) => FileType::Directory,
        Node::Own => FileType::Symlink,
        Node::LastError | Node::Forecasts | Node::File(..) => FileType::RegularFile,
    }
}

/// The permissions shown are those of the attempt: who may change what is decided by the daemon, for each change.
/// The size of what is no file, or one with a value, in bytes; `None` where only the daemon can say.
fn size_at_once(node: &Node) -> Option<u64> {
    match node {
        // These can be longer.
        Node::LastError
        | Node::Forecasts
        | Node::File(_, ControlFile::Members | ControlFile::Forecast | ControlFile::LastError) => None,
        Node::File(..) => Some(VALUE_SIZE_BYTES),
        _ => Some(0),
    }
}

fn attributes(number: u64, node: &Node, size_bytes: u64) -> FileAttr {
    let perm = match node {
        Node::Root => 0o555,
        Node::Domain(_) => 0o777,
        Node::Own => 0o777,
        Node::File(_, file) if file.is_writable() => 0o666,
        Node::LastError | Node::Forecasts | Node::File(..) => 0o444,
    };
    FileAttr {
        ino: INodeNo(number),
        size: size_bytes,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: kind(node),
        perm,
        nlink: if kind(node) == FileType::Directory { 2 } else { 1 },
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

impl<B: Backend> Filesystem for Service<B> {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // Refused only when it is out of the range that the library knows; then its own limit stands.
        let _ = config.set_max_write(WRITE_BYTES_MAX);
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if let Some(attributes) = self.shared.lookup_at_once(parent, name) {
            return reply.entry(&ALWAYS, &attributes, Generation(0));
        }
        let name = name.to_owned();
        self.ask(request, move |shared, asker| {
            match asker.and_then(|asker| shared.lookup(asker, parent, &name)) {
                Ok(attributes) => reply.entry(&NOT_AT_ALL, &attributes, Generation(0)),
                Err(failure) => reply.error(number(failure)),
            }
        });
    }

    fn forget(&self, _request: &Request, ino: INodeNo, lookups: u64) {
        lock(&self.shared.numbers).forget(ino.0, lookups);
    }

    fn getattr(&self, request: &Request, ino: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        self.tell_attributes(request, ino, reply);
    }

    fn setattr(
        &self,
        request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        _size_bytes: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        // A shell truncates what it writes to; that means nothing here. Owner and mode say nothing and stay.
        if mode.is_some() || uid.is_some() || gid.is_some() {
            return reply.error(Errno::EPERM);
        }
        self.tell_attributes(request, ino, reply);
    }

    fn readlink(&self, request: &Request, _ino: INodeNo, reply: ReplyData) {
        self.ask(request, move |shared, asker| match asker.and_then(|asker| shared.tree.own(asker)) {
            Ok(target) => reply.data(target.as_bytes()),
            Err(failure) => reply.error(number(failure)),
        });
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        _mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        let name = name.to_owned();
        self.change(request, move |shared, asker| {
            match asker.and_then(|asker| shared.make(asker, parent, &name)) {
                Ok(attributes) => reply.entry(&NOT_AT_ALL, &attributes, Generation(0)),
                Err(failure) => reply.error(number(failure)),
            }
        });
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.to_owned();
        self.change(request, move |shared, asker| {
            let remove = |asker| shared.tree.remove(asker, &shared.node(parent)?, text(&name)?);
            match asker.and_then(remove) {
                Ok(()) => reply.ok(),
                Err(failure) => reply.error(number(failure)),
            }
        });
    }

    fn unlink(&self, _request: &Request, _parent: INodeNo, _name: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EPERM);
    }

    fn mknod(
        &self,
        _request: &Request,
        _parent: INodeNo,
        _name: &OsStr,
        _mode: u32,
        _umask: u32,
        _device: u32,
        reply: ReplyEntry,
    ) {
        reply.error(Errno::EPERM);
    }

    fn rename(
        &self,
        _request: &Request,
        _parent: INodeNo,
        _name: &OsStr,
        _new_parent: INodeNo,
        _new_name: &OsStr,
        _flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EPERM);
    }

    fn open(&self, request: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        match asker(request).and_then(|asker| Ok((asker, self.shared.node(ino)?))) {
            Ok((asker, _)) => {
                let handle = FileHandle(Owner::of(asker).to_handle());
                reply.opened(handle, FopenFlags::FOPEN_DIRECT_IO);
            }
            Err(failure) => reply.error(number(failure)),
        }
    }

    fn read(
        &self,
        request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size_bytes: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let reading = (ino.0, request.pid() as i32, request.uid());
        if let Some(bytes) = self.shared.read_end(reading, offset) {
            return reply.data(&bytes);
        }
        self.ask(request, move |shared, asker| {
            match asker.and_then(|asker| shared.read(asker, ino, offset, size_bytes)) {
                Ok(bytes) => reply.data(&bytes),
                Err(failure) => reply.error(number(failure)),
            }
        });
    }

    fn write(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        _offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let (opened_by, bytes) = (Owner::from_handle(handle.0), data.to_vec());
        self.change(request, move |shared, asker| {
            let write = |asker| shared.tree.write(asker, opened_by, &shared.node(ino)?, &bytes);
            match asker.and_then(write) {
                Ok(()) => reply.written(bytes.len() as u32),
                Err(failure) => reply.error(number(failure)),
            }
        });
    }

    fn flush(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn fsync(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn poll(
        &self,
        request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        notifier: PollNotifier,
        _events: PollEvents,
        flags: PollFlags,
        reply: ReplyPoll,
    ) {
        let node = match self.shared.node(ino) {
            Ok(node) => node,
            Err(failure) => return reply.error(number(failure)),
        };
        if !Polls::is_about(&node) {
            return reply.poll(events(Ready::Read));
        }
        let file = notifier.handle().0;
        let mut polls = lock(&self.shared.polls);
        if polls.knows(file) {
            // The kernel has nothing better to do with a notification that fails than we have.
            let notify: Notify = Box::new(move || drop(notifier.notify()));
            let waits = flags.contains(PollFlags::FUSE_POLL_SCHEDULE_NOTIFY);
            return reply.poll(events(polls.ask(file, waits.then_some(notify), Instant::now())));
        }
        drop(polls);
        self.ask(request, move |shared, asker| {
            match asker.and_then(|asker| shared.begin_poll(asker, ino, file)) {
                Ok(()) => reply.poll(events(Ready::Changed)),
                Err(failure) => reply.error(number(failure)),
            }
        });
    }

    fn readdir(
        &self,
        request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        self.ask(request, move |shared, asker| {
            match asker.and_then(|asker| shared.list(asker, ino, offset)) {
                Ok(entries) => {
                    for (number, next, kind, name) in entries {
                        if reply.add(INodeNo(number), next, kind, name) {
                            break;
                        }
                    }
                    reply.ok();
                }
                Err(failure) => reply.error(number(failure)),
            }
        });
    }

    fn getxattr(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _name: &OsStr,
        _size_bytes: u32,
        reply: ReplyXattr,
    ) {
        // The kernel does not ask again.
        reply.error(Errno::ENOSYS);
    }

    fn listxattr(&self, _request: &Request, _ino: INodeNo, _size_bytes: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }

    fn access(&self, _request: &Request, _ino: INodeNo, _mask: AccessFlags, reply: ReplyEmpty) {
        // Who may is decided when it is tried.
        reply.ok();
    }
}
