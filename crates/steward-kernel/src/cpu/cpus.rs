//! Which CPUs there are.

use crate::error::KernelError;
use crate::roots::{Roots, read};

/// The numbers of the CPUs that are online.
///
/// # Errors
/// [`KernelError::Read`] or [`KernelError::Parse`] naming `devices/system/cpu/online`.
pub fn online(roots: &Roots) -> Result<Vec<u32>, KernelError> {
    read_list("online", roots)
}

/// The numbers of the CPUs that there can ever be, until the next boot.
///
/// # Errors
/// [`KernelError::Read`] or [`KernelError::Parse`] naming `devices/system/cpu/possible`.
pub fn possible(roots: &Roots) -> Result<Vec<u32>, KernelError> {
    read_list("possible", roots)
}

fn read_list(file: &str, roots: &Roots) -> Result<Vec<u32>, KernelError> {
    let path = roots.sys.join("devices/system/cpu").join(file);
    let text = read(&path)?;
    parse_list(text.trim()).ok_or_else(|| KernelError::parse(path, "a list of CPUs as in 0-3,6", &text))
}

/// The numbers in a list of the kernel (`0-3,6`); `None` for anything else.
pub(crate) fn parse_list(text: &str) -> Option<Vec<u32>> {
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
