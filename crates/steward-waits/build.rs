//! Compiles the BPF program that tells who waits for the disk, and counts what requests take; and what of it can be
//! tried on the host, for the tests.

fn main() {
    steward_bpf_build::compile("src/bpf/ledger.bpf.c", &[]);
    for file in ["journal.h", "host.c"] {
        println!("cargo:rerun-if-changed=src/bpf/{file}");
    }
    cc::Build::new().file("src/bpf/host.c").warnings(true).opt_level(2).compile("steward_waits");
}
