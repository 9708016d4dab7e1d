//! What the files mean, tried on a daemon in memory.

use proptest::prelude::*;
use rustix::io::Errno;

use crate::names::{ControlFile, Node};
use crate::stand_in::{OWNER, StandIn, asker};
use crate::tree::{Owner, Tree};

/// Follows a path from the root of the tree.
fn find(tree: &Tree<StandIn>, path: &str) -> Result<Node, Errno> {
    path.split('/').try_fold(Node::Root, |node, name| {
        tree.lookup(asker(OWNER), &node, name).map_err(|failure| failure.errno)
    })
}

fn read(tree: &Tree<StandIn>, path: &str) -> String {
    tree.read(asker(OWNER), &find(tree, path).expect("it is there")).expect("it can be read")
}

/// Writes as `uid`, who also opened the file.
fn write(tree: &Tree<StandIn>, uid: u32, path: &str, text: &str) -> Result<(), Errno> {
    let asker = asker(uid);
    let node = find(tree, path).expect("it is there");
    tree.write(asker, Owner::of(asker), &node, text.as_bytes()).map_err(|failure| failure.errno)
}

fn with_batch() -> (StandIn, Tree<StandIn>) {
    let daemon = StandIn::new();
    let tree = Tree::new(daemon.clone());
    let domains = find(&tree, "domains").expect("always there");
    tree.make(asker(OWNER), &domains, "batch").expect("made");
    (daemon, tree)
}

#[test]
fn a_domain_is_made_changed_read_and_removed() {
    let (daemon, tree) = with_batch();
    assert_eq!(write(&tree, OWNER, "domains/batch/cpu", "50\n"), Ok(()));
    assert_eq!(write(&tree, OWNER, "domains/batch/cpu.weight", "200\n"), Ok(()));
    assert_eq!(write(&tree, OWNER, "domains/batch/cpu.priority", "2\n"), Ok(()));
    assert_eq!(write(&tree, OWNER, "domains/batch/io", "25%\n"), Ok(()));
    assert_eq!(write(&tree, OWNER, "domains/batch/memory", "64M\n"), Ok(()));
    assert_eq!(write(&tree, OWNER, "domains/batch/memory.protect", "1800s\n"), Ok(()));
    assert_eq!(write(&tree, OWNER, "domains/batch/members", "77\n"), Ok(()));
    let expected = [
        ("cpu", "50\n"),
        ("cpu.sum", "50\n"),
        ("cpu.limit", "95\n"),
        ("cpu.weight", "200\n"),
        ("cpu.priority", "2\n"),
        ("io", "25\n"),
        ("memory", "67108864\n"),
        ("memory.protect", "30min\n"),
        ("members", "77\n"),
        ("sched", "virtual-time\n"),
        ("last_error", ""),
    ];
    for (file, text) in expected {
        assert_eq!(read(&tree, &format!("domains/batch/{file}")), text, "{file}");
    }
    assert!(read(&tree, "domains/batch/status").contains("name batch\n"));

    let domains = find(&tree, "domains").expect("always there");
    let remove = || tree.remove(asker(OWNER), &domains, "batch").map_err(|failure| failure.errno);
    assert_eq!(remove(), Err(Errno::NOTEMPTY));
    daemon.state().domains.get_mut("batch").expect("there").1.clear();
    assert_eq!(remove(), Ok(()));
    assert_eq!(find(&tree, "domains/batch"), Err(Errno::NOENT));
}

#[test]
fn what_may_be_used_of_memory_is_read_by_who_may_know_it_and_refused_with_eacces_to_others() {
    let (daemon, tree) = with_batch();
    let path = "domains/batch/memory.available";
    let node = find(&tree, path).expect("it is there");
    assert_eq!(read(&tree, path), "none\n", "nobody counts it");
    daemon.state().available = Some(64 << 20);
    assert_eq!(read(&tree, path), "67108864\n");
    let refused = tree.read(asker(OWNER + 1), &node).expect_err("it is not theirs to know");
    assert_eq!(
        (refused.errno, refused.sentence.as_str()),
        (Errno::ACCESS, "permission denied: user 1 may not")
    );
}

#[test]
fn what_is_given_up_is_not_reserved_any_more() {
    let (_, tree) = with_batch();
    for (file, value) in [("cpu", "50"), ("io", "10"), ("memory", "1G"), ("memory.protect", "90s")] {
        let path = format!("domains/batch/{file}");
        assert_eq!(write(&tree, OWNER, &path, value), Ok(()));
        assert_eq!(write(&tree, OWNER, &path, "none"), Ok(()));
        assert_eq!(read(&tree, &path), "none\n");
    }
}

#[test]
fn a_refusal_has_its_number_and_its_sentence_only_for_who_was_refused() {
    let (daemon, tree) = with_batch();
    let before = daemon.state().changes;
    assert_eq!(write(&tree, OWNER, "domains/batch/cpu", "101"), Err(Errno::INVAL));
    assert_eq!(write(&tree, OWNER, "domains/batch/cpu.sum", "5"), Err(Errno::ACCESS));
    assert_eq!(daemon.state().changes, before, "what is no value is not asked for");
    assert_eq!(write(&tree, OWNER, "domains/batch/cpu", "96"), Err(Errno::NOSPC));
    let said = read(&tree, "last_error");
    assert_eq!(said, read(&tree, "domains/system.slice/last_error"));
    assert!(said.starts_with("write \"96\" to cpu of batch: ") && said.ends_with("0.95 is all\n"), "{said}");
    assert_eq!(write(&tree, 1000, "domains/batch/cpu", "5"), Err(Errno::ACCESS));
    assert_eq!(said, read(&tree, "last_error"), "somebody else's refusal is not shown");
    let node = find(&tree, "last_error").expect("always there");
    assert!(tree.read(asker(1000), &node).expect("readable").contains("user 1000 may not"));
}

#[test]
fn nobody_writes_with_the_rights_of_somebody_else() {
    let (daemon, tree) = with_batch();
    let node = find(&tree, "domains/batch/cpu").expect("there");
    let opened_by = Owner::of(asker(1000));
    // User 1000 opened the file, and a program of root's writes to it as its standard output.
    let outcome = tree.write(asker(OWNER), opened_by, &node, b"50");
    assert_eq!(outcome.map_err(|failure| failure.errno), Err(Errno::ACCESS));
    assert_eq!(daemon.state().domains["batch"].0.cpu, None);
    assert_eq!(Owner::from_handle(opened_by.to_handle()), opened_by);
}

#[test]
fn self_leads_to_the_domain_of_whoever_asks() {
    let (daemon, tree) = with_batch();
    assert_eq!(tree.own(asker(OWNER)).expect("known"), "domains");
    daemon.state().own = "batch".into();
    assert_eq!(tree.own(asker(OWNER)).expect("known"), "domains/batch");
}

#[test]
fn a_directory_lists_its_files_and_its_children_only() {
    let (_, tree) = with_batch();
    let batch = find(&tree, "domains/batch").expect("there");
    tree.make(asker(OWNER), &batch, "inner").expect("made");
    let names = |path| {
        let entries = tree.entries(asker(OWNER), &find(&tree, path).expect("there")).expect("a directory");
        entries.into_iter().map(|(_, name)| name).skip(ControlFile::ALL.len()).collect::<Vec<_>>()
    };
    assert_eq!(names("domains"), ["batch", "system.slice"]);
    assert_eq!(names("domains/batch"), ["inner"]);
    assert!(names("domains/batch/inner").is_empty());
}

#[test]
fn forecasts_are_of_all_tasks_or_of_one_domains_under_the_same_columns() {
    let (_, tree) = with_batch();
    let all = read(&tree, "forecasts");
    let own = read(&tree, "domains/batch/forecast");
    assert_eq!(all.lines().next(), own.lines().next());
    assert_eq!((all.lines().count(), own.lines().count()), (4, 3), "{all}{own}");
    assert!(own.lines().nth(1).is_some_and(|line| line.starts_with("- - - batch ")), "{own}");
    assert_eq!(write(&tree, OWNER, "domains/batch/forecast", "5"), Err(Errno::ACCESS));
    assert_eq!(write(&tree, OWNER, "forecasts", "5"), Err(Errno::ISDIR));
}

#[test]
fn a_domain_is_the_same_by_the_path_of_its_cgroup() {
    let (_, tree) = with_batch();
    assert_eq!(find(&tree, "domains/steward.batch"), find(&tree, "domains/batch"));
}

#[test]
fn names_that_are_taken_or_not_ours_are_refused() {
    let (_, tree) = with_batch();
    let domains = find(&tree, "domains").expect("always there");
    let make = |parent: &Node, name| tree.make(asker(OWNER), parent, name).map_err(|failure| failure.errno);
    assert_eq!(make(&domains, "batch"), Err(Errno::EXIST));
    assert_eq!(make(&domains, "cpu"), Err(Errno::EXIST));
    assert_eq!(make(&Node::Root, "batch"), Err(Errno::PERM));
    let remove = |name| tree.remove(asker(OWNER), &domains, name).map_err(|failure| failure.errno);
    assert_eq!(remove("system.slice"), Err(Errno::PERM));
    assert_eq!(remove("cpu"), Err(Errno::NOTDIR));
    assert_eq!(remove("nothing"), Err(Errno::NOENT));
}

proptest! {
    #[test]
    fn whatever_is_written_nothing_is_half_applied(
        bytes in prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..160),
            "(none|default|[0-9]{1,6}(\\.[0-9]{1,3})?[%MG]?)\n?".prop_map(String::into_bytes),
        ],
        index in 0..ControlFile::ALL.len(),
        uid in prop_oneof![Just(OWNER), Just(1000)],
    ) {
        let (daemon, tree) = with_batch();
        let before = daemon.state().domains["batch"].clone();
        let node = Node::File("batch".into(), ControlFile::ALL[index]);
        let outcome = tree.write(asker(uid), Owner::of(asker(uid)), &node, &bytes);
        let after = daemon.state().domains["batch"].clone();
        if let Err(failure) = outcome {
            prop_assert_eq!(before, after);
            let last = tree.read(asker(uid), &Node::LastError).expect("readable");
            prop_assert!(last.contains(&failure.sentence));
        } else {
            prop_assert_eq!(uid, OWNER);
            prop_assert!(after.0.cpu.is_none_or(|cpu| cpu > 0.0 && cpu <= 0.95));
        }
    }
}
