//! What busy domains beside each other are due that may each use some of the CPUs: the weighted fair shares of all that
//! the CPUs have, of which none can be raised without lowering one that is no larger (max-min).

use steward_sim::cpu::scenario::DomainSpec;

/// A busy domain: its weight, and the CPUs that its tasks may use, by bit. It has a task for each of these at least.
pub type Confined = (u32, u32);

/// What each is due, in CPUs.
pub fn fair_shares(domains: &[Confined]) -> Vec<f64> {
    let mut shares = vec![0.0; domains.len()];
    let mut rest: Vec<usize> = (0..domains.len()).collect();
    let mut taken = 0u32;
    while !rest.is_empty() {
        // The group whose CPUs are fewest for what it weighs; of those that are as badly off, all.
        let groups = 1u32..1 << rest.len();
        let members = |group: u32| {
            let rest = &rest;
            (0..rest.len()).filter(move |place| group >> place & 1 == 1).map(move |place| rest[place])
        };
        let per_weight = |group: u32| {
            let cpus = members(group).fold(0, |cpus, place| cpus | domains[place].1) & !taken;
            let weight: u32 = members(group).map(|place| domains[place].0).sum();
            f64::from(cpus.count_ones()) / f64::from(weight)
        };
        let least = groups.clone().map(per_weight).fold(f64::MAX, f64::min);
        let worst = groups
            .filter(|group| per_weight(*group) <= least * (1.0 + 1e-9))
            .fold(0, |all, group| all | group);
        for place in members(worst) {
            shares[place] = least * f64::from(domains[place].0);
        }
        let settled: Vec<usize> = members(worst).collect();
        taken |= settled.iter().fold(0, |cpus, place| cpus | domains[*place].1);
        rest.retain(|place| !settled.contains(place));
    }
    shares
}

/// The part of all CPUs' time that each domain of a tree is due with all below it, whose own tasks (where `busy`) and
/// those below could use all CPUs.
pub fn of_busy_tree(domains: &[DomainSpec], busy: &[bool], cpus: u32) -> Vec<f64> {
    let mut dues = vec![0.0; domains.len()];
    // Parents come before their children.
    for place in 0..domains.len() {
        let parent = domains[place].parent;
        let beside = || domains.iter().filter(|other| other.parent == parent);
        let own = parent
            .filter(|parent| busy[*parent])
            .map(|parent| (domains[parent].own_priority, domains[parent].own_weight.unwrap_or(100 * cpus)));
        let highest = beside().map(|other| other.priority).chain(own.map(|(priority, _)| priority)).max();
        let contenders = beside().map(|other| (other.priority, other.weight)).chain(own);
        let weights: u32 =
            contenders.filter(|(priority, _)| Some(*priority) == highest).map(|(_, weight)| weight).sum();
        let rest = 1.0 - beside().map(|other| other.reserved).sum::<f64>();
        let domain = &domains[place];
        let by_weight = if Some(domain.priority) == highest {
            f64::from(domain.weight) / f64::from(weights)
        } else {
            0.0
        };
        dues[place] = parent.map_or(1.0, |parent| dues[parent]) * (domain.reserved + rest * by_weight);
    }
    dues
}

#[test]
fn who_may_use_few_cpus_is_due_what_these_have_and_the_others_the_rest() {
    let close = |shares: &[f64], wanted: &[f64]| {
        shares.iter().zip(wanted).all(|(share, wanted)| (share - wanted).abs() < 1e-9)
    };
    assert!(close(&fair_shares(&[(100, 0b1111), (300, 0b1111)]), &[1.0, 3.0]));
    assert!(close(&fair_shares(&[(100, 0b0001), (300, 0b0001), (100, 0b1111)]), &[0.25, 0.75, 3.0]));
    assert!(close(&fair_shares(&[(10, 0b0001), (990, 0b1111)]), &[0.04, 3.96]));
    assert!(close(&fair_shares(&[(100, 0b01), (100, 0b11), (100, 0b10)]), &[2.0 / 3.0; 3]));
}
