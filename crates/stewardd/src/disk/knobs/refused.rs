//! Devices on which it failed to order requests.

use steward_core::disk::device::Device;
use steward_core::disk::elevator::Order;
use steward_kernel::journal::JournalError;

/// A device that could not be ordered.
#[derive(Debug)]
pub(super) struct Refused {
    /// What could order it then; once something else can, it is tried again.
    elevators: Vec<String>,
    /// It has the elevator, or is only just coming: it is tried again later. With
    /// [`Wanted::again`](super::Wanted::again) when it was tried.
    pub(super) later: Option<u64>,
    /// Why it could not, in a sentence.
    pub(super) sentence: String,
}

impl Refused {
    /// `error` is what came of having a device ordered so, when `again` was [`Wanted::again`](super::Wanted::again).
    pub(super) fn new(device: &Device, order: &Order, error: &JournalError, again: u64) -> Self {
        // So says the kernel of a disk whose queue is not registered yet, whatever orders it (elevator_change()).
        let is_coming = matches!(error, JournalError::Kernel(error) if error.is_absent());
        let may_succeed_later = is_coming || device.elevators.iter().any(|name| name == order.elevator);
        let (name, elevator) = (&device.name, order.elevator);
        let advice = match may_succeed_later {
            true => {
                "it is tried again a few times, for the disk may be only just coming; to leave it as it is"
                    .to_owned()
            }
            false => format!("build or load the kernel's elevator {elevator} (modprobe {elevator}), or"),
        };
        let sentence = format!(
            "{name}: classes of disk requests count for nothing there: {error}; {advice} write order = \"keep\" below [disk] in steward.toml"
        );
        Refused { elevators: device.elevators.clone(), later: may_succeed_later.then_some(again), sentence }
    }

    /// Whether it is to be tried again, as the device is now.
    pub(super) fn may_be_tried(&self, device: &Device, again: u64) -> bool {
        self.elevators != device.elevators || self.later.is_some_and(|tried| tried < again)
    }
}
