//! Devices on which it failed to order requests.

use steward_core::disk::device::Device;
use steward_core::disk::elevator::Order;
use steward_kernel::disk::devices;
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
        // Of another file this says nothing about which elevators there are.
        let is_about_another_file = matches!(error, JournalError::Kernel(error)
            if error.errno() == Some(libc::EINVAL) && !devices::is_about_elevator(error));
        let is_listed = device.elevators.iter().any(|name| name == order.elevator);
        let may_succeed_later = is_coming || is_listed || is_about_another_file;
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

#[cfg(test)]
mod tests {
    use super::*;
    use steward_kernel::KernelError;

    #[test]
    fn only_where_the_kernel_does_not_take_an_elevator_it_is_said_that_there_is_none() {
        let order = Order {
            elevator: "bfq",
            requests: 4096,
            writes: None,
            guesses_nothing: false,
            tunables: &[],
            moments: &[],
        };
        for (file, is_missing) in [("scheduler", true), ("nr_requests", false)] {
            let error = JournalError::Kernel(KernelError::Write {
                path: std::path::Path::new("/sys/block/sda/queue").join(file),
                value: String::new(),
                source: std::io::Error::from_raw_os_error(libc::EINVAL),
            });
            let refused = Refused::new(&Device::default(), &order, &error, 1);
            assert_eq!(refused.sentence.contains("modprobe bfq"), is_missing, "{}", refused.sentence);
            assert!(refused.sentence.contains(file) && refused.later.is_none() == is_missing);
        }
    }
}
