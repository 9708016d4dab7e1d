//! Tests of [`crate::spec`].

use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::cpu::reservation::{IrrevocableFor, Reservation};
use crate::cpu::thresholds::Thresholds;
use crate::disk::{self, Limit};
use crate::memory::settings::PROTECTION_PERIODS_NS;
use crate::process::FileIdentity;

fn parse(text: &str) -> ParsedFile {
    parse_toml(Path::new("my.toml"), text)
}

/// The problems of a file, one a line.
fn messages(parsed: &ParsedFile) -> String {
    parsed.problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

fn program(path: &str) -> SpecPath {
    SpecPath::Executable(path.into())
}

#[test]
fn a_full_row_is_read() {
    let parsed = parse(
        "[[spec]]\npath = \"/usr/bin/mplayer\"\nclass = \"interactive\"\ncpu = \"5ms/30ms\"\ninherit = true\n\
         revocable = false\nuser = \"alice\"\nprotect = \"30min\"\nmemory_min = \"64M\"\nmemory_max = \"1G\"\nio = \"interactive\"\nio_priority = 6\ndisk = \"20%\"\nio_max = \"10M/s,100/s\"\n",
    );
    assert_eq!(messages(&parsed), "");
    assert_eq!(
        parsed.specs,
        [Spec {
            path: program("/usr/bin/mplayer"),
            class: Class::Interactive,
            reservation: Some(Reservation { budget_ns: 5_000_000, period_ns: 30_000_000 }),
            inherit: true,
            revocable: false,
            user: Some(User::Name("alice".into())),
            protect: Some(Duration::from_secs(1800)),
            memory_min: Some(64 << 20),
            memory_max: Some(1 << 30),
            io: Some(disk::Class::Interactive),
            io_priority: Some(6),
            disk: Some(0.2),
            io_max: Some(disk::Limit { bytes_per_second: Some(10 << 20), requests_per_second: Some(100) }),
            origin: Origin::at(Path::new("my.toml"), 1),
        }]
    );
}

#[test]
fn a_row_with_only_a_path_is_best_effort_and_one_with_cpu_is_interactive_and_revocable() {
    let parsed = parse("[[spec]]\npath = \"/bin/a\"\n[[spec]]\npath = \"/bin/b\"\ncpu = \"1ms/10ms\"\n");
    assert_eq!((parsed.specs[0].class, parsed.specs[0].revocable), (Class::BestEffort, false));
    assert_eq!((parsed.specs[1].class, parsed.specs[1].revocable), (Class::Interactive, true));
    assert!(!parsed.specs[1].inherit);
}

#[test]
fn each_mistake_has_its_own_message_with_its_line_and_the_other_rows_stand() {
    let parsed = parse(include_str!("testdata/mistakes.toml"));
    let stand: Vec<String> = parsed.specs.iter().map(|spec| spec.path.to_string()).collect();
    assert_eq!(stand, ["/usr/bin/first", "/usr/bin/twice", "/usr/bin/last"]);
    insta::assert_snapshot!(messages(&parsed));
}

#[test]
fn a_user_is_a_name_or_a_number_and_goes_with_what_is_never_revoked() {
    let row = |rest: &str| parse(&format!("[[spec]]\npath = \"/bin/a\"\ncpu = \"1ms/10ms\"\n{rest}"));
    let grant = |rest: &str| row(rest).specs[0].grant(1).expect("a grant").irrevocable_for;
    assert_eq!(grant("revocable = false\n"), IrrevocableFor::Root);
    assert_eq!(grant("revocable = false\nuser = \"1000\"\n"), IrrevocableFor::User(1000));
    // A name that nobody has looked up leaves it to root.
    assert_eq!(grant("revocable = false\nuser = \"alice\"\n"), IrrevocableFor::Root);
    for wrong in
        ["user = \"1000\"\n", "revocable = false\nuser = \"-1\"\n", "revocable = false\nuser = \"a b\"\n"]
    {
        assert_eq!(row(wrong).problems.len(), 1, "{wrong}");
        assert!(messages(&row(wrong)).contains("user"), "{}", messages(&row(wrong)));
    }
    let written = to_toml(&row("revocable = false\nuser = \"alice\"\n").specs);
    assert!(written.contains("user = \"alice\"\n"), "{written}");
}

#[test]
fn a_syntax_error_is_one_problem_with_its_line() {
    let parsed = parse("[[spec]]\npath = \"/bin/a\"\n[[spec]]\npath = /bin/b\n");
    assert!(parsed.specs.is_empty());
    assert_eq!(parsed.problems.len(), 1);
    assert!(messages(&parsed).starts_with("my.toml:4: not valid TOML: "), "{}", messages(&parsed));
}

#[test]
fn keys_outside_of_a_row_and_single_brackets_are_explained() {
    insta::assert_snapshot!(
        [
            messages(&parse("path = \"/bin/a\"\n")),
            messages(&parse("[spec]\npath = \"/bin/a\"\n")),
            messages(&parse("[[specs]]\npath = \"/bin/a\"\n")),
            messages(&parse("spec = [1]\n")),
        ]
        .join("\n")
    );
}

#[test]
fn the_papers_example_row_is_read() {
    let tight = parse_row("/usr/bin/mplayer:Iact:5:30:IR:-:-").expect("a good row");
    let loose = parse_row(" ⟨/usr/bin/mplayer : Iact : 5 : 30 : IR : - : -⟩ ").expect("a good row");
    assert_eq!(tight, loose);
    assert_eq!(tight.reservation, Some(Reservation { budget_ns: 5_000_000, period_ns: 30_000_000 }));
    assert!(tight.inherit && tight.revocable);
    assert_eq!((tight.protect, tight.io), (None, None));
    assert_eq!(format_row(&tight), "/usr/bin/mplayer:Iact:5:30:IR:-:-");
}

#[test]
fn a_protection_period_that_is_none_is_refused_with_those_that_are() {
    for (period, expected) in [
        ("\"0s\"", "0ms is no protection period; they go from 1s to 24h, and 30min is usual"),
        ("\"999ms\"", "999ms is no protection period"),
        ("\"25h\"", "25h is no protection period"),
        ("\"-30min\"", "\"-30min\" is not a duration"),
        ("\"30\"", "\"30\" has no unit of time"),
        ("\"30 minutes\"", "\"minutes\" is not a unit of time"),
        ("\"30m\"", "could be minutes or milliseconds"),
        ("30", "write a text in quotes, as in protect = \"30min\""),
        ("true", "write a text in quotes"),
    ] {
        let parsed = parse(&format!("[[spec]]\npath = \"/bin/a\"\nprotect = {period}\n"));
        assert!(parsed.specs.is_empty() && messages(&parsed).contains(expected), "{}", messages(&parsed));
    }
    let of_row = parse_row("/bin/a:BE:-:-:-:1441:-").expect_err("a minute too long");
    assert!(of_row.to_string().contains("86460s is no protection period"), "{of_row}");
}

#[test]
fn every_field_of_a_row_is_read() {
    let spec = parse_row("/opt/a:b:Iact:0.25:10:-:30:background").expect("a good row");
    assert_eq!(spec.path, program("/opt/a:b"));
    assert_eq!(spec.reservation, Some(Reservation { budget_ns: 250_000, period_ns: 10_000_000 }));
    assert!(!spec.inherit && !spec.revocable);
    assert_eq!(spec.protect, Some(Duration::from_secs(1800)));
    assert_eq!(spec.io, Some(disk::Class::Background));
    let spec = parse_row("[kswapd]:BE:-:-:-:-:-").expect("a good row");
    assert_eq!((spec.path, spec.class), (SpecPath::KernelThread("kswapd".into()), Class::BestEffort));
}

#[test]
fn each_wrong_row_has_its_own_message() {
    let rows = [
        "/usr/bin/mplayer",
        "mplayer:Iact:5:30:IR:-:-",
        "/usr/bin/mplayer:Inter:5:30:IR:-:-",
        "/usr/bin/mplayer:Iact:five:30:IR:-:-",
        "/usr/bin/mplayer:Iact:5:-:IR:-:-",
        "/usr/bin/mplayer:Iact:-:-:IR:-:-",
        "/usr/bin/mplayer:Iact:50:30:IR:-:-",
        "/usr/bin/mplayer:Iact:5:30:IX:-:-",
        "/usr/bin/mplayer:Iact:5:30:IR:5x:-",
        "/usr/bin/mplayer:Iact:5:30:IR:-:backgrund",
        "/usr/bin/mplayer:BE:5:30:-:-:-",
        "/usr/bin/mplayer:BE:-:-:R:-:-",
    ];
    let messages: Vec<String> =
        rows.iter().map(|row| parse_row(row).expect_err("a wrong row").to_string()).collect();
    insta::assert_snapshot!(messages.join("\n"));
}

#[test]
fn a_file_of_rows_keeps_the_good_ones() {
    let text = "# mine\n/bin/a:Iact:5:30:IR:-:-\n\n/bin/b:Iact:0:30:IR:-:-\n/bin/a:Iact:1:30:-:-:-\n\
                /bin/c:BE:-:-:-:-:-\n";
    let parsed = parse_tab(Path::new("spec.tab"), text);
    let lines: Vec<u32> = parsed.specs.iter().map(|spec| spec.origin.line).collect();
    assert_eq!(lines, [2, 6]);
    insta::assert_snapshot!(messages(&parsed));
}

#[test]
fn a_kernel_thread_is_matched_by_its_name_and_what_the_kernel_appends() {
    let kswapd = SpecPath::KernelThread("kswapd".into());
    for comm in ["kswapd", "kswapd0", "kswapd/3", "kswapd:x", "kswapd-1"] {
        assert!(kswapd.matches_kernel_thread(comm), "{comm}");
    }
    for comm in ["kswap", "kswapdaemon", "xkswapd0", ""] {
        assert!(!kswapd.matches_kernel_thread(comm), "{comm}");
    }
    let btrfs = SpecPath::KernelThread("btrfs-transaction".into());
    assert!(
        btrfs.matches_kernel_thread("btrfs-transaction") && btrfs.matches_kernel_thread("btrfs-transacti")
    );
    assert!(!btrfs.matches_kernel_thread("btrfs-trans"));
    assert!(!program("/kswapd").matches_kernel_thread("kswapd"));
}

#[test]
fn the_longest_kernel_thread_name_wins() {
    let text = "[[spec]]\npath = \"[rcu]\"\n[[spec]]\npath = \"[rcu-x]\"\n[[spec]]\npath = \"/bin/rcu-x0\"\n";
    let set = SpecSet::merge(vec![parse(text)]);
    assert_eq!(set.kernel_thread("rcu-x0").map(|spec| spec.path.to_string()), Some("[rcu-x]".into()));
    assert_eq!(set.kernel_thread("rcu-y").map(|spec| spec.path.to_string()), Some("[rcu]".into()));
    assert_eq!(set.kernel_thread("kswapd0"), None);
}

#[test]
fn a_later_file_overrides_and_what_it_overrides_is_remembered() {
    let file = |name: &str, cpu: &str| {
        parse_toml(Path::new(name), &format!("[[spec]]\npath = \"/bin/a\"\ncpu = \"{cpu}\"\n"))
    };
    let set = SpecSet::merge(vec![file("1", "1ms/10ms"), file("2", "2ms/10ms"), file("3", "3ms/10ms")]);
    assert_eq!(set.specs().len(), 1);
    assert_eq!(set.get(&program("/bin/a")).map(|spec| spec.origin.to_string()), Some("3:1".into()));
    let overridden: Vec<(String, String)> =
        set.overridden.iter().map(|row| (row.spec.origin.to_string(), row.by.to_string())).collect();
    assert_eq!(overridden, [("1:1".into(), "3:1".into()), ("2:1".into(), "3:1".into())]);
    assert_eq!(set.get(&program("/bin/b")), None);
}

#[test]
fn a_name_in_a_higher_directory_masks_and_directories_count_before_names() {
    let names = |list: &[&str]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
    let effective = effective_files(&[
        (
            DirectoryRank::Administrator,
            names(&["20-shells.toml", "05-mine.toml", "steward.toml", ".hidden.toml"]),
        ),
        (DirectoryRank::Vendor, names(&["20-shells.toml", "10-system.toml", "README.md", "30-x.toml~"])),
        (DirectoryRank::Runtime, names(&["10-system.toml"])),
    ]);
    let show = |files: &[EffectiveFile]| {
        files.iter().map(|file| format!("{:?} {}", file.rank, file.name)).collect::<Vec<_>>()
    };
    assert_eq!(
        show(&effective.files),
        ["Runtime 10-system.toml", "Administrator 05-mine.toml", "Administrator 20-shells.toml"]
    );
    assert_eq!(show(&effective.masked), ["Vendor 10-system.toml", "Vendor 20-shells.toml"]);
}

#[test]
fn what_is_at_a_path_is_judged_by_whose_file_names_it() {
    let spec = parse("[[spec]]\npath = \"/usr/bin/x\"\n").specs.remove(0);
    let facts = [
        TargetFacts::Missing,
        TargetFacts::Directory,
        TargetFacts::NotExecutable,
        TargetFacts::SymlinkLoop,
        TargetFacts::NotAbsolute,
        TargetFacts::Script { interpreter: "/bin/sh".into() },
    ];
    let lines: Vec<String> = facts
        .iter()
        .flat_map(|facts| [false, true].map(|strict| check_target(&spec, facts, strict).expect("a problem")))
        .map(|problem| format!("{:?}: {problem}", problem.severity))
        .collect();
    insta::assert_snapshot!(lines.join("\n"));
    let identity = FileIdentity { device: 1, inode: 2 };
    assert_eq!(check_target(&spec, &TargetFacts::Executable { identity }, true), None);
    let script = TargetFacts::Script { interpreter: "/opt/\x1b[2J\n/sh".into() };
    let what = check_target(&spec, &script, true).expect("a problem").what;
    assert!(what.ends_with("its interpreter /opt/\\u{1b}[2J\\n/sh"), "{what}");
    let thread = parse("[[spec]]\npath = \"[kswapd]\"\n").specs.remove(0);
    assert_eq!(check_target(&thread, &TargetFacts::Missing, true), None);
}

#[test]
fn a_reservation_that_no_idle_cpu_would_admit_is_noted() {
    let parsed = parse(
        "[[spec]]\npath = \"/bin/a\"\ncpu = \"8ms/10ms\"\n[[spec]]\npath = \"/bin/b\"\ncpu = \"7ms/10ms\"\n",
    );
    let note = check_admissible(&parsed.specs[0], &Thresholds::default()).expect("a note");
    assert_eq!(note.severity, Severity::Note);
    assert!(note.to_string().contains("my.toml:1: note: /bin/a: 8ms/10ms is 80 % of a CPU"), "{note}");
    assert_eq!(check_admissible(&parsed.specs[1], &Thresholds::default()), None);
}

#[test]
fn how_soon_one_is_served_among_the_first_is_a_level_for_those_who_are_served_first() {
    let parsed = parse(
        "[[spec]]\npath = \"/bin/a\"\ncpu = \"5ms/30ms\"\nio = \"interactive\"\nio_priority = 8\n\
         [[spec]]\npath = \"/bin/b\"\ncpu = \"5ms/30ms\"\nio_priority = 2\n\
         [[spec]]\npath = \"/bin/c\"\ncpu = \"5ms/30ms\"\nio = \"interactive\"\nio_priority = 1.5\n\
         [[spec]]\npath = \"[kworker]\"\ncpu = \"5ms/30ms\"\nio = \"interactive\"\nio_priority = 1\n\
         [[spec]]\npath = \"/bin/d\"\ncpu = \"5ms/30ms\"\nio = \"interactive\"\nio_priority = 0\n",
    );
    insta::assert_snapshot!(messages(&parsed), @r#"
    my.toml:5: /bin/a: io_priority is no number from 0 to 7; 0 is served first, 7 last of them
    my.toml:9: /bin/b: io_priority says how soon one is served among those that are served first, which this program is not; leave out io_priority, or add io = "interactive"
    my.toml:14: /bin/c: io_priority is no number from 0 to 7; 0 is served first, 7 last of them
    my.toml:19: [kworker]: a kernel thread that is served first is so before all others, who wait for it; leave out io_priority
    "#);
    assert_eq!(parsed.specs.iter().map(|spec| spec.io_priority).collect::<Vec<_>>(), [Some(0)]);
    let row = |io: &str| parse_row(&format!("/bin/a:Iact:5:30:-:-:{io}"));
    assert_eq!(row("interactive/7").map(|spec| spec.io_priority), Ok(Some(7)));
    for wrong in ["interactive/8", "interactive/", "interactive/-1", "normal/1"] {
        assert!(row(wrong).is_err_and(|problem| problem.to_string().contains("io_priority")), "{wrong}");
    }
}

#[test]
fn who_is_to_be_served_first_without_a_reservation_is_told_that_this_has_no_effect() {
    let parsed = parse(
        "[[spec]]\npath = \"/bin/a\"\nio = \"interactive\"\n\
         [[spec]]\npath = \"/bin/b\"\nio = \"interactive\"\ncpu = \"5ms/30ms\"\n\
         [[spec]]\npath = \"/bin/c\"\nio = \"background\"\n",
    );
    let found =
        |strict| parsed.specs.iter().filter_map(|spec| check_served_first(spec, strict)).collect::<Vec<_>>();
    assert_eq!(
        found(true).iter().map(ToString::to_string).collect::<Vec<_>>(),
        [
            "my.toml:1: /bin/a: io = \"interactive\" has no effect without cpu; add a reservation, as in cpu = \"5ms/30ms\", or leave out io"
        ]
    );
    assert_eq!(found(false).iter().map(|problem| problem.severity).collect::<Vec<_>>(), [Severity::Note]);
}

#[test]
fn a_best_effort_specification_grants_nothing() {
    let parsed = parse(
        "[[spec]]\npath = \"/bin/a\"\n[[spec]]\npath = \"/bin/b\"\ncpu = \"7ms/10ms\"\ninherit = true\n",
    );
    assert_eq!(parsed.specs[0].grant(1), None);
    let grant = parsed.specs[1].grant(2).expect("a grant");
    assert!(grant.inherit && grant.revocable && !grant.keep_over_exec && grant.spec_id == 2);
}

#[test]
fn a_specification_survives_being_stored() {
    let spec = parse("[[spec]]\npath = \"[kswapd]\"\ncpu = \"1ms/10ms\"\n").specs.remove(0);
    let value = toml::Value::try_from(&spec).expect("serializable");
    assert_eq!(value.try_into::<Spec>().expect("deserializable"), spec);
}

prop_compose! {
    fn any_reservation()(period_ns in 1_000_000_u64..=10_000_000_000, tenths in 0.0..1.0_f64) -> Reservation {
        let budget_ns = 100_000 + ((period_ns - 100_000) as f64 * tenths) as u64;
        Reservation { budget_ns, period_ns }
    }
}

fn any_path() -> impl Strategy<Value = SpecPath> {
    prop_oneof![
        "/[a-zA-Z0-9_:\"\u{1b} +-]{0,9}[a-z]".prop_map(|path| SpecPath::Executable(path.into())),
        "[a-z_]{1,15}".prop_map(SpecPath::KernelThread),
    ]
}

prop_compose! {
    /// A valid specification without memory sizes and disk time, which the one-line form cannot carry.
    fn any_spec()(
        path in any_path(),
        reservation in proptest::option::of(any_reservation()),
        (inherit, revocable) in any::<(bool, bool)>(),
        protect_ns in proptest::option::of(PROTECTION_PERIODS_NS),
        io in proptest::option::of(prop_oneof![
            Just(disk::Class::Interactive), Just(disk::Class::Normal), Just(disk::Class::Background)
        ]),
        level in proptest::option::of(0..=7_u8),
    ) -> Spec {
        let interactive = reservation.is_some();
        let kernel_thread = matches!(path, SpecPath::KernelThread(_));
        Spec {
            path,
            class: if interactive { Class::Interactive } else { Class::BestEffort },
            reservation,
            inherit: interactive && inherit,
            revocable: interactive && revocable,
            user: None,
            protect: protect_ns.filter(|_| !kernel_thread).map(Duration::from_nanos),
            memory_min: None,
            memory_max: None,
            io,
            io_priority: level.filter(|_| io == Some(disk::Class::Interactive) && !kernel_thread),
            disk: None,
            io_max: None,
            origin: Origin::command_line(),
        }
    }
}

proptest! {
    #[test]
    fn a_written_row_reads_back_the_same(spec in any_spec()) {
        prop_assert_eq!(parse_row(&format_row(&spec)), Ok(spec));
    }

    #[test]
    fn a_written_file_reads_back_the_same(
        specs in proptest::collection::btree_map(any_path(), any_spec(), 0..5),
        sizes in proptest::option::of((0_u64..1 << 40, 1_u64..1 << 40)),
        disk in proptest::option::of(0.0001_f64..=1.0),
        io_max in proptest::option::of(1_u64 << 20..1 << 40),
    ) {
        let mut specs: Vec<Spec> = specs.into_values().collect();
        specs.sort_by(|left, right| left.path.cmp(&right.path));
        specs.dedup_by(|left, right| left.path == right.path);
        for spec in specs.iter_mut().filter(|spec| matches!(spec.path, SpecPath::Executable(_))) {
            spec.memory_min = sizes.map(|(min, more)| min.min(more));
            spec.memory_max = sizes.map(|(_, max)| max);
            spec.disk = disk;
            spec.io_max = io_max.map(|bytes| Limit { bytes_per_second: Some(bytes), requests_per_second: None });
        }
        let mut parsed = parse(&to_toml(&specs));
        prop_assert_eq!(&parsed.problems, &[]);
        parsed.specs.iter_mut().for_each(|spec| spec.origin = Origin::command_line());
        prop_assert_eq!(parsed.specs, specs);
    }

    #[test]
    fn no_text_makes_a_parser_panic(text in "\\PC*", tail in "[\\PC\n]*") {
        let _ = parse_row(&text);
        let _ = parse(&text);
        let _ = parse(&format!("[[spec]]\npath = {text}\n{tail}"));
        let _ = parse_tab(Path::new("x"), &format!("{text}\n{tail}"));
    }
}

/// CPU time of this thread, in nanoseconds: what else the machine does is not in it.
fn thread_time_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux counts it");
    text.split(' ').next().and_then(|first| first.parse().ok()).expect("the first number of three")
}

/// 16,000 rows took seconds once: for each the lines of the whole file were counted.
#[test]
fn a_file_of_eight_times_as_many_rows_takes_about_as_long_as_eight_files() {
    const ROWS: usize = 2000;
    let rows = |count: usize| -> String {
        let row = |number| format!("[[spec]]\npath = \"/usr/bin/program-{number}\"\ncpu = \"1ms/30ms\"\n");
        (0..count).map(row).collect()
    };
    let (small, large) = (rows(ROWS), rows(8 * ROWS));
    let file = Path::new("a.toml");
    let took_ns = |texts: &[&str]| {
        let before_ns = thread_time_ns();
        let read: usize = texts.iter().map(|text| parse_toml(file, text).specs.len()).sum();
        assert_eq!(read, 8 * ROWS);
        thread_time_ns() - before_ns
    };
    let times: Vec<(u64, u64)> =
        (0..3).map(|_| (took_ns(&[small.as_str(); 8]), took_ns(&[&large]))).collect();
    // The least of three: a neighbour on the same core costs time as well.
    let least = |times: &mut dyn Iterator<Item = u64>| times.min().expect("there are three");
    let eight_ns = least(&mut times.iter().map(|(eight_ns, _)| *eight_ns));
    let one_ns = least(&mut times.iter().map(|(_, one_ns)| *one_ns));
    assert!(one_ns < 3 * eight_ns, "one file took {one_ns} ns, eight took {eight_ns} ns");
}
