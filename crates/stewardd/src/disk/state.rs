//! What is wanted of the disk.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use steward_core::disk::Class;
use steward_core::disk::config::{self, Config};
use steward_core::disk::cost::{Lines, Model, Standing};
use steward_core::disk::device::Device;
use steward_core::disk::elevator;
use steward_core::disk::guard::{self, Disks, Taken};
use steward_core::disk::plan::{Decision, Plan, Seen};
use steward_core::disk::priority::Priority;
use steward_core::domain::name::is_at_or_below;
use steward_core::process::TaskId;
use steward_core::resource::Resource;
use steward_kernel::Roots;
use steward_kernel::cgroup::place;
use steward_kernel::disk::calibrations::Calibrations;
use steward_kernel::disk::usage::{self, DiskUsage};
use steward_kernel::disk::{devices, elevators};
use steward_kernel::memory::slow;
use steward_kernel::process;

use super::again::Again;
use super::counting::{Counting, Totals};
use super::knobs::{Knobs, Wanted};
use super::known::Known;
use super::outcome::Outcome;
use super::places::{OfFirst, Places};
use super::spent::Spent;
use super::writeback::Writeback;
use crate::domains::cgroups::Cgroups;
use crate::turn::outstanding::Outstanding;
use crate::turn::part::Part;
use crate::turn::worker::{About, Job, Progress};

/// How often it is looked who is to have a priority, in nanoseconds.
const LOOK_EVERY_NS: u64 = 1_000_000_000;
/// How long after the last look at the soonest, in nanoseconds, when somebody's reservation has changed: a shell script
/// changes hundreds a second, and each look reads all of them.
const LOOK_SOON_NS: u64 = 100_000_000;
/// For how long after the last one whom weights alone could not bring first all stand in one line, in nanoseconds.
const BY_CLASS_FOR_NS: u64 = 30_000_000_000;
/// For how long after a domain was served first last it is looked who was born there with its priority, in nanoseconds:
/// since the look before, and until the worker had taken it from the parents.
const BORN_WITHIN_NS: u64 = 2_000_000_000;
/// How many threads are looked at one by one at a look that were told to have taken over a priority.
const HEIRS_MAX: usize = 1000;
/// How often all tasks are looked at for a priority that they are not to have, at most, in nanoseconds: whoever starts
/// programs without end has announcements be lost all the time.
const ANY_HEIRS_EVERY_NS: u64 = 5_000_000_000;
/// How often they are looked at all the same while anybody is served first, in nanoseconds: whoever leaves a domain
/// between two looks (`systemd-run`) is told by nobody, nor who shares the priority of the one that began them
/// (`CLONE_IO`), which is given to both.
const STRAYS_EVERY_NS: u64 = 60_000_000_000;
/// How often it is looked whether the disks are there that the configuration names, in nanoseconds.
const WITHOUT_DEVICE_EVERY_NS: u64 = 30_000_000_000;
/// How often it is looked where what is swapped out goes, in nanoseconds.
const SWAP_EVERY_NS: u64 = 10_000_000_000;

/// The disk's part of the daemon.
#[derive(Debug)]
pub(crate) struct Disk {
    pub(super) knobs: Arc<dyn Knobs>,
    /// What disks do for whom.
    pub(crate) counting: Counting,
    /// What was counted of it, by path.
    pub(crate) totals: BTreeMap<Arc<str>, Totals>,
    /// What the worker was given last, without whose priority was to be taken back.
    wanted: Wanted,
    /// The same with those, until the worker comes to it.
    waiting: Arc<Outstanding<Option<Wanted>>>,
    /// When it was looked last, and when it is looked again.
    looked_at_ns: u64,
    look_at_ns: u64,
    /// When it is looked whether the disks are there that the configuration names.
    without_device_at_ns: u64,
    /// The tasks of domains that are served first, as it was seen last.
    pub(super) first: BTreeMap<TaskId, Priority>,
    /// When domains with processes were served first last, by path: those that are, and those that were lately.
    first_at_ns: BTreeMap<String, u64>,
    /// The cgroups that hand the disk out because of Steward, by path, with their ids.
    pub(super) handed_out: BTreeMap<String, u64>,
    /// Since when nobody is there for whom they do.
    pub(super) handed_out_for_nobody_since_ns: Option<u64>,
    /// Until when the kernel is to bring to disks often what was changed.
    pub(super) writeback: Writeback,
    /// What runs in the background without a reservation, as specifications say.
    pub(super) background: BTreeMap<TaskId, Priority>,
    pub(super) plan: Plan,
    /// When it was looked where what is swapped out goes, and what was found then.
    swap_disks: Option<(u64, BTreeSet<String>)>,
    /// Who had lost their place at the last look, and for what they took of which disk.
    set_back: BTreeMap<TaskId, String>,
    /// Their processes.
    set_back_processes: BTreeSet<i32>,
    /// The places in which all had.
    set_back_places: BTreeMap<String, String>,
    /// Where those are who are served first.
    places: Places,
    /// The threads that were told since the last look to have taken over a priority.
    heirs: BTreeSet<i32>,
    /// Whether it was lost who has, and when all tasks may be looked at for it.
    any_heirs: bool,
    any_heirs_at_ns: u64,
    /// When anybody was seen last whom weights alone cannot bring before all others.
    by_class_at_ns: Option<u64>,
    /// What disks had done at the last look, and when.
    done: (u64, BTreeMap<String, DiskUsage>),
    /// What specifications say, by the number that tasks know them by.
    pub(super) classes: BTreeMap<u32, Option<(Class, Option<u8>)>>,
    /// What is known of disks, and what of it was lost.
    pub(super) known: Known,
    pub(super) lost_calibrations: Option<String>,
    /// Whether this kernel was found to have no elevator of the first choice.
    lacks_by_class: OnceCell<bool>,
    /// Calibrated disks that are left to somebody else, each in a sentence.
    pub(super) left: Vec<String>,
    /// What the configuration says of disks that are not there, each in a sentence.
    pub(super) without_device: Vec<String>,
    /// See [`Wanted::lost`].
    pub(super) lost: u64,
    /// When what failed is tried again.
    again: Again,
    /// What the daemon's loop has spent on looking, and the worker on changing what was wanted.
    pub(super) spent_on_looks: Spent,
    spent_on_changes: Spent,
}

impl Disk {
    pub(crate) fn new(knobs: Arc<dyn Knobs>) -> Self {
        Disk {
            knobs,
            counting: Counting::default(),
            totals: BTreeMap::new(),
            wanted: Wanted::default(),
            waiting: Arc::default(),
            looked_at_ns: 0,
            look_at_ns: 0,
            without_device_at_ns: 0,
            first: BTreeMap::new(),
            first_at_ns: BTreeMap::new(),
            handed_out: BTreeMap::new(),
            handed_out_for_nobody_since_ns: None,
            writeback: Writeback::default(),
            background: BTreeMap::new(),
            plan: Plan::default(),
            swap_disks: None,
            set_back: BTreeMap::new(),
            set_back_processes: BTreeSet::new(),
            set_back_places: BTreeMap::new(),
            places: Places::default(),
            heirs: BTreeSet::new(),
            any_heirs: false,
            any_heirs_at_ns: 0,
            by_class_at_ns: None,
            done: (0, BTreeMap::new()),
            classes: BTreeMap::new(),
            known: Known::default(),
            lost_calibrations: None,
            lacks_by_class: OnceCell::new(),
            left: Vec::new(),
            without_device: Vec::new(),
            lost: 0,
            again: Again::default(),
            spent_on_looks: Spent::default(),
            spent_on_changes: Spent::default(),
        }
    }

    /// Disks may have been calibrated since; `kept` is what the state directory has of them, with what of it was lost,
    /// and `config` what is to be done with them.
    pub(crate) fn set_known(&mut self, (calibrations, lost): (Calibrations, Option<String>), config: Config) {
        self.lost_calibrations = lost;
        self.known = Known { calibrations, config };
        self.swap_disks = None;
        self.look_soon();
    }

    /// What is known of disks.
    pub(crate) fn known(&self) -> &Known {
        &self.known
    }

    /// The machine's disks, with what is known of them.
    pub(crate) fn devices(&self, roots: &Roots) -> Vec<Device> {
        let mut devices = self.known.devices(roots).unwrap_or_default();
        let lacks = *self.lacks_by_class.get_or_init(|| {
            let listed = devices.iter().flat_map(|device| &device.elevators).map(String::as_str);
            elevators::can_be_had(elevator::BY_CLASS, listed, roots) == Some(false)
        });
        // What Steward has set by an earlier calibration is nobody else's.
        for device in devices.iter_mut() {
            device.lacks_by_class = lacks && !device.elevators.iter().any(|name| name == elevator::BY_CLASS);
            let earlier = self.charged_by(&device.number).filter(|model| device.model != Some(*model));
            if let (Some(lines), Some(model)) = (&mut device.cost, earlier)
                && lines.standing(Some(&model)) == Standing::Stewards
            {
                *lines = Lines::default();
            }
        }
        devices
    }

    /// Of what the configuration says of single disks, what is about none that is there, each in a sentence.
    pub(super) fn find_without_device(&self, roots: &Roots) -> Vec<String> {
        if self.known.config.devices.is_empty() {
            return Vec::new();
        }
        let devices = devices::list(roots).unwrap_or_default();
        let disks = devices.iter().map(|device| (device.name.as_str(), device.identity.as_str()));
        self.known.config.without_device(disks).iter().map(|name| config::no_such_device(name)).collect()
    }

    /// By what Steward wants requests of the device of this number charged.
    fn charged_by(&self, device_number: &str) -> Option<Model> {
        self.wanted.charged.get(device_number).map(|charged| charged.model)
    }

    /// Whether it is time to look who is to have a priority.
    pub(crate) fn is_due(&mut self, now_ns: u64) -> bool {
        let is_due = self.look_at_ns <= now_ns;
        if is_due {
            self.looked_at_ns = now_ns;
            self.look_at_ns = now_ns + LOOK_EVERY_NS;
        }
        is_due
    }

    /// These threads have taken over a priority. It is looked at them soon, and not at once: whoever starts programs
    /// without end has each of them be told.
    pub(super) fn note_heirs(&mut self, tids: Vec<i32>) {
        if !tids.is_empty() {
            self.look_soon();
        }
        self.heirs.extend(tids);
        if self.heirs.len() > HEIRS_MAX {
            self.heirs.clear();
            self.look_for_heirs();
        }
    }

    /// A process was moved, perhaps before anybody had seen it in a domain that is served first, where it was born.
    pub(crate) fn note_moved(&mut self) {
        self.look_soon();
        if !self.wanted.of_domains.is_empty() {
            self.look_for_heirs();
        }
    }

    /// Those of them that are still there.
    pub(super) fn take_heirs(&mut self, roots: &Roots) -> BTreeSet<TaskId> {
        let tids = std::mem::take(&mut self.heirs);
        tids.into_iter().filter_map(|tid| Some(process::stat(tid, roots).ok()?.id)).collect()
    }

    /// It was lost who has taken over a priority: anybody may have.
    pub(crate) fn look_for_heirs(&mut self) {
        self.any_heirs = true;
        self.look_soon();
    }

    /// Whether that is to be looked at now.
    pub(super) fn any_heirs_are_due(&mut self, now_ns: u64) -> bool {
        let may_stray = self.has_anybody_first();
        let are_due = self.any_heirs && self.any_heirs_at_ns <= now_ns
            || may_stray && self.any_heirs_at_ns + (STRAYS_EVERY_NS - ANY_HEIRS_EVERY_NS) <= now_ns;
        if are_due {
            (self.any_heirs, self.any_heirs_at_ns) = (false, now_ns + ANY_HEIRS_EVERY_NS);
        }
        are_due
    }

    /// Whether it is time to look for the disks that the configuration names.
    pub(super) fn without_device_is_due(&mut self, now_ns: u64) -> bool {
        let is_due = self.without_device_at_ns <= now_ns;
        if is_due {
            self.without_device_at_ns = now_ns + WITHOUT_DEVICE_EVERY_NS;
        }
        is_due
    }

    /// A program is in the background from now on, and is to have this priority; or it is not, or has ended.
    pub(crate) fn note_background(&mut self, process: TaskId, priority: Option<Priority>) {
        let before = match priority {
            Some(priority) => self.background.insert(process, priority),
            None => self.background.remove(&process),
        };
        if before != priority {
            self.look_soon();
        }
    }

    /// The disks that rotate to which what is swapped out goes. Where that cannot be read, none.
    pub(super) fn swap_disks(&mut self, now_ns: u64, roots: &Roots) -> BTreeSet<String> {
        let last = self.swap_disks.take().filter(|(at_ns, _)| now_ns.saturating_sub(*at_ns) < SWAP_EVERY_NS);
        let find = || self.known.devices(roots).and_then(|devices| slow::swap_disks(&devices, roots));
        let found = last.unwrap_or_else(|| (now_ns, find().unwrap_or_default()));
        self.swap_disks.insert(found).1.clone()
    }

    /// Specifications may say something else by now.
    pub(crate) fn forget_specs(&mut self) {
        self.classes.clear();
        self.without_device_at_ns = 0;
        self.look_soon();
    }

    /// Decides what is to be done about what was seen; `of_first` is what domains say of who is served first, and
    /// `devices` are the machine's disks where they have been looked at already.
    pub(super) fn decide(
        &mut self,
        now_ns: u64,
        mut seen: Seen,
        of_first: OfFirst,
        devices: Option<&[Device]>,
        roots: &Roots,
    ) -> Decision {
        let first = seen.first_processes();
        let cgroup_of = |pid| Some(place::path_of(pid, roots).ok()?.trim_start_matches('/').to_owned());
        self.places.note(now_ns, &first, of_first, cgroup_of);
        seen.places = self.places.of(&first);
        if seen.by_weight {
            seen.weighed_places = self.places.domains();
        }
        let taken: Option<(Disks, BTreeMap<i32, Taken>)> = self.plan.guard_is_due(now_ns).then(|| {
            let taken = first.iter().filter_map(|pid| Some((*pid, usage::of_process(*pid, roots)?)));
            let taken: BTreeMap<i32, Taken> = taken.collect();
            // Between two that live for a moment there may be nobody.
            if self.places.is_empty() {
                self.done = Default::default();
                return (Disks::default(), taken);
            }
            let mut known = seen.all_processes();
            known.retain(|pid| taken.contains_key(pid) || !first.contains(pid));
            (self.disks_since(now_ns, &known, devices, roots), taken)
        });
        let taken = taken.as_ref().map(|(disks, taken)| (disks, taken));
        self.first.clone_from(&seen.domains);
        let (processes, places) = (seen.processes.clone(), seen.places.clone());
        let decision = self.plan.decide(now_ns, seen, taken);
        let process = |task: &TaskId| processes.get(task).copied().unwrap_or(task.tid);
        let is_told = |task: &TaskId| {
            let place = places.get(&process(task));
            self.set_back.contains_key(task)
                || place.is_some_and(|place| decision.set_back_places.contains_key(place))
        };
        for (task, disk) in decision.set_back.iter().filter(|(task, _)| !is_told(task)) {
            let tid = task.tid;
            tracing::info!(decision = "disk-set-back", tid, disk, "it takes most of a disk for itself");
        }
        let is_new = |(place, _): &(&String, &String)| !self.set_back_places.contains_key(*place);
        for (place, disk) in decision.set_back_places.iter().filter(is_new) {
            let cgroup = if place.is_empty() { "/" } else { place };
            tracing::info!(
                decision = "disk-set-back",
                cgroup,
                disk,
                "one after the other of what is started there takes most of a disk: all that is served first there loses its place"
            );
        }
        // What is born meanwhile has another priority, of which the scheduler tells less.
        self.any_heirs |= !self.set_back.is_empty();
        self.set_back.clone_from(&decision.set_back);
        self.set_back_processes = decision.set_back.keys().map(process).collect();
        self.set_back_places.clone_from(&decision.set_back_places);
        decision
    }

    /// The processes that had lost their place at the last look.
    pub(super) fn set_back_processes(&self) -> &BTreeSet<i32> {
        &self.set_back_processes
    }

    /// Whether all that is served first in this place had lost theirs.
    pub(super) fn is_place_set_back(&self, place: &str) -> bool {
        self.set_back_places.contains_key(place)
    }

    /// Whether weights can say who is served first on each of these devices on which anything does, and who that is can
    /// be told when they wait.
    pub(super) fn knows_weights(&self, devices: &[Device]) -> bool {
        let Outcome { settled, is_untold, lacks_weights, .. } = self.knobs.outcome();
        !is_untold && !lacks_weights && elevator::weights_come_first(devices, &settled)
    }

    /// Notes that these domains with processes are served first at this look, by path, and returns those that were
    /// lately and are no longer.
    pub(super) fn note_first<'path>(
        &mut self,
        now_ns: u64,
        first: impl Iterator<Item = &'path String>,
    ) -> Vec<String> {
        self.first_at_ns.retain(|_, at_ns| now_ns < at_ns.saturating_add(BORN_WITHIN_NS));
        self.first_at_ns.extend(first.map(|path| (path.clone(), now_ns)));
        let lately = self.first_at_ns.iter().filter(|(_, at_ns)| **at_ns < now_ns);
        lately.map(|(path, _)| path.clone()).collect()
    }

    /// Whether weights alone are to bring domains before all others; `may` says whether they can at this look. Where
    /// they could not lately they do not yet: all would go from one way to the other with each editor that is opened.
    pub(super) fn by_weight_alone(&mut self, now_ns: u64, may: bool) -> bool {
        if !may {
            self.by_class_at_ns = Some(now_ns);
        }
        self.by_class_at_ns.is_none_or(|at_ns| now_ns >= at_ns + BY_CLASS_FOR_NS)
    }

    /// What disks have done since the last look, also for those who are not among `known`: who are there.
    fn disks_since(
        &mut self,
        now_ns: u64,
        known: &BTreeSet<i32>,
        devices: Option<&[Device]>,
        roots: &Roots,
    ) -> Disks {
        let listed = || Cow::Owned(devices::list(roots).unwrap_or_default());
        let devices = devices.map_or_else(listed, Cow::Borrowed);
        let own: Vec<&Device> = devices.iter().filter(|device| device.is_own()).collect();
        let done = usage::of_disks(own.iter().map(|device| device.name.as_str()), roots);
        let passed_ns = now_ns.saturating_sub(self.done.0).max(1);
        let had = self.counting.take_had();
        let ended = |pid, cgroup_id| {
            let place = self.places.of_ended(pid, cgroup_id);
            place.filter(|_| !known.contains(&pid) && !self.set_back_processes.contains(&pid))
        };
        let disk = |device: &Device| {
            let now = done.get(&device.name)?;
            let before = self.done.1.get(&device.name).unwrap_or(now);
            let since = now.since(before);
            let disk = guard::Disk {
                busy: (since.busy_ns as f64 / passed_ns as f64).min(1.0),
                bytes: since.bytes,
                requests: since.requests,
                serves_first: elevator::serves_first(device),
                had: had.as_ref().and_then(|had| had.of_disk(&device.number)),
                ended: had.as_ref().map(|had| had.of_ended(&device.number, ended)).unwrap_or_default(),
            };
            Some((device.name.clone(), disk))
        };
        let disks = own.into_iter().filter_map(disk).collect();
        self.done = (now_ns, done);
        disks
    }

    /// The CPU time that the daemon has spent on disks, in nanoseconds, by what for.
    pub(crate) fn spent_ns(&self) -> [(&'static str, u64); 4] {
        [
            ("looks", self.spent_on_looks.ns()),
            ("changes", self.spent_on_changes.ns()),
            ("counting", self.counting.spent.ns()),
            ("moments", self.knobs.spent_on_moments_ns()),
        ]
    }

    /// Whether anybody has something of the disk now.
    pub(super) fn is_in_use(&self) -> bool {
        let has_weights = !self.has_no_parts() || !self.handed_out.is_empty();
        !self.wanted.priorities.is_empty() || self.wanted.ordered || has_weights
    }

    /// Has it be looked soon.
    pub(crate) fn look_soon(&mut self) {
        self.look_at_ns = self.look_at_ns.min(self.looked_at_ns + LOOK_SOON_NS);
    }

    /// Whether nobody was to have a weight or a limit of Steward's at the last look.
    pub(super) fn has_no_parts(&self) -> bool {
        self.wanted.weights.is_empty() && self.wanted.limits.is_empty()
    }

    /// Whether anybody's requests were to be served first at the last look.
    pub(super) fn has_anybody_first(&self) -> bool {
        !self.first.is_empty() || self.wanted.priorities.values().any(is_by_class)
    }

    /// A cgroup hands the disk out from now on. Where somebody below it was to have something already, somebody else
    /// had it cease to: systemd does, where none of its units asks for the disk.
    pub(super) fn note_handed_out(&mut self, path: &str) {
        let had = self.wanted.weights.keys().chain(self.wanted.limits.keys().map(|(path, _)| path));
        if had.into_iter().any(|had| had != path && is_at_or_below(had, path)) {
            self.lost += 1;
            tracing::info!(
                decision = "disk-handed-out-again",
                cgroup = path,
                "somebody had it hand the disk out no longer (systemd does): domains have theirs again"
            );
        }
    }

    /// The weight that Steward wants a cgroup to have.
    pub(super) fn weight_of(&self, path: &str) -> Option<u16> {
        self.wanted.weights.get(path).map(|(_, weight)| *weight)
    }

    /// Has this be in force: a job for the worker, or none where nothing has changed and nothing is to be tried again.
    /// There is none either where the one before has not begun: it does this then.
    pub(crate) fn want(&mut self, now_ns: u64, wanted: Wanted) -> Option<Job> {
        // Nothing else is done by it.
        let is_needed = wanted.ordered || !wanted.written_freely.is_empty();
        let known = if is_needed { self.known.clone() } else { Known::default() };
        if wanted.disks != self.wanted.disks {
            self.again.start_over();
        }
        self.again.is_due(now_ns, self.knobs.outcome().may_succeed_later);
        let wanted = Wanted { known, again: self.again.number(), ..wanted };
        if wanted == self.wanted {
            return None;
        }
        // Who shares theirs has it still.
        let still = |task: &TaskId| wanted.priorities.get(task).is_some_and(is_by_class);
        if self.wanted.priorities.iter().any(|(task, priority)| is_by_class(priority) && !still(task)) {
            self.look_for_heirs();
        }
        let waits = self.waiting.change(|waiting| {
            let before = waiting.take();
            let waits = before.is_some();
            // Whose priority was to be taken back before that is done still has it.
            let Wanted { mut heirs, any_heirs, mut left, .. } = before.unwrap_or_default();
            heirs.extend(&wanted.heirs);
            left.extend(&wanted.left);
            let any_heirs = any_heirs || wanted.any_heirs;
            *waiting = Some(Wanted { heirs, any_heirs, left, ..wanted.clone() });
            waits
        });
        self.wanted = Wanted { heirs: BTreeSet::new(), any_heirs: false, left: BTreeMap::new(), ..wanted };
        if waits {
            // The job that waits already does what is wanted by then.
            return None;
        }
        let (knobs, waiting, spent) =
            (Arc::clone(&self.knobs), Arc::clone(&self.waiting), self.spent_on_changes.clone());
        let apply = move |newest: Option<Wanted>| {
            let applied = newest.map_or(Ok(()), |wanted| spent.on(|| knobs.apply(&wanted)));
            applied.map(|()| Progress::Done).map_err(|faults| faults.join("; "))
        };
        let work = move || waiting.take_on(Option::take, apply);
        Some(Job { about: About::Disk, work: Box::new(work) })
    }

    /// Puts everything back, at once; `cgroups` is the tree that domains are in, where there is one. What the worker
    /// has begun is waited for, and what it has not it finds done: it changes nothing after this.
    pub(crate) fn stop(&mut self, cgroups: Option<&dyn Cgroups>) {
        let first = std::mem::take(&mut self.first);
        let nothing = Wanted { lost: self.lost, again: self.again.number(), ..Wanted::default() };
        self.waiting.take_on(Option::take, |waiting| {
            let Wanted { heirs, mut left, .. } = waiting.unwrap_or_default();
            left.extend(first);
            // What cannot be put back stays in the journal, for the next daemon or `steward revert`.
            let handed_out = self.handed_out.clone();
            // Nobody tells any more who is born with one.
            let last = Wanted { heirs, any_heirs: true, left, handed_out, ..nothing.clone() };
            let _ = self.knobs.apply(&last);
        });
        self.wanted = nothing;
        if let Some(cgroups) = cgroups.filter(|_| !self.handed_out.is_empty()) {
            self.hand_out_no_longer(cgroups);
            // Where it stays, that is for somebody else.
            let _ = self.knobs.apply(&self.wanted);
        }
    }

    /// Whether nobody was there for so long for whom Steward has cgroups hand the disk out.
    pub(super) fn is_handed_out_for_nobody(&mut self, now_ns: u64, for_ns: u64) -> bool {
        let since_ns = *self.handed_out_for_nobody_since_ns.get_or_insert(now_ns);
        !self.handed_out.is_empty() && now_ns >= since_ns.saturating_add(for_ns)
    }

    /// Hands the disk out no longer where Steward has begun to.
    pub(super) fn hand_out_no_longer(&mut self, cgroups: &dyn Cgroups) {
        for (path, id) in std::mem::take(&mut self.handed_out).into_iter().rev() {
            // What somebody has set below it since would be gone with it; what Steward has, the worker may be about to
            // put back.
            let children = cgroups.children(&path).unwrap_or_default();
            if children.iter().any(|child| cgroups.has_disk_settings(&child.path)) {
                self.handed_out.insert(path, id);
                continue;
            }
            // Where it is gone, or one below it hands the disk out, it stays.
            let _ = cgroups.hand_out(&path, Resource::Disk, false);
        }
    }
}

/// Whether who has this priority is served first.
fn is_by_class(priority: &Priority) -> bool {
    matches!(priority, Priority::RealTime(_))
}

impl Part for Disk {
    fn poll_timeout(&self, now_ns: u64) -> Option<u64> {
        let soon = self.look_at_ns < self.looked_at_ns + LOOK_EVERY_NS;
        let looks = (soon || self.is_in_use()).then_some(self.look_at_ns);
        let heirs = self.any_heirs.then_some(self.any_heirs_at_ns.max(self.look_at_ns));
        let others =
            self.counting.poll_timeout(now_ns).into_iter().chain(self.writeback.poll_timeout(now_ns));
        looks.into_iter().chain(heirs).chain(others).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::disk::FakeDisk;

    fn heir(tid: i32) -> TaskId {
        TaskId { tid, started_ticks: 1 }
    }

    #[test]
    fn whose_priority_is_to_be_taken_back_is_not_forgotten_when_more_is_wanted_before_that_is_done() {
        let fake = FakeDisk::default();
        let mut disk = Disk::new(Arc::new(fake.clone()));
        let first = disk.want(0, Wanted { heirs: BTreeSet::from([heir(1)]), ..Wanted::default() });
        let more = Wanted { ordered: true, heirs: BTreeSet::from([heir(2)]), ..Wanted::default() };
        assert!(disk.want(0, more).is_none(), "the first one, which has not begun, does it");
        assert_eq!((first.expect("there is something to do").work)(), Ok(Progress::Done));
        assert_eq!((fake.applied().len(), fake.wanted().ordered), (1, true));
        assert_eq!(fake.wanted().heirs, BTreeSet::from([heir(1), heir(2)]));
        // And each is taken back once.
        let third = disk.want(0, Wanted::default()).expect("nothing is to be ordered any more");
        assert_eq!((third.work)(), Ok(Progress::Done));
        assert_eq!(fake.applied().last().map(|wanted| wanted.heirs.len()), Some(0));
    }

    #[test]
    fn what_the_worker_comes_to_when_all_has_been_put_back_is_not_done_any_more() {
        let fake = FakeDisk::default();
        let mut disk = Disk::new(Arc::new(fake.clone()));
        let late = Wanted { ordered: true, heirs: BTreeSet::from([heir(1)]), ..Wanted::default() };
        let late = disk.want(0, late).expect("there is something to do");
        disk.first = BTreeMap::from([(heir(2), Priority::RealTime(2))]);
        disk.stop(None);
        assert_eq!((late.work)(), Ok(Progress::Done));
        let left = BTreeMap::from([(heir(2), Priority::RealTime(2))]);
        let heirs = BTreeSet::from([heir(1)]);
        assert_eq!(fake.applied(), [Wanted { heirs, any_heirs: true, left, ..Wanted::default() }]);
    }

    #[test]
    fn all_tasks_are_looked_at_when_it_was_lost_who_was_born_with_a_priority_and_each_five_seconds_at_most() {
        const S: u64 = 1_000_000_000;
        let mut disk = Disk::new(Arc::new(FakeDisk::default()));
        disk.note_heirs((1..=HEIRS_MAX as i32).collect());
        assert!(!disk.any_heirs_are_due(0));
        disk.note_heirs((1..=HEIRS_MAX as i32 + 1).collect());
        assert!(disk.any_heirs_are_due(0) && disk.heirs.is_empty());
        let mut disk = Disk::new(Arc::new(FakeDisk::default()));
        let looks: Vec<u64> = (0..20)
            .filter(|second| {
                if (3..12).contains(second) {
                    disk.look_for_heirs();
                    let at_ns = disk.poll_timeout(second * S).expect("it is to be looked");
                    assert!(at_ns <= (second + 5) * S);
                }
                disk.any_heirs_are_due(second * S)
            })
            .collect();
        assert_eq!(looks, [3, 8, 13]);
        // What is wanted then is wanted once.
        let job =
            disk.want(0, Wanted { any_heirs: true, ..Wanted::default() }).expect("there is something to do");
        assert!(disk.want(0, Wanted::default()).is_none(), "all are looked at, and no more is to be done");
        assert_eq!((job.work)(), Ok(Progress::Done));
    }

    #[test]
    fn while_anybody_is_served_first_all_are_looked_at_each_minute_and_when_somebody_was_moved_or_is_so_no_longer()
     {
        const S: u64 = 1_000_000_000;
        let mut disk = Disk::new(Arc::new(FakeDisk::default()));
        let looks = |disk: &mut Disk| -> Vec<u64> {
            (0..130).filter(|second| disk.any_heirs_are_due(second * S)).collect()
        };
        disk.note_moved();
        assert!(looks(&mut disk).is_empty());
        let task = TaskId { tid: 1, started_ticks: 1 };
        let priorities = BTreeMap::from([(task, Priority::RealTime(4))]);
        let of_domains = BTreeSet::from([task]);
        let _job = disk.want(0, Wanted { of_domains, priorities: priorities.clone(), ..Wanted::default() });
        assert_eq!(looks(&mut disk), [55, 115]);
        disk.any_heirs_at_ns = 0;
        disk.note_moved();
        assert_eq!(looks(&mut disk)[..2], [0, 60]);
        disk.note_moved();
        assert!(disk.any_heirs_are_due(130 * S));
        // The same for who has its place by a specification. Whoever shares it keeps it when that one ends.
        let _job = disk.want(0, Wanted { priorities, ..Wanted::default() });
        disk.any_heirs_at_ns = 0;
        assert_eq!(looks(&mut disk), [55, 115]);
        let _job = disk.want(0, Wanted::default());
        assert!(disk.any_heirs_are_due(130 * S) && !disk.any_heirs_are_due(1000 * S));
    }

    #[test]
    fn what_may_succeed_later_is_tried_again_more_and_more_seldom_until_it_does() {
        const S: u64 = 1_000_000_000;
        let fake = FakeDisk::default();
        let mut disk = Disk::new(Arc::new(fake.clone()));
        let wanted = |number| Wanted {
            ordered: true,
            disks: BTreeMap::from([(("sda".to_owned(), number), vec!["bfq".to_owned()])]),
            ..Wanted::default()
        };
        let mut look = |second: u64, number| match disk.want(second * S, wanted(number)) {
            None => false,
            Some(job) => {
                let _ = (job.work)();
                true
            }
        };
        fake.fail(&["it is only just coming"]);
        let tried: Vec<u64> = (0..20).filter(|second| look(*second, 1)).collect();
        assert_eq!(tried, [0, 1, 3, 7, 15]);
        // Another one comes.
        let tried: Vec<u64> = (20..30).filter(|second| look(*second, 2)).collect();
        assert_eq!(tried, [20, 22, 26]);
        fake.fail(&[]);
        let tried: Vec<u64> = (30..100).filter(|second| look(*second, 2)).collect();
        assert_eq!(tried, [34]);
    }

    #[test]
    fn weights_alone_say_who_is_first_again_half_a_minute_after_the_last_one_whom_they_cannot_bring_first() {
        const S: u64 = 1_000_000_000;
        let mut disk = Disk::new(Arc::new(FakeDisk::default()));
        assert!(disk.by_weight_alone(S, true), "from the beginning");
        assert!(!disk.by_weight_alone(2 * S, false));
        let again: Vec<u64> = (3..40).filter(|second| disk.by_weight_alone(second * S, true)).collect();
        assert_eq!(again.first(), Some(&32));
    }

    #[test]
    fn of_domains_that_are_first_no_longer_it_is_known_for_two_seconds_that_they_were() {
        const S: u64 = 1_000_000_000;
        let mut disk = Disk::new(Arc::new(FakeDisk::default()));
        let (one, other) = ("steward.a".to_owned(), "steward.b".to_owned());
        assert!(disk.note_first(S, [&one, &other].into_iter()).is_empty());
        let after = |disk: &mut Disk, ns| disk.note_first(S + ns, std::iter::once(&one));
        assert_eq!(after(&mut disk, S), std::slice::from_ref(&other));
        assert_eq!(after(&mut disk, 2 * S - 1), [other]);
        assert!(after(&mut disk, 2 * S).is_empty());
    }

    #[test]
    fn the_disk_is_handed_out_for_nobody_once_nobody_was_there_for_so_long() {
        let mut disk = Disk::new(Arc::new(FakeDisk::default()));
        assert!(!disk.is_handed_out_for_nobody(0, 0), "it is not handed out");
        disk.handed_out.insert(String::new(), 1);
        disk.handed_out_for_nobody_since_ns = None;
        let is = [(5, 0), (5, 10), (14, 10), (15, 10)].map(|(at, ns)| disk.is_handed_out_for_nobody(at, ns));
        assert_eq!(is, [true, false, false, true]);
    }

    #[test]
    fn each_disk_is_told_by_itself_and_whether_anybody_is_served_first_there() {
        let directory = tempfile::tempdir().expect("a directory");
        let roots = Roots::under(directory.path());
        let write = |path: &str, text: &str| {
            let path = roots.sys.join("block").join(path);
            std::fs::create_dir_all(path.parent().expect("it has one")).expect("a directory");
            std::fs::write(path, text).expect("a file");
        };
        for (name, number, elevator) in
            [("sda", "8:0", "none mq-deadline [bfq]"), ("nvme0n1", "259:0", "[none] mq-deadline")]
        {
            write(&format!("{name}/dev"), number);
            write(&format!("{name}/queue/scheduler"), elevator);
            write(&format!("{name}/mq/0/nr_tags"), "1");
        }
        let done = |sda: (u64, u64), fast: (u64, u64)| {
            for (name, (sectors, busy_ms)) in [("sda", sda), ("nvme0n1", fast)] {
                write(&format!("{name}/stat"), &format!("{sectors} 0 {sectors} 0 0 0 0 0 0 {busy_ms} 0"));
            }
        };
        let mut disk = Disk::new(Arc::new(FakeDisk::default()));
        done((0, 0), (0, 0));
        disk.disks_since(0, &BTreeSet::new(), None, &roots);
        done((100, 500), (4000, 1000));
        let disks = disk.disks_since(1_000_000_000, &BTreeSet::new(), None, &roots);
        let of = |bytes, requests, busy, serves_first| guard::Disk {
            busy,
            bytes,
            requests,
            serves_first,
            ..guard::Disk::default()
        };
        assert_eq!(disks["sda"], of(51_200, 100, 0.5, true));
        assert_eq!(disks["nvme0n1"], of(2_048_000, 4000, 1.0, false));
    }
}
