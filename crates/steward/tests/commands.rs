//! Commands that need no daemon, recorded: `TRYCMD=overwrite cargo test -p steward` records them anew.

#[test]
fn commands_print_what_is_recorded() {
    trycmd::TestCases::new().case("tests/cmd/*.trycmd").env("NO_COLOR", "1");
}
