//! The whole daemon as clients meet it, on a fake machine. One program: each more would be linked with all of it
//! once more.

#[path = "../common/mod.rs"]
mod common;

mod audit;
mod authority;
mod availability;
mod clients;
mod control_files;
mod disk;
mod disk_of_users;
mod domains;
mod forecasts;
mod fuzz_harness;
mod life;
mod memory;
mod memory_of_programs;
mod memory_of_running;
mod properties;
mod requests;
mod suspension;
