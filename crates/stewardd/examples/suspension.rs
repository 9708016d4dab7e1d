//! What a suspension by an ordinary user costs who wants a lock that the suspended programs had: in the lab's machine,
//! beside a running stewardd, `suspension move FILE` makes, renames and removes a file for ever; `suspension hold
//! DOMAIN SECONDS` keeps the domain suspended for that long; `suspension touch FILE SECONDS` makes and removes a file
//! all the time and says how long that took at most.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::bail;
use libsteward::{Client, SOCKET_PATH, api};

/// Between two files of who shares the directory.
const PAUSE: Duration = Duration::from_millis(3);

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["move", file] => move_about(Path::new(file)),
        ["hold", domain, seconds] => hold(domain, Duration::from_secs(seconds.parse()?)),
        ["touch", file, seconds] => touch(Path::new(file), Duration::from_secs(seconds.parse()?)),
        _ => bail!("suspension move FILE | hold DOMAIN SECONDS | touch FILE SECONDS"),
    }
}

fn move_about(file: &Path) -> anyhow::Result<()> {
    let moved = file.with_extension("moved");
    loop {
        fs::write(file, "")?;
        fs::rename(file, &moved)?;
        fs::remove_file(&moved)?;
    }
}

fn hold(domain: &str, length: Duration) -> anyhow::Result<()> {
    let mut client = Client::connect(SOCKET_PATH)?;
    let reply = client.call(&api::SuspendDomain { domain: domain.into(), suspended: true })?;
    anyhow::ensure!(reply.suspended, "{domain} is not suspended");
    println!("suspended");
    // The suspension belongs to the connection.
    sleep(length);
    Ok(())
}

fn touch(file: &Path, length: Duration) -> anyhow::Result<()> {
    let begun = Instant::now();
    let (mut longest, mut count) = (Duration::ZERO, 0_u32);
    while begun.elapsed() < length {
        let begun = Instant::now();
        fs::write(file, "")?;
        fs::remove_file(file)?;
        longest = longest.max(begun.elapsed());
        count += 1;
        sleep(PAUSE);
    }
    println!("touched {count}\nlongest_ms {}", longest.as_millis());
    Ok(())
}
