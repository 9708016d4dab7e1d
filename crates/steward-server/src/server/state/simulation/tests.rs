//! What holds of a server on loads drawn at random.

use super::*;

/// Whatever comes: more are in time than with the limit that would have been the best of six for each load, and of
/// those that were promised an answer in time fewer than one in two hundred is late.
#[test]
fn of_random_loads_more_are_in_time_than_with_the_best_of_six_limits_and_promises_are_kept() {
    let sums = sums((0..40).map(random_load));
    for result in [sums.server, sums.refusing] {
        assert!(result.met > sums.best, "{sums:?}");
        assert!(result.accepted_missed * 200 < result.accepted_met, "{sums:?}");
    }
    assert!(sums.server.met > sums.queue, "{sums:?}");
}

/// As many are in time when four times as many come as can be served as when a few more do; and below that, nearly all.
#[test]
fn goodput_is_flat_beyond_capacity() {
    let [below, at, above, far] = [80, 100, 120, 400].map(|rate| sums((0..8).map(|seed| stream(rate, seed))));
    assert!(below.server.met * 100 >= below.requests * 99, "{below:?}");
    assert!(at.server.met * 100 >= at.requests * 92, "{at:?}");
    for result in [(above.server, far.server), (above.refusing, far.refusing)] {
        // Taking in 280 more in a second is 3 % of the CPU.
        assert!(result.1.met * 100 >= result.0.met * 92, "{result:?}");
        assert!(result.1.accepted_missed * 20 < result.1.accepted_met, "{result:?}");
    }
}

/// Others take all that is not reserved, so that no best-effort request ever ends in time: accepted ones that give way
/// to such are in time all the same, where all cost the same.
#[test]
fn whatever_others_take_all_that_were_accepted_are_in_time() {
    for rate in [60, 90, 200] {
        for seed in 0..4 {
            let mut load = stream(rate, seed);
            // What serving costs beside the requests would be beyond what is reserved for them.
            (load.left, load.intake_ns, load.serving_ns) = (0.01, 0, 0);
            load.warm_up.iter_mut().for_each(|cost_ns| *cost_ns = 10 * MS);
            load.requests.iter_mut().for_each(|(_, cost_ns)| *cost_ns = 10 * MS);
            load.requests.truncate(600);
            let result = server(&load, Otherwise::Refuse);
            assert_eq!(result.accepted_missed, 0, "{rate} a second, seed {seed}: {result:?}");
            assert!(result.accepted_met > 200, "{result:?}");
        }
    }
}

/// For a third of the time requests cost a hundred times as much as their goal was made for. Whatever is done with
/// those beyond, each is served or refused, once (`server` sees to it), and when it is over as many are in time as
/// before.
#[test]
fn a_cost_that_jumps_a_hundredfold_and_back_is_survived() {
    for otherwise in [Otherwise::BestEffort, Otherwise::Refuse, Otherwise::Queue] {
        let mut load = stream(50, 1);
        let third = load.requests.len() / 3;
        load.requests.iter_mut().for_each(|(_, cost_ns)| *cost_ns = 5 * MS);
        load.requests[third..2 * third].iter_mut().for_each(|(_, cost_ns)| *cost_ns *= 100);
        // What is left of the dear ones, 83 s of work, is done before the others come.
        load.requests[2 * third..].iter_mut().for_each(|(at_ns, _)| *at_ns += 200_000 * MS);
        let result = server(&load, otherwise);
        assert!(result.met * 100 >= 2 * third * 95, "{otherwise:?}: {result:?}");
    }
}

/// A burst of requests that all cost the same, as `server-cpu` in the lab: what is in hand says exactly when a request
/// is answered, so that nearly as many are in time as the CPU can serve, though three in four are accepted.
#[test]
fn of_a_burst_of_equal_requests_as_many_are_in_time_as_there_is_time_for() {
    let mut load = stream(200, 1);
    load.goal = Goal::new(Duration::from_secs(1), 0.75);
    load.warm_up.iter_mut().for_each(|cost_ns| *cost_ns = 10 * MS);
    load.requests.truncate(200);
    load.requests.iter_mut().for_each(|request| *request = (0, 10 * MS));
    let result = server(&load, Otherwise::BestEffort);
    // All are taken in first, which is 20 ms.
    assert!(result.met >= 96 && result.accepted_met == 74, "{result:?}");
}
