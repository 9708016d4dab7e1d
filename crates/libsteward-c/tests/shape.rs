//! What C sees has the fields, codes and arguments that the interface describes.

#[path = "../../libsteward/tests/varlink/mod.rs"]
mod varlink;

use std::collections::{BTreeMap, BTreeSet};

use varlink::{Field, Interface, Named, Type};

/// The header, which another test holds to the sources.
const HEADER: &str = include_str!("../include/steward.h");

/// Parameters that no argument of the method's function stands for: steward_call() takes them.
const BY_CALL: [(&str, &[&str]); 6] = [
    (
        "Run",
        &[
            "domain",
            "memory_min",
            "memory_max",
            "protect",
            "io",
            "disk",
            "io_max_bytes",
            "io_max_requests",
            "memory_pressure",
        ],
    ),
    ("Set", &["requests_at"]),
    ("Complain", &["of"]),
    ("CreateDomain", &["user"]),
    ("SetDomain", &["user", "keep"]),
    ("ShowDomain", &["pid"]),
];
/// What stands for parameters: an argument of that name, or a flag.
const STAND_FOR: [(&str, &str); 6] = [
    ("inherit", "STEWARD_INHERIT"),
    ("revocable", "STEWARD_NOT_REVOCABLE"),
    ("keep_if_refused", "STEWARD_KEEP_IF_REFUSED"),
    ("keep", "STEWARD_KEEP"),
    ("kill", "STEWARD_KILL"),
    ("domain", "name"),
];

/// The values of `#define NAME VALUE`, without the prefix in the name.
fn defined(prefix: &str) -> BTreeMap<String, i64> {
    let lines = HEADER.lines().filter_map(|line| line.strip_prefix("#define ")?.strip_prefix(prefix));
    let pairs = lines.filter_map(|line| line.split_once(' '));
    let number = |text: &str| text.trim_matches(['(', ')']).parse().ok();
    pairs.filter_map(|(name, value)| Some((name.to_owned(), number(value)?))).collect()
}

/// The header without comments.
fn code() -> String {
    let parts = HEADER.split("/*").map(|part| part.split_once("*/").map_or(part, |(_, code)| code));
    parts.collect()
}

/// The members of a struct, in order: names with types.
fn members(name: &str) -> Vec<(String, String)> {
    let code = code();
    let (_, body) = code.split_once(&format!("struct {name} {{")).expect("it is in the header");
    let (body, _) = body.split_once('}').expect("it ends");
    let members = body.split(';').filter_map(|member| member.trim().rsplit_once(' '));
    members.map(|(holds, name)| (name.to_owned(), holds.to_owned())).collect()
}

/// A function's arguments: names with types.
fn arguments(function: &str) -> BTreeMap<String, String> {
    let code = code();
    let (_, rest) = code.split_once(&format!(" {function}(")).expect("it is in the header");
    let (list, _) = rest.split_once(')').expect("it ends");
    let flowing: Vec<String> =
        list.split(',').map(|part| part.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    let pair = |argument: &String| {
        let (holds, name) = argument.split_at(argument.rfind([' ', '*'])? + 1);
        Some((name.to_owned(), holds.trim().to_owned()))
    };
    flowing.iter().filter_map(pair).collect()
}

/// Whether C's type is one for what is described.
fn can_hold(c: &str, described: &Type) -> bool {
    match described {
        Type::Bool => c == "bool",
        Type::Int => ["int32_t", "int64_t", "uint32_t", "uint64_t"].contains(&c),
        Type::Float => c == "double",
        Type::String => c == "const char *",
        Type::Named(name) => c == format!("const struct steward{} *", lower(name)),
        Type::Array(_) => false,
    }
}

/// `DomainSettings` as `_domain_settings`.
fn lower(name: &str) -> String {
    let parts = name.chars().map(|letter| {
        let between = if letter.is_uppercase() { "_" } else { "" };
        format!("{between}{}", letter.to_ascii_lowercase())
    });
    parts.collect()
}

/// The fields of a type; those of a field that is a type itself have its name before theirs.
fn flattened(interface: &Interface, name: &str, before: &str) -> Vec<(String, Type)> {
    let Some(Named::Struct(fields)) = interface.types.get(name) else { panic!("{name} has no fields") };
    let flat = |field: &Field| match &field.holds {
        Type::Named(below) if matches!(interface.types[below], Named::Struct(_)) => {
            flattened(interface, below, &format!("{before}{}_", field.name))
        }
        holds => vec![(format!("{before}{}", field.name), holds.clone())],
    };
    fields.iter().flat_map(flat).collect()
}

/// `NoSuchTask` as `NO_SUCH_TASK`.
fn capitals(name: &str) -> String {
    let parts = name.char_indices().map(|(place, letter)| {
        let between = if place > 0 && letter.is_uppercase() { "_" } else { "" };
        format!("{between}{}", letter.to_ascii_uppercase())
    });
    parts.collect()
}

fn interface() -> Interface {
    Interface::read(libsteward::INTERFACE_DESCRIPTION)
}

#[test]
fn settings_of_a_domain_are_those_that_are_described_and_each_has_a_bit() {
    let described: BTreeMap<String, Type> = flattened(&interface(), "DomainSettings", "")
        .into_iter()
        .filter(|(name, _)| name != "reset")
        .collect();
    let mut members = members("steward_domain_settings").into_iter();
    for bits in ["set", "reset"] {
        assert_eq!(members.next(), Some((bits.to_owned(), "uint32_t".to_owned())));
    }
    let (bits, mut seen) = (defined("STEWARD_"), 0);
    let mut found = BTreeSet::new();
    for (member, holds) in members {
        // A number of bytes, or of nanoseconds, says so in C.
        let without_unit = ["_bytes", "_ns"].iter().find_map(|unit| member.strip_suffix(unit));
        let name = without_unit.filter(|_| !described.contains_key(&member)).unwrap_or(&member);
        let wanted: &[&str] = match described.get(name) {
            Some(Type::Int) => &["int32_t", "int64_t"],
            Some(Type::Float) => &["double"],
            Some(Type::Named(words)) => {
                let Named::Words(words) = &interface().types[words] else { panic!("{member} is flattened") };
                let prefix = format!("STEWARD_{}_", name.to_ascii_uppercase());
                let mut known = defined(&prefix);
                // The bits of settings whose names go on after this one's, as io_max_bytes after io.
                known.retain(|word, _| {
                    let longer = format!("{name}_{}", word.to_ascii_lowercase());
                    !described.contains_key(&longer)
                });
                let named: BTreeSet<String> = words.iter().map(|word| word.to_ascii_uppercase()).collect();
                assert_eq!(
                    known.keys().cloned().collect::<BTreeSet<_>>(),
                    named,
                    "{member} has a number for each word"
                );
                &["int32_t"]
            }
            other => panic!("{member} is described as {other:?}"),
        };
        assert!(wanted.contains(&holds.as_str()), "{member} is {holds}, and described as {wanted:?}");
        let bit = bits[&name.to_ascii_uppercase()];
        assert!(bit.count_ones() == 1 && seen & bit == 0, "{member} has a bit of its own: {bit}");
        seen |= bit;
        found.insert(name.to_owned());
    }
    assert_eq!(found, described.into_keys().collect());
}

#[test]
fn reservations_standings_and_errors_are_those_that_are_described() {
    let interface = interface();
    let reservation: BTreeMap<String, String> = members("steward_reservation").into_iter().collect();
    let described: BTreeMap<String, Type> = flattened(&interface, "Reservation", "").into_iter().collect();
    assert_eq!(reservation.keys().collect::<Vec<_>>(), described.keys().collect::<Vec<_>>());
    for (name, holds) in &described {
        assert!(can_hold(&reservation[name], holds), "{name} is {}, and {holds:?}", reservation[name]);
    }

    let Some(Named::Words(words)) = interface.types.get("Standing") else { panic!("standings are words") };
    let mut standings: BTreeSet<String> = words.iter().map(|word| word.to_ascii_uppercase()).collect();
    standings.insert("UNDECIDED".to_owned());
    assert_eq!(defined("STEWARD_STANDING_").into_keys().collect::<BTreeSet<_>>(), standings);

    let codes = defined("STEWARD_ERROR_");
    for error in interface.errors.keys() {
        assert!(codes.contains_key(&capitals(error)), "{error} has no code");
    }
    let distinct: BTreeSet<i64> = codes.values().copied().filter(|code| *code < 0).collect();
    assert_eq!(distinct.len(), codes.len(), "each code is below 0 and of its own: {codes:?}");
}

#[test]
fn what_is_told_of_memory_is_what_is_described_but_for_the_name() {
    let described = &interface().methods["WatchAvailability"].reply;
    let numbers = described.iter().filter(|field| field.holds == Type::Int).map(|field| field.name.clone());
    let members = members("steward_availability").into_iter();
    // A number of bytes says so in C.
    let members = members.map(|(name, holds)| {
        assert_eq!(holds, "uint64_t", "{name}");
        name.strip_suffix("_bytes").unwrap_or(&name).to_owned()
    });
    assert_eq!(members.collect::<BTreeSet<_>>(), numbers.collect());
}

#[test]
fn functions_take_the_parameters_that_are_described() {
    let (interface, flags) = (interface(), code());
    for (function, method) in [
        ("steward_run", "Run"),
        ("steward_set", "Set"),
        ("steward_release", "Release"),
        ("steward_complain", "Complain"),
        ("steward_status", "Status"),
        ("steward_domain_create", "CreateDomain"),
        ("steward_domain_set", "SetDomain"),
        ("steward_domain_remove", "RemoveDomain"),
        ("steward_domain_move", "MoveProcess"),
        ("steward_domain_list", "ListDomains"),
        ("steward_domain_show", "ShowDomain"),
        ("steward_availability_open", "WatchAvailability"),
        ("steward_availability_watch", "WatchAvailability"),
    ] {
        let arguments = arguments(function);
        let parameters = &interface.methods[method].parameters;
        let by_call = BY_CALL.iter().find(|(name, _)| *name == method).map_or(&[][..], |(_, names)| names);
        for parameter in parameters {
            let name = parameter.name.as_str();
            let stands =
                STAND_FOR.iter().filter(|(parameter, _)| *parameter == name).map(|(_, other)| *other);
            let argument = std::iter::once(name).chain(stands.clone()).find_map(|name| arguments.get(name));
            let is_flag = |other: &str| {
                parameter.holds == Type::Bool
                    && arguments.get("flags").is_some_and(|holds| holds == "uint32_t")
                    && flags.contains(&format!("#define {other} "))
            };
            let has_one = match argument {
                Some(holds) => can_hold(holds, &parameter.holds),
                None => stands.clone().any(is_flag),
            };
            assert_eq!(has_one, !by_call.contains(&name), "{name} of {method} in {function}: {arguments:?}");
        }
    }
}
