//! What the synthetic programs of the lab share: clocks, burning CPU time, output without allocation, and the
//! kernel's scheduling attributes.
//!
//! All programs speak one line format on standard output, which the lab's metrics read. Times are milliseconds
//! of `CLOCK_MONOTONIC` with microseconds behind the point:
//!
//! | line | meaning |
//! |---|---|
//! | `start AT PERIOD FRAMES` | a film begins: when, milliseconds per frame, how many frames it has |
//! | `f AT` | the next frame was completed |
//! | `s AT` | a request was sent |
//! | `r LATENCY` | it was answered, after this many milliseconds |
//! | `m FAULTS` | in the request that was just answered the program waited so often for a page from a disk |
//! | `k RAN WAITED` | in it the program ran for so many milliseconds, and waited for a CPU for so many |
//! | `w UNITS AT` | so many units of work are done since the start of the program |
//! | `q LATENCY COUNT` | since the last `q` lines so many requests were answered after about so many milliseconds |
//! | `o AGE COUNT` | so many requests, sent so long ago, are open at the end |
//! | `goal MS` | a request that takes longer is late |
//! | `x COUNT` | so many requests failed in all |
//! | `p AT ACTUAL DESIRED PREDICTED POTENTIAL` | the daemon's forecast of a process, in milliseconds of CPU time per second |
//! | `n COUNT AT` | from here on so many processes compete |
//! | `c CPU AT` | CPU time that the daemon has used so far |
//! | `g MS COUNT` | a collector of garbage has collected for so long so far, and so often |
//! | `a AT NAME WEIGHT USED AVAILABLE` | a domain, how much memory it uses and may use, in KiB |
//! | `phase NAME AT` | from here on the load is `heavy` or `light` |
//! | `granted` / `refused WHY` | a loop asked the kernel for a reservation of its own |

pub mod clock;
pub mod direct;
pub mod http;
pub mod limits;
pub mod memory;
pub mod output;
pub mod process;
pub mod scheduling;

/// A quantity of CPU work that the compiler cannot remove: `rounds` dependent multiplications.
#[inline(never)]
pub fn spin(rounds: u64) -> u64 {
    let mut state = rounds | 1;
    for _ in 0..rounds {
        state = std::hint::black_box(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
    state
}

/// Uses the CPU for a moment, in the way that is cheapest to emulate: where a machine's clock counts instructions, one
/// that does nothing takes as much of its time as any other, and a block of them next to none of the host's. Not
/// `spin_loop()`: its PAUSE makes an emulated processor hand over to the next one, which is slow.
#[inline(always)]
pub fn keep_busy() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: nothing is read or written.
    unsafe {
        std::arch::asm!(".rept 64", "nop", ".endr", options(nomem, nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    std::hint::black_box(());
}

/// Reads a whole number or a fraction from an argument.
///
/// # Errors
/// Names the argument's text when it is not a `T`.
pub fn number<T: std::str::FromStr>(parser: &mut lexopt::Parser) -> Result<T, lexopt::Error>
where
    T::Err: Into<Box<dyn std::error::Error + Send + Sync + 'static>>,
{
    use lexopt::ValueExt;
    parser.value()?.parse()
}
