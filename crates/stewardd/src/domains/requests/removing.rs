//! Removing a domain, made in pieces: it may have thousands of processes and a thousand domains below it.
//!
//! Where processes are to be ended, it is looked first whose they are. Then domains are removed, those below before
//! those above them; what is made below it meanwhile goes too. Whether the caller may is decided again in each piece.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use libsteward::api::{self, ApiError};
use steward_core::authority::{Action, Request, Target};
use steward_core::domain::{Change, Settings};
use steward_kernel::cgroup::tree::Cgroup;
use steward_kernel::process;

use super::walk::{Step, Walk};
use super::{asker, request_about};
use crate::daemon::Daemon;
use crate::server::Answer;
use crate::server::access::reply;
use crate::server::peer::Caller;
use crate::server::pieces::Unfinished;
use crate::turn::clock::now_ns;

/// How many processes and cgroups are looked at in one piece, at least and at most.
const PIECE_LOOKS: RangeInclusive<usize> = 4..=32;
/// How long that goes on, in nanoseconds, where it is more than the least.
const PIECE_NS: u64 = 2_000_000;
/// How many domains are removed in one piece.
const PIECE_DOMAINS: usize = 8;

/// A removal that is under way.
pub(crate) struct Removing {
    cgroup: Cgroup,
    kill: bool,
    stage: Stage,
    done: api::DomainRemoved,
}

enum Stage {
    /// It is looked whose the processes are that are to be ended.
    Looking(Walk),
    /// Domains are removed; those that were tried.
    Removing { tried: BTreeSet<String> },
}

impl From<Box<Removing>> for Unfinished {
    fn from(removing: Box<Removing>) -> Self {
        let held = |path: &String| size_of::<String>() + path.capacity();
        let held_bytes = match &removing.stage {
            Stage::Looking(walk) => walk.held_bytes(),
            Stage::Removing { tried } => tried.iter().map(held).sum(),
        };
        // Whoever has begun is finished before others begin, so that few lists are open.
        Unfinished::new(removing, held_bytes, true)
    }
}

impl Daemon {
    pub(super) fn begin_removing(
        &mut self,
        caller: &Caller,
        request: &api::RemoveDomain,
    ) -> Result<Answer, ApiError> {
        let cgroup = self.domains.resolve(&request.domain)?;
        // What Steward did not make is not removed, so that nothing in it is ended.
        let is_made = self.domains.held(&cgroup.path).is_some_and(|held| held.made);
        let kill = request.kill == Some(true) && is_made;
        let stage = match kill && caller.uid != 0 {
            true => Stage::Looking(Walk::below(&cgroup.path)),
            false => Stage::Removing { tried: BTreeSet::new() },
        };
        let done = api::DomainRemoved { removed: 0, moved: 0 };
        self.go_on_removing(caller, Box::new(Removing { cgroup, kill, stage, done }))
    }

    /// Makes one piece more of it.
    pub(crate) fn go_on_removing(
        &mut self,
        caller: &Caller,
        mut removing: Box<Removing>,
    ) -> Result<Answer, ApiError> {
        self.still_there(&removing.cgroup)?;
        self.permit_removing(caller, &removing)?;
        if matches!(removing.stage, Stage::Looking(_)) {
            if self.look_whose(caller, &mut removing)? {
                removing.stage = Stage::Removing { tried: BTreeSet::new() };
            } else {
                return Ok(Answer::Again(removing.into()));
            }
        }
        let outcome = self.remove_some(caller, &mut removing);
        self.texts.forget();
        self.cpu.sampler.invalidate();
        if outcome? { reply(Ok(removing.done)) } else { Ok(Answer::Again(removing.into())) }
    }

    /// Removing is to take less, unless processes get more by it: those that stay where their domain has held them to
    /// less than others are, or that of somebody else's domain, which has its default again.
    fn permit_removing(&mut self, caller: &Caller, removing: &Removing) -> Result<(), ApiError> {
        let Removing { cgroup, kill, .. } = removing;
        let (target, about) = self.target(caller, cgroup);
        let held = self.domains.held(&cgroup.path).filter(|held| held.cgroup_id == cgroup.id);
        if let Some(held) = held.filter(|_| !kill) {
            let before = held.settings.clone();
            let stays = !held.made || self.domains.has_processes(&cgroup.path);
            let weight = self.domains.kernel_weight(&cgroup.path);
            if stays && !Settings::default().takes_no_more_than(&before, weight) {
                let change = Change { reset: Vec::new(), ..Change::to(&before) };
                let about = format!("{about}, whose limits would hold its processes no more");
                return self.permit(caller, &request_about(Action::Reserve, &change, target, about));
            }
        }
        self.permit(caller, &Request::of_all(Action::Limit, target, about))
    }

    /// Looks whose some more of the processes are. Returns whether all are known to be the caller's to end.
    fn look_whose(&mut self, caller: &Caller, removing: &mut Removing) -> Result<bool, ApiError> {
        let Stage::Looking(walk) = &mut removing.stage else { return Ok(true) };
        let until_ns = now_ns() + PIECE_NS;
        for looked_at in 0..*PIECE_LOOKS.end() {
            if looked_at >= *PIECE_LOOKS.start() && now_ns() >= until_ns {
                break;
            }
            let pid = match walk.step(&self.domains)? {
                Step::Process(pid) => pid,
                Step::On => continue,
                Step::End => return Ok(true),
            };
            let user = process::user(pid, &self.options.roots);
            let is_own = user.map_or_else(|error| error.is_absent(), |user| user == Some(caller.uid));
            if !is_own {
                let about = format!("process {pid} in it, which belongs to somebody else");
                self.permit(caller, &Request::of_all(Action::Administer, Target::Others, about))?;
                // Who may do that may end all.
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Removes some more domains. Returns whether that was all.
    fn remove_some(&mut self, caller: &Caller, removing: &mut Removing) -> Result<bool, ApiError> {
        let Removing { cgroup, kill, stage: Stage::Removing { tried }, done } = removing else {
            return Ok(false);
        };
        let path = cgroup.path.as_str();
        if tried.is_empty() {
            self.cpu.suspensions.end_below(path, &mut self.cpu.mechanism);
            self.domains.begin_removal(path, *kill)?;
        }
        let left = self.domains.held_below(path, PIECE_DOMAINS, tried);
        let outcome = self.domains.remove_piece(path, &left, *kill, asker(caller), &mut self.cpu.mechanism);
        let piece = outcome?;
        done.removed += piece.removed;
        done.moved += piece.moved;
        let is_whole = left.last().is_none_or(|last| last == path);
        tried.extend(left);
        Ok(is_whole)
    }
}
