//! Rows stand or are reported, and what is written is read back.

use proptest::prelude::*;

use super::*;

struct OnlyAlice;

impl Accounts for OnlyAlice {
    fn uid_of(&self, name: &str) -> Option<u32> {
        (name == "alice").then_some(1000)
    }
    fn gid_of(&self, _: &str) -> Option<u32> {
        None
    }
}

fn parse(text: &str) -> ParsedDomains {
    parse_domains(Path::new("web.toml"), text, &Names::default(), &OnlyAlice)
}

#[test]
fn a_row_says_all_that_a_domain_has() {
    let text = "[[domain]]\nname = \"web\"\ncpu = \"30%\"\nweight = 300\npriority = 6\nown_weight = 50\n\
                own_priority = 3\ncpu_reservable = 0.8\nmemory_min = \"64M\"\nmemory_max = \"1G\"\nprotect = \"30min\"\nio = \"background\"\ndisk = \"10%\"\nio_max_bytes = \"10M\"\nio_max_requests = 100\nuser = \"alice\"\n\
                [[domain]]\nname = \"web/front\"\nuser = 7\n";
    let parsed = parse(text);
    assert_eq!(parsed.problems, vec![]);
    let settings = Settings {
        common: Common { priority: 6, weight: Some(300), own_priority: 3, own_weight: Some(50) },
        cpu: cpu::settings::Settings { reserved: Some(0.3), reservable: Some(0.8) },
        memory: memory::Settings {
            min_bytes: Some(64 << 20),
            max_bytes: Some(1 << 30),
            protect_ns: Some(memory::settings::PROTECTION_PERIOD_NS),
        },
        disk: disk::Settings {
            class: Some(disk::Class::Background),
            reserved: Some(0.1),
            max: disk::Limit { bytes_per_second: Some(10 << 20), requests_per_second: Some(100) },
        },
    };
    let [web, front] = &parsed.domains[..] else { panic!("{parsed:?}") };
    assert_eq!((web.name.as_str(), &web.settings, web.user, web.origin.line), ("web", &settings, 1000, 1));
    let expected = ("web/front", &Settings::default(), 7, 17);
    assert_eq!((front.name.as_str(), &front.settings, front.user, front.origin.line), expected);
}

#[test]
fn each_mistake_costs_its_row_and_is_named_with_its_line() {
    let sound = "[[domain]]\nname = \"other\"\n";
    for (wrong, line, expected) in [
        ("[[domain]]\nname = \"web\"\ncpus = 1\n", 3, "no key \"cpus\"; did you mean \"cpu\"?"),
        ("[[domain]]\ncpu = \"30%\"\n", 1, "name is missing"),
        ("[[domain]]\nname = \"../web\"\n", 2, "give it another name"),
        ("[[domain]]\nname = \"web\"\ncpu = \"30\"\n", 3, "did you mean 30%?"),
        ("[[domain]]\nname = \"web\"\ncpu = 1.5\n", 3, "is not a fraction"),
        ("[[domain]]\nname = \"web\"\nweight = 0\n", 3, "they go from 1 to 10000"),
        ("[[domain]]\nname = \"web\"\nweight = 1.5\n", 3, "no whole number"),
        ("[[domain]]\nname = \"web\"\npriority = \"high\"\n", 3, "priority is a string"),
        ("[[domain]]\nname = \"web\"\nmemory_min = \"64MB\"\n", 3, "memory_min: "),
        ("[[domain]]\nname = \"web\"\nmemory = \"64M\"\n", 3, "did you mean"),
        ("[[domain]]\nname = \"web\"\nmemory_min = \"2M\"\nmemory_max = \"1M\"\n", 4, "cannot be promised"),
        (
            "[[domain]]\nname = \"web\"\nprotect = \"0s\"\n",
            3,
            "protect: 0ms is no protection period; they go",
        ),
        ("[[domain]]\nname = \"web\"\nprotect = \"30\"\n", 3, "protect: \"30\" has no unit of time"),
        ("[[domain]]\nname = \"web\"\nprotect = \"-30min\"\n", 3, "is not a duration"),
        ("[[domain]]\nname = \"web\"\nprotect = 30\n", 3, "write a text in quotes"),
        ("[[domain]]\nname = \"web\"\nio = \"idle\"\n", 3, "there is no io \"idle\""),
        ("[[domain]]\nname = \"web\"\nuser = \"bob\"\n", 3, "has no \"bob\""),
        ("[[domain]]\nname = \"web\"\nuser = true\n", 3, "user is a boolean"),
        ("cpu = 0.1\n", 1, "outside of any [[domain]] row"),
    ] {
        let parsed = parse(&format!("{wrong}{sound}"));
        let names: Vec<&str> = parsed.domains.iter().map(|domain| domain.name.as_str()).collect();
        assert_eq!(names, ["other"], "{wrong}");
        let [problem] = &parsed.problems[..] else { panic!("{wrong}: {:?}", parsed.problems) };
        assert_eq!(problem.origin.line, line, "{wrong}");
        assert!(problem.to_string().contains(expected), "{wrong}: {problem}");
    }
    let twice = parse(&format!("{sound}{sound}"));
    assert!(twice.domains.len() == 1 && twice.problems[0].what.contains("already, on line 1"));
    assert!(parse("domain = 3\n").problems[0].what.contains("not a list of rows"));
}

#[test]
fn what_a_mistake_costs_stays_as_it_was() {
    let before = parse("[[domain]]\nname = \"web\"\ncpu = \"30%\"\n[[domain]]\nname = \"batch\"\n").domains;
    let after = parse("[[domain]]\nname = \"web\"\ncpus = \"40%\"\n").keep_last_good(&before);
    assert_eq!(after.domains, before[..1]);
    let expected = "until then the earlier version of web is in force";
    assert!(after.problems[0].advice.ends_with(expected), "{:?}", after.problems);
    assert_eq!(parse("[[domain").keep_last_good(&before).domains, before);
}

proptest! {
    #[test]
    fn what_is_written_is_read_back_the_same(
        cpu in proptest::option::of(0.0001..=1.0_f64),
        limit in proptest::option::of(0.0001..=1.0_f64),
        weight in proptest::option::of(1..=10_000_u32),
        priority in 0..8_u8,
        memory in proptest::option::of(1..1_u64 << 40),
        more in 0..1_u64 << 40,
        protect_ns in proptest::option::of(memory::settings::PROTECTION_PERIODS_NS),
        class in proptest::option::of(proptest::sample::select(disk::Class::ALL.to_vec())),
        disk in proptest::option::of(0.0001..=1.0_f64),
        io_max in (proptest::option::of(1_u64 << 20..1 << 40), proptest::option::of(16_u64..1 << 29)),
        user in 0..70_000_u32,
    ) {
        let settings = Settings {
            common: Common { weight, priority, ..Common::default() },
            cpu: cpu::settings::Settings { reserved: cpu, reservable: limit },
            memory: memory::Settings {
                min_bytes: memory,
                max_bytes: memory.map(|bytes| bytes + more),
                protect_ns,
            },
            disk: disk::Settings {
                class,
                reserved: disk,
                max: disk::Limit { bytes_per_second: io_max.0, requests_per_second: io_max.1 },
            },
        };
        let text = to_toml("a/b_c-1.x@2:3+4", &settings, user);
        let parsed = parse(&text);
        prop_assert_eq!(&parsed.problems, &vec![], "{}", text);
        let read = &parsed.domains[0];
        prop_assert_eq!((&read.settings, read.user), (&settings, user));
        prop_assert_eq!(read.name.as_str(), "a/b_c-1.x@2:3+4");
    }
}
