//! Scenario files: what is read, and what is refused.

use std::path::Path;

use super::*;
use crate::ScenarioFile;
use crate::cpu::program::Phase;

fn parse(text: &str) -> Result<ScenarioFile, String> {
    ScenarioFile::parse(Path::new("a.toml"), text).map_err(|problem| problem.to_string())
}

fn scenario(text: &str) -> Scenario {
    parse(text).and_then(|file| file.scenario(&[]).map_err(|problem| problem.to_string())).unwrap()
}

const LOOP: &str = "[[task]]\nname = \"loop\"\nprogram = [{ run = \"forever\" }]\n";

#[test]
fn an_empty_file_is_a_machine_with_nothing_to_do() {
    assert_eq!(scenario(""), Scenario::default());
}

#[test]
fn everything_that_a_file_may_say_is_read() {
    let text = r#"
        seed = 7
        duration = "3s"
        warmup = "1s"
        [machine]
        cpus = 4
        tick = "1ms"
        [best_effort]
        order = "wrr"
        service_cycle = "100ms"
        preemption_interval = "1ms"
        [thresholds]
        reactivate_below = 0.5
        admit_below = 0.6
        revoke_above = 0.7
        [[buffer]]
        name = "pieces"
        capacity = 3
        level = 2
        [[domain]]
        name = "desk"
        weight = 200
        cpu = "50%"
        [[domain]]
        name = "film"
        parent = "desk"
        cpu = 0.25
        priority = 6
        max = "20ms/100ms"
        [[task]]
        name = "player"
        domain = "film"
        count = 2
        nice = -5
        start = "uniform 0ms 5ms"
        pin = 3
        cpu = "5ms/30ms"
        irrevocable = true
        repeat = 9
        program = [{ take = "pieces" }, { run = "exponential 4ms" }, { disk = "2ms" }, { sleep = "1ms" }, { wait = "1ms" },
                   { put = "pieces" }, { until = "40ms" }]
    "#;
    let scenario = scenario(text);
    assert_eq!((scenario.seed, scenario.duration_ns, scenario.warmup_ns), (7, 3_000_000_000, 1_000_000_000));
    assert_eq!(scenario.machine, MachineSettings { cpus: 4, tick_ns: 1_000_000 });
    assert_eq!(scenario.best_effort.order, steward_core::cpu::best_effort::BestEffortOrder::Wrr);
    assert_eq!(scenario.thresholds.admit_below, 600_000);
    assert_eq!(scenario.domains[1].parent, Some(0));
    assert_eq!(scenario.domains[1].reserved, 0.25);
    assert_eq!(scenario.domains[1].quota, Some((20_000_000, 100_000_000)));
    let player = &scenario.tasks[0];
    assert_eq!(player.domains, [Some(1)]);
    assert_eq!((player.count, player.weight, player.pinned), (2, 305, CpuSet::of([3])));
    let (reservation, revocable) = player.reservation.unwrap();
    assert_eq!((reservation.to_string().as_str(), revocable), ("5ms/30ms", false));
    assert_eq!(player.programs[0].repeat, Some(9));
    assert_eq!(player.programs[0].phases[6], Phase::Until(40_000_000));
}

#[test]
fn each_copy_can_have_a_domain_of_its_own() {
    let scenario = scenario(&LOOP.replace("name", "count = 3\nown_domains = true\nname"));
    let names: Vec<&str> = scenario.domains.iter().map(|domain| domain.name.as_str()).collect();
    assert_eq!(names, ["loop.1", "loop.2", "loop.3"]);
    assert_eq!(scenario.tasks[0].domains, [Some(0), Some(1), Some(2)]);
}

#[test]
fn a_sweep_is_every_combination() {
    let text = format!("{LOOP}[sweep]\n\"machine.cpus\" = [1, 2]\n\"task.loop.count\" = [3, 4]\n");
    let file = parse(&text).unwrap();
    let points = file.points();
    assert_eq!(points.len(), 4);
    let last = file.scenario(&points[3]).unwrap();
    assert_eq!((last.machine.cpus, last.tasks[0].count), (2, 4));
}

#[test]
fn every_error_names_the_line_and_what_to_do() {
    let with_loop = |text: &str| format!("{text}\n{LOOP}");
    let cases = [
        (with_loop("[machine]\ncpus = 0"), "a.toml:2: cpus is 0; write a number from 1 to 512"),
        (with_loop("[machine]\ncores = 1"), "a.toml:2: unknown field `cores`"),
        (with_loop("duration = \"0s\""), "a.toml:1: this time must not be 0"),
        (with_loop("duration = \"1s\"\nwarmup = \"1s\""), "a.toml:2: the warm-up takes the whole run"),
        (with_loop("duration = \"1 m\""), "a.toml:1: \"1 m\" could be minutes or milliseconds"),
        (with_loop("[best_effort]\norder = \"cfs\""), "a.toml:2: there is no order \"cfs\""),
        (with_loop("[[domain]]\nname = \"a\"\ncpu = \"0.5.1\""), "a.toml:3: \"0.5.1\" is not a fraction"),
        (
            with_loop("[[domain]]\nname = \"a\"\ncpu = 1.5"),
            "a.toml:3: 1.5 is not a fraction of the parent's CPU",
        ),
        (with_loop("[[domain]]\nname = \"a\"\nparent = \"b\""), "a.toml:3: there is no domain \"b\" above"),
        (
            with_loop("[[domain]]\nname = \"a\"\ncpu = 0.6\n[[domain]]\nname = \"b\"\ncpu = 0.5"),
            "110.0% of the CPU of the root is reserved; reserve at most 100% on one level",
        ),
        (format!("{LOOP}{LOOP}"), "a.toml:5: there are two tasks \"loop\""),
        (LOOP.replace("run", "walk"), "a.toml:3: unknown field `walk`"),
        (LOOP.replace("forever", "exponential"), "a.toml:3: \"exponential\" is not a duration"),
        (LOOP.replace("forever", "uniform 2ms 1ms"), "limits the wrong way round"),
        (LOOP.replace("forever", "0ms"), "a.toml:3: the program of loop takes no time"),
        (LOOP.replace("run = \"forever\"", "take = \"x\""), "a.toml:3: there is no buffer \"x\""),
        (LOOP.replace("{ run", "{ sleep = \"1ms\", run"), "a.toml:3: a phase is exactly one thing"),
        (LOOP.replace("program", "cpu = \"40ms/30ms\"\nprogram"), "a.toml:3: 40ms of CPU time do not fit"),
        (LOOP.replace("program", "nice = 20\nprogram"), "a.toml:3: there is no nice value 20"),
    ];
    for (text, expected) in cases {
        let message = parse(&text).expect_err(expected);
        assert!(message.contains(expected), "{message}\nis not\n{expected}");
        assert!(message.contains("; "), "{message} says what to do");
    }
}

#[test]
fn a_setting_that_fits_nowhere_is_refused_with_its_key() {
    let file = parse(LOOP).unwrap();
    let refused = |key: &str, value: &str| {
        file.scenario(&[(key.to_owned(), value.to_owned())]).unwrap_err().to_string()
    };
    assert!(refused("task.other.count", "1").contains("nothing to set with \"task.other.count\""));
    assert!(refused("task.loop.colour", "1").contains("with task.loop.colour=1: unknown field `colour`"));
    assert!(refused("machine.cpus", "1000").contains("with machine.cpus=1000: cpus is 1000"));
    let fewer = file.scenario(&[("task.loop.count".to_owned(), "0".to_owned())]).unwrap();
    assert_eq!(fewer.tasks[0].count, 0);
}

#[test]
fn nice_values_weigh_what_they_do_in_the_kernel() {
    assert_eq!([-20, 0, 19].map(weight_of_nice), [8668, 100, 1]);
}
