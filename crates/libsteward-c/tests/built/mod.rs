//! A library for C that cargo has built beside the tests, and programs that are compiled against it: for the tests of
//! this crate and of each other one that makes such a library.

// Each test program uses a part of this.
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::process::Command;

/// One such library; `lib<name>.so` and `lib<name>.a` are built from the crate in `directory`.
pub struct Library {
    pub name: &'static str,
    pub directory: &'static str,
}

impl Library {
    /// The file in the crate's directory.
    pub fn file(&self, name: &str) -> PathBuf {
        Path::new(self.directory).join(name)
    }

    /// The directory that both libraries are in.
    pub fn built(&self) -> PathBuf {
        let own = std::env::current_exe().expect("a running test");
        let deps = own.parent().expect("target/PROFILE/deps/TEST");
        let beside = deps.parent().unwrap_or(deps);
        let has = |directory: &&Path| directory.join(format!("lib{}.so", self.name)).exists();
        [deps, beside].into_iter().find(has).expect("cargo builds the library before its tests").to_owned()
    }

    /// A directory where the shared library has the names by which the linker and the loader look for it once it is
    /// installed.
    pub fn installed(&self) -> tempfile::TempDir {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let library = format!("lib{}.so", self.name);
        for name in [library.clone(), format!("{library}.0")] {
            std::os::unix::fs::symlink(self.built().join(&library), directory.path().join(name))
                .expect("linked");
        }
        directory
    }

    /// Has `tests/interface.c`, linked with the shared library, do all that the interface offers.
    #[track_caller]
    pub fn does_all_shared(&self, argument: &Path) {
        let directory = self.installed();
        let source = self.file("tests/interface.c");
        assert_well(&self.compile_shared(&source, directory.path(), directory.path()), argument);
    }

    /// The same with the static library.
    #[track_caller]
    pub fn does_all_static(&self, argument: &Path) {
        let directory = tempfile::tempdir().expect("a temporary directory");
        assert_well(&self.compile_static(&self.file("tests/interface.c"), directory.path()), argument);
    }

    /// Compiles a program against the shared library as [`Library::installed`], and gives its path.
    pub fn compile_shared(&self, source: &Path, into: &Path, installed: &Path) -> PathBuf {
        let beside = installed.display();
        let (search, name) = (format!("-L{beside}"), format!("-l{}", self.name));
        self.compile(source, into, &[&search, &name, &format!("-Wl,-rpath,{beside}")])
    }

    /// Compiles a program against the static library, and gives its path.
    pub fn compile_static(&self, source: &Path, into: &Path) -> PathBuf {
        let library = self.built().join(format!("lib{}.a", self.name)).display().to_string();
        self.compile(source, into, &[&library, "-ldl", "-lm"])
    }

    /// Compiles the first program in C of a page of documentation.
    pub fn compile_page(&self, page: &str) {
        let text = std::fs::read_to_string(self.file("../../docs").join(page)).expect("it is there");
        let (_, program) = text.split_once("```c\n").expect("it has a program in C");
        let (program, _) = program.split_once("```").expect("and that ends");
        let directory = tempfile::tempdir().expect("a temporary directory");
        let source = directory.path().join("guide.c");
        std::fs::write(&source, program).expect("written");
        self.compile_static(&source, directory.path());
    }

    /// Compiles with warnings as errors.
    fn compile(&self, source: &Path, into: &Path, linking: &[&str]) -> PathBuf {
        let program = into.join("program");
        let mut compiler = Command::new("cc");
        compiler.args(["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-pthread"]);
        compiler.arg("-o").arg(&program).arg(source).arg("-I").arg(self.file("include"));
        let output = compiler.args(linking).output().expect("make setup has installed a C compiler");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        program
    }
}

/// Runs a program, which is to end well and say so.
#[track_caller]
fn assert_well(program: &Path, argument: &Path) {
    let output = Command::new(program).arg(argument).output().expect("it was compiled");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "all as it should be\n");
}
