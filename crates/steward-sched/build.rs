//! Compiles the BPF program with clang, and its decision headers for the host.

fn main() {
    steward_bpf_build::compile("src/bpf/steward.bpf.c", &["-Wno-sign-compare"]);
    println!("cargo:rerun-if-changed=src/bpf/decide");

    cc::Build::new()
        .file("src/bpf/decide/host.c")
        .file("src/bpf/decide/host_layout.c")
        .include("src/bpf")
        .warnings(true)
        .extra_warnings(false)
        .opt_level(2)
        // Signed overflow wraps in BPF; so it does here.
        .flag("-fwrapv")
        .compile("steward_decide");
}
