//! The tasks that are admitted on one CPU that is idle, and how others give way to newcomers, as in `admission.bpf.h`.

use steward_sched::decide::{Claim, Declared, Fit, Load, LoadThresholds, Verdict};

/// What was admitted on a CPU. As long as nobody uses anything, whoever came first gives way first.
#[derive(Default)]
pub struct Admitted {
    /// What the rules know of them.
    pub declared: Declared,
    /// Each of them, as it counts.
    pub claims: Vec<Claim>,
}

impl Admitted {
    /// A task comes. Says what it was decided by, and who gave way to it.
    pub fn comes(&mut self, limits: &LoadThresholds, mut claim: Claim) -> (Verdict, Vec<Claim>) {
        let idle = Load::default();
        let mut verdict = self.declared.judge(&idle, limits, &claim);
        let mut gone = Vec::new();
        if self.declared.fit(limits, &claim, &verdict) == Fit::InItsPart {
            let mut place = 0;
            while place < self.claims.len() && !verdict.admits() {
                if self.declared.gives_way(limits, &claim, &self.claims[place]) {
                    gone.push(self.goes(place));
                    verdict = self.declared.judge(&idle, limits, &claim);
                } else {
                    place += 1;
                }
            }
        }
        if verdict.admits() {
            self.declared.declare(&mut claim, &verdict);
            self.claims.push(claim);
        }
        (verdict, gone)
    }

    /// One of them goes.
    pub fn goes(&mut self, place: usize) -> Claim {
        let claim = self.claims.remove(place);
        self.declared.undeclare(&claim);
        claim
    }

    /// What those for which this holds have declared together.
    pub fn sum(&self, which: impl Fn(&Claim) -> bool) -> u32 {
        self.claims.iter().filter(|claim| which(claim)).map(|claim| claim.bandwidth).sum()
    }
}
