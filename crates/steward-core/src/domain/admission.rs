//! Admission: what one level reserves together never exceeds what its parent has, or the limit that the parent set
//! (Walfield, section 3.1).

use super::name;
use super::settings::Settings;
use super::tree::{Tree, fraction_of};
use crate::quantity::percent;
use crate::resource::Resource;

/// What sums of fractions may be off by, being sums of binary fractions.
const TOLERANCE: f64 = 1e-9;

/// Why a reservation was not admitted: what is there, what was asked, what is left.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{reason}")]
pub struct Refusal {
    /// The whole of it in a sentence, with what to do.
    pub reason: String,
    /// The fraction of the parent's that was asked for.
    pub asked: f64,
    /// What the other domains of this level have reserved.
    pub reserved: f64,
    /// The most that the level may reserve together.
    pub limit: f64,
}

impl Tree {
    /// Whether the domain at `path`, which need not exist yet, may have these settings.
    ///
    /// # Errors
    /// [`Refusal`] when the level would reserve more than its parent has, or its children more than the new limit.
    pub fn admit(&self, path: &str, settings: &Settings) -> Result<(), Refusal> {
        self.admit_one(path, settings, Resource::Cpu)?;
        self.admit_one(path, settings, Resource::Disk)?;
        self.admit_limit(path, settings)
    }

    fn admit_one(&self, path: &str, settings: &Settings, resource: Resource) -> Result<(), Refusal> {
        let asked = fraction_of(settings, resource);
        let before = self.get(path).map_or(0.0, |node| fraction_of(&node.settings, resource));
        let Some(payer) = name::parent_of(path).filter(|_| asked > before) else { return Ok(()) };
        let reserved = (self.reserved_below(payer, resource) - before).max(0.0);
        let limit = self.limit(payer, resource);
        if asked + reserved <= limit + TOLERANCE {
            return Ok(());
        }
        let left = (limit - reserved).max(0.0);
        let whose = if payer.is_empty() { "the machine".to_owned() } else { self.names().name_of(payer) };
        let reason = format!(
            "{} cannot have {} of the {} of {whose}: other domains have {} of it, at most {} may be reserved, so {} \
             is left{}; ask for less, or lower one of those",
            self.names().name_of(path),
            percent(asked),
            word(resource),
            percent(reserved),
            percent(limit),
            percent(left),
            self.largest(payer, path, resource),
        );
        Err(Refusal { reason, asked, reserved, limit })
    }

    /// Who has the most of a level, in parentheses.
    fn largest(&self, payer: &str, except: &str, resource: Resource) -> String {
        let mut others: Vec<(f64, String)> = self
            .paid_by(payer)
            .filter(|(path, _)| *path != except)
            .map(|(path, node)| (fraction_of(&node.settings, resource), self.names().name_of(path)))
            .filter(|(reserved, _)| *reserved > 0.0)
            .collect();
        others.sort_by(|one, other| other.0.total_cmp(&one.0));
        let named: Vec<String> =
            others.iter().take(3).map(|(reserved, name)| format!("{name} {}", percent(*reserved))).collect();
        match named.len() {
            0 => String::new(),
            _ if others.len() > 3 => format!(" ({}, and {} more)", named.join(", "), others.len() - 3),
            _ => format!(" ({})", named.join(", ")),
        }
    }

    /// A limit cannot be set below what the children have reserved.
    fn admit_limit(&self, path: &str, settings: &Settings) -> Result<(), Refusal> {
        let Some(limit) = settings.cpu_limit else { return Ok(()) };
        let reserved = self.reserved_below(path, Resource::Cpu);
        if reserved <= limit + TOLERANCE {
            return Ok(());
        }
        let reason = format!(
            "the limit of {} cannot be {}: its children have reserved {} of its CPU; lower one of those first",
            self.names().name_of(path),
            percent(limit),
            percent(reserved)
        );
        Err(Refusal { reason, asked: limit, reserved, limit })
    }
}

/// What is reserved, in sentences about a part of it.
fn word(resource: Resource) -> &'static str {
    match resource {
        Resource::Cpu => "CPU",
        Resource::Memory | Resource::Disk => resource.words(),
    }
}

#[cfg(test)]
mod tests;
