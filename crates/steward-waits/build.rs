//! Compiles the BPF programs that tell who waits for the disk, and count what requests take.

fn main() {
    steward_bpf_build::compile("src/bpf/waits.bpf.c", &[]);
    steward_bpf_build::compile("src/bpf/ledger.bpf.c", &[]);
}
