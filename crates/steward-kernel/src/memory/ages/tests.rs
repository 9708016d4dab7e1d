//! Page ages from files as a kernel writes them.

use super::*;

const LISTED: &str = "memcg     1 /
 node     0
          0      98765          0          12\x20
          1       5000        100           0\x20
 node     1
          0          1          0           0\x20
memcg    42 /user.slice/with space.scope
 node     0
         7      42000       25600         300\x20
         8         10           5           6\x20
memcg    43 /last
";

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
    let ages = of("/user.slice/with space.scope", &roots).expect("readable").expect("listed");
    let older = Generation { sequence: 7, age_ms: 42_000, anon_pages: 25_600, file_pages: 300 };
    let younger = Generation { sequence: 8, age_ms: 10, anon_pages: 5, file_pages: 6 };
    let nodes = vec![NodeAges { node: 0, generations: vec![older, younger] }];
    assert_eq!(ages, PageAges { memcg_id: 42, cgroup: "user.slice/with space.scope".into(), nodes });
    assert_eq!(of("", &roots).expect("readable").expect("the root").nodes.len(), 2);
    assert_eq!(of("last", &roots).expect("readable").expect("listed").nodes, []);
    assert_eq!(of("none", &roots).expect("readable"), None);
}

#[test]
fn all_are_told_in_order_and_nothing_is_read_behind_what_was_wanted() {
    let (_keep, roots) = roots(Some(&format!("{LISTED}nonsense\n")), None);
    let mut seen = Vec::new();
    let error = each(&roots, |ages| {
        seen.push(ages.memcg_id);
        ControlFlow::Continue(())
    });
    assert!(error.expect_err("nonsense").to_string().contains("lru_gen"));
    assert_eq!(seen, [1, 42]);
    assert!(of("user.slice/with space.scope", &roots).expect("nothing behind it is read").is_some());
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
