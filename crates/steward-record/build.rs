//! Compiles the recorder's BPF program.

fn main() {
    steward_bpf_build::compile("src/bpf/record.bpf.c", &[]);
}
