//! Domains: the tree of cgroups as principals that own the CPU and divide it among their children.
//!
//! A domain is a cgroup with a policy (Eclipse 1998, section 3; Walfield, sections 3.2 and 3.3): its priority and
//! weight among its siblings, a reserved fraction of its parent's CPU, what its own tasks get beside its children,
//! and the user it belongs to. Every cgroup is a domain, whoever made it; one that nobody gave a policy has the
//! default.
//!
//! - [`declared`]: domains that files declare.
//! - [`name`]: what a domain may be called, and which cgroup a name means.
//! - [`settings`]: what can be asked for a domain; [`setting`]: its names, and what is wrong with a value.
//! - [`tree`]: who pays for whom; [`admission`]: what may be reserved.
//!
//! What the mechanism is told so that the guarantees hold is the CPU's: [`crate::cpu::policies`].
//!
//! Domains that Steward makes have their cgroups directly below the root, beside the slices of the service manager,
//! each with a prefix before its name. In a common cgroup of their own, what an idle one has reserved would go to the
//! others in it, and nobody could reserve a part of the machine.

pub mod admission;
pub mod declared;
pub mod name;
pub mod setting;
pub mod settings;
pub mod tree;

pub use admission::Refusal;
pub use name::{Names, OWN_LEAF};
pub use setting::{Fault, Setting};
pub use settings::{Change, Common, Settings};
pub use tree::{Machine, Node, Tree};
