//! A disk's model from how quick it was found to be: the time that a request takes of it is what it begins with and so
//! much for each page, so that requests of two sizes say both.

use serde::{Deserialize, Serialize};

use super::cost::{Model, PAGE_BYTES, Way};
use super::device::Device;
use crate::quantity::format_size;

/// How many requests a device that takes them one at a time has at once.
const ONE_AT_A_TIME: u64 = 1;
/// The least by which a large request is to take longer than a page, as a part of how long a page takes. Below it is
/// not known what a page more costs: a cache has answered, or somebody else was served.
const LONGER_MIN: f64 = 0.05;

/// How many requests in a second a disk was found to serve, reading or writing, with many at once.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Found {
    /// Of a page each, near the one before.
    pub sequential_per_second: f64,
    /// Of a page each, far from the one before.
    pub random_per_second: f64,
    /// Large ones, near the one before.
    pub large_per_second: f64,
    /// How large, in bytes.
    pub large_bytes: u64,
}

/// What is known of a disk, as it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Calibration {
    /// By what the disk is known again.
    pub identity: String,
    /// What it was called then.
    pub name: String,
    /// When it was measured, in seconds since 1970.
    pub measured_at: u64,
    /// What was found.
    pub model: Model,
}

/// Why a device is not to be measured, and io.cost is nothing for it whatever it does; `None` where there is no reason.
/// What it says of rotating is none: it is found out so.
pub fn unsuited(device: &Device) -> Option<String> {
    let why = if device.stands_for_others {
        "it hands its requests to others, which are to be measured"
    } else if !device.queues {
        "the kernel queues no requests for it"
    } else if device.depth.is_some_and(|depth| depth <= ONE_AT_A_TIME) {
        "it takes one request at a time: what is measured of several says nothing of it, and io.cost keeps nobody's queue short there"
    } else {
        return None;
    };
    Some(why.to_owned())
}

/// What requests cost by what was found.
///
/// # Errors
/// Why the figures say nothing, in a sentence.
pub fn fit(read: &Found, write: &Found) -> Result<Model, String> {
    let model = Model { read: fit_way(read, "reading")?, write: fit_way(write, "writing")? };
    model.check()?;
    Ok(model)
}

fn fit_way(found: &Found, what: &str) -> Result<Way, String> {
    let figures = [found.sequential_per_second, found.random_per_second, found.large_per_second];
    if !figures.iter().all(|figure| figure.is_finite() && *figure >= 1.0) {
        return Err(format!("{what}, less than one request was served in a second: {figures:?}"));
    }
    let more_pages = (found.large_bytes / PAGE_BYTES).saturating_sub(1);
    if more_pages == 0 {
        return Err(format!(
            "{what}, requests of {} are no larger than a page: nothing tells what a page more costs",
            format_size(found.large_bytes)
        ));
    }
    let (page_seconds, large_seconds) = (1.0 / found.sequential_per_second, 1.0 / found.large_per_second);
    if large_seconds < page_seconds * (1.0 + LONGER_MIN) {
        return Err(format!(
            "{what}, {:.0} requests of {} were served in a second and {:.0} of a page: a cache has answered, or others were served meanwhile",
            found.large_per_second,
            format_size(found.large_bytes),
            found.sequential_per_second
        ));
    }
    let each_page = (large_seconds - page_seconds) / more_pages as f64;
    Ok(Way {
        bytes_per_second: (PAGE_BYTES as f64 / each_page).round() as u64,
        sequential_per_second: found.sequential_per_second.round() as u64,
        random_per_second: found.random_per_second.round() as u64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What is found of a disk on which requests begin with so much, in seconds, and each page takes so much.
    fn found(near: f64, far: f64, page: f64) -> Found {
        Found {
            sequential_per_second: 1.0 / (near + page),
            random_per_second: 1.0 / (far + page),
            large_per_second: 1.0 / (near + 128.0 * page),
            large_bytes: 128 * PAGE_BYTES,
        }
    }

    #[test]
    fn the_slow_disk_of_the_lab_is_found_again() {
        // 10.1 ms for a page and 11.9 ms for 512 KiB.
        let slow = Found {
            sequential_per_second: 1.0 / 0.0101,
            random_per_second: 1.0 / 0.0101,
            large_per_second: 1.0 / 0.0119,
            large_bytes: 512 << 10,
        };
        let model = fit(&slow, &slow).expect("a model");
        assert_eq!(
            (model.read.random_per_second, (model.read.bytes_per_second + 500_000) / 1_000_000),
            (99, 289)
        );
    }

    #[test]
    fn figures_that_say_nothing_are_refused_with_a_sentence() {
        let good = found(20e-6, 40e-6, 8e-6);
        for (bad, says) in [
            (Found { random_per_second: 0.0, ..good }, "less than one request"),
            (Found { random_per_second: f64::NAN, ..good }, "less than one request"),
            (Found { sequential_per_second: f64::INFINITY, ..good }, "less than one request"),
            (Found { large_per_second: -1.0, ..good }, "less than one request"),
            (Found { large_bytes: 4096, ..good }, "no larger than a page"),
            (Found { large_per_second: good.sequential_per_second, ..good }, "a cache has answered"),
            (Found { sequential_per_second: 1e300, random_per_second: 1e300, ..good }, "no disk does"),
        ] {
            let why = fit(&good, &bad).expect_err("it says nothing");
            assert!(why.contains(says), "{why}");
        }
        let why = fit(&Found::default(), &good).expect_err("it says nothing");
        assert!(why.starts_with("reading, "), "{why}");
    }

    #[test]
    fn what_is_not_to_be_measured_says_why() {
        let ssd = Device { queues: true, depth: Some(4), ..Device::default() };
        assert_eq!(unsuited(&ssd), None);
        assert_eq!(unsuited(&Device { depth: None, ..ssd.clone() }), None);
        // As a disk of a virtual machine does, whatever it is.
        assert_eq!(unsuited(&Device { rotational: true, ..ssd.clone() }), None);
        for (device, says) in [
            (Device { stands_for_others: true, ..ssd.clone() }, "hands its requests to others"),
            (Device { queues: false, ..ssd.clone() }, "queues no requests"),
            (Device { depth: Some(1), ..ssd.clone() }, "one request at a time"),
        ] {
            assert!(unsuited(&device).is_some_and(|why| why.contains(says)), "{says}");
        }
    }

    proptest! {
        #[test]
        fn a_disk_whose_requests_cost_as_the_model_says_is_found_as_it_is(
            near in 1e-6..1e-2_f64,
            farther in 0.0..1e-2_f64,
            page in 2e-7..1e-4_f64,
        ) {
            let far = near + farther;
            let model = fit(&found(near, far, page), &found(far, far, page));
            // Where the pages of a large one are nothing beside what it begins with, it says so.
            prop_assume!(127.0 * page > 0.06 * (far + page));
            let model = model.expect("a model");
            for (way, near) in [(model.read, near), (model.write, far)] {
                let is = |got: u64, exact: f64| (got as f64 - exact).abs() <= 0.5 + exact * 1e-6;
                prop_assert!(is(way.bytes_per_second, 4096.0 / page));
                prop_assert!(is(way.sequential_per_second, 1.0 / (near + page)));
                prop_assert!(is(way.random_per_second, 1.0 / (far + page)));
            }
        }

        #[test]
        fn whatever_the_figures_are_there_is_a_model_or_a_sentence(
            figures in proptest::array::uniform3(proptest::num::f64::ANY),
            large_bytes in proptest::num::u64::ANY,
        ) {
            let [sequential_per_second, random_per_second, large_per_second] = figures;
            let found = Found { sequential_per_second, random_per_second, large_per_second, large_bytes };
            match fit(&found, &found) {
                Ok(model) => prop_assert_eq!(model.check(), Ok(())),
                Err(why) => prop_assert!(!why.is_empty()),
            }
        }
    }
}
