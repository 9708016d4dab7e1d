//! Load of a CPU, admission, revocation and reactivation (`src/bpf/decide/load.h`; Yang 2009, section 8.1).

/// One whole CPU: loads and bandwidths are parts per million of it.
pub const LOAD_ONE: u32 = 1_000_000;
/// How many samples the observation window holds.
pub const LOAD_WINDOW: usize = 4;
/// How long a sample is.
pub const LOAD_SAMPLE_NS: u64 = 1_000_000_000;
/// d_min of the paper, in parts per million.
pub const LOAD_DECAY_MIN: u32 = 50_000;
/// d_max of the paper, in parts per million.
pub const LOAD_DECAY_MAX: u32 = 950_000;

/// The load that interactive tasks put on one CPU, in parts per million.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    /// R_load: what interactive tasks used, rising quickly and falling slowly.
    pub measured: u32,
    /// S_load: what specifications announced, decaying towards what is used.
    pub projected: u32,
    /// The latest values of `measured`, latest first.
    pub window: [u32; LOAD_WINDOW],
    /// Samples taken so far.
    pub samples: u32,
    /// The value of `samples` when a task was last reactivated on this CPU.
    pub last_activation: u32,
}

/// When tasks are taken in, put out and taken back, in parts per million of one CPU.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LoadThresholds {
    /// R_lo: below it in the whole window, a revoked task may come back.
    pub reactivate_below: u32,
    /// R_hi: a task is admitted if the expected load with it stays below.
    pub admit_below: u32,
    /// R_max: above it in the whole window, tasks are revoked.
    pub revoke_above: u32,
    /// The most C/T that what is never revoked may declare.
    pub irrevocable_max: u32,
    /// The most C/T that one user may declare.
    pub user_max: u32,
}

/// How many steps of use tell victims apart: each is a sixteenth of a CPU.
pub const LOAD_VICTIM_STEPS: u32 = 16;
/// Ranks of victims; those from [`LOAD_VICTIM_STEPS`] on used up their budget.
pub const LOAD_VICTIM_RANKS: usize = 32;
/// The rank of what is not put out.
pub const LOAD_NO_VICTIM: u32 = u32::MAX;

/// Whom to put out on one CPU: everyone above `rank`, and those of that rank until `rest` is made up.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LoadCut {
    /// The lowest rank that is put out; [`LOAD_VICTIM_RANKS`]: nobody is.
    pub rank: u32,
    /// How much of the CPU, in parts per million, those of that rank have to make up.
    pub rest: u32,
}

impl LoadCut {
    /// Whether a task of that rank, which used so much in the last sample, is put out; counts it.
    pub fn cuts(&mut self, rank: u32, used: u32) -> bool {
        // SAFETY: a structure of the layout that the function expects, which a test checks.
        unsafe { decide_load_cuts(self, rank, used) }
    }
}

unsafe extern "C" {
    fn decide_load_decay(load: u32, measured: u32) -> u32;
    fn decide_load_sample(load: *mut Load, used_ns: u64, interval_ns: u64);
    fn decide_load_expected(load: *const Load) -> u32;
    fn decide_load_admits(load: *const Load, bandwidth: u32, admit_below: u32) -> bool;
    fn decide_load_announce(load: *mut Load, bandwidth: u32);
    fn decide_load_withdraw(load: *mut Load, bandwidth: u32, samples_ago: u32);
    fn decide_load_relieve(load: *mut Load, used: u32);
    fn decide_load_without(load: *mut Load, bandwidth: u32, samples_ago: u32, used: u32);
    fn decide_load_find_cut(load: *const Load, used: *const u32, admit_below: u32, cut: *mut LoadCut);
    fn decide_load_cuts(cut: *mut LoadCut, rank: u32, used: u32) -> bool;
    fn decide_load_overloaded(load: *const Load, revoke_above: u32) -> bool;
    fn decide_load_underloaded(load: *const Load, reactivate_below: u32) -> bool;
    fn decide_load_victim_rank(revocable: bool, exhausted_in_window: bool, used: u32) -> u32;
    fn decide_load_scaled_weight(weight: u64, measured: u32) -> u64;
}

/// The weight d of a sample `load` when the average is `measured` (Yang 2009, 8.1.1); all in parts per million, the
/// arguments at most [`LOAD_ONE`].
pub fn load_decay(load: u32, measured: u32) -> u32 {
    // SAFETY: takes and returns numbers.
    unsafe { decide_load_decay(load, measured) }
}

/// How well a task suits as the victim of a revocation: the highest is put out first, [`LOAD_NO_VICTIM`] never (Yang
/// 2009, 8.1.2.2). `used` is the part of the CPU, per million, that it used in the last sample.
pub fn load_victim_rank(revocable: bool, exhausted_in_window: bool, used: u32) -> u32 {
    // SAFETY: takes and returns numbers.
    unsafe { decide_load_victim_rank(revocable, exhausted_in_window, used) }
}

/// The best-effort weight of a CPU over what reservations leave of it (Yang 2009, 8.3).
pub fn load_scaled_weight(weight: u64, measured: u32) -> u64 {
    // SAFETY: takes and returns numbers.
    unsafe { decide_load_scaled_weight(weight, measured) }
}

impl Load {
    /// Takes the sample of one interval, in which reservations used `used_ns`.
    pub fn sample(&mut self, used_ns: u64, interval_ns: u64) {
        // SAFETY: a structure of the layout that the function expects, which a test checks; so below.
        unsafe { decide_load_sample(self, used_ns, interval_ns) }
    }

    /// What admission holds against its threshold: the larger of `measured` and `projected`.
    pub fn expected(&self) -> u32 {
        // SAFETY: as in sample().
        unsafe { decide_load_expected(self) }
    }

    /// Whether a task of this bandwidth is admitted (Yang 2009, 8.1.2.1).
    pub fn admits(&self, bandwidth: u32, admit_below: u32) -> bool {
        // SAFETY: as in sample().
        unsafe { decide_load_admits(self, bandwidth, admit_below) }
    }

    /// Adds an admitted task's bandwidth to `projected`.
    pub fn announce(&mut self, bandwidth: u32) {
        // SAFETY: as in sample().
        unsafe { decide_load_announce(self, bandwidth) }
    }

    /// A task that was announced `samples_ago` samples ago is gone: within the window, takes back what is left of it.
    pub fn withdraw(&mut self, bandwidth: u32, samples_ago: u32) {
        // SAFETY: as in sample().
        unsafe { decide_load_withdraw(self, bandwidth, samples_ago) }
    }

    /// A task that used `used` of the CPU was revoked: what it used is gone at once.
    pub fn relieve(&mut self, used: u32) {
        // SAFETY: as in sample().
        unsafe { decide_load_relieve(self, used) }
    }

    /// The load without an admitted task, announced `samples_ago` samples ago, that used `used` in the last one.
    pub fn without(&mut self, bandwidth: u32, samples_ago: u32, used: u32) {
        // SAFETY: as in sample().
        unsafe { decide_load_without(self, bandwidth, samples_ago, used) }
    }

    /// Whom to put out so that the load falls below `admit_below`, given what the tasks of each rank used.
    pub fn find_cut(&self, used: &[u32; LOAD_VICTIM_RANKS], admit_below: u32) -> LoadCut {
        let mut cut = LoadCut::default();
        // SAFETY: as in sample(); the array has as many elements as the function reads.
        unsafe { decide_load_find_cut(self, used.as_ptr(), admit_below, &mut cut) }
        cut
    }

    /// Whether tasks have to be revoked: the whole window lies above (Yang 2009, 8.1.2.2).
    pub fn overloaded(&self, revoke_above: u32) -> bool {
        // SAFETY: as in sample().
        unsafe { decide_load_overloaded(self, revoke_above) }
    }

    /// Whether a task may be reactivated: the whole window lies below, and none was within it (Yang 2009, 8.1.2.3).
    pub fn underloaded(&self, reactivate_below: u32) -> bool {
        // SAFETY: as in sample().
        unsafe { decide_load_underloaded(self, reactivate_below) }
    }
}
