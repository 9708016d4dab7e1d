//! The Go package on this library, tested by Go's own tool where there is one.

#[path = "../../libsteward-c/tests/built/mod.rs"]
mod built;

use std::path::{Path, PathBuf};
use std::process::Command;

use built::Library;

const LIBRARY: Library = Library { name: "stewardserver", directory: env!("CARGO_MANIFEST_DIR") };

/// Go, and a C compiler for what it shares with C.
fn go() -> Option<PathBuf> {
    let works = |program: &PathBuf| Command::new(program).arg("version").output().is_ok();
    [PathBuf::from("go"), PathBuf::from("/usr/local/go/bin/go")].into_iter().find(works)
}

/// Runs Go with the library that was built beside the tests, and nothing from elsewhere.
#[track_caller]
fn run(go: &Path, arguments: &[&str]) {
    let directory = LIBRARY.installed();
    let beside = directory.path().display();
    let mut command = Command::new(go);
    command.args(arguments).current_dir(LIBRARY.file("../../go/server"));
    command.env("CGO_ENABLED", "1").env("GOTOOLCHAIN", "local").env("GOPROXY", "off").env("GOFLAGS", "");
    // What was built the last time.
    command.env("GOCACHE", Path::new(env!("CARGO_TARGET_TMPDIR")).join("go"));
    command.env(
        "CGO_CFLAGS",
        format!("-Wall -Wextra -Werror -Wno-unused-parameter -I{}", LIBRARY.file("include").display()),
    );
    command.env("CGO_LDFLAGS", format!("-L{beside} -Wl,-rpath,{beside}"));
    let output = command.output().expect("it told its version");
    let said =
        [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
    assert!(output.status.success(), "go {}: {said}", arguments.join(" "));
}

#[test]
fn the_go_package_serves_requests_as_it_says() {
    let Some(go) = go() else {
        eprintln!("there is no Go here: its package is not tested");
        return;
    };
    run(&go, &["vet", "./..."]);
    run(&go, &["test", "-count=1", "./..."]);
}
