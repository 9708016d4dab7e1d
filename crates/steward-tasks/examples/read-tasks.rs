//! Reads all tasks again and again and says what a read costs, and who ran and waited meanwhile:
//! `read-tasks [bpf|bpf-iterator|procfs] [READS] [MILLISECONDS BETWEEN]`.

use std::time::{Duration, Instant};

use steward_core::cpu::forecast::TaskSample;
use steward_kernel::Roots;
use steward_tasks::{Bpf, Procfs, Source};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize| arguments.get(index).and_then(|text| text.parse::<u64>().ok());
    let (reads, between) = (number(1).unwrap_or(20), Duration::from_millis(number(2).unwrap_or(100)));
    let mut source: Box<dyn Source> = match arguments.first().map(String::as_str) {
        Some("procfs") => Box::new(Procfs::new(Roots::default())),
        Some("bpf-iterator") => Box::new(Bpf::load_iterator()?),
        _ => Box::new(Bpf::load()?),
    };
    let begun = Instant::now();
    let (mut first, mut samples): (Vec<TaskSample>, Vec<TaskSample>) = Default::default();
    let mut costs = Vec::new();
    for _ in 0..reads {
        let before = Instant::now();
        let reading = source.read(begun.elapsed().as_nanos() as u64 + 1)?;
        costs.push(before.elapsed());
        samples = reading.tasks.to_vec();
        if first.is_empty() {
            first.clone_from(&samples);
        }
        std::thread::sleep(between);
    }
    costs.sort_unstable();
    println!("{} tasks, a read takes {:?} (median of {reads})", samples.len(), costs[costs.len() / 2]);
    for sample in &samples {
        let Some(before) = first.iter().find(|before| before.tid == sample.tid) else { continue };
        let (ran_ns, waited_ns) = (sample.run_ns - before.run_ns, sample.wait_ns - before.wait_ns);
        if ran_ns + waited_ns > 50_000_000 {
            let name = String::from_utf8_lossy(&sample.name);
            let name = name.trim_end_matches('\0');
            let (ran_ms, waited_ms) = (ran_ns / 1_000_000, waited_ns / 1_000_000);
            println!(
                "{} {name}: ran {ran_ms} ms, waited {waited_ms} ms, uid {}, cgroup {}, weight {:.1}, {:?}, runnable {}",
                sample.tid, sample.uid, sample.cgroup_id, sample.weight, sample.class, sample.runnable
            );
        }
    }
    Ok(())
}
