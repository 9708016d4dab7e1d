//! The daemon that fuzzing talks to. The fuzz targets are built by `make fuzz` only; that what they stand on builds and
//! answers is seen here.

#[path = "../../../../fuzz/src/lib.rs"]
mod harness;

use self::harness::{Machine, OWNER, user};
use libsteward::api;
use libsteward::wire::Call;
use libsteward::{ApiError, api::Method};

#[test]
fn it_answers_calls_of_every_kind() {
    let mut machine = Machine::default();
    machine.next_input();
    assert!(machine.call(OWNER, &api::ListForecasts::default()).is_ok_and(|list| list.cpus > 0));
    machine.check_domains();
    let watch = Call { method: api::WatchForecasts::NAME.to_owned(), ..Call::default() };
    assert!(matches!(machine.reply(user(1), watch), Err(ApiError::ExpectedMore)));
    let unknown = Call { method: "io.steward.Fly".to_owned(), ..Call::default() };
    assert!(matches!(machine.reply(user(3), unknown), Err(ApiError::MethodNotFound { .. })));
}
