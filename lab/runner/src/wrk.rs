//! From what the load generator `wrk` printed to numbers. Pure.
//!
//! It speaks once, at its end. A request that is still open then is in none of its numbers, and one that took longer
//! than its `--timeout` is in no latency.

use anyhow::{Context, Result, bail};

use crate::metrics::Metrics;

/// What it has to be started with: without the first it tells no percentiles, and what the second says has starved.
pub const OPTIONS: [&str; 2] = ["--latency", "--timeout 10s"];

/// The numbers of one `wrk`.
///
/// # Errors
/// When there is no summary, or one that lacks a number: with what it said instead.
pub fn wrk_metrics(text: &str) -> Result<Metrics> {
    if text.trim().is_empty() {
        bail!(
            "wrk printed nothing: it does so at its end only, which has to come before that of the run (its -d)"
        );
    }
    let requests = text.lines().find_map(|line| line.trim_start().split_once(" requests in "));
    let Some(requests) = requests.and_then(|(count, _)| count.parse::<f64>().ok()) else {
        let said = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
        bail!("wrk printed no summary, but `{}`", said.trim());
    };
    let per_second = after(text, "Requests/sec:").and_then(|words| words.trim().parse::<f64>().ok());
    let per_second = per_second.context("wrk printed a summary without a number after `Requests/sec:`")?;
    // It leaves these lines out when there was none.
    let errors = after(text, "Socket errors:").map_or(Ok([0.0; 4]), socket_errors)?;
    let [connect, read, write, starved] = errors;
    let refused =
        after(text, "Non-2xx or 3xx responses:").map_or(Some(0.0), |words| words.trim().parse().ok());
    let refused = refused.context("wrk printed no number after `Non-2xx or 3xx responses:`")?;
    let fulfilled = if requests > 0.0 { (requests - refused) / requests } else { 0.0 };
    let mut metrics = Metrics::from([
        ("work_per_second".to_owned(), per_second * fulfilled),
        ("requests_total".to_owned(), requests - refused),
        ("requests_starved".to_owned(), starved),
        ("requests_failed".to_owned(), connect + read + write + refused),
    ]);
    // Where all were too late it prints zeros.
    if requests > starved {
        for (name, words) in [("latency_ms_p50", "50%"), ("latency_ms_p99", "99%")] {
            let latency_ms = after(text, words).and_then(milliseconds);
            let latency_ms = latency_ms.with_context(|| format!("wrk printed no time after `{words}`"))?;
            metrics.insert(name.into(), latency_ms);
        }
    }
    Ok(metrics)
}

/// The rest of the line that begins with these words.
fn after<'a>(text: &'a str, words: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.trim_start().strip_prefix(words))
}

/// `connect 0, read 0, write 0, timeout 160`, in this order.
fn socket_errors(text: &str) -> Result<[f64; 4]> {
    let kinds = ["connect", "read", "write", "timeout"];
    let mut counts = [0.0; 4];
    let parts: Vec<&str> = text.split(',').collect();
    for (index, kind) in kinds.iter().enumerate() {
        let count = parts.get(index).and_then(|part| part.trim().strip_prefix(kind));
        let count = count.and_then(|count| count.trim().parse().ok());
        counts[index] =
            count.with_context(|| format!("wrk printed `Socket errors:{text}`, without {kind}"))?;
    }
    Ok(counts)
}

/// `17.64ms`: a number with the unit that suits it.
fn milliseconds(text: &str) -> Option<f64> {
    let text = text.trim();
    let (number, unit) = text.split_at(text.find(|letter: char| letter.is_ascii_alphabetic())?);
    let unit_ms = match unit {
        "us" => 1e-3,
        "ms" => 1.0,
        "s" => 1e3,
        "m" => 6e4,
        "h" => 3.6e6,
        _ => return None,
    };
    Some(number.parse::<f64>().ok()? * unit_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUICK: &str = "\
Running 6s test @ http://127.0.0.1:80/page.html
  1 threads and 8 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency    17.11ms    8.26ms  81.98ms   80.83%
    Req/Sec   465.92     38.58   505.00     88.33%
  Latency Distribution
     50%   17.64ms
     75%   20.31ms
     90%   23.67ms
     99%   51.07ms
  2787 requests in 6.01s, 5.98MB read
Requests/sec:    463.51
Transfer/sec:      0.99MB
";

    /// Of a run with `--timeout 1s` in which every request took longer.
    const ALL_LATE: &str = "\
Running 10s test @ http://127.0.0.1:80/cgi-bin/page
  1 threads and 60 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     0.00us    0.00us   0.00us    -nan%
    Req/Sec    33.88     62.84   380.00     93.02%
  Latency Distribution
     50%    0.00us
     75%    0.00us
     90%    0.00us
     99%    0.00us
  160 requests in 10.05s, 188.77KB read
  Socket errors: connect 0, read 0, write 0, timeout 160
Requests/sec:     15.92
Transfer/sec:     18.79KB
";

    /// Of a page that there is not.
    const MISSING: &str = "\
Running 2s test @ http://127.0.0.1:80/none
  1 threads and 4 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency    34.31ms   34.07ms 212.76ms   91.53%
    Req/Sec   130.45     56.38   320.00     80.00%
  Latency Distribution
     50%   31.22ms
     75%   53.44ms
     90%   62.91ms
     99%  181.95ms
  260 requests in 2.00s, 105.62KB read
  Non-2xx or 3xx responses: 260
Requests/sec:    129.83
Transfer/sec:     52.74KB
";

    fn complaint(text: &str) -> String {
        format!("{:#}", wrk_metrics(text).expect_err("it is no summary"))
    }

    #[test]
    fn a_summary_without_errors_has_none_starved() {
        let metrics = wrk_metrics(QUICK).unwrap();
        assert_eq!((metrics["requests_total"], metrics["work_per_second"]), (2787.0, 463.51));
        assert_eq!((metrics["requests_starved"], metrics["requests_failed"]), (0.0, 0.0));
        assert_eq!((metrics["latency_ms_p50"], metrics["latency_ms_p99"]), (17.64, 51.07));
    }

    #[test]
    fn requests_over_the_timeout_starve_and_have_no_latency() {
        let metrics = wrk_metrics(ALL_LATE).unwrap();
        assert_eq!((metrics["requests_starved"], metrics["requests_failed"]), (160.0, 0.0));
        assert_eq!((metrics["requests_total"], metrics["work_per_second"]), (160.0, 15.92));
        assert!(!metrics.contains_key("latency_ms_p50"));
        let broken = ALL_LATE.replace("connect 0, read 0, write 0", "connect 1, read 2, write 4");
        assert_eq!(wrk_metrics(&broken).unwrap()["requests_failed"], 7.0);
    }

    #[test]
    fn what_the_server_refused_is_no_work() {
        let metrics = wrk_metrics(MISSING).unwrap();
        assert_eq!((metrics["requests_failed"], metrics["requests_starved"]), (260.0, 0.0));
        assert_eq!((metrics["requests_total"], metrics["work_per_second"]), (0.0, 0.0));
    }

    #[test]
    fn without_a_summary_the_complaint_says_what_there_is_instead() {
        assert!(complaint("").contains("wrk printed nothing") && complaint("\n").contains("its -d"));
        let refused = complaint("unable to connect to 127.0.0.1:81 Connection refused\n");
        assert_eq!(
            refused,
            "wrk printed no summary, but `unable to connect to 127.0.0.1:81 Connection refused`"
        );
        assert!(complaint("many requests in 6.01s, 1MB read\n").contains("no summary"));
    }

    #[test]
    fn a_summary_that_lacks_a_number_is_refused() {
        let rate = complaint(&QUICK.replace("463.51", "fast"));
        assert!(rate.contains("`Requests/sec:`"), "{rate}");
        let errors = complaint(&ALL_LATE.replace(", timeout 160", ""));
        assert!(errors.contains("without timeout"), "{errors}");
        assert!(complaint(&MISSING.replace("responses: 260", "responses: x")).contains("responses:"));
        assert!(complaint(&QUICK.replace("17.64ms", "17.64 ells")).contains("no time after `50%`"));
    }

    #[test]
    fn times_have_the_unit_that_suits_them() {
        let read = ["  312.00us", "17.64ms", "9.98s", "1.50m", "1.00h", "-nan%", ""].map(milliseconds);
        let ms = [Some(0.312), Some(17.64), Some(9980.0), Some(90_000.0), Some(3_600_000.0), None, None];
        assert_eq!(read, ms);
    }
}
