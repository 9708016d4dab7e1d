//! The limits of admission and revocation.

use serde::{Deserialize, Serialize};

/// The limits within which the mechanism admits and revokes (Yang 2009, section 8.1.2), and what may be declared:
/// fractions of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Thresholds {
    /// `Rlo`: with every sample of the window below it, one task is reactivated.
    pub reactivate_below: f64,
    /// `Rhi`: admission keeps load plus bandwidth below it.
    pub admit_below: f64,
    /// `Rmax`: with every sample of the window above it, tasks are revoked.
    pub revoke_above: f64,
    /// The most `C / T` that tasks which are never revoked may have together; further ones may be revoked.
    pub irrevocable_max: f64,
    /// The most `C / T` that the tasks of one user, other than root and the owner, may have together, and those of all
    /// such users.
    pub user_max: f64,
}

impl Default for Thresholds {
    /// 0.65, 0.80, 0.90. The paper gives no figures; these leave a tenth of each CPU to best-effort work even while
    /// overload is being noticed. What is never revoked may declare as much as admission lets in (0.80), and one user
    /// 0.75, so that a film of somebody else (5 ms in 30 ms) has its time whatever that user's tasks do.
    fn default() -> Self {
        Thresholds {
            reactivate_below: 0.65,
            admit_below: 0.80,
            revoke_above: 0.90,
            irrevocable_max: 0.80,
            user_max: 0.75,
        }
    }
}
