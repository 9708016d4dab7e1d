//! The tree of domains: what each wants, gets and could get, level by level from the root, in CPUs.
//!
//! A cgroup without a weight of its own (no `cpu` controller) is no contender: its tasks are its nearest ancestor's
//! that is one. A suspended domain wants nothing; what it could get is as if it were released.

use super::divide::{Contender, Division};
use super::history::Active;
use super::tasks::{self, Claim, Room};
use super::terms::{DomainSample, Model, SchedulingClass, TaskSample};
use crate::cpu::policy::{DomainPolicy, PRIORITIES};

/// No domain.
pub(super) const NONE: u32 = u32::MAX;
/// SCHED_IDLE's weight in the default scheduler: 3 where nice 0 is 1,024.
const WEIGHT_IDLE: f64 = 3.0 / 1024.0 * 100.0;
/// SCHED_IDLE's weight in a sched_ext scheduler: the least there is.
const WEIGHT_IDLE_STEWARD: f64 = 1.0;
const WEIGHT_DEFAULT: f64 = 100.0;

/// Where domains stand.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Shape {
    /// Index of the parent of each domain given, [`NONE`] for the root. One root is added at the end if none is given.
    pub(super) parents: Vec<u32>,
    /// Parents before children.
    pub(super) order: Vec<u32>,
    pub(super) root: u32,
    /// Ids of cgroups with their indices, ordered.
    ids: Vec<(u64, u32)>,
}

impl Shape {
    pub(super) fn new(domains: &[DomainSample]) -> Self {
        let mut ids: Vec<(u64, u32)> =
            domains.iter().enumerate().map(|(index, domain)| (domain.cgroup_id, index as u32)).collect();
        ids.sort_unstable();
        let given_root = domains.iter().position(|domain| domain.parent_id == 0);
        let root = given_root.unwrap_or(domains.len()) as u32;
        let mut parents: Vec<u32> = domains
            .iter()
            .enumerate()
            .map(|(index, domain)| match find(&ids, domain.parent_id) {
                _ if index as u32 == root => NONE,
                Some(parent) if parent != index as u32 => parent,
                // Its parent is gone, or was not told.
                _ => root,
            })
            .collect();
        if given_root.is_none() {
            parents.push(NONE);
        }
        let order = order(&mut parents, root);
        Shape { parents, order, root, ids }
    }

    /// The index of the domain of a cgroup's tasks: the root's for those of a cgroup that was not given.
    pub(super) fn home(&self, cgroup_id: u64) -> u32 {
        find(&self.ids, cgroup_id).unwrap_or(self.root)
    }
}

fn find(ids: &[(u64, u32)], cgroup_id: u64) -> Option<u32> {
    ids.binary_search_by_key(&cgroup_id, |(id, _)| *id).ok().map(|place| ids[place].1)
}

/// Parents before children. What is not below the root, because the parents were read while they changed and go round
/// in a circle, is put there.
fn order(parents: &mut [u32], root: u32) -> Vec<u32> {
    let count = parents.len();
    let mut reached = vec![false; count];
    reached[root as usize] = true;
    let mut order = vec![root];
    let mut path = Vec::new();
    for start in 0..count as u32 {
        let mut at = start;
        while !reached[at as usize] && path.len() <= count {
            path.push(at);
            at = parents[at as usize];
        }
        if path.len() > count {
            path.clear();
            parents[start as usize] = root;
            path.push(start);
        }
        while let Some(next) = path.pop() {
            reached[next as usize] = true;
            order.push(next);
        }
    }
    order
}

/// A domain with what it holds.
#[derive(Clone, Debug)]
struct Node {
    /// The nearest ancestor that is a contender.
    parent: u32,
    contends: bool,
    suspended: bool,
    policy: DomainPolicy,
    limit: f64,
    own: Sums,
    all: Sums,
    allocation: f64,
    potential: f64,
    own_allocation: f64,
    own_potential: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    wants: f64,
    floor: f64,
    /// Weights times the fractions of time for which they count.
    weight: f64,
    /// Fractions of time for which something is ready, summed over tasks.
    eligible: f64,
}

impl Sums {
    fn add(&mut self, more: Sums) {
        self.wants += more.wants;
        self.floor += more.floor;
        self.weight += more.weight;
        self.eligible += more.eligible;
    }

    /// The fraction of time for which any of it is ready, at most: ready times that overlap count twice.
    fn activity(&self) -> f64 {
        self.eligible.min(1.0)
    }
}

/// What is forecast for every task and domain, in CPUs.
#[derive(Debug)]
pub(super) struct Outlook {
    /// Predicted and potential of each active task.
    pub(super) tasks: Vec<(f64, f64)>,
    /// Potential of each domain.
    pub(super) domains: Vec<f64>,
    pub(super) vacancies: Vacancies,
}

/// What tasks that sleep could get: there are many, and few are asked about.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Vacancies {
    model: Model,
    /// What a real-time task could get.
    real_time: f64,
    /// For each domain, whose tasks its own count as.
    groups: Vec<u32>,
    /// For each domain its own tasks' room.
    rooms: Vec<Room>,
}

impl Vacancies {
    /// The potential of a task that does nothing, by the index of its domain.
    pub(super) fn potential(&self, home: u32, task: &TaskSample) -> f64 {
        if task.class == SchedulingClass::RealTime {
            return self.real_time;
        }
        let room = &self.rooms[self.groups[home as usize] as usize];
        let weight = weight(self.model, task.weight, task.class);
        room.potential(&Claim { weight, favour: 1.0, ..Claim::default() }, 0.0)
    }
}

/// The question: who there is, and what they did.
pub(super) struct Scene<'s> {
    pub(super) model: Model,
    pub(super) cpus: f64,
    pub(super) domains: &'s [DomainSample],
    pub(super) shape: &'s Shape,
    pub(super) tasks: &'s [TaskSample],
    /// Those of them that are active. Where this file says index of a task, it is that in here.
    pub(super) active: &'s [Active],
}

impl Scene<'_> {
    /// What all get, if there is always work for all CPUs.
    pub(super) fn outlook(&self) -> Outlook {
        let mut tasks = vec![(0.0, 0.0); self.active.len()];
        let left = self.serve_real_time(&mut tasks);
        let mut nodes = self.nodes();
        let claims = self.claims(&nodes);
        self.sum_up(&mut nodes, &claims);
        self.hand_down(&mut nodes, left);
        let members = self.members(&nodes);
        let rooms = nodes
            .iter()
            .zip(&members)
            .map(|(node, members)| share_among_tasks(node, members, &claims, &mut tasks))
            .collect();
        // Tasks of one that is no contender are as good as its ancestor's.
        let potential = |node: &Node| {
            if node.contends { node.potential } else { nodes[node.parent as usize].own_potential }
        };
        let group = |(index, node): (usize, &Node)| if node.contends { index as u32 } else { node.parent };
        Outlook {
            tasks,
            domains: nodes.iter().map(potential).collect(),
            vacancies: Vacancies {
                model: self.model,
                real_time: left.clamp(0.0, 1.0),
                groups: nodes.iter().enumerate().map(group).collect(),
                rooms,
            },
        }
    }

    fn task(&self, index: usize) -> &TaskSample {
        &self.tasks[self.active[index].place as usize]
    }

    fn is_real_time(&self, index: usize) -> bool {
        self.task(index).class == SchedulingClass::RealTime
    }

    /// Real-time tasks come before all others. Returns the CPUs that they leave.
    fn serve_real_time(&self, tasks: &mut [(f64, f64)]) -> f64 {
        let indices: Vec<usize> = (0..self.active.len()).filter(|index| self.is_real_time(*index)).collect();
        let wants = |index: usize| self.active[index].usage.desired;
        let wanted: f64 = indices.iter().map(|index| wants(*index)).sum();
        let scale = if wanted > self.cpus { self.cpus / wanted } else { 1.0 };
        for index in indices {
            let predicted = wants(index) * scale;
            let left = self.cpus - (wanted - wants(index)) * scale;
            tasks[index] = (predicted, left.clamp(predicted, 1.0f64.max(predicted)));
        }
        (self.cpus - wanted).max(0.0)
    }

    fn nodes(&self) -> Vec<Node> {
        let root = self.shape.root;
        let virtual_root = DomainSample {
            cgroup_id: 0,
            parent_id: 0,
            policy: DomainPolicy::default(),
            limit_cpus: f64::INFINITY,
            suspended: false,
        };
        let mut nodes: Vec<Node> = (self.domains.iter().chain([&virtual_root]))
            .take(self.shape.parents.len())
            .map(|domain| Node {
                parent: NONE,
                contends: domain.policy.weight.is_some(),
                suspended: domain.suspended,
                policy: domain.policy,
                limit: if domain.limit_cpus >= 0.0 { domain.limit_cpus } else { f64::INFINITY },
                own: Sums::default(),
                all: Sums::default(),
                allocation: 0.0,
                potential: 0.0,
                own_allocation: 0.0,
                own_potential: 0.0,
            })
            .collect();
        nodes[root as usize].contends = true;
        for &index in &self.shape.order {
            let parent = self.shape.parents[index as usize];
            if parent == NONE {
                continue;
            }
            let above = &nodes[parent as usize];
            let (suspended, contender) =
                (above.suspended, if above.contends { parent } else { above.parent });
            let node = &mut nodes[index as usize];
            node.suspended |= suspended;
            node.parent = contender;
        }
        nodes
    }

    fn claims(&self, nodes: &[Node]) -> Vec<Claim> {
        let claim = |index: usize| {
            let (task, usage) = (self.task(index), &self.active[index].usage);
            let suspended = nodes[self.home(index) as usize].suspended;
            let wants = if suspended { 0.0 } else { usage.desired };
            // Reservations are Steward's own; SCHED_DEADLINE's tasks are real-time ones.
            let reserved = if task.reserved.is_finite() { task.reserved.clamp(0.0, 1.0) } else { 0.0 };
            Claim {
                wants,
                floor: wants.min(reserved),
                weight: weight(self.model, task.weight, task.class),
                weight_before: weight(self.model, usage.weight, task.class),
                actual: if suspended { 0.0 } else { usage.actual },
                eligible: usage.eligible,
                known: usage.known,
                favour: 1.0,
            }
        };
        (0..self.active.len()).map(claim).collect()
    }

    fn home(&self, index: usize) -> u32 {
        self.active[index].home
    }

    /// The contender that a task belongs to.
    fn group(&self, nodes: &[Node], index: usize) -> u32 {
        let home = self.home(index);
        let node = &nodes[home as usize];
        if node.contends { home } else { node.parent }
    }

    /// Sums what tasks want into their domains, and these into their parents.
    fn sum_up(&self, nodes: &mut [Node], claims: &[Claim]) {
        for (index, claim) in claims.iter().enumerate().filter(|(index, _)| !self.is_real_time(*index)) {
            let eligible = if claim.wants > 0.0 { claim.eligible } else { 0.0 };
            nodes[self.group(nodes, index) as usize].own.add(Sums {
                wants: claim.wants,
                floor: claim.floor,
                weight: claim.weight * eligible,
                eligible,
            });
        }
        for &index in self.shape.order.iter().rev() {
            let node = &mut nodes[index as usize];
            let own = node.own;
            node.all.add(own);
            // cpu.max does not hold what tasks take out of reservations of their own.
            node.all.wants = node.all.wants.min(node.limit + node.all.floor);
            let (all, parent, contends) = (node.all, node.parent, node.contends);
            if parent != NONE && contends {
                nodes[parent as usize].all.add(all);
            }
        }
    }

    /// Divides from the root downwards.
    fn hand_down(&self, nodes: &mut [Node], cpus: f64) {
        let mut children: Vec<Vec<u32>> = vec![Vec::new(); nodes.len()];
        for &index in &self.shape.order {
            let node = &nodes[index as usize];
            if node.parent != NONE && node.contends {
                children[node.parent as usize].push(index);
            }
        }
        let root = &mut nodes[self.shape.root as usize];
        root.allocation = root.all.wants.min(cpus);
        root.potential = cpus;
        for &index in &self.shape.order {
            if nodes[index as usize].contends {
                self.divide_level(nodes, index, &children[index as usize]);
            }
        }
    }

    /// Divides what a domain has among its children and its own tasks.
    fn divide_level(&self, nodes: &mut [Node], index: u32, children: &[u32]) {
        let node = &mut nodes[index as usize];
        if children.is_empty() {
            // Most domains are leaves: all is their tasks'.
            node.own_allocation = node.own.wants.min(node.allocation);
            node.own_potential = node.potential.max(node.own_allocation);
            return;
        }
        let node = &nodes[index as usize];
        let mut contenders = vec![self.own_contender(node)];
        contenders.extend(children.iter().map(|child| self.contender(&nodes[*child as usize])));
        let allocations = Division::new(node.allocation, &contenders).allocations();
        let division = Division::new(node.potential, &contenders);
        let full = |place: usize| match place {
            0 => own_weight(node),
            _ => child_weight(&nodes[children[place - 1] as usize]),
        };
        let potentials: Vec<f64> =
            (0..contenders.len()).map(|place| division.potential(place, full(place))).collect();
        let node = &mut nodes[index as usize];
        node.own_allocation = allocations[0];
        node.own_potential = potentials[0].max(allocations[0]);
        for (place, child) in children.iter().enumerate() {
            let child = &mut nodes[*child as usize];
            child.allocation = allocations[place + 1];
            child.potential = potentials[place + 1].min(child.limit + child.all.floor).max(child.allocation);
        }
    }

    fn own_contender(&self, node: &Node) -> Contender {
        Contender {
            wants: node.own.wants,
            floor: node.own.floor,
            reserved: 0.0,
            weight: self.contributed(own_weight(node), &node.own),
            priority: self.priority(node.policy.own_priority),
        }
    }

    fn contender(&self, node: &Node) -> Contender {
        let reserved =
            if node.policy.reserved.is_finite() { node.policy.reserved.clamp(0.0, 1.0) } else { 0.0 };
        Contender {
            wants: node.all.wants,
            floor: node.all.floor,
            reserved: if self.model == Model::Steward { reserved } else { 0.0 },
            weight: self.contributed(child_weight(node), &node.all),
            priority: self.priority(node.policy.priority),
        }
    }

    fn priority(&self, priority: u8) -> u8 {
        if self.model == Model::Steward { priority.min(PRIORITIES - 1) } else { 0 }
    }

    /// The weight that one has in the mean. Under proportional share it counts while its tasks are ready (CPU Futures,
    /// equation 6). Steward's order among domains makes up within a cycle for the time in which a domain had nothing
    /// ready: there it counts in full.
    fn contributed(&self, weight: f64, sums: &Sums) -> f64 {
        if self.model == Model::ProportionalShare { weight * sums.activity() } else { weight }
    }

    /// The tasks of each contender, without real-time ones.
    fn members(&self, nodes: &[Node]) -> Vec<Vec<u32>> {
        let mut members = vec![Vec::new(); nodes.len()];
        for index in (0..self.active.len()).filter(|index| !self.is_real_time(*index)) {
            members[self.group(nodes, index) as usize].push(index as u32);
        }
        members
    }
}

/// What a domain's own tasks weigh beside its children while any is ready.
fn own_weight(node: &Node) -> f64 {
    match node.policy.own_weight {
        Some(weight) => f64::from(weight),
        None if node.own.eligible > 0.0 => node.own.weight / node.own.activity(),
        None => WEIGHT_DEFAULT,
    }
}

fn child_weight(node: &Node) -> f64 {
    node.policy.weight.map_or(WEIGHT_DEFAULT, f64::from)
}

/// Divides what a domain's own tasks have among those that are active. Returns what room there is for others.
fn share_among_tasks(node: &Node, members: &[u32], claims: &[Claim], tasks: &mut [(f64, f64)]) -> Room {
    let mut mine: Vec<Claim> = members.iter().map(|index| claims[*index as usize]).collect();
    // Only those that want something take part in solving for the level.
    if node.own.wants > node.own_allocation || node.own.wants + 1.0 > node.own_potential {
        tasks::judge(&mut mine);
    }
    let predicted = tasks::divide(node.own_allocation, &mine);
    let room = Room::new(node.own_potential, &mine, &predicted);
    for ((index, claim), predicted) in members.iter().zip(&mine).zip(predicted) {
        tasks[*index as usize] = (predicted, room.potential(claim, predicted));
    }
    room
}

/// A task's weight, which is above zero whatever was counted.
fn weight(model: Model, weight: f64, class: SchedulingClass) -> f64 {
    let idle = match model {
        Model::ProportionalShare => WEIGHT_IDLE,
        Model::Steward => WEIGHT_IDLE_STEWARD,
    };
    if class == SchedulingClass::Idle || !weight.is_finite() { idle } else { weight.max(idle) }
}
