//! The types of the API and the description that programs in other languages read say the same: every type, method and
//! error, every field of each with what it holds and whether it may be left out, and every word.

mod varlink;

use std::collections::BTreeSet;
use std::path::Path;

use libsteward::{INTERFACE_DESCRIPTION, api};
use serde::de::{DeserializeOwned, Deserializer, Visitor, value::Error};
use serde::{Serialize, forward_to_deserialize_any};
use serde_json::{Map, Value, json};
use varlink::{Field, Interface, Named, Type};

/// Strings whose words are open to more, and one of them.
const WORDS: [(&str, &str, &str); 1] = [("Slowed", "by", "disk")];
/// Fields that an older daemon does not send, and that have a default then.
const LATER: [(&str, &str); 5] = [
    ("Task", "complaints"),
    ("Cpu", "real_time"),
    ("Domain", "lowered"),
    ("MemoryState", "lapsed"),
    ("the reply of Status", "disks"),
];
/// Replies that share a type with another method's, which has this more.
const SHARED: [(&str, &str); 1] = [("the reply of ListForecasts", "slowed")];

/// What serde knows of a type: the names of all its fields, or all its words.
#[derive(Default)]
struct Probe {
    names: Vec<&'static str>,
}

impl<'de> Deserializer<'de> for &mut Probe {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(serde::de::Error::custom("no struct and no enum"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.names = fields.to_vec();
        self.deserialize_any(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        words: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.names = words.to_vec();
        self.deserialize_any(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map identifier ignored_any
    }
}

/// The names of all fields of a type, or all its words.
fn names<T: DeserializeOwned>() -> BTreeSet<String> {
    let mut probe = Probe::default();
    // It gives nothing but what it asks for.
    let _ = T::deserialize(&mut probe);
    probe.names.into_iter().map(str::to_owned).collect()
}

/// The description, and what is wrong with the types.
struct Comparison {
    interface: Interface,
    wrong: Vec<String>,
}

impl Comparison {
    fn new() -> Self {
        Comparison { interface: Interface::read(INTERFACE_DESCRIPTION), wrong: Vec::new() }
    }

    /// One value of what a field holds.
    fn value(&self, of: &str, field: &str, holds: &Type) -> Value {
        match holds {
            Type::Bool => json!(true),
            Type::Int => json!(3),
            Type::Float => json!(0.5),
            Type::String => {
                let word = WORDS.iter().find(|(name, place, _)| (*name, *place) == (of, field));
                json!(word.map_or("some text", |(_, _, word)| word))
            }
            Type::Array(holds) => json!([self.value(of, field, holds)]),
            Type::Named(name) => match &self.interface.types[name] {
                Named::Words(words) => json!(words[0]),
                Named::Struct(fields) => self.full(name, fields).into(),
            },
        }
    }

    /// All fields.
    fn full(&self, of: &str, fields: &[Field]) -> Map<String, Value> {
        let value = |field: &Field| (field.name.clone(), self.value(of, &field.name, &field.holds));
        fields.iter().map(value).collect()
    }

    /// Holds a type with fields to its description. `strict`: what may not be left out is missed.
    fn fields<T: Serialize + DeserializeOwned>(&mut self, of: &str, fields: &[Field], strict: bool) {
        let mut described: BTreeSet<String> = fields.iter().map(|field| field.name.clone()).collect();
        described.extend(SHARED.iter().filter(|(name, _)| *name == of).map(|(_, more)| (*more).to_owned()));
        let known = names::<T>();
        if known != described {
            self.wrong.push(format!("{of} has {known:?}, and its description {described:?}"));
        }
        let full = self.full(of, fields);
        let read = |map: &Map<String, Value>| serde_json::from_value::<T>(Value::Object(map.clone()));
        match read(&full).map(|value| serde_json::to_value(value).expect("it is JSON")) {
            Err(error) => self.wrong.push(format!("{of} as described cannot be read: {error}")),
            Ok(written) if written != Value::Object(full.clone()) => {
                self.wrong.push(format!("{of} is written as {written}, and described as {full:?}"));
            }
            Ok(_) => {}
        }
        for field in fields {
            let mut less = full.clone();
            less.remove(&field.name);
            let may_be_left_out = read(&less).is_ok();
            let is_later = LATER.contains(&(of, field.name.as_str()));
            if field.optional && !may_be_left_out {
                self.wrong.push(format!("{of} needs {}, which may be left out", field.name));
            }
            if strict && !field.optional && may_be_left_out != is_later {
                self.wrong.push(format!("{of} without {} is read: {may_be_left_out}", field.name));
            }
        }
    }

    fn named<T: Serialize + DeserializeOwned>(&mut self, name: &str) {
        match self.interface.types.get(name).cloned() {
            None => self.wrong.push(format!("the type {name} is not described")),
            Some(Named::Words(words)) => {
                for word in &words {
                    if serde_json::from_value::<T>(json!(word)).is_err() {
                        self.wrong.push(format!("{name} has no word {word}"));
                    }
                }
                if names::<T>() != words.iter().cloned().collect() {
                    self.wrong.push(format!("{name} has {:?}, and is described as {words:?}", names::<T>()));
                }
            }
            Some(Named::Struct(fields)) => self.fields::<T>(name, &fields, true),
        }
    }

    fn method<M: api::Method>(&mut self) {
        let short = M::NAME.strip_prefix("io.steward.").expect("all are of this interface");
        match self.interface.methods.get(short).cloned() {
            None => self.wrong.push(format!("the method {short} is not described")),
            Some(method) => {
                // What is missing in a call is told by the daemon, with the parameter's name.
                self.fields::<M>(short, &method.parameters, false);
                self.fields::<M::Reply>(&format!("the reply of {short}"), &method.reply, true);
            }
        }
    }
}

/// Holds all of these to the description, and gives their names.
macro_rules! compare {
    ($comparison:expr, $way:ident: $($name:ident)*) => {{
        $(compare!(@one $comparison, $way, $name);)*
        BTreeSet::from([$(stringify!($name).to_owned()),*])
    }};
    (@one $comparison:expr, named, $name:ident) => { $comparison.named::<api::$name>(stringify!($name)) };
    (@one $comparison:expr, method, $name:ident) => { $comparison.method::<api::$name>() };
}

#[test]
fn every_type_has_the_fields_and_words_that_are_described() {
    let mut comparison = Comparison::new();
    let named = compare!(comparison, named: Reservation Standing Grant Task Cpu Thresholds MechanismKind MechanismState CpuState
        MemoryState UseSource ClaimSource Severity Problem Spec EventKind Rule Reason EventTask EventDomain CpuFigures MemoryFigures DomainMemory DomainDisk CalibratedDisk Evidence Activity IoClass DiskMinute DiskWaitReason DiskHolder DiskWait Event DomainSettings DomainUsage Domain BestEffort Forecast TaskForecast
        DomainForecast AuditedSpan Culprit AuditedMemory Slowed);
    assert_eq!(comparison.wrong, [""; 0]);
    assert_eq!(named, comparison.interface.types.into_keys().collect(), "all are held to their description");
}

#[test]
fn every_method_takes_and_gives_what_is_described() {
    let mut comparison = Comparison::new();
    let methods = compare!(comparison, method: Run Set Release Status ListSpecs Explain Reload ListEvents Monitor ListDomains
        ShowDomain CreateDomain SetDomain RemoveDomain MoveProcess SetMemory WatchDomains Complain ListForecasts WatchForecasts
        SuspendDomain LowerDomain AuditDomain WatchAvailability ExplainDomain);
    assert_eq!(comparison.wrong, [""; 0]);
    let described: BTreeSet<String> = comparison.interface.methods.into_keys().collect();
    assert_eq!(methods, described, "all are held to their description");
    assert_eq!(declared(|line| line.contains("method!(")), described, "there is no method besides");
}

#[test]
fn every_error_carries_the_figures_that_are_described() {
    let comparison = Comparison::new();
    for (name, fields) in &comparison.interface.errors {
        let (full_name, figures) = (format!("io.steward.{name}"), comparison.full(name, fields));
        let error = api::ApiError::from_wire(&full_name, &figures);
        assert!(!matches!(error, api::ApiError::Other { .. }), "{name} is not known");
        let (name_written, mut written) = error.to_wire();
        // A number is the same number, whole or not.
        for value in written.values_mut().filter(|value| value.as_f64() == Some(3.0)) {
            *value = json!(3);
        }
        assert_eq!((name_written, written), (full_name, figures));
    }
    let errors: BTreeSet<String> = comparison.interface.errors.into_keys().collect();
    assert_eq!(declared(|line| !line.contains("method!(")), errors, "there is no error besides");
}

/// The names in `"io.steward.NAME"` on such lines of the API's sources.
fn declared(is_wanted: impl Fn(&str) -> bool) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut waiting = vec![sources.join("api")];
    let mut files = vec![sources.join("api.rs")];
    while let Some(directory) = waiting.pop() {
        for entry in std::fs::read_dir(&directory).expect("it can be listed") {
            let path = entry.expect("an entry").path();
            if path.is_dir() { waiting.push(path) } else { files.push(path) }
        }
    }
    for file in files {
        let text = std::fs::read_to_string(&file).expect("it is text");
        for line in text.lines().filter(|line| is_wanted(line)) {
            let name = line.split("\"io.steward.").nth(1).and_then(|rest| rest.split('"').next());
            names.extend(name.map(str::to_owned));
        }
    }
    names
}

/// What is wrong with a type, held to this description of it.
#[cfg(test)]
fn wrong<T: Serialize + DeserializeOwned>(description: &str) -> Vec<String> {
    let interface = Interface::read(&format!("interface a.b\n{description}"));
    let mut comparison = Comparison { interface, wrong: Vec::new() };
    comparison.named::<T>("T");
    comparison.wrong
}

#[test]
fn a_description_that_says_something_else_is_found() {
    assert_eq!(wrong::<api::Reservation>("type T (budget_ns: int, period_ns: int)"), [""; 0]);
    for other in [
        "type T (budget_ns: int)",
        "type T (budget_ns: int, period_ns: int, more: ?int)",
        "type T (budget_ns: int, period_ns: ?int)",
        "type T (budget_ns: int, period_ns: string)",
        "type T (budget_ns: int, period_ms: int)",
    ] {
        assert!(!wrong::<api::Reservation>(other).is_empty(), "{other}");
    }
    assert_eq!(wrong::<api::Severity>("# Words\ntype T (note, error)"), [""; 0]);
    assert!(!wrong::<api::Severity>("type T (note, error, fatal)").is_empty());
    assert!(!wrong::<api::Severity>("type T (note)").is_empty());
    // A field that Rust leaves out when it is empty, and that the description does not know.
    let spec = "type G (a: int)\ntype T (name: string, file: string, line: ?int, resolved: bool)";
    assert!(wrong::<api::Spec>(spec)[0].contains("grant"));
}
