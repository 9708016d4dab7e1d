//! The device: works on some requests at once, each in its own time (`null_blk`, which the lab's disk is made of, does
//! so too).

use super::request::Request;
use super::scenario::DeviceSettings;
use crate::random::Random;

#[derive(Debug)]
pub(super) struct Device {
    settings: DeviceSettings,
    under_way: Vec<(Request, u64)>,
    random: Random,
}

impl Device {
    pub(super) fn new(settings: DeviceSettings, random: Random) -> Self {
        Device { settings, under_way: Vec::new(), random }
    }

    pub(super) fn has_room(&self) -> bool {
        self.under_way.len() < self.settings.depth
    }

    pub(super) fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// Begins with a request; returns when it will be served, in nanoseconds.
    pub(super) fn begin(&mut self, request: Request, now_ns: u64) -> u64 {
        let carried_ns = request.bytes as f64 / self.settings.bytes_per_second as f64 * 1e9;
        let ideal_ns = self.settings.request_ns as f64 + carried_ns;
        let factor = 1.0 + self.settings.variation * (2.0 * self.random.fraction() - 1.0);
        self.under_way.push((request, now_ns));
        now_ns + (ideal_ns * factor) as u64
    }

    /// A request is served; with how long it took.
    pub(super) fn end(&mut self, id: u64, now_ns: u64) -> Option<(Request, u64)> {
        let place = self.under_way.iter().position(|(request, _)| request.id == id)?;
        let (request, since_ns) = self.under_way.swap_remove(place);
        Some((request, now_ns - since_ns))
    }
}
