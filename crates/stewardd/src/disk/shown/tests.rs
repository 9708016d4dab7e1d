//! A daemon whose kernel counted what a test says: what is told of it, and to whom.

use libsteward::api::ExplainDomain;
use steward_core::disk::ledger::{Kind, Served, Wait, Work};
use steward_core::disk::waits::judge;
use steward_kernel::Roots;

use super::*;
use crate::domains::cgroups::Cgroups;
use crate::domains::{Asker, Given};
use crate::fake::cgroups::FakeCgroups;
use crate::fake::disk::FakeDisk;
use crate::fake::{Fake, options};

const MS: u64 = 1_000_000;
const ONLY_ROOT_READS: &str =
    "[[rule]]\nwho = [\"root\"]\naction = \"all\"\nof = \"anyone\"\nverdict = \"allow\"\n";
const ALL_READ: &str =
    "[[rule]]\nwho = \"everyone\"\naction = \"read\"\nof = \"anyone\"\nverdict = \"allow\"\n";

/// A save in a domain of user 1001 while a program in one of user 1002 had the disk, under these rules.
fn saved_under(rules: &str) -> (tempfile::TempDir, FakeCgroups, Daemon) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    std::fs::create_dir_all(directory.path().join("rules")).expect("created");
    std::fs::write(directory.path().join("rules/default.toml"), rules).expect("written");
    let cgroups = FakeCgroups::default();
    let options = options(directory.path(), Roots::default());
    let (tree, disk) = (Ok(Box::new(cgroups.clone()) as Box<dyn Cgroups>), Arc::new(FakeDisk::default()));
    let mut daemon = Daemon::start(options, Fake::default().loader(), tree, disk).expect("it starts");
    let mut made = Vec::new();
    for (name, user) in [("editor", 1001), ("hog", 1002)] {
        let given = Given { keep: Some(true), user: Some(user) };
        let change = steward_core::domain::Change::default();
        let mechanism = &mut daemon.cpu.mechanism;
        let path = daemon.domains.path_to_make(name).expect("the name is free");
        daemon.domains.create(&path, &change, given, Asker::default(), mechanism).expect("there is room");
        made.push(cgroups.find(&path).expect("it was made"));
    }
    let now_ns = now_ns();
    let (began_ns, ended_ns) = (now_ns - 300 * MS, now_ns - 100 * MS);
    let wait =
        Wait { began_ns, ended_ns, cgroup_id: made[0].id, pid: 12, name: "vi".into(), ..Wait::default() };
    let served = Served {
        at_ns: ended_ns - MS,
        cgroup_id: made[1].id,
        disk: 1,
        pid: 13,
        name: "secret".into(),
        device_ns: 150 * MS,
        what: Work::Requests(Kind::Own),
    };
    let verdict = judge(&wait, [served].iter());
    daemon.disk.counting.over.push_back(Judged { wait, verdict });
    for cgroup in &made {
        daemon.cpu.sampler.groups.ensure(cgroup, &daemon.domains, now_ns);
    }
    (directory, cgroups, daemon)
}

/// What a user is told of the domain that they are in.
fn told(cgroups: &FakeCgroups, daemon: &mut Daemon, uid: u32, inside: &str) -> String {
    let pid = std::process::id() as i32;
    cgroups.tree().members.insert(pid, inside.to_owned());
    let call = libsteward::wire::Call {
        method: <ExplainDomain as libsteward::api::Method>::NAME.to_owned(),
        ..libsteward::wire::Call::default()
    };
    match daemon.answer(&Caller::of_process(uid, uid, pid), call) {
        crate::server::Answer::Reply(reply) => serde_json::to_string(&reply).expect("JSON"),
        crate::server::Answer::Error(error) => panic!("{error}"),
        _ => panic!("it is answered once"),
    }
}

#[test]
fn whoever_may_not_see_who_had_the_disk_is_told_that_somebody_had_and_not_who() {
    for (rules, uid, named) in
        [(ALL_READ, 1001, true), (ONLY_ROOT_READS, 1001, false), (ONLY_ROOT_READS, 0, true)]
    {
        let (_directory, cgroups, mut daemon) = saved_under(rules);
        let all = told(&cgroups, &mut daemon, uid, "steward.editor");
        assert!(all.contains("vi (process 12) waited for the disk for 200ms"), "{all}");
        assert_eq!(all.contains("at work for secret in hog for 150ms"), named, "{all}");
        assert_eq!(all.contains("hog") || all.contains("secret"), named, "{all}");
        assert_eq!(all.contains("at work for others for 150ms"), !named, "{all}");
    }
}

#[test]
fn of_a_domain_others_waits_are_not_told() {
    let (_directory, cgroups, mut daemon) = saved_under(ALL_READ);
    let all = told(&cgroups, &mut daemon, 1002, "steward.hog");
    assert!(!all.contains("vi (process 12)") && !all.contains("disk_waits"), "{all}");
    // The root has all of them below it.
    let all = told(&cgroups, &mut daemon, 0, "");
    assert!(all.contains("vi (process 12)"), "{all}");
}
