//! A process that maps a file, and touches pages of it when it is told to.

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;

use steward_core::process::TaskId;

use super::super::pages::PageTables;
use super::super::ranges::PageRanges;
use crate::roots::Roots;

const PAGE_BYTES: u64 = 4096;

/// How the file is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    Private,
    Shared,
}

/// What the process is told, each answered with a byte.
const READ: u8 = 1;
const WRITE: u8 = 2;
const UNMAP: u8 = 3;

pub struct Child {
    pub task: TaskId,
    address: u64,
    pages: Range<u64>,
    orders: i32,
    answers: i32,
}

fn pipe() -> [i32; 2] {
    let mut ends = [0; 2];
    // SAFETY: there is room for the two descriptors.
    assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }, 0, "a pipe");
    ends
}

/// Does something while this process maps a page of each of these files, as its copies made meanwhile do for good.
pub fn mapping<Outcome>(files: &[File], work: impl FnOnce() -> Outcome) -> Outcome {
    let length = PAGE_BYTES as usize;
    let map = |file: &File| {
        // SAFETY: a new mapping, which nobody touches.
        let address = unsafe {
            libc::mmap(std::ptr::null_mut(), length, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        assert_ne!(address, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        address
    };
    let mapped: Vec<_> = files.iter().map(map).collect();
    let outcome = work();
    // SAFETY: they are those from above.
    mapped.into_iter().for_each(|address| assert_eq!(unsafe { libc::munmap(address, length) }, 0));
    outcome
}

impl Child {
    /// Has these pages of the file mapped by a new process, which touches nothing yet.
    pub fn start(file: &File, pages: Range<u64>, sharing: Sharing) -> Self {
        let flags = match sharing {
            Sharing::Private => libc::MAP_PRIVATE,
            Sharing::Shared => libc::MAP_SHARED,
        };
        let length = ((pages.end - pages.start) * PAGE_BYTES) as usize;
        let offset = (pages.start * PAGE_BYTES) as i64;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let ([orders_out, orders_in], [answers_out, answers_in]) = (pipe(), pipe());
        // SAFETY: a new mapping; the new process, which is a copy of one thread of many, makes nothing but system calls
        // and touches nothing but the mapping.
        let (address, pid) = unsafe {
            let address =
                libc::mmap(std::ptr::null_mut(), length, protection, flags, file.as_raw_fd(), offset);
            assert_ne!(address, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
            let pid = libc::fork();
            assert!(pid >= 0, "a process");
            if pid == 0 {
                serve(address as u64, length, orders_out, answers_in);
            }
            libc::munmap(address, length);
            libc::close(orders_out);
            libc::close(answers_in);
            (address as u64, pid)
        };
        let task = crate::process::stat(pid, &Roots::default()).expect("it runs").id;
        Child { task, address, pages, orders: orders_in, answers: answers_out }
    }

    /// Has it read from a page.
    pub fn read(&mut self, page: u64) {
        self.tell(READ, page);
    }

    /// Has it write to a page.
    pub fn write(&mut self, page: u64) {
        self.tell(WRITE, page);
    }

    /// Has it unmap the file.
    pub fn unmap(&mut self) {
        self.tell(UNMAP, self.pages.start);
    }

    /// Where it maps the file.
    pub fn addresses(&self) -> Range<u64> {
        self.address..self.address + (self.pages.end - self.pages.start) * PAGE_BYTES
    }

    /// The pages of the file that it maps, its copies left out, by the plainest way to ask.
    pub fn pages(&self) -> PageRanges {
        let file = File::open(format!("/proc/{}/pagemap", self.task.tid)).expect("pagemap");
        let (found, to) =
            PageTables::by_reading(file, PAGE_BYTES).of_files(self.addresses()).expect("pagemap");
        assert_eq!(to, self.addresses().end);
        let (first, start) = (self.address / PAGE_BYTES, self.pages.start);
        PageRanges::ascending(
            found.iter().map(|range| range.start - first + start..range.end - first + start),
        )
    }

    fn tell(&mut self, order: u8, page: u64) {
        let address = self.address + (page - self.pages.start) * PAGE_BYTES;
        let mut message = [order; 9];
        message[1..].copy_from_slice(&address.to_ne_bytes());
        let mut answer = 0u8;
        // SAFETY: both buffers are as long as it says.
        unsafe {
            assert_eq!(libc::write(self.orders, message.as_ptr().cast(), 9), 9, "it takes orders");
            assert_eq!(libc::read(self.answers, (&raw mut answer).cast(), 1), 1, "it answers");
        }
    }
}

/// What the process does until it is killed.
///
/// # Safety
/// `address` is a mapping of `length` bytes, and each order has an address in it.
unsafe fn serve(address: u64, length: usize, orders: i32, answers: i32) -> ! {
    loop {
        let mut message = [0u8; 9];
        // SAFETY: as the caller says.
        unsafe {
            if libc::read(orders, message.as_mut_ptr().cast(), 9) != 9 {
                libc::_exit(0);
            }
            let mut place = [0; 8];
            place.copy_from_slice(&message[1..]);
            let place = u64::from_ne_bytes(place) as *mut u8;
            match message[0] {
                READ => drop(place.read_volatile()),
                WRITE => place.write_volatile(9),
                _ => drop(libc::munmap(address as *mut libc::c_void, length)),
            }
            if libc::write(answers, message.as_ptr().cast(), 1) != 1 {
                libc::_exit(0);
            }
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // SAFETY: the process is a child that nobody else waits for, so the number is its own.
        unsafe {
            libc::kill(self.task.tid, libc::SIGKILL);
            libc::waitpid(self.task.tid, std::ptr::null_mut(), 0);
            libc::close(self.orders);
            libc::close(self.answers);
        }
    }
}
