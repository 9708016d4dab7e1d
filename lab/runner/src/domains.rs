//! Domains in scenarios: cgroups with a policy, the same cgroups under every contender but for one case. Pure.
//!
//! Under Steward a policy is set with `steward domain set`. Under `stock-nice` it is the best that root can do by hand:
//! `cpu.weight` in proportion to what the domain would be due. Under the others only a weight that the file gives
//! counts. A domain that is there for its reservation alone, beside programs that are in none, is made under Steward
//! only: without one its cgroup would weigh as much as one of these programs, and a nice value would count within it
//! only.

use anyhow::{Context, bail};
use steward_lab_guest::Domain;

use crate::scenario::{Contender, DomainRow, Scenario};

/// What the cgroups at the top begin with that Steward makes.
const STEWARDS: &str = "steward.";

/// The weight of a cgroup that nobody gave one.
const WEIGHT_DEFAULT: u32 = 100;

/// All domains of a scenario, parents before children, those that programs have for themselves last.
fn rows(scenario: &Scenario) -> Vec<DomainRow> {
    let own = scenario.programs.iter().filter(|row| row.own_domain).flat_map(|row| {
        let cpus = &row.own_cpus;
        row.names()
            .map(|name| DomainRow { name, cpus: cpus.clone(), ..DomainRow::default() })
            .collect::<Vec<_>>()
    });
    scenario.domains.iter().cloned().chain(own).collect()
}

/// Those of them that there are under a contender.
fn made(scenario: &Scenario, contender: Contender) -> Vec<DomainRow> {
    let rows = rows(scenario);
    let in_none = scenario.programs.iter().any(|row| row.domain.is_none() && !row.own_domain);
    let has_more = |row: &DomainRow| {
        row.weight.is_some()
            || row.max.is_some()
            || row.idle
            || !row.cpus.is_empty()
            || row.disk > 0.0
            || row.parent.is_some()
            || rows.iter().any(|other| other.parent.as_ref() == Some(&row.name))
    };
    let reserves_only = |row: &DomainRow| row.cpu > 0.0 && !has_more(row);
    let is_made = |row: &&DomainRow| contender.is_steward() || !in_none || !reserves_only(row);
    rows.iter().filter(is_made).cloned().collect()
}

/// What the agent is to make under `contender`.
pub fn planned(scenario: &Scenario, contender: Contender) -> Vec<Domain> {
    let rows = made(scenario, contender);
    rows.iter()
        .map(|row| {
            let mut policy = Vec::new();
            if contender.is_steward() && row.cpu > 0.0 {
                policy.extend(["--cpu".to_owned(), format!("{}%", round(row.cpu * 100.0))]);
            }
            if contender.is_steward() && row.disk > 0.0 {
                policy.extend(["--io-fraction".to_owned(), format!("{}%", round(row.disk * 100.0))]);
            }
            let cpu_weight = match contender {
                // The kernel refuses a weight beside it.
                _ if row.idle => None,
                Contender::StockNice => Some(due_weight(&rows, row)),
                _ => row.weight,
            };
            Domain {
                path: place(scenario, contender, &rows, row),
                made_by_steward: makes(scenario, contender),
                cpu_weight,
                cpu_max: row.max.map(|max| format!("{} {}", max.quota.as_micros(), max.period.as_micros())),
                cpu_idle: row.idle,
                cpus: row.cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(","),
                policy,
            }
        })
        .collect()
}

/// The cgroups of all domains, relative to the root, and what part of their parent's time of the disk each is due when
/// all are busy; none where no domain has any reserved.
pub fn disk_shares(scenario: &Scenario) -> Vec<(String, f64)> {
    let rows = rows(scenario);
    if rows.iter().all(|row| row.disk == 0.0) {
        return Vec::new();
    }
    let share = |row: &DomainRow| {
        let siblings: Vec<_> = rows.iter().filter(|other| other.parent == row.parent).collect();
        let reserved: f64 = siblings.iter().map(|sibling| sibling.disk).sum();
        row.disk + (1.0 - reserved).max(0.0) / siblings.len() as f64
    };
    rows.iter().map(|row| (path(&rows, row), share(row))).collect()
}

/// The cgroup of the domain that a program is in, relative to the root; `None` where it is in none, or where its domain
/// is not made under this contender.
pub fn of_program(
    scenario: &Scenario,
    contender: Contender,
    domain: Option<&str>,
    own: Option<&str>,
) -> Option<String> {
    let name = own.or(domain)?;
    let rows = made(scenario, contender);
    rows.iter().find(|row| row.name == name).map(|row| place(scenario, contender, &rows, row))
}

/// Whether Steward makes the domains itself: it divides the disk among those alone.
fn makes(scenario: &Scenario, contender: Contender) -> bool {
    contender.is_steward() && !disk_shares(scenario).is_empty()
}

/// Where a domain is under a contender: those that Steward makes at the top have its prefix.
fn place(scenario: &Scenario, contender: Contender, rows: &[DomainRow], row: &DomainRow) -> String {
    let path = path(rows, row);
    if makes(scenario, contender) { format!("{STEWARDS}{path}") } else { path }
}

/// Names of domains are known, are told from each other, and their reservations fit.
///
/// # Errors
/// Names the domain and what is wrong with it.
pub fn check(scenario: &Scenario) -> anyhow::Result<()> {
    let rows = rows(scenario);
    for (index, row) in rows.iter().enumerate() {
        check_row(&rows[..index], row).with_context(|| format!("domain `{}`", row.name))?;
        if row.cpus.iter().any(|cpu| *cpu >= scenario.machine.cpus) {
            bail!(
                "domain `{}`: the machine's CPUs are 0 to {}",
                row.name,
                scenario.machine.cpus.saturating_sub(1)
            );
        }
    }
    for row in &scenario.domains {
        let siblings = rows.iter().filter(|other| other.parent == row.parent);
        let sums = siblings.fold([0.0, 0.0], |sums, other| [sums[0] + other.cpu, sums[1] + other.disk]);
        if sums.iter().any(|sum| *sum > 1.0 + 1e-9) {
            bail!("the reservations of the domains beside `{}` add up to more than 1", row.name);
        }
    }
    for program in &scenario.programs {
        if !program.own_cpus.is_empty() && !program.own_domain {
            bail!(
                "program `{}`: own_cpus are those of its own domain, and it has none (own_domain)",
                program.name
            );
        }
        let Some(domain) = &program.domain else { continue };
        if program.own_domain {
            bail!("program `{}` has both `domain` and `own_domain`", program.name);
        }
        if !rows.iter().any(|row| row.name == *domain) {
            bail!("program `{}`: there is no domain `{domain}`", program.name);
        }
        if rows.iter().any(|row| row.parent.as_ref() == Some(domain)) {
            bail!(
                "program `{}`: `{domain}` has domains below it, and cannot have programs too",
                program.name
            );
        }
    }
    Ok(())
}

fn check_row(before: &[DomainRow], row: &DomainRow) -> anyhow::Result<()> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if row.name.is_empty() || !row.name.chars().all(is_plain) || row.name == "lab" {
        bail!("a name is made of letters, digits, _ and -, and `lab` is taken");
    }
    if before.iter().any(|other| other.name == row.name) {
        bail!("there are two of this name");
    }
    if !(0.0..=1.0).contains(&row.cpu) {
        bail!("cpu is a fraction of the parent's CPU time, 0 to 1");
    }
    if !(0.0..=1.0).contains(&row.disk) {
        bail!("disk is a fraction of the parent's time of the disk, 0 to 1");
    }
    if row.idle && row.weight.is_some() {
        bail!("one that is idle has no weight: leave one of the two out");
    }
    if row.weight.is_some_and(|weight| !(1..=10_000).contains(&weight)) {
        bail!("a weight is 1 to 10000");
    }
    match &row.parent {
        Some(parent) if !before.iter().any(|other| other.name == *parent) => {
            bail!("its parent `{parent}` must stand before it")
        }
        _ => Ok(()),
    }
}

fn path(rows: &[DomainRow], row: &DomainRow) -> String {
    let parent = row.parent.as_ref().and_then(|parent| rows.iter().find(|other| other.name == *parent));
    parent.map_or_else(|| row.name.clone(), |parent| format!("{}/{}", path(rows, parent), row.name))
}

/// The weight that gives a domain, when all its siblings are busy, what its reservation and its part of the rest come
/// to.
fn due_weight(rows: &[DomainRow], row: &DomainRow) -> u32 {
    let siblings: Vec<_> = rows.iter().filter(|other| other.parent == row.parent).collect();
    let weight = |row: &DomainRow| f64::from(row.weight.unwrap_or(WEIGHT_DEFAULT));
    let reserved: f64 = siblings.iter().map(|sibling| sibling.cpu).sum();
    let weights: f64 = siblings.iter().map(|sibling| weight(sibling)).sum();
    let due = row.cpu + (1.0 - reserved).max(0.0) * weight(row) / weights;
    // The mean of all siblings is the usual weight.
    let scaled = due * siblings.len() as f64 * f64::from(WEIGHT_DEFAULT);
    scaled.round().clamp(1.0, 10_000.0) as u32
}

/// Without the noise of binary fractions: 15, not 15.000000000000002.
fn round(number: f64) -> f64 {
    (number * 1e6).round() / 1e6
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const TEXT: &str = "title='t'\nduration='9s'\n\
        [[domain]]\nname='player'\ncpu=0.15\n\
        [[program]]\nname='film'\ncommand='film'\ndomain='player'\n\
        [[program]]\nname='onoff'\ncommand='onoff'\ncount=4\nown_domain=true\n";

    fn scenario(text: &str) -> anyhow::Result<Scenario> {
        Scenario::parse(text, Path::new("t.toml"))
    }

    #[test]
    fn steward_is_told_the_reservation_and_root_by_hand_gives_the_weight_that_comes_to_the_same() {
        let scenario = scenario(TEXT).unwrap();
        let steward = planned(&scenario, Contender::StewardWrr);
        assert_eq!(steward[0].policy, ["--cpu", "15%"]);
        assert_eq!((steward.len(), steward[4].path.as_str()), (5, "onoff-4"));
        assert!(steward.iter().all(|domain| domain.cpu_weight.is_none()));
        let by_hand: Vec<_> =
            planned(&scenario, Contender::StockNice).iter().map(|domain| domain.cpu_weight).collect();
        // 0.15 + 0.85 / 5 = 0.32 beside four of 0.17.
        assert_eq!(by_hand, [Some(160), Some(85), Some(85), Some(85), Some(85)]);
        assert!(planned(&scenario, Contender::Stock).iter().all(|domain| domain.cpu_weight.is_none()));
    }

    #[test]
    fn what_is_done_by_hand_beside_programs_in_no_domain_is_done_in_none() {
        let text = format!("{TEXT}[[program]]\nname='loops'\ncommand='loops'\n");
        let place =
            |text: &str, contender| of_program(&scenario(text).unwrap(), contender, Some("player"), None);
        let count = |text: &str, contender| planned(&scenario(text).unwrap(), contender).len();
        for contender in Contender::ALL {
            let is_steward = contender.is_steward();
            assert_eq!(place(&text, contender).is_some(), is_steward, "{contender}");
            assert_eq!(count(&text, contender), if is_steward { 5 } else { 4 }, "{contender}");
            // Beside domains it has a weight among them; and a limit is a fact of the machine.
            assert_eq!(place(TEXT, contender).as_deref(), Some("player"), "{contender}");
            let limited = text.replace("cpu=0.15", "cpu=0.15\nmax='20ms/100ms'");
            assert_eq!(place(&limited, contender).as_deref(), Some("player"), "{contender}");
        }
    }

    #[test]
    fn the_shipped_window_is_drawn_in_a_domain_under_steward_and_flat_by_hand() {
        for name in ["window-drag", "window-drag-4cpu"] {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../scenarios/{name}.toml"));
            let scenario = Scenario::parse(&std::fs::read_to_string(&path).unwrap(), &path).unwrap();
            assert_eq!(planned(&scenario, Contender::Steward).len(), 1, "{name}");
            for contender in [Contender::Stock, Contender::StockNice, Contender::Deadline] {
                assert!(planned(&scenario, contender).is_empty(), "{name} under {contender}");
            }
        }
    }

    #[test]
    fn steward_makes_the_domains_itself_among_which_it_divides_the_disk() {
        let scenario = scenario(&TEXT.replace("cpu=0.15", "disk=0.6")).unwrap();
        let steward = planned(&scenario, Contender::Steward);
        assert!(steward.iter().all(|domain| domain.made_by_steward && domain.path.starts_with("steward.")));
        assert_eq!(steward[0].policy, ["--io-fraction", "60%"]);
        let place = |contender| of_program(&scenario, contender, Some("player"), None);
        assert_eq!(place(Contender::Steward).as_deref(), Some("steward.player"));
        assert_eq!(place(Contender::Stock).as_deref(), Some("player"));
    }

    #[test]
    fn a_child_is_below_its_parent() {
        let nested = format!("{TEXT}[[domain]]\nname='a'\n[[domain]]\nname='b'\nparent='a'\nweight=300\n");
        let scenario = scenario(&nested).unwrap();
        assert_eq!(planned(&scenario, Contender::Stock)[2].path, "a/b");
        assert_eq!(planned(&scenario, Contender::Stock)[2].cpu_weight, Some(300));
    }

    #[test]
    fn a_limit_and_cpus_are_the_same_under_every_contender() {
        let limited = TEXT.replace("cpu=0.15", "max='250ms/100ms'\ncpus=[0,1]");
        let scenario = scenario(&limited).unwrap();
        for contender in Contender::ALL {
            let domain = &planned(&scenario, contender)[0];
            assert_eq!((domain.cpu_max.as_deref(), domain.cpus.as_str()), (Some("250000 100000"), "0,1"));
        }
    }

    #[test]
    fn mistakes_name_the_domain() {
        let complaint = |text: &str| format!("{:#}", scenario(text).expect_err("the text has a mistake"));
        assert!(
            complaint(&TEXT.replace("cpu=0.15", "cpu=1.5")).contains("domain `player`: cpu is a fraction")
        );
        assert!(complaint(&TEXT.replace("domain='player'", "domain='x'")).contains("no domain `x`"));
        assert!(complaint(&TEXT.replace("cpu=0.15", "parent='x'")).contains("must stand before it"));
        assert!(complaint(&format!("{TEXT}[[domain]]\nname='b'\ncpu=0.9\n")).contains("more than 1"));
        assert!(complaint(&TEXT.replace("cpu=0.15", "idle=true\nweight=5")).contains("has no weight"));
        assert!(complaint(&TEXT.replace("own_domain=true", "own_cpus=[1]")).contains("it has none"));
        assert!(complaint(&TEXT.replace("cpu=0.15", "max='20'")).contains("write 20ms/100ms"));
        assert!(complaint(&TEXT.replace("cpu=0.15", "cpus=[2]")).contains("the machine's CPUs are 0 to 1"));
    }
}
