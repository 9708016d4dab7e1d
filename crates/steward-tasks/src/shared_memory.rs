//! The values of a BPF array that was made to be mapped, as memory of this process.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

/// `len` values that a BPF program writes and this process reads. The mapping keeps the array.
pub(crate) struct SharedMemory<T> {
    start: NonNull<T>,
    len: usize,
    values: PhantomData<T>,
}

// SAFETY: it owns the mapping, and hands out what is in it only while it is borrowed.
unsafe impl<T: Send> Send for SharedMemory<T> {}

impl<T: Copy> SharedMemory<T> {
    /// Maps the values of an array with `len` entries of type `T`, whose size is a multiple of eight as the kernel lays
    /// them out.
    pub(crate) fn new(array: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        const { assert!(size_of::<T>().is_multiple_of(8) && align_of::<T>() <= 8) };
        // SAFETY: a new mapping, of the whole array and nothing else.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len * size_of::<T>(),
                libc::PROT_READ,
                libc::MAP_SHARED,
                array.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mapped at address 0"))?;
        Ok(SharedMemory { start, len, values: PhantomData })
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The values. Nobody writes them while the program does not run, and only the owner has it run, which takes
    /// `&mut`.
    pub(crate) fn slice(&self) -> &[T] {
        // SAFETY: `len` values are mapped for as long as this lives; any bytes are a `T`, which is plain numbers.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T> Drop for SharedMemory<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's own, and nothing borrows from it any more. It cannot fail.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len * size_of::<T>()) };
    }
}
