//! What orders the requests that wait for the device: the order in which they came, or BFQ.

mod bfq;

use std::collections::VecDeque;

pub(super) use bfq::{Bfq, Tunables};

use super::request::Request;

/// One of them.
#[derive(Debug)]
pub(super) enum Elevator {
    /// First come, first served.
    Fifo(VecDeque<Request>),
    /// By class, weight and time.
    Bfq(Bfq),
}

impl Elevator {
    pub(super) fn insert(&mut self, request: Request, now_ns: u64) {
        match self {
            Elevator::Fifo(requests) => requests.push_back(request),
            Elevator::Bfq(bfq) => bfq.insert(request, now_ns),
        }
    }

    /// The next request for the device, which works on so many.
    pub(super) fn dispatch(&mut self, now_ns: u64, under_way: usize) -> Option<Request> {
        match self {
            Elevator::Fifo(requests) => requests.pop_front(),
            Elevator::Bfq(bfq) => bfq.dispatch(now_ns, under_way),
        }
    }

    pub(super) fn served(&mut self, request: &Request, now_ns: u64) {
        if let Elevator::Bfq(bfq) = self {
            bfq.served(request, now_ns);
        }
    }

    /// Until when the device is kept idle for somebody's next request, in nanoseconds.
    pub(super) fn idle_until_ns(&self) -> Option<u64> {
        match self {
            Elevator::Fifo(_) => None,
            Elevator::Bfq(bfq) => bfq.idle_until_ns(),
        }
    }
}
