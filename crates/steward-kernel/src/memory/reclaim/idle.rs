//! Takes what lies idle from a cgroup, and nothing else.
//!
//! What was idle at the last ageing may be in use again. `memory.reclaim` then takes other pages in its place, which
//! the cgroup may have used a moment ago; the eviction of generations leaves both alone
//! ([`crate::memory::ages::evict`]).

use steward_core::memory::ageing::{Generation, idle_generations};

use super::job::{End, ReclaimJob};
use crate::cgroup::reading::CgroupReader;
use crate::cgroup::tree::Cgroup;
use crate::error::KernelError;
use crate::memory::ages::{self, Eviction, NodeAges};
use crate::memory::machine;
use crate::roots::Roots;

/// The kernel's own `vm.swappiness`, unless somebody changed it.
const SWAPPINESS: u32 = 60;

/// Takes as much of what lay idle for so long as the job says; adds what it took to `taken_bytes`. What is charged less
/// afterwards counts as taken.
pub(super) fn take(job: &ReclaimJob, idle_ns: u64, roots: &Roots, taken_bytes: &mut u64) -> End {
    match try_take(job, idle_ns, roots) {
        Ok(Some(bytes)) => {
            *taken_bytes = bytes;
            if bytes > 0 { End::Done } else { End::NothingToBeHad }
        }
        Ok(None) => End::Gone,
        Err(KernelError::Write { source, .. }) if source.raw_os_error() == Some(libc::EINVAL) => {
            // It has gone, or was aged meanwhile: the next look reads its ages anew.
            End::NothingToBeHad
        }
        Err(error) => End::Failed(error),
    }
}

/// How much it took; `None` where there is no such cgroup any more.
fn try_take(job: &ReclaimJob, idle_ns: u64, roots: &Roots) -> Result<Option<u64>, KernelError> {
    let cgroup = Cgroup { path: job.cgroup.clone(), id: job.id, uid: 0 };
    let Some(found) = ages::of(&cgroup, roots)? else { return Ok(None) };
    let reader = CgroupReader::open(&job.cgroup, roots)?;
    let charged_bytes = || Ok::<u64, KernelError>(reader.memory_current_bytes()?.unwrap_or(0));
    let before_bytes = charged_bytes()?;
    // Without room in the swap nothing of a program's own can be taken, and looking for it would take long.
    let swappiness = if machine::usage(roots)?.swap_free_bytes > 0 { SWAPPINESS } else { 0 };
    let page_bytes = rustix::param::page_size() as u64;
    let mut left_pages = job.bytes / page_bytes;
    for node in &found.nodes {
        let Some((sequence, idle_pages)) = idle_of(node, idle_ns) else { continue };
        let pages = left_pages.min(idle_pages);
        if pages == 0 {
            continue;
        }
        let swappiness = job.swappiness.unwrap_or(swappiness);
        ages::evict(
            &Eviction { memcg_id: found.memcg_id, node: node.node, sequence, swappiness, pages },
            roots,
        )?;
        left_pages -= pages;
    }
    Ok(Some(before_bytes.saturating_sub(charged_bytes()?).min(job.bytes)))
}

/// The youngest generation that is idle, and how many pages are in it and in those that are older.
fn idle_of(node: &NodeAges, idle_ns: u64) -> Option<(u64, u64)> {
    let aged = node.generations.iter().map(|seen| Generation {
        age_ns: seen.age_ms.saturating_mul(1_000_000),
        anonymous_bytes: seen.anon_pages,
        file_bytes: seen.file_pages,
    });
    let aged: Vec<Generation> = aged.collect();
    // The kernel takes nothing from the two youngest.
    let count = idle_generations(&aged, idle_ns).min(aged.len().saturating_sub(2));
    let idle = &node.generations[..count];
    let pages =
        idle.iter().map(|one| one.anon_pages.saturating_add(one.file_pages)).fold(0, u64::saturating_add);
    Some((idle.last()?.sequence, pages))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::ages::Generation as Seen;

    fn node(ages_ms: &[u64]) -> NodeAges {
        let generation = |(sequence, age_ms): (u64, &u64)| Seen {
            sequence,
            age_ms: *age_ms,
            anon_pages: 3,
            file_pages: 4,
        };
        NodeAges { node: 0, generations: (5..).zip(ages_ms).map(generation).collect() }
    }

    #[test]
    fn only_generations_that_ended_before_the_period_and_are_not_the_two_youngest_are_idle() {
        let idle = |ages_ms: &[u64], idle_ms: u64| idle_of(&node(ages_ms), idle_ms * 1_000_000);
        assert_eq!(idle(&[9000, 6000, 3000, 10], 2000), Some((6, 14)));
        assert_eq!(idle(&[9000, 6000, 3000, 10], 4000), Some((5, 7)));
        assert_eq!(idle(&[9000, 6000, 3000, 10], 6000), None);
        assert_eq!(idle(&[9000, 10], 0), None, "the kernel takes nothing from these");
        assert_eq!(idle(&[], 0), None);
    }
}
