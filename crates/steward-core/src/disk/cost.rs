//! What a request costs on a disk, by which the kernel hands the disk's time out among cgroups without an elevator
//! (io.cost, Documentation/admin-guide/cgroup-v2.rst): what it begins with, more of that where it is far from the one
//! before, and so much for each page.
//!
//! docs/disk-measured.md has the measurements that the choice of the settings rests on.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use serde::{Deserialize, Serialize};

use crate::quantity::approximate_size;

/// What the kernel counts a request's size in, in bytes.
pub const PAGE_BYTES: u64 = 4096;
/// The size of a request that is taken for a large one, in bytes.
pub const LARGE_BYTES: u64 = 512 << 10;
/// The least that a period is made for, in microseconds: half of one is as long. With four times as much, saves beside
/// others took as long.
const LATENCY_US_MIN: u64 = 2_000;
/// The kernel has no period that is longer than a second.
const LATENCY_US_MAX: u64 = 500_000;
/// More than any disk does in a second; what is above was written by hand, and wrong.
const PER_SECOND_MAX: u64 = 1 << 40;

/// What a disk can do, reading or writing. With so many as it takes at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Way {
    /// Bytes in a second, but for what requests begin with: what a page more costs.
    pub bytes_per_second: u64,
    /// Requests of a page in a second, each near the one before.
    pub sequential_per_second: u64,
    /// Requests of a page in a second, each far from the one before.
    pub random_per_second: u64,
}

/// What requests of a disk cost (`model=linear`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// To read.
    pub read: Way,
    /// To write.
    pub write: Way,
}

impl Way {
    /// How long a request of so many bytes takes of the disk's time that is far from the one before, in nanoseconds.
    fn far_ns(&self, bytes: u64) -> u64 {
        let page_ns = 1e9 * PAGE_BYTES as f64 / self.bytes_per_second.max(1) as f64;
        let first_ns = (1e9 / self.random_per_second.max(1) as f64).max(page_ns);
        (first_ns + page_ns * (bytes / PAGE_BYTES).saturating_sub(1) as f64) as u64
    }

    fn figures(&self) -> [u64; 3] {
        [self.bytes_per_second, self.sequential_per_second, self.random_per_second]
    }
}

impl Model {
    /// Why it is none.
    ///
    /// # Errors
    /// In a sentence.
    pub fn check(&self) -> Result<(), String> {
        let all = [self.read, self.write].into_iter().flat_map(|way| way.figures());
        match all.into_iter().find(|figure| !(1..=PER_SECOND_MAX).contains(figure)) {
            None => Ok(()),
            Some(figure) => Err(format!("no disk does {figure} in a second")),
        }
    }

    /// The line of `io.cost.model` for the device of this number, in the form in which the kernel shows it.
    pub fn to_kernel(&self, device_number: &str) -> String {
        let mut line = format!("{device_number} ctrl=user model=linear");
        for (letter, way) in [('r', self.read), ('w', self.write)] {
            let [bytes, sequential, random] = way.figures();
            // Nothing can go wrong in memory.
            let _ =
                write!(line, " {letter}bps={bytes} {letter}seqiops={sequential} {letter}randiops={random}");
        }
        line
    }

    /// The line of `io.cost.qos` that goes with it: on, and nothing but the model says what may be spent. The latency
    /// tells the kernel how long its period is to be, which is twice that: four large requests at least.
    pub fn quality(&self, device_number: &str) -> String {
        let large_us = self.read.far_ns(LARGE_BYTES).max(self.write.far_ns(LARGE_BYTES)) / 1_000;
        let latency_us = (2 * large_us).clamp(LATENCY_US_MIN, LATENCY_US_MAX);
        format!(
            "{device_number} enable=1 ctrl=user rpct=95.00 rlat={latency_us} wpct=95.00 wlat={latency_us} min=100.00 max=100.00"
        )
    }
}

impl fmt::Display for Model {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = |way: Way| {
            format!(
                "{} pages a second, {} in order, and {} a second in large pieces",
                way.random_per_second,
                way.sequential_per_second,
                approximate_size(way.bytes_per_second)
            )
        };
        write!(formatter, "it reads {}, and writes {}", way(self.read), way(self.write))
    }
}

/// What the kernel says of io.cost for a device: its lines, or nothing where it has none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lines {
    /// Of `io.cost.model`.
    pub model: String,
    /// Of `io.cost.qos`.
    pub quality: String,
}

/// Whose io.cost is for a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nobody has set it.
    Free,
    /// It is as Steward has it by this model.
    Stewards,
    /// Somebody else has set it, and it is on.
    OthersOn,
    /// Somebody else has set it, and it is off.
    OthersOff,
}

impl Lines {
    /// Whether requests are charged.
    pub fn is_on(&self) -> bool {
        word(&self.quality, "enable") == Some("1")
    }

    /// Whose it is, where Steward would have `model`.
    pub fn standing(&self, model: Option<&Model>) -> Standing {
        let is_ours = |line: &str, ours: fn(&Model, &str) -> String| {
            let number = line.split(' ').next().unwrap_or_default();
            model.is_some_and(|model| same(line, &ours(model, number)))
        };
        let is_free = |line: &str| word(line, "enable") != Some("1") && word(line, "ctrl") != Some("user");
        let count = |of_model: bool, of_quality: bool| usize::from(of_model) + usize::from(of_quality);
        let ours = count(is_ours(&self.model, Model::to_kernel), is_ours(&self.quality, Model::quality));
        let free = count(is_free(&self.model), is_free(&self.quality));
        match (ours, free) {
            (2, _) => Standing::Stewards,
            // On the way there or back.
            (ours, free) if ours + free == 2 => Standing::Free,
            _ if self.is_on() => Standing::OthersOn,
            _ => Standing::OthersOff,
        }
    }
}

/// The line that a device has that nobody has set anything for, which the kernel does not show: of these two files.
pub fn unset(file: &str, device_number: &str) -> String {
    match file {
        "io.cost.qos" => format!("{device_number} enable=0 ctrl=auto"),
        _ => format!("{device_number} ctrl=auto"),
    }
}

/// What is to be written so that a line is again as the kernel showed it: with `ctrl=auto` the figures are the kernel's
/// own, and to write them would make them somebody's.
pub fn written_back(line: &str) -> String {
    if word(line, "ctrl") != Some("auto") {
        return line.to_owned();
    }
    let is_kept = |word: &&str| !word.contains('=') || word.starts_with("enable=") || *word == "ctrl=auto";
    line.split(' ').filter(is_kept).collect::<Vec<_>>().join(" ")
}

/// What a line says of something.
fn word<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    line.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

/// Whether two lines say the same, in whatever order and form.
fn same(one: &str, other: &str) -> bool {
    let words = |line: &str| -> BTreeMap<String, String> {
        let pairs = line.split_whitespace().skip(1).filter_map(|word| word.split_once('='));
        let plain = |value: &str| {
            value.parse::<f64>().map_or_else(|_| value.to_owned(), |number| format!("{number}"))
        };
        pairs.map(|(name, value)| (name.to_owned(), plain(value))).collect()
    };
    words(one) == words(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(bytes_per_second: u64, per_second: u64) -> Way {
        Way { bytes_per_second, sequential_per_second: per_second, random_per_second: per_second }
    }

    fn model() -> Model {
        Model { read: way(500_000_000, 22_000), write: way(400_000_000, 20_000) }
    }

    fn lines(model: &Model) -> Lines {
        Lines { model: model.to_kernel("254:0"), quality: model.quality("254:0") }
    }

    #[test]
    fn the_lines_are_as_the_kernel_shows_them() {
        assert_eq!(
            model().to_kernel("254:0"),
            "254:0 ctrl=user model=linear rbps=500000000 rseqiops=22000 rrandiops=22000 wbps=400000000 wseqiops=20000 \
             wrandiops=20000"
        );
        assert_eq!(
            model().quality("254:0"),
            "254:0 enable=1 ctrl=user rpct=95.00 rlat=2700 wpct=95.00 wlat=2700 min=100.00 max=100.00"
        );
    }

    #[test]
    fn a_period_has_room_for_some_large_requests_and_is_never_too_short_or_too_long_for_the_kernel() {
        let latency = |bytes, per_second| {
            let way = way(bytes, per_second);
            let line = Model { read: way, write: way }.quality("8:0");
            word(&line, "rlat").and_then(|text| text.parse::<u64>().ok()).expect("a number")
        };
        assert_eq!(latency(3_000_000_000, 400_000), 2_000);
        // What the 10 ms disk has by hand is 20,000 (docs/disk-measured.md).
        assert!((20_000..30_000).contains(&latency(290_000_000, 99)), "{}", latency(290_000_000, 99));
        assert_eq!(latency(1, 1), 500_000);
    }

    #[test]
    fn it_is_known_whose_the_settings_are() {
        let auto = Lines {
            model: "254:0 ctrl=auto model=linear rbps=1 rseqiops=1 rrandiops=1 wbps=1 wseqiops=1 wrandiops=1"
                .into(),
            quality: "254:0 enable=0 ctrl=auto rpct=0.00 rlat=0 wpct=0.00 wlat=0 min=1.00 max=10000.00"
                .into(),
        };
        let ours = lines(&model());
        let on = Lines { quality: auto.quality.replace("enable=0", "enable=1"), ..auto.clone() };
        let other = lines(&Model { read: way(1_000, 1), ..model() });
        let off = Lines { quality: other.quality.replace("enable=1", "enable=0"), ..other.clone() };
        for (lines, standing) in [
            (Lines::default(), Standing::Free),
            (auto.clone(), Standing::Free),
            (ours.clone(), Standing::Stewards),
            // The model is written, the rest is not yet.
            (Lines { quality: auto.quality.clone(), ..ours.clone() }, Standing::Free),
            (on, Standing::OthersOn),
            (other, Standing::OthersOn),
            (off, Standing::OthersOff),
            (
                Lines { quality: ours.quality.replace("max=100.00", "max=150.00"), ..ours.clone() },
                Standing::OthersOn,
            ),
        ] {
            assert_eq!(lines.standing(Some(&model())), standing, "{lines:?}");
        }
        // Without a calibration nothing is Steward's.
        assert_eq!(ours.standing(None), Standing::OthersOn);
        assert!(ours.is_on() && !auto.is_on());
    }

    #[test]
    fn the_form_of_a_number_makes_no_other_of_it() {
        let ours = lines(&model());
        let shown = Lines { quality: ours.quality.replace(".00", ""), ..ours };
        assert_eq!(shown.standing(Some(&model())), Standing::Stewards);
    }

    #[test]
    fn what_was_the_kernels_own_is_the_kernels_own_again() {
        for (line, written) in [
            (
                "254:0 enable=0 ctrl=auto rpct=0.00 rlat=0 wpct=0.00 wlat=0 min=1.00 max=10000.00",
                "254:0 enable=0 ctrl=auto",
            ),
            ("254:0 ctrl=auto model=linear rbps=1 rseqiops=1", "254:0 ctrl=auto"),
            ("254:0 ctrl=user model=linear rbps=1", "254:0 ctrl=user model=linear rbps=1"),
            ("8:0 rbps=max wbps=1 riops=max wiops=max", "8:0 rbps=max wbps=1 riops=max wiops=max"),
        ] {
            assert_eq!(written_back(line), written);
        }
        assert_eq!(unset("io.cost.qos", "8:0"), "8:0 enable=0 ctrl=auto");
        assert_eq!(unset("io.cost.model", "8:0"), "8:0 ctrl=auto");
    }

    #[test]
    fn figures_that_no_disk_has_are_no_model() {
        assert_eq!(model().check(), Ok(()));
        for figure in [0, u64::MAX] {
            let way = Way { random_per_second: figure, ..model().read };
            let why = Model { read: way, ..model() }.check().expect_err("no disk has that");
            assert!(why.contains(&figure.to_string()), "{why}");
        }
    }
}
