//! Compiles the BPF program that tells who waits for the disk.

fn main() {
    steward_bpf_build::compile("src/bpf/waits.bpf.c", &[]);
}
