//! Whether a domain may have what it is to have: held against what its level has.

use libsteward::api::{self, ApiError};
use steward_core::domain::{Refusal, Settings, Tree, name};
use steward_core::resource::Resource;

use super::{Asker, Domains, Told};
use crate::server::report;
use crate::server::sight::About;

impl Domains {
    /// Holds what a domain is to have against what its level has; a refusal is told to all who watch.
    pub(super) fn admit(&mut self, path: &str, settings: &Settings, asker: Asker) -> Result<(), ApiError> {
        self.measure_memory(path, settings);
        let Err(refusal) = self.hold_against_level(path, settings) else { return Ok(()) };
        let mut event = api::Event {
            kind: api::EventKind::DomainRefused,
            text: format!("{}{}", refusal.reason, report::asked_by(asker.pid, asker.uid)),
            ..self.event(path, asker)
        };
        let (asked, reserved, limit) = (refusal.asked, refusal.reserved, refusal.limit);
        (event.cpu, event.memory) = match refusal.resource {
            Resource::Memory => {
                let [asked, beside, limit] = [asked, reserved, limit].map(|bytes| bytes as u64);
                (None, Some(api::MemoryFigures { beside, asked, limit, stalled_ns: None }))
            }
            Resource::Cpu | Resource::Disk => {
                let figures =
                    api::CpuFigures { load: reserved, bandwidth: asked, threshold: limit, cpu: None };
                (Some(figures).filter(|_| refusal.resource == Resource::Cpu), None)
            }
        };
        // The reason names the siblings with what they have.
        let beside = self.held.keys().filter(|other| *other != path);
        let payer = |path: &str| name::parent_of(self.accounted(path)).map(str::to_owned);
        let beside = beside.filter(|other| payer(other) == payer(path));
        let named = beside.map(|other| self.whose(other)).collect();
        let text = format!(
            "Domain {} does not get it: its level would have more reserved than there is{}",
            self.names.name_of(path),
            report::asked_by(asker.pid, asker.uid)
        );
        let bare = api::Event { text, ..event.clone() };
        self.push(Told { event, domain: None, about: About::of(self.whose(path)).naming(named, bare) });
        Err(ApiError::Overcommitted {
            resource: refusal.resource.name().to_owned(),
            reason: refusal.reason,
            asked: refusal.asked,
            reserved: refusal.reserved,
            limit: refusal.limit,
        })
    }

    /// What a scope is promised of the memory is held against the machine and the maxima of those above it, and all
    /// else against its own level.
    fn hold_against_level(&self, path: &str, settings: &Settings) -> Result<(), Refusal> {
        if !self.is_scope(path) {
            return self.level_of(path).admit(path, settings);
        }
        let mut others = settings.clone();
        others.memory.min_bytes = None;
        self.level_of(path).admit(path, &others)?;
        self.hold_against_maxima(path, settings)?;
        let accounted = self.accounted(path);
        let promised = Settings { memory: settings.memory, ..Settings::default() };
        self.level_of(accounted).admit(accounted, &promised)
    }

    /// One domain with its parent, its siblings and its children, as far as they are held: enough to admit.
    pub(super) fn level_of(&self, path: &str) -> Tree {
        let parent = name::parent_of(path);
        let is_near = |other: &str| {
            let above = name::parent_of(other);
            other == path || Some(other) == parent || above == parent || above == Some(path)
        };
        let mut tree = self.tree_of(self.held.keys().map(String::as_str).filter(|other| is_near(other)));
        if parent == Some("") {
            self.insert_scopes(&mut tree);
        }
        tree
    }
}
