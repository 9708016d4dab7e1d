//! Steward's scheduler under storms of forks, cgroups, affinities, classes and CPUs that go off and on, on four
//! processors that truly run beside each other. `lab/scenarios/soak-4cpu.toml` is the same for half an hour.

use steward_lab::{Contender, RunOptions, run_scenario};

const SECONDS: u32 = 25;

fn scenario() -> String {
    let mut text = format!(
        "title = \"Storms\"\nduration = \"{}s\"\nrepeat = 1\ncontenders = [\"steward\"]\n[machine]\ncpus = 4\nmemory = \"1G\"\n",
        SECONDS + 2
    );
    text.push_str("[[program]]\nname = \"film\"\ncommand = \"frame-player --fps 25 --cpu-ms 4.5 --seconds 26\"\ncpu = \"5ms/30ms\"\n");
    for kind in ["fork", "cgroup", "affinity", "policy", "hotplug"] {
        text.push_str(&format!(
            "[[program]]\nname = \"{kind}\"\nmetrics = \"work\"\ncommand = \"storms --kind {kind} --seconds {SECONDS}\"\n"
        ));
    }
    text
}

#[test]
#[ignore = "boots the lab's machine: make test-kernel"]
fn the_scheduler_outlives_storms_on_four_processors() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("storms.toml");
    std::fs::write(&path, scenario()).unwrap();
    let outcome = run_scenario(&path, &RunOptions { quiet: true, ..RunOptions::default() }).unwrap();
    assert!(outcome.is_complete(), "{:?}", outcome.failures);
    // None of them was a calm.
    for kind in ["fork", "cgroup", "affinity", "policy", "hotplug"] {
        let rounds = outcome.contenders[&Contender::Steward][&format!("work_per_second_{kind}")];
        assert!(rounds > 0.0, "{kind}: {}", outcome.table());
    }
}
