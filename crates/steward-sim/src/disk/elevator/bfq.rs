//! BFQ as far as the decisions rest on it (block/bfq-iosched.c, block/bfq-wf2q.c of Linux): groups and queues of tasks
//! in them, each served for a while in an order by virtual time; classes one before the other within a group; the
//! device kept idle for the next request of who is being served. Charged is the time of being served, which is what it
//! does to queues that jump about the disk.
//!
//! Left out: the guess who is interactive (`low_latency`, which Steward turns off), budgets in sectors, requests of
//! others that are let in while it idles, queues that are merged.

use std::collections::{BTreeMap, VecDeque};

use steward_core::disk::priority::Priority;

use super::super::request::{Request, Who};

/// Classes: real-time, best-effort, idle.
const CLASSES: usize = 3;
const BEST_EFFORT: usize = 1;
/// The group at the top.
const ROOT: usize = 0;
/// What a group has that nobody gave a weight.
const WEIGHT_USUAL: f64 = 100.0;

/// What is set of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::disk) struct Tunables {
    /// `slice_idle_us`, in nanoseconds.
    pub(in crate::disk) idle_ns: u64,
    /// `strict_guarantees`: one request at a time, and always idle.
    pub(in crate::disk) is_strict: bool,
    /// How long one is served in a row at most (`timeout_sync`), in nanoseconds.
    pub(in crate::disk) turn_ns: u64,
    /// Whether the device rotates and takes one request at a time: then it is idled without being strict, too.
    pub(in crate::disk) idles_for_speed: bool,
}

/// A group, or the queue of a task in one.
#[derive(Debug)]
struct Node {
    parent: Option<usize>,
    class: usize,
    weight: f64,
    /// Class and weight from when it comes to be served again.
    next: (usize, f64),
    start: f64,
    finish: f64,
    is_active: bool,
    children: Vec<usize>,
    /// The virtual time of each class below it.
    time: [f64; CLASSES],
    requests: VecDeque<Request>,
    is_queue: bool,
}

/// Who is being served.
#[derive(Clone, Copy, Debug)]
struct Service {
    queue: usize,
    is_sync: bool,
    since_ns: u64,
    /// Of its requests, how many the device works on.
    under_way: usize,
    /// Until when the device is kept idle for its next one.
    idle_until_ns: Option<u64>,
}

/// The elevator.
#[derive(Debug)]
pub(in crate::disk) struct Bfq {
    pub(in crate::disk) tunables: Tunables,
    nodes: Vec<Node>,
    queues: BTreeMap<(Who, usize), usize>,
    serves: Option<Service>,
}

fn node(parent: Option<usize>, next: (usize, f64), is_queue: bool) -> Node {
    Node {
        parent,
        class: next.0,
        weight: next.1,
        next,
        start: 0.0,
        finish: 0.0,
        is_active: false,
        children: Vec::new(),
        time: [0.0; CLASSES],
        requests: VecDeque::new(),
        is_queue,
    }
}

/// The class and the weight of a priority (`bfq_ioprio_to_weight()`).
fn of_priority(priority: Priority) -> (usize, f64) {
    let weight = |level: u8| f64::from(8 - level.min(7)) * 10.0;
    match priority {
        Priority::RealTime(level) => (0, weight(level)),
        Priority::Unset => (BEST_EFFORT, weight(4)),
        Priority::BestEffort(level) => (BEST_EFFORT, weight(level)),
        Priority::Idle => (2, weight(7)),
    }
}

/// Who is due.
struct Due {
    queue: usize,
    /// The virtual time that this takes each level to: of the group at this place, for a class.
    times: Vec<(usize, usize, f64)>,
}

impl Bfq {
    /// With these groups below the root, each with the number of the one above it.
    pub(in crate::disk) fn new(parents: &[usize], tunables: Tunables) -> Self {
        let mut bfq = Bfq { tunables, nodes: Vec::new(), queues: BTreeMap::new(), serves: None };
        bfq.nodes.push(node(None, (BEST_EFFORT, WEIGHT_USUAL), false));
        for parent in parents {
            bfq.add(*parent, (BEST_EFFORT, WEIGHT_USUAL), false);
        }
        bfq
    }

    fn add(&mut self, parent: usize, next: (usize, f64), is_queue: bool) -> usize {
        self.nodes.push(node(Some(parent), next, is_queue));
        let place = self.nodes.len() - 1;
        self.nodes[parent].children.push(place);
        place
    }

    /// Gives a group a weight, which counts from when it comes to be served again.
    pub(in crate::disk) fn weigh(&mut self, group: usize, weight: u16) {
        self.nodes[group].next.1 = f64::from(weight);
    }

    pub(in crate::disk) fn idle_until_ns(&self) -> Option<u64> {
        self.serves.and_then(|service| service.idle_until_ns)
    }

    pub(in crate::disk) fn insert(&mut self, request: Request, now_ns: u64) {
        let next = of_priority(request.priority);
        let queue = match self.queues.get(&(request.who, request.group)) {
            Some(queue) => *queue,
            None => {
                let queue = self.add(request.group, next, true);
                self.queues.insert((request.who, request.group), queue);
                queue
            }
        };
        self.nodes[queue].next = next;
        self.nodes[queue].requests.push_back(request);
        if let Some(service) = self.serves.as_mut().filter(|service| service.queue == queue) {
            service.idle_until_ns = None;
            return;
        }
        if self.nodes[queue].is_active {
            return;
        }
        self.activate(queue);
        // And only if somebody else is due then (`next_queue_may_preempt()`).
        if let Some(service) = self.serves.filter(|service| self.comes_before(queue, service))
            && self.due().is_some_and(|due| due.queue != service.queue)
        {
            self.expire(now_ns);
        }
    }

    /// Whether a queue that begins to have requests ends another's time (`bfq_bfqq_higher_class_or_weight()`).
    fn comes_before(&self, queue: usize, service: &Service) -> bool {
        if !self.idles_for(service) && self.nodes[service.queue].requests.is_empty() {
            return true;
        }
        let (new, old) = (&self.nodes[queue], &self.nodes[service.queue]);
        if new.class != old.class {
            return new.class < old.class;
        }
        let weight =
            |node: &Node| if new.parent == old.parent { node.weight } else { self.weight_above(node) };
        weight(new) > weight(old)
    }

    fn weight_above(&self, node: &Node) -> f64 {
        match node.parent {
            Some(ROOT) | None => node.weight,
            Some(parent) => self.nodes[parent].weight,
        }
    }

    fn activate(&mut self, place: usize) {
        let Some(parent) = self.nodes[place].parent else { return };
        if self.nodes[place].is_active {
            return;
        }
        let (times, turn_ns) = (self.nodes[parent].time, self.tunables.turn_ns as f64);
        let node = &mut self.nodes[place];
        node.take_up(&times);
        node.start = node.finish.max(times[node.class]);
        node.finish = node.start + turn_ns / node.weight;
        node.is_active = true;
        self.activate(parent);
    }

    /// Ends the time of who is being served, and charges it.
    fn expire(&mut self, now_ns: u64) {
        let Some(service) = self.serves.take() else { return };
        let charged = (now_ns - service.since_ns) as f64;
        let mut path = vec![service.queue];
        while let Some(parent) = self.nodes[path[path.len() - 1]].parent {
            path.push(parent);
        }
        for pair in path.windows(2) {
            let (place, parent) = (pair[0], pair[1]);
            let class = self.nodes[place].class;
            let beside = self.nodes[parent].children.iter().map(|child| &self.nodes[*child]);
            let weights: f64 =
                beside.filter(|node| node.is_active && node.class == class).map(|node| node.weight).sum();
            self.nodes[parent].time[class] += charged / weights.max(1.0);
            let node = &mut self.nodes[place];
            node.finish = node.start + charged / node.weight;
        }
        for pair in path.windows(2) {
            let (place, parent) = (pair[0], pair[1]);
            let is_active = match self.nodes[place].is_queue {
                true => !self.nodes[place].requests.is_empty(),
                false => self.nodes[place].children.iter().any(|child| self.nodes[*child].is_active),
            };
            let (times, turn_ns) = (self.nodes[parent].time, self.tunables.turn_ns as f64);
            let node = &mut self.nodes[place];
            node.is_active = is_active;
            if is_active {
                node.take_up(&times);
                node.start = node.finish;
                node.finish = node.start + turn_ns / node.weight;
            }
        }
    }

    /// Who is due: at each level the first class that has anybody, and of those whose time has come who ends first.
    fn due(&self) -> Option<Due> {
        let mut place = ROOT;
        let mut times = Vec::new();
        while !self.nodes[place].is_queue {
            let active =
                || self.nodes[place].children.iter().copied().filter(|child| self.nodes[*child].is_active);
            let class = active().map(|child| self.nodes[child].class).min()?;
            let of_class = || active().filter(|child| self.nodes[*child].class == class);
            let earliest = of_class().map(|child| self.nodes[child].start).fold(f64::INFINITY, f64::min);
            let time = self.nodes[place].time[class].max(earliest);
            times.push((place, class, time));
            let due = of_class().filter(|child| self.nodes[*child].start <= time);
            place = due.min_by(|a, b| self.nodes[*a].finish.total_cmp(&self.nodes[*b].finish))?;
        }
        Some(Due { queue: place, times })
    }

    fn choose(&mut self) -> Option<usize> {
        let Due { queue, times } = self.due()?;
        for (place, class, time) in times {
            self.nodes[place].time[class] = time;
        }
        Some(queue)
    }

    /// Whether the device is kept idle for who is being served (`bfq_better_to_idle()`).
    fn idles_for(&self, service: &Service) -> bool {
        if self.tunables.is_strict {
            return true;
        }
        self.tunables.idle_ns > 0 && service.is_sync && (self.tunables.idles_for_speed || self.is_uneven())
    }

    /// Whether those who have requests are to be served differently (`bfq_asymmetric_scenario()`).
    fn is_uneven(&self) -> bool {
        let mut active = self.nodes.iter().filter(|node| node.is_active && node.parent.is_some());
        let first = active.next().map(|node| (node.class, node.weight, node.parent));
        active.any(|node| Some((node.class, node.weight, node.parent)) != first)
    }

    pub(in crate::disk) fn dispatch(&mut self, now_ns: u64, under_way: usize) -> Option<Request> {
        if self.tunables.is_strict && under_way > 0 {
            return None;
        }
        if let Some(service) = self.serves {
            let has_requests = !self.nodes[service.queue].requests.is_empty();
            let is_over = (now_ns - service.since_ns) as f64 >= self.tunables.turn_ns as f64;
            let waits = service.under_way > 0 && self.idles_for(&service)
                || service.idle_until_ns.is_some_and(|until_ns| now_ns < until_ns);
            // Who is waited for is not taken for having none, also after its time is over (`bfq_bfqq_must_idle()`).
            if is_over && has_requests || !has_requests && !waits {
                self.expire(now_ns);
            } else if !has_requests {
                return None;
            }
        }
        let queue = match self.serves {
            Some(service) => service.queue,
            None => {
                let queue = self.choose()?;
                let is_sync = self.nodes[queue].requests.front().is_some_and(Request::is_sync);
                self.serves =
                    Some(Service { queue, is_sync, since_ns: now_ns, under_way: 0, idle_until_ns: None });
                queue
            }
        };
        let request = self.nodes[queue].requests.pop_front();
        if let Some(service) = self.serves.as_mut().filter(|_| request.is_some()) {
            service.under_way += 1;
        }
        request
    }

    pub(in crate::disk) fn served(&mut self, request: &Request, now_ns: u64) {
        let queue = self.queues.get(&(request.who, request.group)).copied();
        let Some(mut service) = self.serves.filter(|service| Some(service.queue) == queue) else { return };
        service.under_way = service.under_way.saturating_sub(1);
        if service.under_way == 0 && self.nodes[service.queue].requests.is_empty() && self.idles_for(&service)
        {
            service.idle_until_ns = Some(now_ns + self.tunables.idle_ns);
        }
        self.serves = Some(service);
    }
}

impl Node {
    /// Takes up what it is to have; in another class its time begins anew.
    fn take_up(&mut self, times: &[f64; CLASSES]) {
        if self.class != self.next.0 {
            self.finish = times[self.next.0];
        }
        (self.class, self.weight) = self.next;
    }
}
