//! Tests of [`super`]: who gets what when the daemon starts and when specifications change.

use crate::cpu::reservation::{IrrevocableFor, Reservation};

use super::*;
use crate::process::{Executed, FileIdentity, Thread};
use crate::spec::SpecPath;

const PLAYER: FileIdentity = FileIdentity { device: 1, inode: 10 };
const EDITOR: FileIdentity = FileIdentity { device: 1, inode: 20 };
const OTHER: FileIdentity = FileIdentity { device: 1, inode: 30 };

fn grant(spec_id: u32, budget_ms: u64) -> Grant {
    Grant {
        reservation: Reservation { budget_ns: budget_ms * 1_000_000, period_ns: 30_000_000 },
        inherit: false,
        revocable: true,
        irrevocable_for: IrrevocableFor::Anybody,
        keep_over_exec: false,
        requests_at: None,
        spec_id,
    }
}

fn inherited(spec_id: u32, budget_ms: u64) -> Grant {
    Grant { inherit: true, ..grant(spec_id, budget_ms) }
}

fn entry(name: &str, identity: FileIdentity, grant: Grant) -> Entry {
    let subject = Subject::Executable(Some(identity));
    Entry { name: name.into(), subject, spec_id: grant.spec_id, grant: Some(grant), order: 0 }
}

fn best_effort(name: &str, identity: FileIdentity, spec_id: u32) -> Entry {
    Entry { grant: None, ..entry(name, identity, grant(spec_id, 1)) }
}

/// The entries, in this order of precedence and of importance.
fn table(entries: &[Entry]) -> Table {
    let numbered = entries.iter().zip(1..).map(|(entry, order)| Entry { order, ..entry.clone() });
    Table { entries: numbered.collect() }
}

fn id(tid: i32) -> TaskId {
    TaskId { tid, started_ticks: 100 }
}

/// A process with as many further threads as said, numbered from its pid.
fn process(pid: i32, parent: i32, executable: FileIdentity, further_threads: i32) -> Process {
    let threads = (pid..=pid + further_threads).map(|tid| Thread { id: id(tid), name: "p".into() }).collect();
    Process {
        id: id(pid),
        parent,
        uid: 1000,
        name: "p".into(),
        kernel_thread: false,
        forked_without_exec: false,
        executable: Some(executable),
        threads,
    }
}

fn held(tid: i32, pid: i32, grant: Grant) -> Held {
    Held { tid, pid, grant }
}

fn summary(steps: &[Step]) -> Vec<(i32, Option<u32>)> {
    steps.iter().map(|step| (step.tid, step.grant.map(|grant| grant.spec_id))).collect()
}

#[test]
fn at_start_a_program_gets_its_specification_for_its_main_thread_only() {
    let table = table(&[entry("/player", PLAYER, grant(1, 5))]);
    let running = [process(10, 1, PLAYER, 3), process(20, 1, OTHER, 0)];
    assert_eq!(summary(&at_start(&table, &running, &[])), [(10, Some(1))]);
}

#[test]
fn an_inherited_specification_reaches_all_threads_and_the_descendants_without_one() {
    let table = table(&[entry("/player", PLAYER, inherited(1, 5)), entry("/editor", EDITOR, grant(2, 5))]);
    let running = [
        process(10, 1, PLAYER, 1),
        process(20, 10, OTHER, 0),
        process(30, 20, OTHER, 0),
        process(40, 20, EDITOR, 1),
        process(50, 40, OTHER, 0),
    ];
    let expected = [(10, Some(1)), (11, Some(1)), (20, Some(1)), (30, Some(1)), (40, Some(2))];
    assert_eq!(summary(&at_start(&table, &running, &[])), expected);
}

#[test]
fn a_fork_that_executed_nothing_has_no_specification_of_its_own() {
    let table = table(&[entry("/player", PLAYER, grant(1, 5))]);
    let fork = Process { forked_without_exec: true, ..process(20, 10, PLAYER, 0) };
    let steps = at_start(&table, &[process(10, 1, PLAYER, 0), fork], &[]);
    assert_eq!(summary(&steps), [(10, Some(1))]);
}

#[test]
fn kernel_threads_are_matched_by_name_and_programs_of_that_name_are_not() {
    let subject = Subject::KernelThread(SpecPath::KernelThread("p".into()));
    let table = table(&[Entry { subject, ..entry("[p]", OTHER, grant(1, 5)) }]);
    let program = process(10, 1, OTHER, 0);
    let thread = Process {
        kernel_thread: true,
        forked_without_exec: true,
        executable: None,
        ..process(20, 2, OTHER, 0)
    };
    assert_eq!(summary(&at_start(&table, &[program, thread], &[])), [(20, Some(1))]);
}

#[test]
fn what_was_given_by_hand_goes_before_the_specification() {
    let table = table(&[entry("/player", PLAYER, grant(1, 5))]);
    let running = [process(10, 1, PLAYER, 0), process(20, 1, PLAYER, 0)];
    let by_hand = [
        ByHand { process: id(10), grant: Some(grant(0, 7)), user: 0, program: None },
        ByHand { process: id(20), grant: None, user: 0, program: None },
    ];
    let steps = at_start(&table, &running, &by_hand);
    assert_eq!(steps, [Step { tid: 10, pid: 10, grant: Some(grant(0, 7)), why: Why::Restored }]);
}

#[test]
fn what_was_given_to_a_process_is_not_given_to_another_with_its_pid() {
    let by_hand = [ByHand {
        process: TaskId { tid: 10, started_ticks: 99 },
        grant: Some(grant(0, 7)),
        user: 0,
        program: None,
    }];
    assert_eq!(at_start(&Table::default(), &[process(10, 1, OTHER, 0)], &by_hand), []);
}

/// The file alone tells nothing where a set-user-ID program executes itself.
#[test]
fn what_was_given_ends_when_anything_is_executed_be_it_the_same_file() {
    let before = Executed { device: 1, inode: 2, stack: Some(0x7ffc_0000), effective_user: Some(1000) };
    let other_rights = Executed { effective_user: Some(0), ..before };
    let other_stack = Executed { stack: Some(0x7ffd_0000), ..before };
    let other_file = Executed { inode: 3, ..before };
    let unknown = Executed { stack: None, effective_user: None, ..before };
    let by_hand = |grant, program| ByHand { process: id(10), grant: Some(grant), user: 0, program };
    for (now, ends) in
        [(before, false), (unknown, false), (other_rights, true), (other_stack, true), (other_file, true)]
    {
        assert_eq!(by_hand(grant(0, 7), Some(before)).ended_by_exec(Some(now)), ends, "{now:?}");
        // What is inherited lasts.
        assert!(!by_hand(inherited(0, 7), Some(before)).ended_by_exec(Some(now)));
        assert!(!by_hand(grant(0, 7), None).ended_by_exec(Some(now)));
    }
    assert!(!by_hand(grant(0, 7), Some(before)).ended_by_exec(None));
    // As an earlier daemon has written it, which knew the file alone.
    assert!(unknown.is_same(&before) && !unknown.is_same(&other_file));
}

#[test]
fn what_a_thread_was_given_by_hand_is_its_own_and_goes_before_what_its_process_has() {
    let table = table(&[entry("/player", PLAYER, inherited(1, 5))]);
    let running = [process(10, 1, PLAYER, 2), process(20, 1, OTHER, 1)];
    let by_hand = [
        ByHand { process: id(11), grant: Some(grant(0, 7)), user: 0, program: None },
        ByHand { process: id(12), grant: None, user: 0, program: None },
        ByHand { process: id(21), grant: Some(grant(0, 8)), user: 0, program: None },
        ByHand {
            process: TaskId { tid: 20, started_ticks: 99 },
            grant: Some(grant(0, 9)),
            user: 0,
            program: None,
        },
    ];
    let steps = at_start(&table, &running, &by_hand);
    assert_eq!(summary(&steps), [(11, Some(0)), (21, Some(0)), (10, Some(1))]);
    assert_eq!((steps[0].pid, &steps[0].why), (10, &Why::Restored));
    // A new specification passes them by.
    let holding = [held(11, 10, grant(0, 7)), held(21, 20, grant(0, 8))];
    let steps = at_reload(&Table::default(), &table, &running, &holding, &by_hand);
    assert_eq!(summary(&steps), [(10, Some(1))]);
}

#[test]
fn a_grant_that_is_kept_over_exec_goes_before_the_specification_of_a_child() {
    let table = table(&[entry("/editor", EDITOR, grant(2, 5))]);
    let kept = Grant { keep_over_exec: true, ..inherited(0, 7) };
    let running = [process(10, 1, OTHER, 0), process(20, 10, EDITOR, 0)];
    let by_hand = [ByHand { process: id(10), grant: Some(kept), user: 0, program: None }];
    assert_eq!(summary(&at_start(&table, &running, &by_hand)), [(10, Some(0)), (20, Some(0))]);
}

#[test]
fn reading_the_same_again_changes_nothing() {
    let table = table(&[entry("/player", PLAYER, grant(1, 5))]);
    // Process 20 holds nothing: a best-effort program started it.
    let running = [process(10, 1, PLAYER, 0), process(20, 1, PLAYER, 0)];
    assert_eq!(at_reload(&table, &table, &running, &[held(10, 10, grant(1, 5))], &[]), []);
}

#[test]
fn a_changed_specification_reaches_those_who_hold_it() {
    let old = table(&[entry("/player", PLAYER, grant(1, 5))]);
    let new = table(&[entry("/player", PLAYER, grant(1, 8))]);
    let running = [process(10, 1, PLAYER, 0), process(20, 1, PLAYER, 0)];
    let steps = at_reload(&old, &new, &running, &[held(10, 10, grant(1, 5))], &[]);
    let why = Why::Changed("/player".into());
    assert_eq!(steps, [Step { tid: 10, pid: 10, grant: Some(grant(1, 8)), why }]);
}

#[test]
fn a_removed_specification_is_taken_from_those_who_hold_or_inherited_it() {
    let old = table(&[entry("/player", PLAYER, inherited(1, 5))]);
    let running = [process(10, 1, PLAYER, 0), process(20, 10, OTHER, 0)];
    let holding = [held(10, 10, inherited(1, 5)), held(20, 20, inherited(1, 5))];
    let steps = at_reload(&old, &Table::default(), &running, &holding, &[]);
    assert_eq!(summary(&steps), [(10, None), (20, None)]);
}

#[test]
fn an_added_specification_reaches_running_programs_but_not_what_was_given_by_hand() {
    let new = table(&[entry("/player", PLAYER, grant(1, 5))]);
    let running = [process(10, 1, PLAYER, 0), process(20, 1, PLAYER, 0), process(30, 1, PLAYER, 0)];
    let by_hand = [ByHand { process: id(30), grant: None, user: 0, program: None }];
    let steps = at_reload(&Table::default(), &new, &running, &[held(20, 20, grant(0, 7))], &by_hand);
    assert_eq!(summary(&steps), [(10, Some(1))]);
}

#[test]
fn a_specification_that_is_no_longer_inherited_stays_with_the_program_itself() {
    let old = table(&[entry("/player", PLAYER, inherited(1, 5))]);
    let new = table(&[entry("/player", PLAYER, grant(1, 5))]);
    let running = [process(10, 1, PLAYER, 1), process(20, 10, OTHER, 0)];
    let holding = [10, 11].map(|tid| held(tid, 10, inherited(1, 5)));
    let child = held(20, 20, inherited(1, 5));
    let steps = at_reload(&old, &new, &running, &[holding[0], holding[1], child], &[]);
    assert_eq!(summary(&steps), [(11, None), (20, None), (10, Some(1))]);
}

#[test]
fn a_program_whose_file_was_replaced_while_it_ran_keeps_its_specification() {
    let old = table(&[entry("/player", PLAYER, grant(1, 5))]);
    let new = table(&[entry("/player", OTHER, grant(1, 5))]);
    let running = [process(10, 1, PLAYER, 0)];
    assert_eq!(at_reload(&old, &new, &running, &[held(10, 10, grant(1, 5))], &[]), []);
}

#[test]
fn one_file_with_two_names_is_told_to_the_mechanism_once() {
    let both = table(&[entry("/vi", EDITOR, grant(1, 5)), entry("/vim", EDITOR, grant(2, 9))]);
    assert_eq!(both.executables(), [(EDITOR, Some(grant(1, 5)))]);
    let conflicts = both.conflicts();
    assert_eq!(conflicts.len(), 1);
    assert_eq!((conflicts[0].0.name.as_str(), conflicts[0].1.name.as_str()), ("/vim", "/vi"));
    let alike = table(&[entry("/vi", EDITOR, grant(1, 5)), entry("/vim", EDITOR, grant(2, 5))]);
    assert!(alike.conflicts().is_empty());
}

#[test]
fn a_best_effort_specification_is_told_to_the_mechanism_and_conflicts_with_a_promise() {
    let both = table(&[best_effort("/indexer", EDITOR, 1), entry("/vim", EDITOR, grant(2, 9))]);
    assert_eq!(both.executables(), [(EDITOR, None)]);
    assert_eq!(both.conflicts().len(), 1);
}

#[test]
fn at_start_a_best_effort_program_inherits_nothing_and_passes_nothing_on() {
    let table = table(&[entry("/player", PLAYER, inherited(1, 5)), best_effort("/indexer", EDITOR, 2)]);
    let running = [process(10, 1, PLAYER, 0), process(20, 10, EDITOR, 1), process(30, 20, OTHER, 0)];
    assert_eq!(summary(&at_start(&table, &running, &[])), [(10, Some(1))]);
}

#[test]
fn a_program_that_becomes_best_effort_is_released_and_one_that_no_longer_is_gets_its_specification() {
    let without = table(&[entry("/player", PLAYER, inherited(1, 5))]);
    let with = table(&[entry("/player", PLAYER, inherited(1, 5)), best_effort("/indexer", EDITOR, 2)]);
    let promised =
        table(&[entry("/player", PLAYER, inherited(1, 5)), entry("/indexer", EDITOR, grant(2, 3))]);
    let running = [process(10, 1, PLAYER, 0), process(20, 10, EDITOR, 1)];
    let player = held(10, 10, inherited(1, 5));
    let children = [20, 21].map(|tid| held(tid, 20, inherited(1, 5)));
    let holding = [player, children[0], children[1]];
    assert_eq!(summary(&at_reload(&without, &with, &running, &holding, &[])), [(20, None), (21, None)]);
    assert_eq!(summary(&at_reload(&with, &promised, &running, &[player], &[])), [(20, Some(2))]);
    let holding = [player, held(20, 20, grant(2, 3))];
    assert_eq!(summary(&at_reload(&promised, &with, &running, &holding, &[])), [(20, None)]);
}

#[test]
fn at_start_room_goes_to_the_irrevocable_then_by_hand_then_in_the_order_of_the_files() {
    let irrevocable = Grant { revocable: false, ..grant(3, 5) };
    let entries = [
        entry("/player", PLAYER, inherited(1, 5)),
        entry("/editor", EDITOR, grant(2, 5)),
        entry("/init", OTHER, irrevocable),
    ];
    let third = FileIdentity { device: 1, inode: 40 };
    let running = [
        process(10, 1, third, 0),
        process(20, 1, EDITOR, 0),
        process(30, 1, PLAYER, 1),
        process(35, 30, third, 0),
        process(40, 1, PLAYER, 0),
        process(50, 1, OTHER, 0),
    ];
    let by_hand = [ByHand { process: id(10), grant: Some(grant(0, 7)), user: 0, program: None }];
    let order: Vec<i32> =
        at_start(&table(&entries), &running, &by_hand).iter().map(|step| step.tid).collect();
    // A thread after those programs of the same specification that do not inherit it.
    assert_eq!(order, [50, 10, 30, 40, 31, 35, 20]);
}

#[test]
fn parents_in_a_circle_do_not_hang_the_plan() {
    let running = [process(10, 20, OTHER, 0), process(20, 10, OTHER, 0)];
    assert_eq!(at_start(&Table::default(), &running, &[]), []);
}

#[test]
fn of_what_a_user_took_from_processes_the_last_is_remembered_and_nobody_elses_is_forgotten_for_it() {
    let released = |tid, user| ByHand { process: id(tid), grant: None, user, program: None };
    let given = ByHand { process: id(1), grant: Some(grant(0, 7)), user: 1000, program: None };
    let mut by_hand = vec![given, released(2, 1001), released(3, 1000), released(4, 1000), released(5, 1000)];
    bound_released(&mut by_hand, 1000, 2);
    assert_eq!(by_hand, [given, released(2, 1001), released(4, 1000), released(5, 1000)]);
    bound_released(&mut by_hand, 1000, 2);
    assert_eq!(by_hand.len(), 4);
}
