//! Compiles the BPF program that reads the tasks.

fn main() {
    #[cfg(feature = "bpf")]
    steward_bpf_build::compile("src/bpf/tasks.bpf.c", &[]);
}
