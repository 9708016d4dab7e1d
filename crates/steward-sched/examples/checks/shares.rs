//! Best-effort work: what the default scheduler honours is honoured.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use steward_core::cpu::mechanism::Mechanism;

use crate::programs::{
    Group, Program, cpus, measure, of_all_cpus, shared, threads_at_work, wait_until, waiting_for,
};
use crate::{Outcome, check};

const SECONDS: f64 = 4.0;

fn near(value: f64, wanted: f64, tolerance: f64) -> bool {
    (value / wanted - 1.0).abs() <= tolerance
}

fn rounded(values: &[f64]) -> Vec<i64> {
    values.iter().map(|value| value.round() as i64).collect()
}

/// Nice 0, 5 and 10 have the weights 1,024, 335 and 110 in the kernel's table.
pub fn nice_values_set_shares() -> Outcome {
    let scheduler = shared()?;
    let programs: Vec<Program> =
        [0, 5, 10, 0, 5, 10].iter().map(|&nice| Program::start(&["spin"]).nice(nice)).collect();
    sleep(Duration::from_secs(1));
    let times = measure(&programs.iter().collect::<Vec<_>>(), SECONDS);
    drop(scheduler);
    let (first, fifth, tenth) = (times[0] + times[3], times[1] + times[4], times[2] + times[5]);
    check!(
        near(first / fifth, 1024.0 / 335.0, 0.15),
        "nice 0 : 5 is {:.2}, times {:?}",
        first / fifth,
        rounded(&times)
    );
    check!(
        near(fifth / tenth, 335.0 / 110.0, 0.2),
        "nice 5 : 10 is {:.2}, times {:?}",
        fifth / tenth,
        rounded(&times)
    );
    Ok(format!("nice 0 : 5 = {:.2}, 5 : 10 = {:.2}", first / fifth, fifth / tenth))
}

/// Tasks that wait are given other nice values, move to another cgroup and back, and leave for another class, where
/// they stop. None of them counts afterwards: a loop beside a cgroup of three times its weight has a quarter. Did they,
/// the level's own tasks would count for as much as all that is below it, and it would have half.
pub fn changed_while_waiting() -> Outcome {
    let scheduler = shared()?;
    let group = Group::new("heavy").set("cpu.weight", "300");
    let waiting: Vec<Program> = (0..20).map(|_| Program::start(&["spin"])).collect();
    sleep(Duration::from_millis(500));
    for round in 0..8 {
        for program in &waiting {
            // SAFETY: a plain system call on our own child.
            unsafe {
                libc::setpriority(libc::PRIO_PROCESS, program.pid() as u32, [19, -20, 5, 0][round % 4])
            };
            for path in [group.0.join("cgroup.procs"), "/sys/fs/cgroup/cgroup.procs".into()] {
                fs::write(&path, program.pid().to_string()).map_err(|error| error.to_string())?;
            }
        }
        sleep(Duration::from_millis(20));
    }
    let parameters = libc::sched_param { sched_priority: 1 };
    for program in &waiting {
        // SAFETY: plain system calls on our own child.
        unsafe {
            libc::sched_setscheduler(program.pid(), libc::SCHED_FIFO, &parameters);
            libc::kill(program.pid(), libc::SIGSTOP);
        }
    }
    let (own, below) = (Program::start(&["spin"]), Program::start(&["spin"]).within(&group));
    sleep(Duration::from_secs(1));
    let times = measure(&[&own, &below], SECONDS);
    drop((own, below, waiting));
    drop(group);
    drop(scheduler);
    let share = times[0] / (times[0] + times[1]);
    check!(near(share, 0.25, 0.05), "{share:.3} of the CPU, 0.25 wanted");
    Ok(format!("{share:.3} of the CPU beside three times the weight"))
}

/// a (300) with children a1 (100) and a2 (200) beside b (100): 25 %, 50 %, 25 %, however many tasks each has.
pub fn cgroup_weights() -> Outcome {
    let scheduler = shared()?;
    let a = Group::new("a").set("cpu.weight", "300");
    let a1 = Group::new("a/a1").set("cpu.weight", "100");
    let a2 = Group::new("a/a2").set("cpu.weight", "200");
    let b = Group::new("b").set("cpu.weight", "100");
    let start = |group: &Group, count: usize| -> Vec<Program> {
        (0..count).map(|_| Program::start(&["spin"]).within(group)).collect()
    };
    let (in_a1, in_a2, in_b) = (start(&a1, 2), start(&a2, 3), start(&b, 8));
    sleep(Duration::from_secs(1));
    let all: Vec<&Program> = in_a1.iter().chain(&in_a2).chain(&in_b).collect();
    let times = measure(&all, of_all_cpus(SECONDS));
    let total: f64 = times.iter().sum();
    let shares = [&times[..2], &times[2..5], &times[5..]].map(|part| part.iter().sum::<f64>() / total);
    drop((in_a1, in_a2, in_b));
    drop((a1, a2, b));
    drop(a);
    drop(scheduler);
    check!(
        near(shares[0], 0.25, 0.1) && near(shares[1], 0.5, 0.1) && near(shares[2], 0.25, 0.1),
        "shares {shares:.3?}, wanted 0.25, 0.5, 0.25"
    );
    Ok(format!("shares {shares:.3?}"))
}

/// A cgroup with cpu.idle = 1 gets about 3 of 1,027 beside a normal one.
pub fn idle_cgroup() -> Outcome {
    let scheduler = shared()?;
    let idle = Group::new("idle").set("cpu.idle", "1");
    let normal = Group::new("normal");
    let lazy: Vec<Program> = (0..2).map(|_| Program::start(&["spin"]).within(&idle)).collect();
    let busy: Vec<Program> = (0..2).map(|_| Program::start(&["spin"]).within(&normal)).collect();
    sleep(Duration::from_secs(1));
    let times = measure(&lazy.iter().chain(&busy).collect::<Vec<_>>(), SECONDS);
    let share = (times[0] + times[1]) / times.iter().sum::<f64>();
    drop(busy);
    let alone = measure(&lazy.iter().collect::<Vec<_>>(), 1.0).iter().sum::<f64>();
    drop(lazy);
    drop((idle, normal));
    drop(scheduler);
    check!(share < 0.02, "the idle cgroup got {share:.4} beside a busy one");
    check!(alone > 900.0, "alone the idle cgroup got {alone:.0} ms in a second");
    Ok(format!("share {share:.4} beside a busy cgroup, {alone:.0} ms a second alone"))
}

/// Half of a CPU for the parent, a fifth for one child: both hold, however many CPUs their tasks are on, and the rest
/// of the parent goes to the other child. Beside loops of others too, which have all that is left.
pub fn cpu_max() -> Outcome {
    let scheduler = shared()?;
    let parent = Group::new("max").set("cpu.max", "50000 100000");
    let tight = Group::new("max/tight").set("cpu.max", "20000 100000");
    let loose = Group::new("max/loose");
    let in_tight: Vec<Program> = (0..2).map(|_| Program::start(&["spin"]).within(&tight)).collect();
    let in_loose: Vec<Program> = (0..2).map(|_| Program::start(&["spin"]).within(&loose)).collect();
    sleep(Duration::from_secs(1));
    let seconds = of_all_cpus(SECONDS);
    let alone = measure(&in_tight.iter().chain(&in_loose).collect::<Vec<_>>(), seconds);
    let (other, seconds_beside) = (Group::new("other"), of_all_cpus(2.0));
    let others = Program::on_each_cpu(&["spin"], &other);
    let beside =
        measure(&in_tight.iter().chain(&in_loose).chain(&others).collect::<Vec<_>>(), seconds_beside);
    drop((in_tight, in_loose, others));
    drop((tight, loose, other));
    drop(parent);
    drop(scheduler);
    let share = |times: &[f64], seconds: f64| times.iter().sum::<f64>() / (seconds * 1e3);
    let (tight_share, total_share) = (share(&alone[..2], seconds), share(&alone, seconds));
    check!(near(tight_share, 0.2, 0.15), "the child got {tight_share:.3} of a CPU, limit 0.2");
    check!(near(total_share, 0.5, 0.1), "the parent got {total_share:.3} of a CPU, limit 0.5");
    let (limited, rest) = (share(&beside[..4], seconds_beside), share(&beside[4..], seconds_beside));
    check!(near(limited, 0.5, 0.1), "beside loops of others the parent got {limited:.3} of a CPU, limit 0.5");
    let left = cpus() as f64 - 0.5;
    check!(near(rest, left, 0.1), "the others got {rest:.3} of the {left:.1} CPUs that are left");
    Ok(format!(
        "child {tight_share:.3} of 0.2, parent {total_share:.3} of 0.5; beside others {limited:.3}, and these {rest:.3}"
    ))
}

/// Somebody who changes the quota of a cgroup of their own a thousand times a second puts off nobody's refill.
pub fn flipped_quota() -> Outcome {
    let scheduler = shared()?;
    let limited = Group::new("limited").set("cpu.max", "20000 100000");
    let flipped = Group::new("flipped");
    let service = Program::start(&["spin"]).within(&limited);
    let file = flipped.0.join("cpu.max");
    let ends = Arc::new(AtomicBool::new(false));
    let flips = std::thread::spawn({
        let ends = Arc::clone(&ends);
        move || {
            let mut flips = 0u32;
            while !ends.load(Ordering::Relaxed) {
                let text = if flips.is_multiple_of(2) { "1000 100000" } else { "2000 100000" };
                fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
                flips += 1;
                sleep(Duration::from_millis(1));
            }
            Ok::<u32, String>(flips)
        }
    });
    let share = measure(&[&service], 5.0)[0] / 5e3;
    ends.store(true, Ordering::Relaxed);
    let flips = flips.join().expect("it does not panic")?;
    drop((service, limited, flipped, scheduler));
    check!(flips > 1000, "only {flips} changes");
    check!(near(share, 0.2, 0.05), "{share:.3} of a CPU beside {flips} changes, limit 0.2");
    Ok(format!("{share:.3} of 0.2 beside {flips} changes of another one"))
}

/// Tasks pinned to CPU 0 beside tasks that may run anywhere: nobody starves, and equals among themselves are equal.
pub fn pinned_tasks() -> Outcome {
    let scheduler = shared()?;
    let pinned: Vec<Program> = (0..2).map(|_| Program::start(&["spin"]).pin(0)).collect();
    let free: Vec<Program> = (0..4).map(|_| Program::start(&["spin"])).collect();
    sleep(Duration::from_secs(1));
    let times = measure(&pinned.iter().chain(&free).collect::<Vec<_>>(), SECONDS);
    drop((pinned, free));
    drop(scheduler);
    let fair = SECONDS * 1e3 * 2.0 / 6.0;
    for &time in &times {
        check!(near(time, fair, 0.25), "times {:?} ms, fair is {fair:.0}", rounded(&times));
    }
    Ok(format!("times {:?} ms, fair is {fair:.0}", rounded(&times)))
}

/// A nice 19 task against loops at nice -20, and many tasks in a cgroup with a thousandth of a CPU: the scheduler
/// stays, and each of them gets a little in 14 s: who has waited for twelve is rescued.
pub fn rescue() -> Outcome {
    let scheduler = shared()?;
    // All start as equals, and become unequal then: starting beside forty loops at nice -20 takes minutes.
    let light = Program::start(&["spin"]);
    let tight = Group::new("tight").set("cpu.max", "1000 1000000");
    let held: Vec<Program> = (0..8).map(|_| Program::start(&["spin"]).within(&tight)).collect();
    let heavy: Vec<Program> = (0..20).map(|_| Program::start(&["spin"])).collect();
    let heavy: Vec<Program> = heavy.into_iter().map(|program| program.nice(-20)).collect();
    let light = light.nice(19);
    const SECONDS: f64 = 14.0;
    let all: Vec<&Program> = held.iter().chain([&light]).chain(&heavy).collect();
    let times = measure(&all, SECONDS);
    let reason = scheduler.exit_reason();
    let (times, heavy_times) = times.split_at(held.len() + 1);
    let heavy_share = heavy_times.iter().sum::<f64>() / (SECONDS * 1e3);
    drop(heavy);
    let _ = fs::write(tight.0.join("cgroup.kill"), "1");
    drop((held, light));
    drop(tight);
    drop(scheduler);
    check!(reason.is_none(), "the scheduler left: {reason:?}");
    check!(times.iter().all(|&time| time > 0.0), "somebody got nothing in {SECONDS} s: {times:.2?} ms");
    check!(heavy_share > 0.9, "the heavy ones got {heavy_share:.3} of the CPU");
    let least = times.iter().copied().fold(f64::INFINITY, f64::min);
    Ok(format!("the least got {least:.2} ms in {SECONDS} s, the heavy ones {heavy_share:.3} of the CPU"))
}

/// Thousands of threads with a thousandth of a CPU among them, and nothing else that could run: each goes on long
/// before the kernel takes the scheduler out, which it does when one has waited for 30 s.
pub fn rescue_of_thousands() -> Outcome {
    const THREADS: usize = 2000;
    let scheduler = shared()?;
    let tight = Group::new("tight");
    let crowd = Program::start(&["spin-crowd", &THREADS.to_string()]).within(&tight);
    let threads = threads_at_work(crowd.pid(), THREADS)?;
    let tight = tight.set("cpu.max", "1000 1000000");
    sleep(Duration::from_millis(500));
    let waiting = waiting_for(&threads, 15.5);
    let reason = scheduler.exit_reason();
    let _ = fs::write(tight.0.join("cgroup.kill"), "1");
    drop(crowd);
    drop(tight);
    drop(scheduler);
    check!(reason.is_none(), "the scheduler left: {reason:?}");
    check!(waiting == 0, "after 16 s {waiting} of {THREADS} have not gone on");
    Ok(format!("each of {THREADS} went on within 16 s"))
}

/// Many cgroups, made and removed while tasks run in them, or with a task that has ended and that nobody has waited
/// for: all of their places in the table of domains are free again, whenever the kernel says that such a task is gone.
/// They are given out again, the first ones first: so what is gone through every few milliseconds is hardly longer than
/// there are domains.
pub fn cgroups_come_and_go() -> Outcome {
    const ROUNDS: usize = 4;
    const GROUPS: usize = 20;
    /// More than other checks make at once, and far fewer than there is room for.
    const MANY: usize = 200;
    // A place is freed with a sample, which is taken once a second.
    const FREED: Duration = Duration::from_millis(2100);
    let mut scheduler = shared()?;
    for round in 0..60 {
        let group = Group::new(&format!("brief-{round}"));
        let program = Program::start(&["spin"]).within(&group);
        sleep(Duration::from_millis(20));
        drop(group);
        drop(program);
    }
    sleep(FREED);
    let (used_before, places_before) = scheduler.domain_places();
    for round in 0..ROUNDS {
        let group = Group::new(&format!("brief-of-one-that-ended-{round}"));
        let ended = Program::start(&["spin"]).within(&group);
        // SAFETY: plain system call on our own child.
        unsafe { libc::kill(ended.pid(), libc::SIGKILL) };
        drop(group);
        sleep(FREED);
        let groups: Vec<Group> =
            (0..GROUPS).map(|number| Group::new(&format!("brief-again-{number}"))).collect();
        drop(ended);
        drop(groups);
        sleep(FREED);
    }
    let (used, places) = scheduler.domain_places();
    let reason = scheduler.exit_reason();
    check!(reason.is_none(), "the scheduler left: {reason:?}");
    drop(scheduler);
    let left = fs::read_dir("/sys/fs/cgroup")
        .map(|entries| {
            entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with("brief")).count()
        })
        .unwrap_or(0);
    check!(left == 0, "{left} cgroups are left");
    check!(used == used_before, "{used} places are in use, {used_before} were before");
    check!(places <= places_before, "{places} places are gone through, {places_before} were before");
    check!(places <= used + MANY, "{places} places are gone through, and {used} of them in use");
    Ok(format!(
        "{} cgroups, {places} places are gone through, of which {used} are used",
        60 + ROUNDS * (GROUPS + 1)
    ))
}

/// On a machine with two CPUs of which one is off, a domain whose only task is pinned gets what its weight says: one
/// part in ten, neither more nor less, beside a domain whose tasks may run everywhere.
pub fn pinned_beside_offline() -> Outcome {
    let scheduler = shared()?;
    let (pinned, free) = (Group::new("pinned"), Group::new("free").set("cpu.weight", "900"));
    let online = "/sys/devices/system/cpu/cpu1/online";
    let confined = Program::start(&["spin"]).within(&pinned).pin(0);
    let others: Vec<Program> = (0..3).map(|_| Program::start(&["spin"]).within(&free)).collect();
    fs::write(online, "0").map_err(|error| format!("{online}: {error}"))?;
    // The scheduler counts the CPUs once a second.
    sleep(Duration::from_millis(1500));
    let times = measure(&others.iter().chain([&confined]).collect::<Vec<_>>(), 5.0);
    fs::write(online, "1").map_err(|error| format!("{online}: {error}"))?;
    let share = times[3] / times.iter().sum::<f64>();
    let reason = scheduler.exit_reason();
    drop((confined, others));
    drop((pinned, free));
    drop(scheduler);
    check!(reason.is_none(), "the scheduler left: {reason:?}");
    check!(near(share, 0.1, 0.1), "the pinned one got {share:.3} of the CPU, due 0.1");
    Ok(format!("{share:.3} of the CPU, due 0.1"))
}

/// Of two CPUs two cgroups are confined to the first, one of them later, beside one that may use both and is due less
/// than the second: they have fallen behind its clock, and share the first by their weights all the same.
pub fn confined_later() -> Outcome {
    let scheduler = shared()?;
    let (first, later) = (Group::new("first"), Group::new("later"));
    let free = Group::new("free").set("cpu.weight", "25");
    let confined = |group: &Group| -> Vec<Program> {
        (0..2).map(|_| Program::start(&["spin"]).within(group).pin(0)).collect()
    };
    let mut programs: Vec<Program> = (0..2).map(|_| Program::start(&["spin"]).within(&free)).collect();
    programs.extend(confined(&first));
    sleep(Duration::from_secs(2));
    // It has its turns elsewhere before.
    let moment = Program::start(&["spin"]).within(&later);
    sleep(Duration::from_millis(200));
    drop(moment);
    programs.extend(confined(&later));
    let times = measure(&programs.iter().collect::<Vec<_>>(), 3.0);
    let reason = scheduler.exit_reason();
    drop(programs);
    drop((first, later, free));
    drop(scheduler);
    let [free, first, later] = [0, 2, 4].map(|place| (times[place] + times[place + 1]) / 3000.0);
    check!(reason.is_none(), "the scheduler left: {reason:?}");
    check!(
        near(later, 0.5, 0.1) && near(first, 0.5, 0.1) && free > 0.9,
        "of the first CPU {first:.3} and {later:.3}, and {free:.3} for whom may use both"
    );
    Ok(format!("of the first CPU {first:.3} and {later:.3}, and {free:.3} for whom may use both"))
}

/// Two cgroups share the first of two CPUs. Of one of them the task is changed from the other CPU again and again, and
/// its domain pays for it all the same where it ran.
pub fn reniced_from_elsewhere() -> Outcome {
    let scheduler = shared()?;
    let (first, second, other) = (Group::new("first"), Group::new("second"), Group::new("other"));
    let confined = |group: &Group| Program::start(&["spin"]).within(group).pin(0);
    let programs = [confined(&first), confined(&second)];
    let changer = Program::start(&["renice", &programs[1].pid().to_string()]).within(&other).pin(1);
    sleep(Duration::from_secs(1));
    let times = measure(&programs.iter().collect::<Vec<_>>(), 3.0);
    let reason = scheduler.exit_reason();
    drop(changer);
    drop(programs);
    drop((first, second, other));
    drop(scheduler);
    let [first, second] = [times[0], times[1]].map(|ms| ms / 3000.0);
    check!(reason.is_none(), "the scheduler left: {reason:?}");
    check!(first > 0.4 && second < 0.55, "of the first CPU {first:.3}, and {second:.3} for who is changed");
    Ok(format!("of the first CPU {first:.3}, and {second:.3} for who is changed"))
}

/// Somebody with a cgroup of their own makes 4,093 below it: others can still make some, which get what they weigh;
/// those beyond the limit belong to their parent's domain, are counted, and leave nothing behind.
pub fn thousands_of_cgroups() -> Outcome {
    let mut scheduler = shared()?;
    let user = Group::new("user");
    fs::write(user.0.join("cgroup.subtree_control"), "+cpu").map_err(|error| error.to_string())?;
    let many: Vec<_> = (0..4093).map(|number| user.0.join(format!("many-{number}"))).collect();
    for directory in &many {
        fs::create_dir(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    }
    let without = scheduler.cgroups_without_domain();
    let within = Program::start(&["spin"]);
    let last = many.last().ok_or("there are some")?.join("cgroup.procs");
    fs::write(last, within.pid().to_string()).map_err(|error| error.to_string())?;
    let (light, heavy) = (Group::new("light"), Group::new("heavy").set("cpu.weight", "300"));
    let services = [&light, &heavy].map(|group| Program::start(&["spin"]).within(group));
    let times = measure(&[&within, &services[0], &services[1]], SECONDS);
    drop((within, services));
    drop((light, heavy));
    let gone = many.iter().filter(|directory| remove(directory)).count();
    drop(user);
    let back = wait_until(10.0, || scheduler.cgroups_without_domain() == 0);
    let reason = scheduler.exit_reason();
    let freed = wait_until(10.0, || scheduler.domains().is_ok_and(|domains| domains.len() < 100));
    let (mut used, mut places) = (0, 0);
    // Those that are left were there before the many.
    let lowered = wait_until(10.0, || {
        (used, places) = scheduler.domain_places();
        places < 200
    });
    drop(scheduler);
    check!(reason.is_none(), "the scheduler left: {reason:?}");
    check!(without > 0, "all 4,093 have domains of their own");
    let total: f64 = times.iter().sum();
    let shares = [times[0] / total, times[1] / total, times[2] / total];
    check!(
        near(shares[0], 0.2, 0.1) && near(shares[1], 0.2, 0.1) && near(shares[2], 0.6, 0.1),
        "shares {shares:.3?}, wanted 0.2, 0.2, 0.6"
    );
    check!(
        gone == many.len() && back && freed,
        "{gone} are gone, counted to the end: {back}, freed: {freed}"
    );
    check!(lowered, "{places} places are gone through for {used} domains");
    Ok(format!("{without} of 4,093 without a domain, shares {shares:.3?}"))
}

/// Removes a cgroup whose tasks may still be ending.
fn remove(directory: &std::path::Path) -> bool {
    wait_until(10.0, || fs::remove_dir(directory).is_ok())
}
