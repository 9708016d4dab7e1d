//! What each contender is told about memory, and what is made of the counters.

use std::path::Path;

use super::*;
use crate::plan;
use crate::scenario::{Swap, TimedDisk};

const TEXT: &str = r#"
title = "keys"
duration = "60s"
contenders = ["stock", "min-by-hand", "min-wrong", "high-by-hand", "steward"]
ceiling = "700M"
[machine]
cpus = 1
memory = "1G"
icount_shift = 3
[machine.timed_disk]
kind = "5400rpm"
swap = "1G"
[[program]]
name = "editor"
command = "keystrokes"
protect = true
memory_size = "60M"
metrics = "reply"
[[program]]
name = "hog"
command = "memory-hog"
count = 2
apart = "1s"
metrics = "work"
"#;

fn scenario(text: &str) -> anyhow::Result<Scenario> {
    Scenario::parse(text, Path::new("t.toml"))
}

fn complaint(text: &str) -> String {
    format!("{:#}", scenario(text).expect_err("the text has a mistake"))
}

#[test]
fn each_contender_has_its_own_means_and_the_same_cgroups() {
    let scenario = scenario(TEXT).unwrap();
    let plan = plan::plan(&scenario, &scenario.contenders, 1).unwrap();
    let runs: Vec<_> = plan.runs.iter().filter(|run| run.contender != plan::PREPARATION).collect();
    let minima: Vec<_> = runs.iter().map(|run| run.programs[0].memory_min_bytes).collect();
    assert_eq!(minima, [None, Some(60 << 20), Some(20 << 20), None, None]);
    let ceilings: Vec<_> = runs.iter().map(|run| run.memory.as_ref().unwrap().ceiling_bytes).collect();
    assert_eq!(ceilings, [None, None, None, Some(700 << 20), None]);
    for run in &runs {
        assert_eq!(
            run.programs.iter().map(|program| program.protected).collect::<Vec<_>>(),
            [true, false, false]
        );
    }
    assert_eq!(runs[4].programs[0].command[..4], ["steward", "run", "--protect", "--"]);
    assert_eq!(runs[4].programs[1].command, ["memory-hog"]);
}

#[test]
fn the_disk_is_made_before_all_else_and_its_store_is_not_the_experiments_memory() {
    let scenario = scenario(&format!("{TEXT}[[prepare]]\ncommand = \"true\"\n")).unwrap();
    let plan = plan::plan(&scenario, &[Contender::Stock], 1).unwrap();
    assert_eq!(
        plan.runs[0].programs[0].command,
        ["sh", "/lab/timed-disk.sh", "5400rpm", "64", "1024", "ext4"]
    );
    assert_eq!(plan.runs[1].programs[0].command, ["true"]);
    let disk = scenario.machine.timed_disk.unwrap();
    assert_eq!(disk.store_mib(), 1089 + 37);
    let zram = TimedDisk { swap: Swap::Zram, ..disk };
    assert_eq!(
        (zram.store_mib(), zram.command().as_str()),
        (65 + 3, "sh /lab/timed-disk.sh 5400rpm 64 zram ext4")
    );
}

#[test]
fn programs_of_one_row_can_start_one_after_the_other() {
    let scenario = scenario(TEXT).unwrap();
    let plan = plan::plan(&scenario, &[Contender::Stock], 1).unwrap();
    let starts: Vec<_> = plan.runs[1].programs.iter().map(|program| program.start_ms).collect();
    assert_eq!(starts, [0, 0, 1000]);
}

#[test]
fn a_contender_that_would_know_nothing_is_refused() {
    assert!(complaint(&TEXT.replace("memory_size = \"60M\"", "")).contains("must be told the memory_size"));
    assert!(complaint(&TEXT.replace("ceiling = \"700M\"", "")).contains("must be told the ceiling"));
    assert!(complaint(&TEXT.replace("protect = true", "")).contains("nothing protects it"));
    let without = TEXT.replace("[machine.timed_disk]\nkind = \"5400rpm\"\nswap = \"1G\"\n", "");
    assert!(complaint(&without).contains("has a [machine.timed_disk]"));
    assert!(complaint(&TEXT.replace("icount_shift = 3", "icount_shift = 4")).contains("at most 3"));
    assert!(complaint(&TEXT.replace("swap = \"1G\"", "swap = \"much\"")).contains("write 512M or 2G"));
    assert!(complaint(&TEXT.replace("apart = \"1s\"", "apart = \"60s\"")).contains("would never run"));
}

#[test]
fn faults_are_added_up_and_programs_without_any_are_counted() {
    assert_eq!(fault_metrics("s 1\nr 5\nm 3\ns 9\nr 2\nm 0\n")["major_faults"], 3.0);
    assert!(fault_metrics("s 1\nr 5\n").is_empty());
    let program =
        |name: &str, faults| (name.to_owned(), Metrics::from([("major_faults".to_owned(), faults)]));
    let silent = ("c".to_owned(), Metrics::new());
    let counted = without_faults(&[program("a", 0.0), program("b", 2.0), silent]);
    assert_eq!(counted["programs_without_faults"], 1.0);
    assert!(without_faults(&[program("a", 0.0)]).is_empty());
}

#[test]
fn pages_of_swap_are_told_in_mebibytes() {
    let seen = MachineMemory { direct_reclaims: 5, oom_kills: 1, swapped_in: 512, swapped_out: 128 };
    let metrics = machine_metrics(&seen);
    assert_eq!((metrics["swapped_in_mib"], metrics["swapped_out_mib"]), (2.0, 0.5));
    assert_eq!((metrics["direct_reclaims"], metrics["oom_kills"]), (5.0, 1.0));
}

#[test]
fn what_is_free_at_the_start_is_told_with_how_much_of_it_lies_together() {
    let metrics = start_metrics(&FreeMemory { pages: 1024, huge_pages: 768 });
    assert_eq!((metrics["free_at_start_mib"], metrics["free_together_at_start"]), (4.0, 0.75));
    assert_eq!(start_metrics(&FreeMemory::default())["free_together_at_start"], 0.0);
}

#[test]
fn a_collectors_share_is_of_the_time_in_which_the_program_worked() {
    let text = "w 0 1000\ng 100 2\nw 1 1500\ng 200 5\nw 2 2000\ng 300 9\n";
    let told = collector_metrics(text);
    assert_eq!((told["collector_share"], told["collections"]), (0.2, 7.0));
    assert!(collector_metrics("w 0 1000\nw 1 1500\n").is_empty());
}

#[test]
fn shares_are_held_to_weights_from_five_seconds_after_each_change_to_one_before_the_next() {
    let at = |ms: u32, domains: &[(&str, u32, u32)]| {
        let lines =
            domains.iter().map(|(name, weight, kib)| format!("a {ms} {name} {weight} {kib} {weight}\n"));
        lines.collect::<String>()
    };
    let alone = at(0, &[("one", 20, 900)]);
    let changing = at(1000, &[("one", 20, 900), ("two", 40, 10)]);
    let settled =
        at(6000, &[("one", 20, 330), ("two", 40, 600)]) + &at(7000, &[("one", 20, 330), ("two", 40, 540)]);
    // The second one's program has ended, and its domain is still listed.
    let ending =
        at(7100, &[("one", 20, 330), ("two", 40, 0)]) + &at(8000, &[("one", 20, 900), ("two", 40, 0)]);
    let metrics = share_metrics(&(alone.clone() + &changing + &settled + &ending));
    // Of 1,800 KiB the first is due 600 and has 660; the second is due 1,200 and has 1,140.
    assert!((metrics["off_share_used"] - 0.1).abs() < 1e-9, "{metrics:?}");
    assert!(metrics["off_share_available"].abs() < 1e-9);
    assert!(share_metrics(&(alone + &changing)).is_empty());
}
