//! Page ages from files as a kernel writes them.

use super::*;

const LISTED: &str = "memcg     1 /
 node     0
          0      98765          0          12
          1       5000        100           0
 node     1
          0          1          0           0
memcg    42 /user.slice/with space.scope
 node     0
         7      42000       25600         300
         8         10           5           6
memcg    43 /last
";

/// As kernels that tell the cgroup's id write it: no columns. The first of two cgroups with one path was removed.
const LISTED_WITH_IDS: &str = "memcg 1 /
 node     0
memcg 89 /a
 node     0
          4       4300          0           0
memcg 150 /a
 node     0
          2       3000        100           0
";

fn cgroup(path: &str, id: u64) -> Cgroup {
    Cgroup { path: path.into(), id, uid: 0 }
}

fn roots(listed: Option<&str>, enabled: Option<&str>) -> (tempfile::TempDir, Roots) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let roots = Roots::under(directory.path());
    for (name, text) in [("kernel/debug/lru_gen", listed), ("kernel/mm/lru_gen/enabled", enabled)] {
        let path = roots.sys.join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        if let Some(text) = text {
            std::fs::write(path, text).expect("a file");
        }
    }
    (directory, roots)
}

#[test]
fn one_cgroup_is_found_among_all_with_a_space_in_its_name() {
    let (_keep, roots) = roots(Some(LISTED), Some("0x0007\n"));
    assert_eq!(obstacle(&roots), None);
    let ages = of(&cgroup("user.slice/with space.scope", 9), &roots).expect("readable").expect("listed");
    let older = Generation { sequence: 7, age_ms: 42_000, anon_pages: 25_600, file_pages: 300 };
    let younger = Generation { sequence: 8, age_ms: 10, anon_pages: 5, file_pages: 6 };
    let nodes = vec![NodeAges { node: 0, generations: vec![older, younger] }];
    assert_eq!(
        ages,
        PageAges { memcg_id: 42, cgroup_id: None, cgroup: "user.slice/with space.scope".into(), nodes }
    );
    assert_eq!(of(&cgroup("", 1), &roots).expect("readable").expect("the root").nodes.len(), 2);
    assert_eq!(of(&cgroup("last", 9), &roots).expect("readable").expect("listed").nodes, []);
    assert_eq!(of(&cgroup("none", 42), &roots).expect("readable"), None);
}

#[test]
fn a_cgroup_made_anew_is_not_taken_for_the_one_that_was_removed() {
    let (_keep, told) = roots(Some(LISTED_WITH_IDS), None);
    let ages = of(&cgroup("a", 150), &told).expect("readable").expect("listed");
    assert_eq!((ages.cgroup_id, ages.nodes[0].generations[0].anon_pages), (Some(150), 100));
    assert_eq!(of(&cgroup("a", 89), &told).expect("readable").expect("listed still").memcg_id, 89);
    assert_eq!(of(&cgroup("a", 151), &told).expect("readable"), None, "neither is it");
    // Where the kernel tells no ids, the one that was made last is last.
    let (_keep, untold) = roots(Some(&LISTED_WITH_IDS.replace("memcg ", "memcg    ")), None);
    assert_eq!(of(&cgroup("a", 7), &untold).expect("readable").expect("listed").memcg_id, 150);
}

#[test]
fn all_are_told_in_order_and_nothing_is_read_behind_what_was_wanted() {
    let (_keep, roots) = roots(Some(&format!("{LISTED_WITH_IDS}nonsense\n")), None);
    let mut seen = Vec::new();
    let error = each(&roots, |ages| {
        seen.push(ages.memcg_id);
        ControlFlow::Continue(())
    });
    assert!(error.expect_err("nonsense").to_string().contains("lru_gen"));
    assert_eq!(seen, [1, 89]);
    assert!(of(&cgroup("a", 89), &roots).expect("nothing behind it is read").is_some());
}

#[test]
fn what_is_in_the_way_is_named() {
    let without = |listed, enabled| {
        let (_keep, roots) = roots(listed, enabled);
        obstacle(&roots)
    };
    assert_eq!(without(Some(LISTED), None), Some(NoPageAges::NotInKernel));
    assert_eq!(without(Some(LISTED), Some("0x0000\n")), Some(NoPageAges::TurnedOff));
    assert_eq!(without(None, Some("0x0007\n")), Some(NoPageAges::NoDebugfs));
}

#[test]
fn an_ageing_is_one_command_and_its_failure_has_the_path() {
    let (_keep, roots) = roots(Some(""), None);
    let target = AgeingTarget { memcg_id: 42, node: 0, sequence: 8, with_anon: true, force_scan: false };
    assert!(age(&target, &roots).expect("written").done);
    assert_eq!(std::fs::read_to_string(path(&roots)).expect("a file"), "+ 42 0 8 1 0");
    std::fs::remove_file(path(&roots)).expect("removed");
    let error = age(&target, &roots).expect_err("no file");
    assert!(error.is_absent() && error.to_string().contains("debug/lru_gen"), "{error}");
}

#[test]
fn an_eviction_names_the_last_generation_from_which_any_may_be_taken() {
    let (_keep, roots) = roots(Some(""), None);
    let eviction = Eviction { memcg_id: 42, node: 1, sequence: 6, swappiness: 60, pages: 256 };
    evict(&eviction, &roots).expect("written");
    assert_eq!(std::fs::read_to_string(path(&roots)).expect("a file"), "- 42 1 6 60 256");
    std::fs::remove_file(path(&roots)).expect("removed");
    let error = evict(&eviction, &roots).expect_err("no file");
    assert!(error.is_absent() && error.to_string().contains("debug/lru_gen"), "{error}");
}
