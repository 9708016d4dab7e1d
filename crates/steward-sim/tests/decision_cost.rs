//! What a decision costs with 10, 100 and 1,000 domains, in comparisons of keys: a count, so it is the same on every
//! machine. `cargo run --release -p steward-sim --example decisions` measures the time.

use std::path::Path;
use std::process::Command;

/// Order, domains, mean and most comparisons of one decision.
fn counts() -> Vec<(u32, u32, f64, u64)> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("decision_cost");
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let compiled = Command::new(&compiler)
        .args(["-O1", "-fwrapv", "-o"])
        .arg(&program)
        .arg("-I")
        .arg(here.join("../steward-sched/src/bpf"))
        .arg(here.join("tests/decision_cost.c"))
        .output()
        .unwrap_or_else(|error| panic!("{}: {error}", compiler.display()));
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let output = Command::new(&program).output().unwrap();
    let line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (
            words[0].parse().unwrap(),
            words[1].parse().unwrap(),
            words[2].parse().unwrap(),
            words[3].parse().unwrap(),
        )
    };
    String::from_utf8(output.stdout).unwrap().lines().map(line).collect()
}

#[test]
fn a_decision_compares_a_logarithmic_number_of_keys() {
    let counts = counts();
    assert_eq!(counts.len(), 9);
    for (order, domains, mean, most) in counts {
        let levels = f64::from(domains).log2().ceil();
        // Walks down a heap, which are as long as the logarithm; and what an order itself compares: virtual time each
        // place with the level's clock, the bounds about it, and what has been used with what a slice is.
        let allowed = 4.0 * levels + 14.0;
        assert!(most as f64 <= allowed, "order {order}, {domains} domains: {most} comparisons");
        assert!(mean <= 3.0 * levels + 12.0, "order {order}, {domains} domains: {mean} on average");
    }
}
