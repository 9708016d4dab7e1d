//! Admission: what one level reserves together never exceeds what its parent has, or the limit that the parent set
//! (Walfield, section 3.1). Minima of memory beyond what there is would end in the kernel's out-of-memory killer.

use super::name;
use super::settings::Settings;
use super::tree::{Tree, reserved_by};
use crate::quantity::{format_size, percent};
use crate::resource::Resource;

/// What sums of fractions may be off by, being sums of binary fractions.
const TOLERANCE: f64 = 1e-9;

/// Why a reservation was not admitted: what is there, what was asked, what is left. Fractions of the parent's, bytes of
/// memory.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{reason}")]
pub struct Refusal {
    /// What of.
    pub resource: Resource,
    /// The whole of it in a sentence, with what to do.
    pub reason: String,
    /// What was asked for.
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
        for resource in Resource::ALL {
            self.admit_one(path, settings, resource)?;
        }
        self.admit_reservable(path, settings)?;
        self.admit_memory_of_children(path, settings)
    }

    fn admit_one(&self, path: &str, settings: &Settings, resource: Resource) -> Result<(), Refusal> {
        let asked = reserved_by(settings, resource);
        let before = self.get(path).map_or(0.0, |node| reserved_by(&node.settings, resource));
        let Some(payer) = name::parent_of(path).filter(|_| asked > before) else { return Ok(()) };
        let reserved = (self.reserved_below(payer, resource) - before).max(0.0);
        let limit = self.limit(payer, resource);
        if asked + reserved <= limit + TOLERANCE {
            return Ok(());
        }
        let left = (limit - reserved).max(0.0);
        let whose = if payer.is_empty() { "the machine".to_owned() } else { self.names().name_of(payer) };
        let amount = |value| amount(value, resource);
        let reason = format!(
            "{} cannot have {} of the {} of {whose}: other domains have {} of it, at most {} may be reserved{}, so \
             {} is left{}; ask for less, or {}",
            self.names().name_of(path),
            amount(asked),
            word(resource),
            amount(reserved),
            amount(limit),
            self.beside_others(payer, resource),
            amount(left),
            self.largest(payer, path, resource),
            if resource == Resource::Memory && !payer.is_empty() {
                format!("promise {whose} more first")
            } else {
                "lower one of those".to_owned()
            },
        );
        Err(Refusal { resource, reason, asked, reserved, limit })
    }

    /// What of the machine's memory others than Steward promise, in parentheses.
    fn beside_others(&self, payer: &str, resource: Resource) -> String {
        let others_bytes = self.machine().memory_of_others_bytes;
        if resource != Resource::Memory || !payer.is_empty() || others_bytes == 0 {
            return String::new();
        }
        let others = format_size(others_bytes);
        format!(" (beside {others} that others promise with memory.min, as systemd's MemoryMin=)")
    }

    /// Who has the most of a level, in parentheses.
    fn largest(&self, payer: &str, except: &str, resource: Resource) -> String {
        let mut others: Vec<(f64, String)> = self
            .paid_by(payer)
            .filter(|(path, _)| *path != except)
            .map(|(path, node)| (reserved_by(&node.settings, resource), self.names().name_of(path)))
            .filter(|(reserved, _)| *reserved > 0.0)
            .collect();
        others.sort_by(|one, other| other.0.total_cmp(&one.0));
        let named: Vec<String> = others
            .iter()
            .take(3)
            .map(|(reserved, name)| format!("{name} {}", amount(*reserved, resource)))
            .collect();
        match named.len() {
            0 => String::new(),
            _ if others.len() > 3 => format!(" ({}, and {} more)", named.join(", "), others.len() - 3),
            _ => format!(" ({})", named.join(", ")),
        }
    }

    /// The part that the children may reserve cannot be set below what they have.
    fn admit_reservable(&self, path: &str, settings: &Settings) -> Result<(), Refusal> {
        let Some(limit) = settings.cpu.reservable else { return Ok(()) };
        let reserved = self.reserved_below(path, Resource::Cpu);
        if reserved <= limit + TOLERANCE {
            return Ok(());
        }
        let reason = format!(
            "cpu_reservable of {} cannot be {}: its children have reserved {} of its CPU; lower one of those first",
            self.names().name_of(path),
            percent(limit),
            percent(reserved)
        );
        Err(Refusal { resource: Resource::Cpu, reason, asked: limit, reserved, limit })
    }

    /// What a domain is promised of the memory cannot be less than what it has promised to its children.
    fn admit_memory_of_children(&self, path: &str, settings: &Settings) -> Result<(), Refusal> {
        let reserved = self.reserved_below(path, Resource::Memory);
        let asked = reserved_by(settings, Resource::Memory);
        if path.is_empty() || reserved <= asked {
            return Ok(());
        }
        let reason = format!(
            "memory_min of {} cannot be {}: its children are promised {} of it; lower one of those first",
            self.names().name_of(path),
            amount(asked, Resource::Memory),
            amount(reserved, Resource::Memory)
        );
        Err(Refusal { resource: Resource::Memory, reason, asked, reserved, limit: asked })
    }
}

/// What is reserved, in sentences about a part of it.
fn word(resource: Resource) -> &'static str {
    match resource {
        Resource::Cpu => "CPU",
        Resource::Memory | Resource::Disk => resource.words(),
    }
}

fn amount(value: f64, resource: Resource) -> String {
    match resource {
        Resource::Cpu | Resource::Disk => percent(value),
        Resource::Memory => format_size(value as u64),
    }
}

#[cfg(test)]
mod tests;
