//! The Python package against a daemon in this process. It stands here because this crate's tests have a daemon for
//! other languages already.

#[path = "../../stewardd/tests/common/mod.rs"]
mod common;

use std::path::Path;
use std::process::Command;

use common::Machine;

#[test]
fn the_python_package_does_all_that_the_interface_offers() {
    let machine = Machine::new();
    let daemon = machine.start();
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/how-to/ask-how-much-memory.md");
    let guide = std::fs::read_to_string(guide).expect("it is there");
    let (_, program) = guide.split_once("```python\n").expect("it has a program in Python");
    let (program, _) = program.split_once("```").expect("and that ends");
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python");
    let mut python = Command::new("python3");
    python.args(["-B", "-m", "unittest", "discover", "-s", "tests", "-t", "."]).current_dir(&package);
    let output = python.env("STEWARD_TEST_SOCKET", &daemon.socket).output();
    let output = output.expect("make setup has installed python3");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("skipped"), "{said}");
    let mut python = Command::new("python3");
    let output =
        python.args(["-B", "-c", program]).current_dir(&package).env("STEWARD_SOCKET", &daemon.socket);
    let output = output.output().expect("it was there a moment ago");
    let told = String::from_utf8_lossy(&output.stdout);
    let failed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && told.trim().parse::<u64>().is_ok(), "{told}{failed}");
}
