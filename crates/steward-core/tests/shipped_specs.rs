//! The specifications that ship in `specs/`: every one can be read, names a file of a Debian package, and follows
//! the rules for choosing C, T and flags (Yang 2009, section 7.2.3).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use steward_core::cpu::reservation::IrrevocableFor;
use steward_core::spec::{Class, ParsedFile, Spec, SpecPath, SpecSet, parse_toml};

const MS: u64 = 1_000_000;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../specs")
}

/// Every file, by name.
fn files() -> BTreeMap<String, ParsedFile> {
    let entries = fs::read_dir(directory()).expect("specs/ is there");
    let names = entries.map(|entry| entry.expect("readable").file_name().into_string().expect("UTF-8"));
    names
        .filter(|name| name.ends_with(".toml"))
        .map(|name| {
            let path = directory().join(&name);
            let text = fs::read_to_string(&path).expect("readable");
            (name, parse_toml(&path, &text))
        })
        .collect()
}

fn all() -> Vec<Spec> {
    files().into_values().flat_map(|file| file.specs).collect()
}

/// The rows of the file whose name starts with `prefix`.
fn of_file(prefix: &str) -> Vec<Spec> {
    files()
        .into_iter()
        .filter(|(name, _)| name.starts_with(prefix))
        .flat_map(|(_, file)| file.specs)
        .collect()
}

fn find<'a>(specs: &'a [Spec], path: &str) -> &'a Spec {
    specs.iter().find(|spec| spec.path.to_string() == path).unwrap_or_else(|| panic!("{path} has a row"))
}

fn period_ms(spec: &Spec) -> u64 {
    spec.reservation.map_or(0, |reservation| reservation.period_ns / MS)
}

fn bandwidth(spec: &Spec) -> f64 {
    spec.reservation.map_or(0.0, |reservation| reservation.bandwidth())
}

/// Fails with the names of all rows that break a rule, not only the first.
fn every(specs: &[Spec], rule: &str, holds: impl Fn(&Spec) -> bool) {
    let broken: Vec<String> = specs
        .iter()
        .filter(|spec| !holds(spec))
        .map(|spec| format!("{} ({})", spec.path, spec.origin))
        .collect();
    assert!(!specs.is_empty(), "nothing to hold against: {rule}");
    assert!(broken.is_empty(), "{rule}: {broken:#?}");
}

#[test]
fn every_file_is_read_without_a_problem() {
    let problems: Vec<String> =
        files().into_values().flat_map(|file| file.problems).map(|problem| problem.to_string()).collect();
    assert_eq!(problems, Vec::<String>::new());
}

#[test]
fn no_program_is_named_twice_across_the_files() {
    let set = SpecSet::merge(files().into_values().collect());
    let twice: Vec<String> =
        set.overridden.iter().map(|row| format!("{} and {}", row.spec.origin, row.by)).collect();
    assert_eq!(twice, Vec::<String>::new());
}

#[test]
fn at_least_120_programs_ship_and_each_is_a_file_of_a_debian_package() {
    let list =
        fs::read_to_string(directory().join("debian-paths.tsv")).expect("specs/debian-paths.tsv is there");
    let in_debian: BTreeSet<&str> = list.lines().filter_map(|line| line.split('\t').next()).collect();
    let shipped: BTreeSet<String> = all()
        .into_iter()
        .filter(|spec| matches!(spec.path, SpecPath::Executable(_)))
        .map(|spec| spec.path.to_string())
        .collect();
    assert!(shipped.len() >= 120, "{} programs", shipped.len());
    let unknown: Vec<&String> = shipped.iter().filter(|path| !in_debian.contains(path.as_str())).collect();
    assert!(unknown.is_empty(), "run specs/check-against-debian.sh; not known to be in Debian: {unknown:#?}");
}

#[test]
fn every_path_is_as_the_kernel_sees_it_on_a_merged_usr() {
    let programs: Vec<Spec> =
        all().into_iter().filter(|spec| matches!(spec.path, SpecPath::Executable(_))).collect();
    every(&programs, "a path starts with /usr", |spec| spec.path.to_string().starts_with("/usr/"));
}

#[test]
fn the_values_of_the_papers_table_are_those_of_the_paper() {
    // Yang 2009, table 11.1; kdesktop's and kdeinit's successors, kjournald's too.
    let table = [
        ("/usr/lib/systemd/systemd", "2ms/50ms"),
        ("[jbd2]", "10ms/100ms"),
        ("/usr/lib/xorg/Xorg", "15ms/30ms"),
        ("/usr/bin/kded6", "2ms/30ms"),
        ("/usr/bin/kwin_x11", "3ms/30ms"),
        ("/usr/bin/plasmashell", "3ms/30ms"),
        ("/usr/bin/bash", "5ms/100ms"),
        ("/usr/bin/vim.basic", "5ms/100ms"),
        ("/usr/bin/mplayer", "5ms/30ms"),
        ("/usr/lib/firefox-esr/firefox-esr", "6ms/30ms"),
    ];
    let specs = all();
    for (path, cpu) in table {
        let reservation = find(&specs, path).reservation.expect(path);
        assert_eq!(reservation.to_string(), cpu, "{path}");
    }
}

#[test]
fn shells_and_everything_else_that_starts_other_programs_are_not_inheritable() {
    let specs = all();
    let starters = [
        "bash",
        "dash",
        "zsh",
        "fish",
        "mksh",
        "tcsh",
        "busybox",
        "sudo",
        "su",
        "doas",
        "env",
        "nice",
        "nohup",
        "timeout",
        "setsid",
        "xargs",
        "tmux",
        "screen",
        "systemd-run",
        "gnome-shell",
        "kwin_wayland",
        "sway",
        "plasmashell",
        "xfce4-panel",
        "konsole",
        "xterm",
        "foot",
        "dbus-daemon",
        "vim.basic",
        "emacs-gtk",
        "nvim",
    ];
    for name in starters {
        assert!(!find(&specs, &format!("/usr/bin/{name}")).inherit, "{name}");
    }
    for file in ["10-", "20-", "30-", "60-", "70-"] {
        every(&of_file(file), "nothing in this file is inheritable", |spec| !spec.inherit);
    }
}

#[test]
fn what_nobody_can_do_without_is_irrevocable() {
    let specs = all();
    let critical = [
        "/usr/lib/systemd/systemd",
        "/usr/lib/systemd/systemd-executor",
        "/usr/lib/systemd/systemd-logind",
        "/usr/bin/dbus-daemon",
        "/usr/sbin/sshd",
        "/usr/sbin/agetty",
        "/usr/bin/login",
        "/usr/lib/xorg/Xorg",
        "/usr/bin/gnome-shell",
        "/usr/bin/kwin_wayland",
        "/usr/bin/pipewire",
        "[kswapd]",
        "[ksoftirqd]",
        "[jbd2]",
    ];
    for path in critical {
        assert!(!find(&specs, path).revocable, "{path}");
    }
}

#[test]
fn what_anybody_can_start_in_any_number_is_revocable() {
    for file in ["20-", "40-", "60-", "70-"] {
        every(&of_file(file), "everything in this file may be revoked", |spec| spec.revocable);
    }
    let specs = all();
    for path in ["/usr/lib/openssh/sshd-session", "/usr/lib/openssh/sshd-auth", "/usr/bin/xterm", "[kworker]"]
    {
        assert!(find(&specs, path).revocable, "{path}");
    }
}

#[test]
fn players_and_the_display_have_one_period_of_30_ms() {
    every(&of_file("40-"), "a player's period is 30 ms", |spec| period_ms(spec) == 30);
    let specs = all();
    for path in [
        "/usr/lib/xorg/Xorg",
        "/usr/bin/Xwayland",
        "/usr/bin/gnome-shell",
        "/usr/bin/kwin_x11",
        "/usr/bin/kwin_wayland",
        "/usr/bin/sway",
        "/usr/bin/xfwm4",
        "/usr/bin/openbox",
    ] {
        assert_eq!(period_ms(find(&specs, path)), 30, "{path}");
    }
}

#[test]
fn daemons_and_kernel_threads_have_a_small_share_of_tens_of_milliseconds() {
    every(&of_file("10-"), "the period is 10 to 100 ms", |spec| (10..=100).contains(&period_ms(spec)));
    every(&of_file("10-"), "at most 10 % of a CPU", |spec| bandwidth(spec) <= 0.1);
}

#[test]
fn tools_have_a_small_share_of_a_hundred_milliseconds_or_more() {
    every(&of_file("20-"), "the period is 100 to 900 ms", |spec| (100..1000).contains(&period_ms(spec)));
    every(&of_file("20-"), "at most 5 % of a CPU", |spec| bandwidth(spec) <= 0.05 + 1e-9);
}

#[test]
fn no_program_is_given_more_than_half_a_cpu_and_background_work_is_given_none() {
    every(&all(), "at most half a CPU", |spec| bandwidth(spec) <= 0.5);
    every(&of_file("90-"), "background work is best-effort", |spec| spec.class == Class::BestEffort);
}

/// What an ordinary user can start from an interactive shell: every program that has a row and that anybody may
/// execute.
#[test]
fn nothing_that_an_ordinary_user_starts_is_kept_from_revocation() {
    let programs: Vec<Spec> = all().into_iter().filter(|spec| spec.reservation.is_some()).collect();
    every(&programs, "no row names a user: none is known on every machine", |spec| spec.user.is_none());
    let never_revoked = |uid: u32| -> f64 {
        let theirs = programs.iter().filter(|spec| {
            let grant = spec.grant(1).expect("it has a reservation");
            !grant.revocable
                && match grant.irrevocable_for {
                    IrrevocableFor::Anybody => true,
                    IrrevocableFor::Root => uid == 0,
                    IrrevocableFor::User(named) => [0, named].contains(&uid),
                }
        });
        theirs.map(bandwidth).sum()
    };
    assert_eq!(never_revoked(1000), 0.0);
    assert!(never_revoked(0) > 0.0, "and what root starts is");
}
