//! How many connections wait in the kernel to be accepted: the queue of a listening port, whatever server is behind it.
//!
//! In `/proc/net/tcp` the receive queue of a listening socket is its number of such connections
//! (`tcp_ipv4.c: get_tcp4_sock`, `sk_ack_backlog`).

use std::path::Path;

use anyhow::Context;

/// State `TCP_LISTEN`, as the file has it.
const LISTENING: &str = "0A";

/// Connections that wait at `port`, over all addresses; `None` when nobody listens there.
///
/// # Errors
/// When a file below `net` (`/proc/net`) cannot be read; one for IPv6 need not be there.
pub fn waiting(net: &Path, port: u16) -> anyhow::Result<Option<u64>> {
    let path = net.join("tcp");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let more = std::fs::read_to_string(net.join("tcp6")).unwrap_or_default();
    let queues = text.lines().chain(more.lines()).filter_map(|line| queue(line, port));
    Ok(queues.fold(None, |sum: Option<u64>, queue| Some(sum.unwrap_or(0) + queue)))
}

/// The queue in a line of the file, if that is of a socket that listens at `port`.
fn queue(line: &str, port: u16) -> Option<u64> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let [_, local, _, LISTENING, queues, ..] = fields.as_slice() else { return None };
    let (_, local_port) = local.rsplit_once(':')?;
    let (_, receive) = queues.split_once(':')?;
    (u16::from_str_radix(local_port, 16).ok()? == port).then(|| u64::from_str_radix(receive, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queues_of_all_addresses_of_a_port_count_and_those_of_connections_do_not() {
        let directory = tempfile::tempdir().expect("a directory");
        let head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt\n";
        let listening = "   0: 00000000:0050 00000000:0000 0A 00000000:00000011 00:00000000 00000000     0\n";
        let connected = "   1: 0100007F:0050 0100007F:9C40 01 00000000:00000FFF 00:00000000 00000000     0\n";
        std::fs::write(directory.path().join("tcp"), format!("{head}{listening}{connected}"))
            .expect("written");
        assert_eq!(waiting(directory.path(), 80).expect("read"), Some(17));
        let sixth = "   0: 00000000000000000000000000000000:0050 00000000000000000000000000000000:0000 0A 00000000:00000002 0\n";
        std::fs::write(directory.path().join("tcp6"), format!("{head}{sixth}")).expect("written");
        assert_eq!(waiting(directory.path(), 80).expect("read"), Some(19));
        assert_eq!(waiting(directory.path(), 81).expect("read"), None);
    }

    #[test]
    fn a_file_that_is_missing_is_named() {
        let directory = tempfile::tempdir().expect("a directory");
        let error = waiting(directory.path(), 80).expect_err("nothing there");
        assert!(format!("{error:#}").contains("tcp"), "{error:#}");
    }
}
