//! What a domain may be called, and which cgroup a name means.
//!
//! A domain that Steward made is called by a plain name (`batch`, `web/front`), and its cgroup by that name with a
//! prefix (`steward.batch`, `steward.web/front`). Every other domain is called by the path of its cgroup from the root
//! of the tree (`user.slice/user-1000.slice`). A leading `/` always means the root, and `/` alone is the root itself.

use crate::printable::printable;

/// The cgroup that holds the processes of a domain with children: a cgroup that hands the CPU out to children can
/// hold no processes itself (Documentation/admin-guide/cgroup-v2.rst, "No Internal Process Constraint").
pub const OWN_LEAF: &str = ".own";

/// The longest part of a name, in bytes (`NAME_MAX` of include/uapi/linux/limits.h).
const PART_BYTES_MAX: usize = 255;
/// The longest prefix, in bytes.
const PREFIX_BYTES_MAX: usize = 64;
/// The longest name, in bytes: with a file's name after it, it fits `PATH_MAX`.
const NAME_BYTES_MAX: usize = 3072;
/// How deep domains can be nested: the scheduler knows cgroups 16 deep.
pub const DEPTH_MAX: usize = 12;

/// The control files in the directory of every domain: one of their names for a domain would hide it there.
const CONTROL_FILES: [&str; 21] = [
    "cpu",
    "cpu.sum",
    "cpu.limit",
    "cpu.weight",
    "cpu.priority",
    "io",
    "io.class",
    "io.max",
    "io.sum",
    "io.limit",
    "memory",
    "memory.max",
    "memory.protect",
    "memory.available",
    "memory.sum",
    "memory.limit",
    "sched",
    "members",
    "status",
    "forecast",
    "last_error",
];
/// What a part of a name that is made may have beside letters and digits.
const OTHER_CHARACTERS: &str = "-_.+@:";

/// How the cgroups of domains are called that Steward makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    prefix: String,
}

impl Default for Names {
    /// `batch` is the cgroup `steward.batch`.
    fn default() -> Self {
        Names { prefix: "steward.".to_owned() }
    }
}

impl Names {
    /// Names with another prefix.
    ///
    /// # Errors
    /// When no cgroup could be called by it.
    pub fn new(prefix: &str) -> Result<Self, String> {
        check_part(prefix)?;
        if prefix.len() > PREFIX_BYTES_MAX || prefix.starts_with('.') || prefix.starts_with("cgroup.") {
            return Err(format!(
                "{prefix:?} can not be before the name of a domain: it has at most {PREFIX_BYTES_MAX} bytes, and starts \
                 with neither a dot nor \"cgroup.\""
            ));
        }
        Ok(Names { prefix: prefix.to_owned() })
    }

    /// What is before the name.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The path of the domain that would be made under this name, if every way to name a domain could name it: a word
    /// of a shell, an argument, and a directory among the control files.
    ///
    /// # Errors
    /// What is wrong with the name, and what to write.
    pub fn path_to_make(&self, name: &str) -> Result<String, String> {
        let name = name.strip_prefix(&self.prefix).unwrap_or(name);
        check(name)?;
        if name.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(format!("{name} would be taken for the number of a process; put a letter before it"));
        }
        name.split('/').try_for_each(check_part_to_make)?;
        let path = format!("{}{name}", self.prefix);
        check(&path)?;
        Ok(path)
    }

    /// The paths that a name may mean, the first that exists is meant.
    ///
    /// # Errors
    /// What is wrong with the name.
    pub fn candidates(&self, name: &str) -> Result<Vec<String>, String> {
        if name == "/" {
            return Ok(vec![String::new()]);
        }
        if let Some(from_root) = name.strip_prefix('/') {
            check(from_root)?;
            return Ok(vec![from_root.to_owned()]);
        }
        check(name)?;
        Ok(vec![format!("{}{name}", self.prefix), name.to_owned()])
    }

    /// What a domain at this path is called. Whoever owns a cgroup may call those below it what they like; the name of
    /// one that is not [`printable`] leads to none.
    pub fn name_of(&self, path: &str) -> String {
        let path = &*printable(path);
        match path.strip_prefix(&self.prefix).filter(|name| !name.is_empty() && !name.starts_with('/')) {
            _ if path.is_empty() => "/".to_owned(),
            Some(name) => name.to_owned(),
            None => path.to_owned(),
        }
    }
}

/// The domain that a cgroup belongs to: the cgroup itself, or its parent for the leaf of a domain's own processes.
pub fn domain_of(path: &str) -> &str {
    match path.strip_suffix(OWN_LEAF).and_then(|above| above.strip_suffix('/')) {
        Some(domain) => domain,
        None => path,
    }
}

/// The path of the parent; `None` for the root.
pub fn parent_of(path: &str) -> Option<&str> {
    if path.is_empty() {
        return None;
    }
    Some(path.rsplit_once('/').map_or("", |(parent, _)| parent))
}

/// The path, and those of all that it is in, up to the root.
pub fn upwards(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |path| parent_of(path))
}

/// Whether `path` is `above` or lies somewhere below it.
pub fn is_at_or_below(path: &str, above: &str) -> bool {
    above.is_empty() || path == above || is_below(path, above)
}

/// Whether `path` lies somewhere below `above`, which is not the root.
pub fn is_below(path: &str, above: &str) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.starts_with('/'))
}

/// The cgroup directly below the root that a path is at or below; the root's own is empty.
pub fn top_of(path: &str) -> &str {
    path.split('/').next().unwrap_or(path)
}

/// What the scope is called that systemd is asked for, for what a process runs.
pub fn scope_of_program(pid: i32) -> String {
    format!("steward-program-{pid}.scope")
}

/// Whether a path is that of the scope that systemd was asked for, for this process.
pub fn is_scope_of_program(path: &str, pid: i32) -> bool {
    let Some((slices, unit)) = path.rsplit_once('/') else { return false };
    slices.split('/').all(|part| part.ends_with(".slice")) && unit == scope_of_program(pid)
}

/// The slice, by its own name, that systemd's first manager has put a process in that is at this path: in a service or
/// a scope, or below a user's manager. `None` where it is in no slice, or where another manager has put it: below a
/// service or scope (`Delegate=`), in a machine (`machine.slice`), or in a manager's own scope.
pub fn slice_of_unit(path: &str) -> Option<&str> {
    let parts: Vec<&str> = path.split('/').collect();
    let slices = parts.iter().take_while(|part| part.ends_with(".slice")).count();
    let (slices, below) = parts.split_at(slices);
    let is_unit = |part: &str| part.ends_with(".service") || part.ends_with(".scope");
    let unit = below.first().filter(|unit| is_unit(unit))?;
    let is_manager_of_user = unit.starts_with("user@") && unit.ends_with(".service");
    let is_placed_by_first = below.len() == 1 || is_manager_of_user;
    let is_other = slices.first() == Some(&"machine.slice") || below.last() == Some(&"init.scope");
    slices.last().copied().filter(|_| is_placed_by_first && !is_other)
}

/// The path of the slices that a path is in, systemd's: as far as its parts are called so.
pub fn slices_above(path: &str) -> &str {
    let parts = path.split('/').take_while(|part| part.ends_with(".slice"));
    let length = parts.map(|part| part.len() + 1).sum::<usize>().saturating_sub(1);
    &path[..length]
}

/// The slice (`user.slice/user-N.slice`, systemd's layout) of the user in whose slice a path is.
pub fn slice_of_user(path: &str) -> Option<&str> {
    user_of_slice(path)?;
    let end = path.match_indices('/').nth(1).map_or(path.len(), |(end, _)| end);
    Some(&path[..end])
}

/// The user whose slice (`user.slice/user-N.slice`, systemd's layout) a path is in.
pub fn user_of_slice(path: &str) -> Option<u32> {
    let part = path.strip_prefix("user.slice/user-")?;
    part.split('/').next()?.strip_suffix(".slice")?.parse().ok()
}

/// Holds a name with all its parts against the rules.
///
/// # Errors
/// The first part that is wrong, and why.
pub fn check(name: &str) -> Result<(), String> {
    if name.len() > NAME_BYTES_MAX {
        return Err(format!("the name has {} bytes; at most {NAME_BYTES_MAX} are possible", name.len()));
    }
    if name.split('/').count() > DEPTH_MAX {
        return Err(format!("the name has more than {DEPTH_MAX} parts"));
    }
    name.split('/').try_for_each(check_part)
}

/// Holds one part of a name against the rules: what the kernel takes for a directory, and what can be shown on a
/// terminal without harm.
fn check_part(part: &str) -> Result<(), String> {
    let shown = part.escape_debug();
    if part.is_empty() {
        return Err(
            "a part of the name is empty; write parts with single slashes between, as in web/front".into()
        );
    }
    if part == "." || part == ".." {
        return Err(format!("\"{part}\" is no name: domains are named from the top, as in web/front"));
    }
    if part.contains('/') {
        return Err(format!("\"{shown}\" has a slash in it"));
    }
    if part.len() > PART_BYTES_MAX {
        return Err(format!(
            "a part of the name has {} bytes; at most {PART_BYTES_MAX} are possible",
            part.len()
        ));
    }
    if part.chars().any(char::is_control) {
        return Err(format!("\"{shown}\" has a control character in it"));
    }
    Ok(())
}

/// Holds one part of the name of a domain that is to be made against the rules, beyond those of [`check_part`].
fn check_part_to_make(part: &str) -> Result<(), String> {
    let allowed = |character: char| character.is_alphanumeric() || OTHER_CHARACTERS.contains(character);
    let rule = "a name is made of letters, digits and - _ . + @ :";
    if let Some(wrong) = part.chars().find(|character| !allowed(*character)) {
        return Err(format!("\"{}\" has {wrong:?} in it; {rule}", part.escape_debug()));
    }
    if part.starts_with('.') {
        return Err(format!("\"{part}\" starts with a dot, which is kept for Steward's own use"));
    }
    if part.starts_with('-') {
        return Err(format!(
            "\"{part}\" would be taken for an option; a name starts with a letter, a digit or _"
        ));
    }
    if !part.starts_with(|first: char| first.is_alphanumeric() || first == '_') {
        return Err(format!("\"{part}\" starts with a sign; a name starts with a letter, a digit or _"));
    }
    if CONTROL_FILES.contains(&part) {
        return Err(format!("\"{part}\" is what one of the control files is called"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_addressed_is_not_made_and_the_rule_is_said() {
        let names = Names::default();
        for (name, rule) in [
            ("a b", "has ' ' in it"),
            ("web/a\tb", "control character"),
            ("-x", "taken for an option"),
            ("web/-x", "taken for an option"),
            ("123", "taken for the number of a process"),
            ("steward.123", "taken for the number of a process"),
            ("a*", "letters, digits"),
            ("$HOME", "letters, digits"),
            ("it's", "letters, digits"),
            ("web/cpu", "control files"),
            ("status", "control files"),
        ] {
            let fault = names.path_to_make(name).expect_err(name);
            assert!(fault.contains(rule), "{name}: {fault}");
        }
        for name in ["batch", "web/123", "a-b_c.d+e@f:g", "_x", "büro", "日本", "123a", "cpu.x"] {
            assert!(names.path_to_make(name).is_ok(), "{name}");
        }
        // What others made is addressed as it is.
        for name in ["a b", "-x", "123", "cpu"] {
            assert!(names.candidates(name).is_ok(), "{name}");
        }
    }

    #[test]
    fn a_made_domain_has_a_plain_name_and_every_other_one_its_path() {
        let names = Names::default();
        assert_eq!(names.path_to_make("web/front").expect("a name"), "steward.web/front");
        assert_eq!(names.path_to_make("steward.web").expect("a name"), "steward.web");
        assert_eq!(names.name_of("steward.web/front"), "web/front");
        assert_eq!(names.name_of("user.slice/user-7.slice"), "user.slice/user-7.slice");
        assert_eq!(names.name_of("a.slice/\u{1b}[2J"), "a.slice/\\u{1b}[2J");
        assert_eq!((names.name_of("").as_str(), names.name_of("steward.").as_str()), ("/", "steward."));
        assert_eq!(names.candidates("batch").expect("a name"), ["steward.batch", "batch"]);
        assert_eq!(names.candidates("/batch").expect("a name"), ["batch"]);
        assert_eq!(names.candidates("/").expect("the root"), [""]);
    }

    #[test]
    fn what_could_lead_elsewhere_or_disturb_a_terminal_is_no_name() {
        let names = Names::default();
        for name in ["", "..", ".", "a/../b", "a//b", "a/", "\u{1b}[2J", "a\nb", "a\0b", "/.."] {
            assert!(names.candidates(name).is_err(), "{name:?}");
            assert!(names.path_to_make(name).is_err(), "{name:?}");
        }
        assert!(names.path_to_make(&"x".repeat(256)).is_err());
        assert!(names.path_to_make(&"x".repeat(255 - names.prefix().len())).is_ok());
        assert!(names.path_to_make(&"x".repeat(255)).is_err(), "with the prefix it is too long");
        assert!(names.path_to_make(&["x"; DEPTH_MAX + 1].join("/")).is_err());
        assert!(names.path_to_make("web/.own").is_err());
        assert!(names.path_to_make("/web").is_err(), "a path from the root is not made");
        for prefix in ["", "a/b", ".", ".a", "cgroup.", "\n"] {
            assert!(Names::new(prefix).is_err(), "{prefix:?}");
        }
    }

    #[test]
    fn processes_of_a_domain_with_children_are_in_its_leaf() {
        assert_eq!(domain_of("steward.web/.own"), "steward.web");
        assert_eq!(domain_of("steward.web"), "steward.web");
        assert_eq!(domain_of("a.own"), "a.own");
        assert_eq!((parent_of("a/b"), parent_of("a"), parent_of("")), (Some("a"), Some(""), None));
    }

    #[test]
    fn a_path_is_below_another_only_at_the_border_of_a_part() {
        assert!(is_at_or_below("a/b", "a") && is_at_or_below("a", "a") && is_at_or_below("a", ""));
        assert!(!is_at_or_below("ab", "a") && !is_at_or_below("a", "a/b"));
        assert!(is_below("a/b", "a") && !is_below("a", "a") && !is_below("ab", "a"));
    }

    #[test]
    fn a_process_stays_in_the_slice_that_systemd_has_put_its_unit_in() {
        let session = "user.slice/user-1000.slice";
        let below = |rest: &str| format!("{session}/{rest}");
        let slice = |path: &str| slice_of_unit(path).map(str::to_owned);
        assert_eq!(slice("system.slice/cron.service").as_deref(), Some("system.slice"));
        assert_eq!(
            slice("system.slice/system-getty.slice/getty@tty1.service").as_deref(),
            Some("system-getty.slice")
        );
        for rest in ["session-2.scope", "user@1000.service/app.slice/a.service", "steward-program-7.scope"] {
            assert_eq!(slice(&below(rest)).as_deref(), Some("user-1000.slice"), "{rest}");
        }
        let others = ["", "a", "steward.a", "steward.a.scope", "init.scope", "system.slice", "docker/1"];
        let managed = ["system.slice/docker.service/1", "machine.slice/qemu.scope", "user.slice/a"];
        let own = below("user@1000.service/init.scope");
        for path in others.into_iter().chain(managed).chain([own.as_str()]) {
            assert_eq!(slice(path), None, "{path}");
        }
        assert!(is_scope_of_program(&below("steward-program-7.scope"), 7));
        assert!(!is_scope_of_program(&below("steward-program-7.scope"), 8));
        assert!(!is_scope_of_program(&below("x.service/steward-program-7.scope"), 7));
        // A user's own manager may call a scope so: that one is not what was asked for.
        assert!(!is_scope_of_program(&below("user@1000.service/app.slice/steward-program-7.scope"), 7));
        assert_eq!(["", "a", "a/b/c"].map(top_of), ["", "a", "a"]);
    }

    #[test]
    fn a_slice_says_whose_it_is() {
        assert_eq!(user_of_slice("user.slice/user-1000.slice/session-2.scope"), Some(1000));
        for below in ["", "/session-2.scope", "/a/b"] {
            let slice = "user.slice/user-1000.slice";
            assert_eq!(slice_of_user(&format!("{slice}{below}")), Some(slice));
        }
        assert_eq!(slice_of_user("user.slice"), None);
        assert_eq!(user_of_slice("user.slice/user-x.slice"), None);
        assert_eq!(user_of_slice("system.slice/user-1000.slice"), None);
    }
}
