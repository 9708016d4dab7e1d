//! Where the libraries are that cargo has built beside the tests.

use std::path::{Path, PathBuf};

/// Where libstewardserver.so and libstewardserver.a are.
pub fn built() -> PathBuf {
    let own = std::env::current_exe().expect("a running test");
    let deps = own.parent().expect("target/PROFILE/deps/TEST");
    let beside = deps.parent().unwrap_or(deps);
    let has = |directory: &&Path| directory.join("libstewardserver.so").exists();
    [deps, beside].into_iter().find(has).expect("cargo builds the library before its tests").to_owned()
}

/// The directory of this crate.
pub fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A directory where the shared library has the names by which the linker and the loader look for it once it is
/// installed.
pub fn installed() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for name in ["libstewardserver.so", "libstewardserver.so.0"] {
        let library = built().join("libstewardserver.so");
        std::os::unix::fs::symlink(library, directory.path().join(name)).expect("linked");
    }
    directory
}
