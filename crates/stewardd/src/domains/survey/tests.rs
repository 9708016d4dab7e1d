//! The kept tree against the one that there is, while it changes.

use proptest::prelude::*;
use steward_kernel::Roots;

use super::*;
use crate::fake::cgroups::FakeCgroups;

/// What is kept: paths and ids, in order.
fn kept(survey: &Survey) -> Vec<(String, u64)> {
    survey.all().iter().map(|seen| (seen.path.to_string(), seen.cgroup_id)).collect()
}

/// What there is, in the same order.
fn there(cgroups: &dyn Cgroups) -> Vec<(String, u64)> {
    let mut listed: Vec<(String, u64)> =
        cgroups.list().expect("readable").into_iter().map(|cgroup| (cgroup.path, cgroup.id)).collect();
    listed.sort_by(|one, other| one.0.split('/').cmp(other.0.split('/')));
    listed
}

/// Looks until all that was changed before is known; returns in how many pieces.
fn settle(survey: &mut Survey, cgroups: &dyn Cgroups) -> usize {
    let since_ns = now_ns();
    let pieces = (1..10_000).find(|_| {
        survey.go_on(Some(cgroups));
        survey.is_whole_since(since_ns)
    });
    pieces.expect("it comes to an end")
}

/// A directory that stands in for the hierarchy, whose changes are told.
fn directory() -> (tempfile::TempDir, Box<dyn Cgroups>, Survey, std::path::PathBuf) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let roots = Roots::under(directory.path());
    std::fs::create_dir_all(&roots.cgroup).expect("a directory");
    let cgroups = crate::domains::cgroups::open_any(&roots).expect("it opens");
    let mut survey = Survey::default();
    survey.watch(Some(CgroupChanges::open_any(&roots).expect("inotify")));
    let root = roots.cgroup.clone();
    (directory, cgroups, survey, root)
}

#[test]
fn a_first_look_is_made_in_pieces_and_a_change_is_one_look() {
    let (_keep, cgroups, mut survey, root) = directory();
    (0..300).for_each(|number| std::fs::create_dir_all(root.join(format!("a/{number}"))).expect("made"));
    survey.go_on(Some(&*cgroups));
    assert!(!survey.was_whole() && survey.seen.len() < 302, "{} of 302 at once", survey.seen.len());
    settle(&mut survey, &*cgroups);
    assert_eq!(kept(&survey), there(&*cgroups));
    let revision = survey.revision();
    std::fs::create_dir(root.join("a/new")).expect("made");
    std::fs::remove_dir(root.join("a/7")).expect("removed");
    assert_eq!(settle(&mut survey, &*cgroups), 1);
    assert_eq!((kept(&survey), survey.revision()), (there(&*cgroups), revision + 2));
    assert_eq!((settle(&mut survey, &*cgroups), survey.revision()), (1, revision + 2), "nothing has changed");
}

#[test]
fn what_is_made_anew_under_a_name_is_another_one_and_what_vanishes_while_it_is_looked_at_is_left_out() {
    let (_keep, cgroups, mut survey, root) = directory();
    std::fs::create_dir_all(root.join("a/b/c")).expect("made");
    // Kept aside, so that its number is not given out again, as the kernel's are not.
    let again = |path: &str, aside: &str| {
        std::fs::rename(root.join(path), _keep.path().join(aside)).expect("moved");
        std::fs::create_dir_all(root.join(path).join("d")).expect("made");
    };
    settle(&mut survey, &*cgroups);
    again("a/b", "first");
    // Within a list, between two looks.
    survey.take_in(now_ns());
    survey.begin(now_ns(), Some(&*cgroups));
    again("a/b", "second");
    std::fs::remove_dir(root.join("a/b/d")).expect("removed");
    settle(&mut survey, &*cgroups);
    assert_eq!(kept(&survey), there(&*cgroups));
    // A list with those that are gone already.
    std::fs::create_dir_all(root.join("x/y/z")).expect("made");
    survey.take_in(now_ns());
    std::fs::remove_dir_all(root.join("x")).expect("removed");
    std::fs::remove_dir_all(root.join("a")).expect("removed");
    settle(&mut survey, &*cgroups);
    assert_eq!((kept(&survey).len(), survey.seen.len()), (1, 1), "the root alone");
}

#[test]
fn one_deep_below_others_and_with_any_name_is_found_and_nothing_beyond_the_deepest() {
    let (_keep, cgroups, mut survey, root) = directory();
    let deep: std::path::PathBuf = std::iter::repeat_n("d", 200).collect();
    std::fs::create_dir_all(root.join(&deep)).expect("made");
    for name in ["new\nline", "\u{1b}[2J", "<0>", " "] {
        std::fs::create_dir_all(root.join(name).join("below")).expect("made");
    }
    use std::os::unix::ffi::OsStrExt;
    std::fs::create_dir(root.join(std::ffi::OsStr::from_bytes(b"\xff\xfe"))).expect("made");
    settle(&mut survey, &*cgroups);
    assert_eq!(kept(&survey), there(&*cgroups));
    assert_eq!(kept(&survey).len(), 1 + DEPTH_MAX + 8);
    std::fs::create_dir(root.join("new\nline/other")).expect("made");
    settle(&mut survey, &*cgroups);
    assert_eq!(kept(&survey), there(&*cgroups));
}

#[test]
fn there_are_no_more_below_one_than_can_have_a_domain_and_others_keep_their_place() {
    let tree = FakeCgroups::default();
    (0..3).for_each(|top| tree.tree().add(&format!("t{top}"), 0));
    (0..BELOW_MAX[0] + 50).for_each(|number| tree.tree().add(&format!("t1/{number}"), 0));
    let mut survey = Survey::default();
    settle(&mut survey, &tree);
    let below = kept(&survey).iter().filter(|(path, _)| path.starts_with("t1/")).count();
    assert_eq!((below, kept(&survey).len()), (BELOW_MAX[0], BELOW_MAX[0] + 7));
    // One that goes makes room for another.
    let gone = kept(&survey).iter().find(|(path, _)| path.starts_with("t1/")).expect("one").0.clone();
    tree.tree().delete(&gone);
    settle(&mut survey, &tree);
    settle(&mut survey, &tree);
    assert_eq!(kept(&survey).iter().filter(|(path, _)| path.starts_with("t1/")).count(), BELOW_MAX[0]);
    assert!(!kept(&survey).iter().any(|(path, _)| *path == gone));
}

#[test]
fn so_many_changes_that_they_are_not_remembered_have_everything_looked_at_anew() {
    let (_keep, cgroups, mut survey, root) = directory();
    std::fs::create_dir(root.join("a")).expect("made");
    settle(&mut survey, &*cgroups);
    for number in 0..CHANGES_MAX + 10 {
        let path = root.join(format!("a/{number}"));
        std::fs::create_dir(&path).expect("made");
        if number > 20 {
            std::fs::remove_dir(&path).expect("removed");
        }
        if number % 1000 == 0 {
            survey.take_in(now_ns());
            assert!(survey.changed.len() <= CHANGES_MAX);
        }
    }
    survey.take_in(now_ns());
    assert!(survey.all_changed && survey.changed.is_empty());
    settle(&mut survey, &*cgroups);
    assert_eq!(kept(&survey), there(&*cgroups));
}

#[test]
fn a_list_comes_to_an_end_while_the_tree_changes_without_end() {
    let (_keep, cgroups, mut survey, root) = directory();
    std::fs::create_dir(root.join("a")).expect("made");
    settle(&mut survey, &*cgroups);
    (0..100).for_each(|number| std::fs::create_dir(root.join(format!("a/{number}"))).expect("made"));
    let since_ns = now_ns();
    for round in 0.. {
        assert!(round < 1000, "it comes to an end");
        // More comes than a piece is.
        (0..50).for_each(|number| {
            std::fs::create_dir(root.join(format!("a/{round}-{number}"))).expect("made");
        });
        survey.go_on(Some(&*cgroups));
        if survey.is_whole_since(since_ns) {
            break;
        }
    }
    assert!(kept(&survey).iter().filter(|(path, _)| !path.contains('-')).count() >= 102);
}

proptest! {
    /// Whatever comes, goes and is looked at in between: what is kept is what there is.
    #[test]
    fn what_is_kept_is_what_there_is(
        steps in proptest::collection::vec((0usize..5, 0usize..5, 0usize..4, 0usize..4), 1..60)
    ) {
        let (_keep, cgroups, mut survey, root) = directory();
        let name = |one: usize, other: usize, depth: usize| match depth {
            0 => format!("n{one}"),
            1 => format!("n{one}/n{other}"),
            _ => format!("n{one}/n{other}/n{one}"),
        };
        for (step, (one, other, depth, what)) in steps.into_iter().enumerate() {
            let path = root.join(name(one, other, depth));
            match what {
                0 | 1 => _ = std::fs::create_dir_all(&path),
                // Kept aside, so that its number is not given out again, as the kernel's are not.
                2 => _ = std::fs::rename(&path, _keep.path().join(format!("aside-{step}"))),
                _ => survey.go_on(Some(&*cgroups)),
            }
        }
        settle(&mut survey, &*cgroups);
        prop_assert_eq!(kept(&survey), there(&*cgroups));
        let below = survey.seen.values().find(|seen| seen.parent_id == 0).expect("the root").below;
        prop_assert_eq!(below + 1, survey.seen.len());
        if let Some(changes) = &survey.changes {
            prop_assert_eq!(changes.watched(), survey.seen.len());
        }
    }
}
