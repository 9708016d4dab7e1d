//! What a fraction is of where one domain makes small requests and another one large ones, by the kernel's io.cost with
//! the model of a calibration (docs/disk.md). BFQ's sectors are not in the machine, whose elevator charges by time.

use proptest::prelude::*;
use steward_core::disk::calibration::{Found, fit};
use steward_core::disk::cost::{PAGE_BYTES, Way};
use steward_sim::disk::scenario::DeviceSettings;

use crate::histories::*;

/// How far the part of the disk's time may be from what is due.
const PART_OFF_MAX: f64 = 0.01;

/// How long a request of so many bytes takes of the device's time, with as many at once as it takes, in nanoseconds.
fn device_ns(device: &DeviceSettings, bytes: u64) -> f64 {
    let carried_ns = bytes as f64 / device.bytes_per_second as f64 * 1e9;
    (device.request_ns as f64 + carried_ns) / device.depth as f64
}

/// What a calibration finds of the device, to which it is the same where requests lie.
fn calibrated(device: &DeviceSettings) -> Way {
    let per_second = |bytes| 1e9 / device_ns(device, bytes);
    let found = Found {
        sequential_per_second: per_second(PAGE_BYTES),
        random_per_second: per_second(PAGE_BYTES),
        large_per_second: per_second(512 * KIB),
        large_bytes: 512 * KIB,
    };
    fit(&found, &found).expect("a model").read
}

/// What the kernel charges for a request far from the one before, in nanoseconds (`calc_lcoefs()`,
/// `calc_vtime_cost_builtin()` of block/blk-iocost.c): what it begins with, and so much for each page.
fn charged_ns(way: &Way, bytes: u64) -> f64 {
    let page_ns = 1e9 * PAGE_BYTES as f64 / way.bytes_per_second as f64;
    let begins_ns = (1e9 / way.random_per_second as f64 - page_ns).max(0.0);
    begins_ns + page_ns * (bytes / PAGE_BYTES).max(1) as f64
}

/// The part of the device's time that the second one of two has, who both want all of it with requests of these sizes:
/// next is always who has been charged least for its weight.
fn part_of_second(device: &DeviceSettings, way: &Way, bytes: [u64; 2], weights: [f64; 2]) -> f64 {
    let (mut virtual_ns, mut had_ns) = ([0.0; 2], [0.0; 2]);
    while had_ns[0] + had_ns[1] < 20e9 {
        let next = usize::from(virtual_ns[1] < virtual_ns[0]);
        virtual_ns[next] += charged_ns(way, bytes[next]) / weights[next];
        had_ns[next] += device_ns(device, bytes[next]);
    }
    had_ns[1] / (had_ns[0] + had_ns[1])
}

proptest! {
    #[test]
    fn charged_by_a_calibration_a_fraction_is_of_the_disks_time_whatever_the_sizes_are(
        (request_us, mb) in (20..1_000_u64, 100..2_000_u64),
        sizes in prop::array::uniform2(prop::sample::select(vec![4, 64, 512])),
        weight in 0.1..10.0_f64,
    ) {
        let device = DeviceSettings {
            request_ns: request_us * 1_000,
            bytes_per_second: mb * 1_000_000,
            ..DeviceSettings::solid_state()
        };
        // Where a large one takes hardly longer than a page there is no model, and the calibration says so.
        prop_assume!(device_ns(&device, 512 * KIB) > 1.06 * device_ns(&device, PAGE_BYTES));
        let way = calibrated(&device);
        let had = part_of_second(&device, &way, sizes.map(|size| size * KIB), [1.0, weight]);
        let due = weight / (1.0 + weight);
        prop_assert!((had - due).abs() < PART_OFF_MAX, "{had} of the time, where {due} is due");
    }
}
