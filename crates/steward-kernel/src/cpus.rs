//! Which CPUs there are.

use crate::error::KernelError;
use crate::roots::{Roots, read};

/// The numbers of the CPUs that are online.
///
/// # Errors
/// [`KernelError::Read`] or [`KernelError::Parse`] naming `devices/system/cpu/online`.
pub fn online(roots: &Roots) -> Result<Vec<u32>, KernelError> {
    let path = roots.sys.join("devices/system/cpu/online");
    let text = read(&path)?;
    parse_list(text.trim()).ok_or_else(|| KernelError::parse(path, "a list of CPUs as in 0-3,6", &text))
}

fn parse_list(text: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for range in text.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        cpus.extend(first.parse().ok()?..=last.parse::<u32>().ok()?);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_cpus_is_numbers_and_ranges() {
        assert_eq!(parse_list("0-2,5"), Some(vec![0, 1, 2, 5]));
        assert_eq!((parse_list("7"), parse_list(""), parse_list("0-x")), (Some(vec![7]), None, None));
    }
}
