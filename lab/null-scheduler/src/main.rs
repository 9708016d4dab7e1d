//! Loads the least that a sched_ext scheduler can be (`null.bpf.c`) and holds it until it is killed. It is a contender
//! of the lab's overhead experiments: what it costs is what sched_ext itself costs.

use std::mem::MaybeUninit;

use anyhow::{Context, Result};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};

#[allow(missing_docs, clippy::all)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/null.skel.rs"));
}

fn main() -> Result<()> {
    let mut object = MaybeUninit::uninit();
    let open =
        skeleton::NullSkelBuilder::default().open(&mut object).context("cannot open the BPF program")?;
    let mut loaded = open.load().context("the kernel refused the BPF program")?;
    let _in_force =
        loaded.maps.null_ops.attach_struct_ops().context("the scheduler could not be put in force")?;
    // The link, and with it the scheduler, ends with the process.
    loop {
        std::thread::park();
    }
}
