//! The scheduler as a [`Mechanism`].

use std::collections::HashSet;
use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use libbpf_rs::{MapCore, MapFlags, ProgramInput, RingBuffer, RingBufferBuilder};
use steward_core::cpu::best_effort::BestEffortSettings;
use steward_core::cpu::event::{Event, EventKind, Reason, Rule};
use steward_core::cpu::mechanism::{
    Bumper, CpuRecord, DomainRecord, Mechanism, MechanismError, MechanismKind, Snapshot, Standing, TaskRecord,
};
use steward_core::cpu::policy::DomainPolicy;
use steward_core::cpu::reservation::{Grant, IrrevocableFor, Reservation};
use steward_core::cpu::thresholds::Thresholds;
use steward_core::process::FileIdentity;

use crate::bumper::KernelBumper;
use crate::decide::{
    self, ADMISSION_ANYBODY, Domain, DomainTable, Order, QUOTA_NONE, SHARE_ONE, WEIGHT_SCALE,
};
use crate::error::{LoadError, to_io};
use crate::load::{self, BOUNDARY_UNWATCHED, BOUNDARY_WATCHED, Loaded, as_bytes, map_array, text_of};
use crate::skeleton::types;
use crate::{EXECUTABLES_MAX, TASKS_MAX};

const INHERIT: u32 = 1;
const REVOCABLE: u32 = 2;
const KEEP_OVER_EXEC: u32 = 4;
/// How often a request is repeated that met the task in the middle of an exec.
const ATTEMPTS: u32 = 100;
/// How long nobody may be held before the kernel is no longer asked where tasks are preempted.
const UNHELD_FOR: Duration = Duration::from_secs(10);

/// The table of domains is one type to the program and one here.
const _: () = assert!(size_of::<types::domain_table>() == size_of::<DomainTable>());

/// How to load the scheduler.
#[derive(Clone, Copy, Debug, Default)]
pub struct LoadOptions {
    /// The limits for admission, revocation and reactivation.
    pub thresholds: Thresholds,
    /// The order among domains.
    pub best_effort: BestEffortSettings,
}

/// Steward's scheduler, loaded and in force.
pub struct SchedExt {
    loaded: Loaded,
    slots: *const types::task_slot,
    domains: *const DomainTable,
    /// What was copied of it last.
    table: Box<DomainTable>,
    ring: RingBuffer<'static>,
    pending: Arc<Mutex<Vec<Event>>>,
    /// See [`Mechanism::take_heirs`].
    heirs: Arc<Mutex<Vec<i32>>>,
    lost_reported: u64,
    /// Since when nobody may be held, as far as was looked.
    unheld_since: Option<Instant>,
}

// SAFETY: the raw pointers are read-only mappings of kernel memory that live as long as the value.
unsafe impl Send for SchedExt {}

impl SchedExt {
    /// Loads the scheduler and puts it in force for every task of the machine.
    ///
    /// # Errors
    /// [`LoadError`], each with what to do. Nothing stays loaded then.
    pub fn load(options: &LoadOptions) -> Result<Self, LoadError> {
        let mut loaded = load::load()?;
        let failed = |action: &str, source| LoadError::Bpf { action: action.to_owned(), source };
        let slots = map_array(&loaded.skeleton.maps.slots, TASKS_MAX)
            .map_err(|source| failed("mapping the table of tasks", source))?;
        let domains = loaded
            .skeleton
            .maps
            .bss_domains_data
            .as_deref_mut()
            .map(|data| (&raw mut data.domain_table).cast::<DomainTable>().cast_const())
            .ok_or_else(|| failed("mapping the table of domains", io::ErrorKind::Unsupported.into()))?;
        load::only_read(domains).map_err(|source| failed("mapping the table of domains", source))?;
        let pending = Arc::new(Mutex::new(Vec::new()));
        let heirs = Arc::new(Mutex::new(Vec::new()));
        let (sink, heir_sink) = (Arc::clone(&pending), Arc::clone(&heirs));
        let mut builder = RingBufferBuilder::new();
        builder
            .add(&loaded.skeleton.maps.events, move |bytes| {
                if let (Some(event), Ok(mut pending)) = (decode_event(bytes), sink.lock()) {
                    pending.push(event);
                }
                if let (Some(tid), Ok(mut heirs)) = (decode_heir(bytes), heir_sink.lock()) {
                    heirs.push(tid);
                }
                0
            })
            .map_err(|error| failed("reading events", to_io(&error)))?;
        let ring = builder.build().map_err(|error| failed("reading events", to_io(&error)))?;
        let mut scheduler = SchedExt {
            loaded,
            slots,
            domains,
            table: DomainTable::new(),
            ring,
            pending,
            heirs,
            lost_reported: 0,
            unheld_since: None,
        };
        scheduler.write_thresholds(options.thresholds);
        scheduler
            .write_best_effort(options.best_effort)
            .map_err(|source| failed("choosing the order of best-effort work", source))?;
        Ok(scheduler)
    }

    /// Publishes how much memory a task that comes back may still bring in, in bytes (Yang 2009, section
    /// 8.1.2.3 b); `None`: not known, and then memory never keeps a task out.
    pub fn set_memory_free(&mut self, bytes: Option<u64>) {
        if let Some(data) = self.loaded.skeleton.maps.data_data.as_deref_mut() {
            data.settings.memory_free_bytes = bytes.unwrap_or(u64::MAX);
        }
    }

    /// Sees no execution at the moment that it happens any more, as if another task were always preempted while it is
    /// told of: a check of what is found later needs that, and nothing else should.
    #[doc(hidden)]
    pub fn miss_executions(&mut self) {
        self.loaded.exec = None;
    }

    fn write_thresholds(&mut self, thresholds: Thresholds) {
        if let Some(data) = self.loaded.skeleton.maps.data_data.as_deref_mut() {
            data.settings.thresholds = types::load_thresholds {
                reactivate_below: to_parts(thresholds.reactivate_below),
                admit_below: to_parts(thresholds.admit_below),
                revoke_above: to_parts(thresholds.revoke_above),
                irrevocable_max: to_parts(thresholds.irrevocable_max),
                user_max: to_parts(thresholds.user_max),
            };
        }
    }

    fn write_best_effort(&mut self, settings: BestEffortSettings) -> io::Result<()> {
        if let Some(data) = self.loaded.skeleton.maps.data_data.as_deref_mut() {
            data.settings.preemption_interval_ns = settings.preemption_interval_ns;
        }
        let request = types::order_request {
            order: Order::from(settings.order) as u32,
            service_cycle_ns: settings.service_cycle_ns,
            ..Default::default()
        };
        call(&self.loaded.skeleton.progs.steward_set_order, as_bytes(&request))
    }

    /// Whether the kernel is asked where tasks are preempted: while anybody may be held, and some seconds more.
    pub fn watches_boundary(&self) -> bool {
        self.loaded.schedule.is_some()
    }

    /// How many places of the table of domains are in use, and up to which of them any is: those are gone through at
    /// each refill of a quota.
    pub fn domain_places(&mut self) -> (usize, usize) {
        self.copy_table();
        let high_water = self.table.high_water as usize;
        ((1..high_water as u16).filter(|index| self.table.at(*index).in_use == 1).count(), high_water)
    }

    /// Up to which place of the table of tasks any is in use: those are gone through at each sample. A multiple of 64.
    pub fn task_places(&self) -> usize {
        // SAFETY: the kernel writes this memory; any value read is a value that it had.
        self.loaded.skeleton.maps.bss_data.as_deref().map_or(0, |bss| {
            decide::places_end(&unsafe { std::ptr::read_volatile(&raw const bss.slots_taken) }) as usize
        })
    }

    fn still_loaded(&self) -> Result<(), MechanismError> {
        match self.exit_reason() {
            Some(reason) => Err(MechanismError::Gone { reason }),
            None => Ok(()),
        }
    }

    /// Gives or takes, for a thread of this process, or whosever it is.
    fn assign_of(
        &mut self,
        pid: Option<i32>,
        tid: i32,
        grant: Option<Grant>,
    ) -> Result<Option<Standing>, MechanismError> {
        self.still_loaded()?;
        let mut request = types::assign_request {
            grant: grant.as_ref().map(encode_grant).unwrap_or_default(),
            tid,
            has_grant: u32::from(grant.is_some()),
            standing: 0,
            pid: pid.unwrap_or(0),
        };
        self.request(true, &mut request)?;
        Ok(decode_standing(request.standing))
    }

    /// Runs one of the program's requests; returns its answer.
    fn request(&self, assign: bool, request: &mut types::assign_request) -> Result<(), MechanismError> {
        let program = if assign {
            &self.loaded.skeleton.progs.steward_assign
        } else {
            &self.loaded.skeleton.progs.steward_allow
        };
        let tid = request.tid;
        let mut bytes = as_bytes(request).to_vec();
        for _ in 0..ATTEMPTS {
            let input = ProgramInput { context_in: Some(&mut bytes), ..Default::default() };
            let output = program.test_run(input).map_err(|error| MechanismError::Kernel {
                action: format!("giving task {tid} a reservation"),
                source: to_io(&error),
                advice: "stewardd must run as root".to_owned(),
            })?;
            match -(output.return_value as i32) {
                0 => {
                    // SAFETY: the buffer was made from this very type.
                    *request = unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) };
                    return Ok(());
                }
                libc::ESRCH => return Err(MechanismError::NoSuchTask { tid }),
                libc::ENOSPC => {
                    return Err(MechanismError::Full {
                        what: "the table of tasks with a specification",
                        capacity: TASKS_MAX,
                    });
                }
                libc::EAGAIN => std::thread::yield_now(),
                code => {
                    return Err(MechanismError::Kernel {
                        action: format!("giving task {tid} a reservation"),
                        source: io::Error::from_raw_os_error(code),
                        advice: "this is an error of the scheduler; please report it".to_owned(),
                    });
                }
            }
        }
        Err(MechanismError::Kernel {
            action: format!("giving task {tid} a reservation"),
            source: io::Error::from_raw_os_error(libc::EAGAIN),
            advice: "the task executes one program after another; try again".to_owned(),
        })
    }

    fn read_cpu(&self, cpu: usize) -> Option<CpuRecord> {
        let bytes = self
            .loaded
            .skeleton
            .maps
            .cpu_states
            .lookup(&(cpu as u32).to_ne_bytes(), MapFlags::ANY)
            .ok()??;
        if bytes.len() < size_of::<types::cpu_state>() {
            return None;
        }
        // SAFETY: the kernel gave as many bytes as the type has.
        let state: types::cpu_state = unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) };
        Some(CpuRecord {
            cpu: cpu as u32,
            online: state.online != 0,
            measured_load: from_parts(state.load.measured),
            projected_load: from_parts(state.load.projected),
            window: state.load.window.map(from_parts),
            reserved: from_parts(state.reserved),
            admitted: state.admitted,
        })
    }

    fn read_tasks(&self) -> Vec<TaskRecord> {
        (0..self.task_places().min(TASKS_MAX))
            // SAFETY: the mapping has TASKS_MAX entries.
            .map(|index| unsafe { std::ptr::read_volatile(self.slots.add(index)) })
            .filter_map(|slot| task_record(&slot))
            .collect()
    }
}

impl Mechanism for SchedExt {
    fn kind(&self) -> MechanismKind {
        MechanismKind::SchedExt
    }

    fn set_exec_table(&mut self, entries: &[(FileIdentity, Option<Grant>)]) -> Result<(), MechanismError> {
        if entries.len() > EXECUTABLES_MAX {
            return Err(MechanismError::Full { what: "the table of executables", capacity: EXECUTABLES_MAX });
        }
        self.still_loaded()?;
        let table = &self.loaded.skeleton.maps.executables;
        let failed = |error: libbpf_rs::Error| MechanismError::Kernel {
            action: "writing the table of executables".to_owned(),
            source: to_io(&error),
            advice: "stewardd must run as root".to_owned(),
        };
        let wanted: HashSet<Vec<u8>> = entries.iter().map(|(file, _)| executable_key(file)).collect();
        let stale: Vec<Vec<u8>> = table.keys().filter(|key| !wanted.contains(key)).collect();
        for key in stale {
            table.delete(&key).map_err(failed)?;
        }
        for (file, grant) in entries {
            // A budget of 0 tells the program: best-effort.
            let grant = grant.as_ref().map(encode_grant).unwrap_or_default();
            table.update(&executable_key(file), as_bytes(&grant), MapFlags::ANY).map_err(failed)?;
        }
        Ok(())
    }

    fn assign(&mut self, tid: i32, grant: Option<Grant>) -> Result<Option<Standing>, MechanismError> {
        self.assign_of(None, tid, grant)
    }

    fn assign_thread(
        &mut self,
        pid: i32,
        tid: i32,
        grant: Option<Grant>,
    ) -> Result<Option<Standing>, MechanismError> {
        match pid {
            // No process has that number: the program takes it for "whosever thread it is".
            0 => Err(MechanismError::NoSuchTask { tid }),
            pid => self.assign_of(Some(pid), tid, grant),
        }
    }

    fn allow_interactive_exec(&mut self, tid: i32) -> Result<(), MechanismError> {
        self.still_loaded()?;
        self.request(false, &mut types::assign_request { tid, ..Default::default() })
    }

    fn set_thresholds(&mut self, thresholds: Thresholds) -> Result<(), MechanismError> {
        self.still_loaded()?;
        self.write_thresholds(thresholds);
        Ok(())
    }

    fn set_owner(&mut self, uid: Option<u32>) -> Result<(), MechanismError> {
        self.still_loaded()?;
        if let Some(data) = self.loaded.skeleton.maps.data_data.as_deref_mut() {
            data.settings.owner = uid.unwrap_or(ADMISSION_ANYBODY);
        }
        Ok(())
    }

    fn set_domain(&mut self, cgroup_id: u64, policy: Option<DomainPolicy>) -> Result<(), MechanismError> {
        self.still_loaded()?;
        let request = types::domain_request { cgroup_id, policy: encode_policy(&policy.unwrap_or_default()) };
        call(&self.loaded.skeleton.progs.steward_set_domain, as_bytes(&request)).map_err(|source| {
            match source.raw_os_error() {
                Some(libc::ENOENT) => MechanismError::NoSuchDomain { cgroup_id },
                _ => MechanismError::Kernel {
                    action: format!("giving the domain with cgroup id {cgroup_id} a policy"),
                    source,
                    advice: "stewardd must run as root".to_owned(),
                },
            }
        })?;
        self.follow_holds();
        Ok(())
    }

    fn suspend_domain(&mut self, cgroup_id: u64, _path: &str, suspended: bool) -> Result<(), MechanismError> {
        self.still_loaded()?;
        let request = types::suspend_request { cgroup_id, suspended: suspended.into(), ..Default::default() };
        call(&self.loaded.skeleton.progs.steward_suspend_domain, as_bytes(&request)).map_err(|source| {
            match source.raw_os_error() {
                Some(libc::ENOENT) => MechanismError::NoSuchDomain { cgroup_id },
                _ => MechanismError::Kernel {
                    action: format!("suspending the domain with cgroup id {cgroup_id}"),
                    source,
                    advice: "stewardd must run as root".to_owned(),
                },
            }
        })?;
        self.follow_holds();
        Ok(())
    }

    fn bumper(&self) -> Option<Box<dyn Bumper>> {
        let bumper = KernelBumper::of(&self.loaded.skeleton.progs.steward_bump);
        bumper.ok().map(|bumper| Box::new(bumper) as Box<dyn Bumper>)
    }

    fn domains(&mut self) -> Result<Vec<DomainRecord>, MechanismError> {
        self.still_loaded()?;
        self.copy_table();
        let table = &self.table;
        let (at_ns, offset_ns) = self.clocks();
        let now_ns = at_ns.wrapping_add_signed(offset_ns.wrapping_neg());
        Ok((1..table.high_water as u16)
            .filter(|index| table.at(*index).in_use == 1 && table.at(*index).dying == 0)
            .map(|index| domain_record(table, index, now_ns))
            .collect())
    }

    fn set_best_effort(&mut self, settings: BestEffortSettings) -> Result<(), MechanismError> {
        self.still_loaded()?;
        self.write_best_effort(settings).map_err(|source| MechanismError::Kernel {
            action: format!("choosing {} as the order of best-effort work", settings.order),
            source,
            advice: "stewardd must run as root".to_owned(),
        })
    }

    fn snapshot(&mut self) -> Result<Snapshot, MechanismError> {
        self.still_loaded()?;
        let cpus = (0..self.loaded.cpus).filter_map(|cpu| self.read_cpu(cpu)).collect();
        let (at_ns, offset_ns) = self.clocks();
        let mut tasks = self.read_tasks();
        for task in &mut tasks {
            task.deadline_ns = task.deadline_ns.wrapping_add_signed(offset_ns);
        }
        Ok(Snapshot { at_ns, tasks, cpus })
    }

    fn cgroups_without_domain(&self) -> u64 {
        self.loaded.skeleton.maps.bss_data.as_deref().map_or(0, |bss| {
            // SAFETY: the kernel writes this memory; any value that the number had is one.
            unsafe { std::ptr::read_volatile(&raw const bss.totals.cgroups_without_domain) }
        })
    }

    fn reservations_in_force(&mut self) -> Result<Vec<(i32, f64)>, MechanismError> {
        self.still_loaded()?;
        Ok(self.read_tasks().iter().filter_map(TaskRecord::in_force).collect())
    }

    fn take_events(&mut self, sink: &mut dyn FnMut(Event)) -> u64 {
        // What is there is in memory that both see: no call asks whether there is anything.
        let _ = self.ring.consume();
        self.follow_holds();
        let taken = self.pending.lock().map(|mut pending| std::mem::take(&mut *pending)).unwrap_or_default();
        taken.into_iter().for_each(sink);
        let lost = self.loaded.skeleton.maps.bss_data.as_deref().map_or(0, |bss| {
            // SAFETY: as in read_tasks.
            unsafe { std::ptr::read_volatile(&raw const bss.totals.events_lost) }
        });
        let newly_lost = lost - self.lost_reported;
        self.lost_reported = lost;
        newly_lost
    }

    fn take_heirs(&mut self) -> Vec<i32> {
        self.heirs.lock().map(|mut heirs| std::mem::take(&mut *heirs)).unwrap_or_default()
    }

    fn event_descriptor(&self) -> Option<RawFd> {
        Some(self.ring.epoll_fd())
    }

    fn exit_reason(&self) -> Option<String> {
        load::exit_reason(&self.loaded.skeleton)
    }
}

impl SchedExt {
    /// Has the kernel say where tasks are preempted while a domain has a quota, a priority or is suspended, or somebody
    /// is held back for a moment: only then does anybody ask, and saying it costs each switch of each CPU. When the
    /// first such one comes, the program wakes whoever waits for events; until then a task that is held is let run on
    /// until it has left the kernel.
    fn follow_holds(&mut self) {
        if !self.loaded.tells_where {
            return;
        }
        if !self.may_be_held() {
            let since = *self.unheld_since.get_or_insert_with(Instant::now);
            if self.loaded.schedule.is_none() || since.elapsed() < UNHELD_FOR {
                return;
            }
            self.write_boundary(BOUNDARY_UNWATCHED);
            fence(Ordering::SeqCst);
            if !self.may_be_held() {
                self.loaded.schedule = None;
                return;
            }
            // It came just before that was written, so that nobody was woken for it.
            self.write_boundary(BOUNDARY_WATCHED);
        }
        self.unheld_since = None;
        if self.loaded.schedule.is_some() {
            return;
        }
        match self.loaded.skeleton.progs.steward_schedule.attach_trace() {
            Ok(link) => {
                self.loaded.schedule = Some(link);
                self.write_boundary(BOUNDARY_WATCHED);
            }
            Err(error) => tracing::warn!(%error, "watching where tasks are preempted failed; trying again"),
        }
    }

    /// Whether a domain has a quota, a priority or is suspended, or somebody is held back for a moment.
    fn may_be_held(&self) -> bool {
        // SAFETY: the mapping is as large as the type; the kernel writes it, and any value read is one that it had.
        let (quotas, priorities) = unsafe {
            let quotas = std::ptr::read_volatile(&raw const (*self.domains).quotas);
            (quotas, std::ptr::read_volatile(&raw const (*self.domains).priorities))
        };
        // SAFETY: as above.
        let end_ns = |bss: &types::bss| unsafe { std::ptr::read_volatile(&raw const bss.bumps_end_ns) };
        let bumps_end_ns = self.loaded.skeleton.maps.bss_data.as_deref().map_or(0, end_ns);
        quotas != 0 || priorities != 0 || bumps_end_ns != 0
    }

    fn write_boundary(&mut self, boundary: u32) {
        if let Some(data) = self.loaded.skeleton.maps.data_data.as_deref_mut() {
            data.settings.boundary = boundary;
        }
    }

    /// Copies what the kernel has of domains, as far as it is in use: all of it are megabytes, and forecasts read it
    /// ten times a second. The heaps are left out.
    fn copy_table(&mut self) {
        let copy = &mut *self.table;
        // SAFETY: the mapping is as large as the type, and any bytes are a value of it. The kernel writes it meanwhile:
        // what is read is a value that each member had at some moment.
        unsafe {
            let high_water = std::ptr::read_volatile(&raw const (*self.domains).high_water) as usize;
            let used = high_water.min(crate::DOMAINS_MAX);
            let head_bytes = std::mem::offset_of!(DomainTable, keys);
            let bytes = (&raw mut *copy).cast::<u8>();
            std::ptr::copy_nonoverlapping(self.domains.cast::<u8>(), bytes, head_bytes);
            let domains = (&raw const (*self.domains).domains).cast::<Domain>();
            std::ptr::copy_nonoverlapping(domains, copy.domains.as_mut_ptr(), used);
            copy.high_water = used as u32;
        }
    }

    /// Now on `CLOCK_MONOTONIC`, and what to add to the scheduler's clock to get there.
    fn clocks(&self) -> (u64, i64) {
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the call fills the structure; CLOCK_MONOTONIC always exists.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
        let at_ns = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
        let offset_ns = self.loaded.skeleton.maps.bss_data.as_deref().map_or(0, |bss| {
            // SAFETY: as in read_tasks.
            let totals = unsafe { std::ptr::read_volatile(&raw const bss.totals) };
            if totals.ktime_ns == 0 { 0 } else { totals.ktime_ns.wrapping_sub(totals.clock_ns) as i64 }
        });
        (at_ns, offset_ns)
    }
}

/// Runs one of the program's requests that has no answer but a number.
fn call(program: &libbpf_rs::ProgramMut<'_>, request: &[u8]) -> io::Result<()> {
    let mut bytes = request.to_vec();
    let input = ProgramInput { context_in: Some(&mut bytes), ..Default::default() };
    let output = program.test_run(input).map_err(|error| to_io(&error))?;
    match -(output.return_value as i32) {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

fn encode_policy(policy: &DomainPolicy) -> types::domain_policy {
    let scaled = |weight: Option<u32>| weight.unwrap_or(0).saturating_mul(WEIGHT_SCALE);
    types::domain_policy {
        weight: scaled(policy.weight),
        reserved: (policy.reserved.clamp(0.0, 1.0) * SHARE_ONE as f64).round() as u32,
        own_weight: scaled(policy.own_weight),
        priority: policy.priority,
        own_priority: policy.own_priority,
        ..Default::default()
    }
}

/// What the table says of a domain; `now_ns` is on the scheduler's clock.
pub fn domain_record(table: &DomainTable, index: u16, now_ns: u64) -> DomainRecord {
    let domain: &Domain = table.at(index);
    let (runnable_time_ns, runnable_squared_ns) = domain.runnable_until(now_ns);
    let parent_id = if domain.parent == 0 { 0 } else { table.at(domain.parent).cgroup_id };
    let own_weight = Some(domain.own_weight / WEIGHT_SCALE).filter(|weight| *weight > 0);
    let limit_cpus = match domain.quota_ns {
        QUOTA_NONE => f64::INFINITY,
        quota_ns => quota_ns as f64 / domain.quota_period_ns.max(1) as f64,
    };
    DomainRecord {
        cgroup_id: domain.cgroup_id,
        parent_id,
        policy: DomainPolicy {
            priority: domain.priority,
            weight: Some((domain.weight / WEIGHT_SCALE).max(1)),
            reserved: f64::from(domain.reserved) / SHARE_ONE as f64,
            own_priority: domain.own_priority,
            own_weight,
        },
        share: table.share(index) as f64 / SHARE_ONE as f64,
        best_effort_time_ns: domain.used_ns.saturating_sub(domain.reserved_used_ns),
        reserved_time_ns: domain.reserved_used_ns,
        waiting_time_ns: domain.waited_ns,
        runnable_time_ns,
        runnable_squared_ns,
        tasks: domain.tasks,
        runnable: domain.runnable,
        throttled: domain.throttled == 1,
        suspended: domain.suspended == 1,
        limit_cpus,
    }
}

fn to_parts(fraction: f64) -> u32 {
    (fraction * 1e6).round() as u32
}

fn from_parts(parts: u32) -> f64 {
    f64::from(parts) / 1e6
}

fn executable_key(file: &FileIdentity) -> Vec<u8> {
    as_bytes(&types::executable { device: file.device, inode: file.inode }).to_vec()
}

fn encode_grant(grant: &Grant) -> types::grant {
    let flag = |set: bool, bit: u32| if set { bit } else { 0 };
    types::grant {
        budget_ns: grant.reservation.budget_ns,
        period_ns: grant.reservation.period_ns,
        flags: flag(grant.inherit, INHERIT)
            | flag(grant.revocable, REVOCABLE)
            | flag(grant.keep_over_exec, KEEP_OVER_EXEC),
        spec_id: grant.spec_id,
        user: decide::named_by(grant.irrevocable_for),
        requests_at: grant.requests_at.unwrap_or(0),
        ..Default::default()
    }
}

fn decode_grant(grant: &types::grant) -> Grant {
    Grant {
        reservation: Reservation { budget_ns: grant.budget_ns, period_ns: grant.period_ns },
        inherit: grant.flags & INHERIT != 0,
        revocable: grant.flags & REVOCABLE != 0,
        keep_over_exec: grant.flags & KEEP_OVER_EXEC != 0,
        spec_id: grant.spec_id,
        requests_at: Some(grant.requests_at).filter(|address| *address != 0),
        irrevocable_for: match grant.user {
            ADMISSION_ANYBODY => IrrevocableFor::Anybody,
            0 => IrrevocableFor::Root,
            uid => IrrevocableFor::User(uid),
        },
    }
}

fn decode_standing(standing: u32) -> Option<Standing> {
    match standing {
        decide::STANDING_ADMITTED => Some(Standing::Admitted),
        decide::STANDING_REFUSED => Some(Standing::Refused),
        // While it is being changed it waits, too.
        decide::STANDING_REVOKED | decide::STANDING_CHANGING => Some(Standing::Revoked),
        _ => None,
    }
}

fn task_record(slot: &types::task_slot) -> Option<TaskRecord> {
    Some(TaskRecord {
        tid: slot.tid,
        pid: slot.pid,
        name: text_of(&slot.name),
        cpu: slot.cpu,
        standing: decode_standing(slot.standing)?,
        grant: decode_grant(&slot.grant),
        budget_left_ns: slot.edf.left_ns,
        deadline_ns: slot.edf.deadline_ns,
        periods: slot.edf.periods,
        periods_announced: slot.edf.renewed,
        deadlines_missed: slot.edf.missed,
        budgets_exhausted: slot.edf.exhausted,
        reserved_time_ns: slot.reserved_time_ns,
        best_effort_time_ns: slot.best_effort_time_ns,
        overrun_max_ns: slot.edf.overrun_max_ns,
        reason: decode_reason(&slot.reason),
    })
}

fn decode_reason(raw: &types::admission_reason) -> Option<Reason> {
    let parts = from_parts as fn(u32) -> f64;
    let (rule, unit): (Rule, fn(u32) -> f64) = match raw.rule {
        rule if rule == decide::Rule::Irrevocable as u32 => (Rule::Irrevocable, parts),
        rule if rule == decide::Rule::NotNamed as u32 => (Rule::NotNamed, parts),
        rule if rule == decide::Rule::Use as u32 => (Rule::Load, parts),
        rule if rule == decide::Rule::User as u32 => (Rule::User, parts),
        rule if rule == decide::Rule::Users as u32 => (Rule::Users, f64::from),
        rule if rule == decide::Rule::NoCpu as u32 => (Rule::NoCpu, f64::from),
        rule if rule == decide::Rule::Together as u32 => (Rule::Together, parts),
        rule if rule == decide::Rule::Part as u32 => (Rule::Part, parts),
        rule if rule == decide::Rule::Memory as u32 => (Rule::Memory, |mib| f64::from(mib) * 1_048_576.0),
        _ => return None,
    };
    Some(Reason { rule, uid: raw.uid, amount: unit(raw.amount), limit: unit(raw.limit) })
}

/// The thread of an event that is about somebody's priority for the disk.
fn decode_heir(bytes: &[u8]) -> Option<i32> {
    let raw = raw_event(bytes)?;
    (raw.kind == 10).then_some(raw.tid)
}

fn raw_event(bytes: &[u8]) -> Option<types::event> {
    if bytes.len() < size_of::<types::event>() {
        return None;
    }
    // SAFETY: the buffer has at least as many bytes as the type.
    Some(unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) })
}

fn decode_event(bytes: &[u8]) -> Option<Event> {
    let raw = raw_event(bytes)?;
    let kind = match raw.kind {
        1 => EventKind::Admitted,
        2 => EventKind::Refused,
        3 => EventKind::TableFull,
        4 => EventKind::RevokedExhausted,
        5 => EventKind::RevokedHungriest,
        6 => EventKind::RevokedDisplaced,
        7 => EventKind::Reactivated,
        8 => EventKind::Released,
        _ => return None,
    };
    Some(Event {
        at_ns: raw.at_ns,
        tid: raw.tid,
        pid: raw.pid,
        user: Some(raw.user),
        name: text_of(&raw.name),
        cpu: raw.cpu,
        kind,
        load: from_parts(raw.load),
        bandwidth: from_parts(raw.bandwidth),
        threshold: from_parts(raw.threshold),
        reason: decode_reason(&raw.reason),
    })
}
