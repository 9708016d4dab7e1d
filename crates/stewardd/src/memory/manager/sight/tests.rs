//! What is seen of cgroups in files that stand in for the kernel's, and what seeing costs.

use steward_core::memory::source::Choice;

use super::super::orders::Ordered;
use super::*;

const MIB: u64 = 1 << 20;

fn part(parent: Option<usize>, mib: u64) -> Part {
    Part { parent, charged_bytes: mib * MIB, is_ordered: false }
}

#[test]
fn a_part_of_which_the_most_is_not_seen_counts_as_one() {
    let seen = [part(None, 200), part(Some(0), 190), part(Some(1), 180), part(None, 50)];
    assert_eq!(folded(&seen, 1), [false; 4]);
    // The hog is in one that is not listed; what is seen beside it is empty.
    let hidden = [part(None, 200), part(Some(0), 190), part(Some(1), 0), part(Some(1), 1), part(None, 50)];
    assert_eq!(folded(&hidden, 2), [false, false, true, true, false]);
    assert_eq!(folded(&hidden, 3), [false; 5], "all of them are listed");
    let deeper = [part(None, 200), part(Some(0), 10), part(Some(1), 10)];
    assert_eq!(folded(&deeper, 2), [false, true, true]);
    let little = [part(None, 15), part(Some(0), 0)];
    assert_eq!(folded(&little, 1), [false, false], "the kernel's own");
}

/// Files of 200 cgroups with 50 to 150 MiB each, 20 GB in all, half of them protected, as a kernel
/// with MGLRU writes them. There are no
/// pages: their numbers are in a list of generations, of which a quarter of each cgroup's was idle for an hour.
fn with_200_cgroups(directory: &std::path::Path) -> (Roots, Orders) {
    let roots = Roots::under(directory);
    let write = |path: std::path::PathBuf, text: &str| {
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        std::fs::write(path, text).expect("written");
    };
    for name in ["meminfo", "zoneinfo", "vmstat"] {
        let text =
            std::fs::read_to_string(std::path::Path::new("/proc").join(name)).expect("every Linux has it");
        write(roots.proc.join(name), &text);
    }
    let (mut listed, mut orders) = ("memcg     1 /\n node     0\n".to_owned(), Orders::default());
    for number in 0..200_u64 {
        let name = format!("domain-{number}");
        let cgroup = roots.cgroup.join(&name);
        write(cgroup.join("memory.current"), &format!("{}\n", (50 + number * 100 / 199) * MIB));
        write(cgroup.join("memory.stat"), "anon 73400320\nfile 31457280\nfile_dirty 0\n");
        for (file, text) in [("memory.min", "0\n"), ("memory.low", "0\n"), ("memory.max", "max\n")] {
            write(cgroup.join(file), text);
        }
        write(cgroup.join("memory.high"), "max\n");
        write(cgroup.join("cpu.weight"), "100\n");
        listed += &format!("memcg {} /{name}\n node     0\n", number + 2);
        for (sequence, age_ms) in [(1, 5_400_000), (2, 3_600_000), (3, 900_000), (4, 10_000)] {
            listed += &format!("{sequence:11} {age_ms:10} {:10} {:10}\n", 4480, 1920);
        }
        let protect_ns = (number % 2 == 0).then_some(1_800_000_000_000);
        orders.domains.insert(name, Ordered { protect_ns, ..Default::default() });
    }
    write(roots.sys.join("kernel/debug/lru_gen"), &listed);
    write(roots.sys.join("kernel/mm/lru_gen/enabled"), "0x0007\n");
    (roots, orders)
}

/// How many times this thread has read, and how many bytes.
fn read_by_this_thread() -> (u64, u64) {
    let text = std::fs::read_to_string("/proc/thread-self/io").expect("the kernel counts them");
    let of = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("it is among them");
        line.trim().parse().expect("a number")
    };
    (of("syscr:"), of("rchar:"))
}

#[test]
fn what_the_loop_costs_with_200_domains_and_20_gb_is_measured_and_its_reads_are_bounded() {
    use steward_core::memory::manager::{Manager, Settings};

    const LOOKS: u64 = 80;
    let directory = tempfile::tempdir_in("/dev/shm").expect("every Linux has it");
    let (roots, orders) = with_200_cgroups(directory.path());
    let tree = CgroupTree::open_any(&roots).expect("it is there");
    let mut sight = Sight::of(tree, String::new(), &roots);
    let (mut manager, file_uses) = (Manager::default(), FileUses::default());
    let settings = Settings { reserve_bytes: 16 * MIB, reservable: 0.8 };
    let (mut seen_ns, mut decided_ns, mut seen) = (0, 0, 0);
    let before = read_by_this_thread();
    for look in 0..LOOKS {
        let now_ns = (1 + look) * 250_000_000;
        let begun_ns = crate::turn::clock::cpu_time_ns();
        let view = sight.look(now_ns, &orders, &file_uses).expect("it can be read");
        let looked_ns = crate::turn::clock::cpu_time_ns();
        let machine = Machine { free_bytes: 0, total_bytes: 24 << 30, ..view.machine };
        let decision = manager.decide(now_ns, &machine, &view.domains, &settings);
        decided_ns += crate::turn::clock::cpu_time_ns() - looked_ns;
        seen_ns += looked_ns - begun_ns;
        seen = view.domains.len();
        assert_eq!((decision.kept.len(), decision.victims.is_empty()), (100, false));
    }
    let after = read_by_this_thread();
    let (calls, bytes) = (after.0 - before.0, after.1 - before.1);
    let idle: u64 = sight.read.values().map(|read| read.idle_bytes(1_800_000_000_000, u64::MAX)).sum();
    let percent = |ns: u64| ns as f64 / (LOOKS * 250_000_000) as f64 * 100.0;
    println!(
        "{seen} domains, {} MiB of protected ones idle: looking {:.3} %, deciding {:.3} % of a CPU; ageing at most 0.4 %; \
         {} reads of {} bytes a look",
        idle / MIB,
        percent(seen_ns),
        percent(decided_ns),
        calls / LOOKS,
        bytes / LOOKS
    );
    // What it costs in time is in docs/memory.md; what is counted here is the same on every machine. Of each what
    // is charged to it, four times a second; of protected ones where it is, once a second; what it may have, once
    // in five; the ages of all, once a second.
    assert!(idle > 0 && calls / LOOKS < 200 + 100 + 40 + 60, "{calls} reads in {LOOKS} looks");
    assert!(bytes / LOOKS < 60_000, "{bytes} bytes in {LOOKS} looks");
}

#[test]
fn what_others_have_the_kernel_leave_to_cgroups_at_the_top_counts_as_promised_as_far_as_it_is_used() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (roots, mut orders) = with_200_cgroups(directory.path());
    orders.domains.clear();
    orders.prefix = "steward.".to_owned();
    let set = |name: &str, text: &str| {
        std::fs::write(roots.cgroup.join(name).join("memory.min"), text).expect("written");
    };
    set("domain-0", "41943040\n");
    set("domain-1", "max\n");
    let promised_mib = |orders: &Orders| {
        let tree = CgroupTree::open_any(&roots).expect("it is there");
        let mut sight = Sight::of(tree, String::new(), &roots);
        let view = sight.look(1, orders, &FileUses::default()).expect("it can be read");
        let bytes_of = |name: &str| {
            let place = sight.paths().iter().position(|path| path == name).expect("it is seen");
            view.domains[place].principal.min_bytes
        };
        ["domain-0", "domain-1", "domain-2"].map(|name| bytes_of(name) / MIB)
    };
    assert_eq!(promised_mib(&orders), [40, 50, 0], "all that the second one uses");
    orders.prefix = "domain-".to_owned();
    assert_eq!(promised_mib(&orders), [0; 3], "what Steward has written itself is no promise of others");
}

#[test]
fn zones_are_read_anew_as_often_as_that_takes_a_200th_of_a_cpu_and_each_five_seconds() {
    let known = |cost_ns| KnownZones { zones: Zones::default(), read_at_ns: 1_000_000_000, cost_ns };
    assert!(!known(3_000_000).is_old(1_599_999_999) && known(3_000_000).is_old(1_600_000_000));
    assert!(!known(90_000_000).is_old(5_999_999_999) && known(90_000_000).is_old(6_000_000_000));
    let directory = tempfile::tempdir().expect("a temporary directory");
    let (roots, _) = with_200_cgroups(directory.path());
    let tree = CgroupTree::open_any(&roots).expect("it is there");
    let mut sight = Sight::of(tree, String::new(), &roots);
    let before = sight.zones(1).expect("readable");
    std::fs::write(roots.proc.join("zoneinfo"), "        high     7\n").expect("written");
    assert_eq!(sight.zones(1).expect("known"), before);
    assert_eq!(sight.zones(1 + ZONES_KEPT_NS).expect("readable").high_pages, 7);
}

/// A protected cgroup with 300 MiB, of which 200 are pages of files that nobody has used twice, 10 of them mapped.
fn with_a_reader(directory: &std::path::Path) -> (Roots, Orders) {
    let (roots, mut orders) = with_200_cgroups(directory);
    orders.domains.clear();
    let protect_ns = Some(60_000_000_000);
    orders.domains.insert("domain-7".to_owned(), Ordered { protect_ns, ..Default::default() });
    let cgroup = roots.cgroup.join("domain-7");
    let stat = "anon 52428800\nfile 262144000\nfile_mapped 10485760\ninactive_file 209715200\n";
    std::fs::write(cgroup.join("memory.current"), "314572800\n").expect("written");
    std::fs::write(cgroup.join("memory.stat"), stat).expect("written");
    (roots, orders)
}

/// What is idle of it after so many seconds, and what may be taken of that, in MiB.
fn idle_of_reader(sight: &mut Sight, orders: &Orders, seconds: u64) -> (u64, Permit) {
    let now_ns = seconds * 1_000_000_000;
    let view = sight.look(now_ns, orders, &FileUses::default()).expect("it can be read");
    let seen = view.domains.iter().find(|seen| seen.protected.is_some()).expect("it is there");
    let idle_bytes = seen.protected.map_or(0, |protected| protected.idle_bytes);
    (idle_bytes / MIB, sight.may_take(seen.id, 2 * MIB))
}

#[test]
fn without_page_ages_what_was_read_once_is_idle_and_files_alone_are_taken_for_it() {
    for used_from in [Choice::None, Choice::RefaultsAndPressure] {
        let directory = tempfile::tempdir_in("/dev/shm").expect("every Linux has it");
        let (roots, orders) = with_a_reader(directory.path());
        let tree = CgroupTree::open_any(&roots).expect("it is there");
        let mut sight = Sight::of(tree, String::new(), &roots);
        let orders = Orders { used_from, ..orders };
        let (idle_mib, permit) = idle_of_reader(&mut sight, &orders, 1);
        assert_eq!((idle_mib, permit.bytes / MIB, permit.of_files), (190, 188, true), "{used_from:?}");
        // What it has mapped, or uses for the second time, is not among it: nothing of that is offered yet.
        let stat = "anon 52428800\nfile 262144000\nfile_mapped 209715200\ninactive_file 209715200\n";
        std::fs::write(roots.cgroup.join("domain-7/memory.stat"), stat).expect("written");
        let (idle_mib, permit) = idle_of_reader(&mut sight, &orders, 3);
        assert_eq!((idle_mib, permit.bytes), (0, 0), "{used_from:?}");
    }
}

#[test]
fn ages_from_before_page_ages_were_turned_off_are_believed_a_period_after_they_were_turned_on() {
    let directory = tempfile::tempdir_in("/dev/shm").expect("every Linux has it");
    let (roots, orders) = with_a_reader(directory.path());
    let tree = CgroupTree::open_any(&roots).expect("it is there");
    let mut sight = Sight::of(tree, String::new(), &roots);
    let there_mib = idle_of_reader(&mut sight, &orders, 1).0;
    assert!(there_mib > 0, "they were there when it began");
    let turn = |is_on: &str| {
        std::fs::write(roots.sys.join("kernel/mm/lru_gen/enabled"), is_on).expect("written");
    };
    turn("0x0000\n");
    assert_eq!(idle_of_reader(&mut sight, &orders, 10).0, 190, "by what was read once");
    turn("0x0007\n");
    assert_eq!(idle_of_reader(&mut sight, &orders, 20).0, 0);
    assert_eq!(idle_of_reader(&mut sight, &orders, 79).0, 0);
    assert_eq!(idle_of_reader(&mut sight, &orders, 80).0, there_mib);
}

#[test]
fn the_tree_is_listed_again_when_something_has_changed_there_and_otherwise_each_ten_seconds() {
    let directory = tempfile::tempdir_in("/dev/shm").expect("every Linux has it");
    let (roots, orders) = with_a_reader(directory.path());
    let tree = CgroupTree::open_any(&roots).expect("it is there");
    let mut sight = Sight::of(tree, String::new(), &roots);
    let listed_at = |sight: &mut Sight, second: u64| {
        let view = sight.look(second * 1_000_000_000, &orders, &FileUses::default()).expect("readable");
        (sight.listed_at_ns.map(|at_ns| at_ns / 1_000_000_000), view.domains.len())
    };
    let seen: Vec<_> = (1..10).map(|second| listed_at(&mut sight, second)).collect();
    // Twice: something may have come before all were watched.
    assert_eq!(seen[..3], [(Some(1), 200), (Some(2), 200), (Some(2), 200)]);
    assert_eq!(seen[8], (Some(2), 200));
    let made = roots.cgroup.join("domain-7/made");
    std::fs::create_dir(&made).expect("made");
    for (file, text) in [("memory.current", "7\n"), ("memory.stat", "anon 7\n"), ("memory.max", "max\n")] {
        std::fs::write(made.join(file), text).expect("written");
    }
    assert_eq!(listed_at(&mut sight, 10), (Some(10), 201));
    std::fs::write(roots.cgroup.join("domain-8/memory.max"), "1048576\n").expect("written");
    assert_eq!([11, 16, 21].map(|second| listed_at(&mut sight, second).0), [Some(11), Some(11), Some(21)]);
    let group = sight.groups.iter().find(|group| group.path == "domain-8").expect("it is there");
    assert_eq!(group.limits.max_bytes, 1 << 20, "limits are read all the same");
}

#[test]
fn one_that_was_given_something_is_always_looked_at() {
    let given = Part { is_ordered: true, ..part(Some(1), 0) };
    assert_eq!(folded(&[part(None, 200), part(Some(0), 190), given], 1), [false; 3]);
}
