//! Compiles the BPF program that tells who waits for the disk, and counts what requests take.

fn main() {
    steward_bpf_build::compile("src/bpf/ledger.bpf.c", &[]);
}
