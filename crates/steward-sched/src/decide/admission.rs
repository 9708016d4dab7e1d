//! Who is taken into the interactive class beside what the load says, and who is taken back first
//! (`src/bpf/decide/admission.h`).

use steward_core::cpu::reservation::IrrevocableFor;

use super::load::{Load, LoadThresholds};

/// Users whose sums one CPU can hold at a time.
pub const ADMISSION_USERS_MAX: usize = 32;
/// Of a grant: anybody's task may be irrevocable.
pub const ADMISSION_ANYBODY: u32 = u32::MAX;
/// How many that wait are looked at in one turn.
pub const WAITERS_MAX: usize = 8;
/// The most samples after which one is tried again.
pub const WAITER_RETRY_MAX: u32 = 64;

/// What an admission was decided by. From [`Rule::Use`] on the task is kept out.
#[repr(u32)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// Admitted as asked.
    #[default]
    Fits = 0,
    /// Admitted, but may be revoked: the sum of what is never revoked would be too high.
    Irrevocable = 1,
    /// Admitted, but may be revoked: it belongs neither to root nor to the user whom its specification names.
    NotNamed = 2,
    /// The expected load would be too high.
    Use = 3,
    /// The sum of its user would be too high.
    User = 4,
    /// The CPU has no room for another user's sum.
    Users = 5,
    /// No CPU that is online is allowed to it.
    NoCpu = 6,
    /// It would bring in more memory than is free.
    Memory = 7,
    /// The sum of all users who are limited would be too high.
    Together = 8,
    /// Revoked: its user had more than a part of that, and another user's task came that fits into its own.
    Part = 9,
}

/// How a task fits on a CPU.
#[repr(u32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fit {
    /// Not at all.
    Not = 0,
    /// Its user has room for it in its part of what users may have together, if others give way.
    InItsPart = 1,
    /// As it is.
    Now = 2,
}

/// What one user's admitted tasks declared on a CPU.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UserSum {
    /// The user.
    pub uid: u32,
    /// The sum of C/T, parts per million; 0: the place is free.
    pub reserved: u32,
}

/// What the tasks admitted on one CPU have declared, in parts per million.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Declared {
    /// Those that are never revoked.
    pub irrevocable: u32,
    /// Those of users who are not exempt, all together.
    pub limited: u32,
    /// By user, those who are not exempt.
    pub users: [UserSum; ADMISSION_USERS_MAX],
}

/// What a task asks for.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Claim {
    /// C/T, parts per million.
    pub bandwidth: u32,
    /// Its user.
    pub uid: u32,
    /// 1: what that user may declare is limited.
    pub limited: u32,
    /// 1: it is never to be revoked.
    pub irrevocable: u32,
}

/// How a task was decided about, and by what.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Verdict {
    /// A [`Rule`] as a number.
    pub rule: u32,
    /// Whose task it was.
    pub uid: u32,
    /// What there was before, in the unit of the rule.
    pub amount: u32,
    /// The most that there may be.
    pub limit: u32,
}

impl Verdict {
    /// Whether the task is taken in.
    pub fn admits(&self) -> bool {
        self.rule < Rule::Use as u32
    }
}

/// A task that waits to be taken back.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Waiter {
    /// Since when.
    pub since_ns: u64,
    /// Its number, from 1; 0: nobody.
    pub index: u32,
    /// Its user.
    pub uid: u32,
    /// How often it was tried in vain.
    pub failures: u32,
    unused: u32,
}

impl Waiter {
    /// One that has waited since `since_ns` and was tried `failures` times.
    pub fn new(index: u32, uid: u32, since_ns: u64, failures: u32) -> Self {
        Waiter { since_ns, index, uid, failures, unused: 0 }
    }
}

/// Those who are tried in one turn: of each user at most one.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Waiters {
    /// In no order.
    pub first: [Waiter; WAITERS_MAX],
}

unsafe extern "C" {
    fn decide_admission_may_be_irrevocable(uid: u32, named: u32) -> bool;
    fn decide_admission_judge(
        load: *const Load,
        declared: *const Declared,
        limits: *const LoadThresholds,
        claim: *const Claim,
        verdict: *mut Verdict,
    );
    fn decide_admission_fit(declared: *const Declared, claim: *const Claim, user_max: u32, rule: u32) -> u32;
    fn decide_admission_gives_way(
        declared: *const Declared,
        claim: *const Claim,
        other: *const Claim,
        user_max: u32,
    ) -> bool;
    fn decide_admission_declare(declared: *mut Declared, claim: *mut Claim, rule: u32);
    fn decide_admission_undeclare(declared: *mut Declared, claim: *const Claim);
    fn decide_waiters_offer(waiters: *mut Waiters, waiter: *const Waiter);
    fn decide_waiters_next(waiters: *mut Waiters, next: *mut Waiter);
    fn decide_waiter_retry_after(failures: u32) -> u32;
    fn decide_waiter_absent_pages(
        data: u64,
        stack: u64,
        code: u64,
        anonymous: i64,
        file: i64,
        shared: i64,
    ) -> u64;
}

/// The user whom a grant of this kind names for [`may_be_irrevocable`].
pub fn named_by(irrevocable_for: IrrevocableFor) -> u32 {
    match irrevocable_for {
        IrrevocableFor::Anybody => ADMISSION_ANYBODY,
        IrrevocableFor::Root => 0,
        IrrevocableFor::User(uid) => uid,
    }
}

/// Whether a task of this user may have a grant that is never revoked and that names `named` beside root.
pub fn may_be_irrevocable(uid: u32, named: u32) -> bool {
    // SAFETY: takes and returns numbers.
    unsafe { decide_admission_may_be_irrevocable(uid, named) }
}

/// After how many samples a task is tried again that was tried so many times in vain.
pub fn retry_after(failures: u32) -> u32 {
    // SAFETY: takes and returns numbers.
    unsafe { decide_waiter_retry_after(failures) }
}

/// How many pages a program could still bring in: what it could touch of its own beyond what is resident (anonymous,
/// of files, shared).
pub fn absent_pages(data: u64, stack: u64, code: u64, resident: [i64; 3]) -> u64 {
    // SAFETY: takes and returns numbers.
    unsafe { decide_waiter_absent_pages(data, stack, code, resident[0], resident[1], resident[2]) }
}

impl Declared {
    /// Holds a task against all rules of a CPU.
    pub fn judge(&self, load: &Load, limits: &LoadThresholds, claim: &Claim) -> Verdict {
        let mut verdict = Verdict::default();
        // SAFETY: structures of the layouts that the function expects, which a test checks; so below.
        unsafe { decide_admission_judge(load, self, limits, claim, &mut verdict) };
        verdict
    }

    /// How a task fits of which [`Declared::judge`] says this.
    pub fn fit(&self, limits: &LoadThresholds, claim: &Claim, verdict: &Verdict) -> Fit {
        // SAFETY: as in judge().
        match unsafe { decide_admission_fit(self, claim, limits.user_max, verdict.rule) } {
            0 => Fit::Not,
            1 => Fit::InItsPart,
            _ => Fit::Now,
        }
    }

    /// Whether an admitted task, which counts as `other`, gives way to one that fits into its user's part.
    pub fn gives_way(&self, limits: &LoadThresholds, claim: &Claim, other: &Claim) -> bool {
        // SAFETY: as in judge().
        unsafe { decide_admission_gives_way(self, claim, other, limits.user_max) }
    }

    /// Adds what an admitted task declared. `claim` says afterwards whether it counts as irrevocable.
    pub fn declare(&mut self, claim: &mut Claim, verdict: &Verdict) {
        // SAFETY: as in judge().
        unsafe { decide_admission_declare(self, claim, verdict.rule) }
    }

    /// Takes it back; `claim` is as [`Declared::declare`] left it.
    pub fn undeclare(&mut self, claim: &Claim) {
        // SAFETY: as in judge().
        unsafe { decide_admission_undeclare(self, claim) }
    }
}

impl Waiters {
    /// Notes a task that waits, if there is no better one of its user, and room or a worse one of another.
    pub fn offer(&mut self, waiter: Waiter) {
        // SAFETY: as in judge().
        unsafe { decide_waiters_offer(self, &waiter) }
    }

    /// Takes out the one to be tried next.
    pub fn take_next(&mut self) -> Option<Waiter> {
        let mut next = Waiter::default();
        // SAFETY: as in judge().
        unsafe { decide_waiters_next(self, &mut next) };
        (next.index > 0).then_some(next)
    }
}
