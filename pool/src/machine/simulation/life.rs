//! One life of the daemon and its clients.

use super::books::Books;
use super::users::{Quotas, USERS, User, quotas, rules};
use super::world::{ClientId, InodeId, Node, Pages, World};
use crate::config::Source;
use crate::lease::quota::{Account, Rules};
use crate::lease::{Grant, Serial, Whose};
use crate::machine::{ConnectionId, Machine, Now, Reach, Spec, Start};
use crate::protocol::{GrantId, LeaseId, PageSize, Take};
use crate::store::Key;
use crate::store::slab::SlabId;
use firstlight_figures::random::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

pub(super) const M: u64 = 1 << 20;

/// What happens in a life at most; in one with hundreds of clients four times as much.
const STEPS: usize = 400;

/// One life in so many has hundreds of clients.
const CROWDED: usize = 32;

/// Kinds of faults, one bit each.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Faults(u32);

impl Faults {
    pub(super) const KILLED: Self = Self(1);
    pub(super) const KILLED_BETWEEN: Self = Self(2);
    pub(super) const NO_PAGES: Self = Self(4);
    pub(super) const NO_SPACE: Self = Self(8);
    pub(super) const FORGOTTEN: Self = Self(16);
    pub(super) const CLOCK: Self = Self(32);
    pub(super) const RUDE: Self = Self(64);
    pub(super) const STEPS: Self = Self(128);
    pub(super) const OWNER: Self = Self(256);
    pub(super) const PRESSURE: Self = Self(512);
    pub(super) const INTERRUPTED: Self = Self(1024);
    pub(super) const STOPPED: Self = Self(2048);
    pub(super) const ALL: Self = Self(4095);

    pub(super) fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub(super) fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub(super) fn each(self) -> impl Iterator<Item = Self> {
        (0..12)
            .map(|bit| Self(1 << bit))
            .filter(move |one| self.has(*one))
    }
}

impl std::fmt::Debug for Faults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = [
            (Self::KILLED, "a kill"),
            (Self::KILLED_BETWEEN, "a kill between two actions"),
            (Self::NO_PAGES, "no free pages"),
            (Self::NO_SPACE, "a full journal"),
            (Self::FORGOTTEN, "a manager that forgets"),
            (Self::CLOCK, "a clock that jumps"),
            (Self::RUDE, "clients that keep, draw and pin"),
            (Self::STEPS, "steps that fail"),
            (Self::OWNER, "an owner that changes its mind"),
            (Self::PRESSURE, "a machine that is short of memory"),
            (Self::INTERRUPTED, "work that is interrupted"),
            (Self::STOPPED, "a daemon that is stopped"),
        ];
        let has = names.iter().filter(|(fault, _)| self.has(*fault));
        f.debug_list().entries(has.map(|(_, name)| name)).finish()
    }
}

/// What a client has of a lease.
#[derive(Debug, Clone)]
pub(super) struct Held {
    pub(super) serial: Serial,
    pub(super) name: LeaseId,
    pub(super) inode: InodeId,
    pub(super) connection: Option<ConnectionId>,
    pub(super) has_pipe: bool,
    pub(super) has_memory: bool,
}

/// A process.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) id: ClientId,
    pub(super) user: &'static User,
    /// The grant that it comes by.
    pub(super) grant: Option<GrantId>,
    pub(super) connection: Option<ConnectionId>,
    pub(super) leases: Vec<Held>,
}

/// A request that is not answered.
#[derive(Debug, Clone)]
pub(super) struct Pending {
    pub(super) client: ClientId,
    pub(super) user: &'static User,
    pub(super) grant: Option<GrantId>,
    pub(super) take: Option<Take>,
    /// Whether a clean slab was there that will do.
    pub(super) was_ready: bool,
}

/// What a worker has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Task {
    Fill,
    TopUp(ConnectionId, Instant),
    Empty,
    Zero,
    EmptyAgain,
    Discard,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Job {
    pub(super) slab: SlabId,
    pub(super) task: Task,
    pub(super) is_cancelled: bool,
}

impl Job {
    pub(super) fn waits_for(&self, connection: ConnectionId, now: Instant) -> bool {
        matches!(self.task, Task::TopUp(to, until) if to == connection && now <= until)
    }
}

/// The daemon, its clients, and all else.
pub(super) struct Life {
    pub(super) random: Random,
    pub(super) faults: Faults,
    steps: usize,
    begin: Instant,
    pub(super) elapsed: Duration,
    pub(super) machine: Machine,
    pub(super) world: World,
    pub(super) books: Books,
    pub(super) clients: Vec<Client>,
    next_client: ClientId,
    pub(super) next_connection: ConnectionId,
    /// Connections whose request is not answered.
    pub(super) pending: BTreeMap<ConnectionId, Pending>,
    pub(super) jobs: Vec<Job>,
    /// Leases that were given back while they lasted, as the next daemon knows.
    pub(super) given: BTreeSet<Serial>,
    /// Leases that were ever given back.
    pub(super) ever_given: BTreeSet<Serial>,
    pub(super) quotas: Quotas,
    /// All grants that were ever made.
    pub(super) granted: BTreeMap<GrantId, Grant>,
    pub(super) quotas_changed: bool,
    pub(super) filling_is_on: bool,
    /// The machine is short of memory.
    pub(super) is_short: bool,
    /// The last class that was requested cannot be kept.
    pub(super) was_refused: bool,
    /// Clean slabs that a daemon left for the next one.
    pub(super) left: BTreeSet<InodeId>,
    pub(super) nodes: Vec<Node>,
    specs: Vec<Spec>,
    most_steps: usize,
    most_wanted: u32,
    /// Of users for whom a node is to fill slabs, what it began to fill for each other one meanwhile, in bytes.
    pub(super) passed_over: BTreeMap<(Node, Whose), BTreeMap<Option<Whose>, u64>>,
    /// In this step begun with pages that nobody gave back: of which node, and how many bytes were left.
    pub(super) begun_beside: Vec<(Node, u64)>,
    /// What was seen of revoked slabs, and is not told yet.
    pub(super) looked: Vec<Reach>,
    /// The daemon was killed in the middle.
    pub(super) is_killed: bool,
}

/// Nodes of a machine: one, or two.
fn nodes(random: &mut Random) -> Vec<Node> {
    match random.below(3) {
        0 => vec![Some(0), Some(1)],
        _ => vec![None],
    }
}

fn specs(random: &mut Random, nodes: &[Node], times: u32) -> Vec<Spec> {
    let mut specs = Vec::new();
    let mut class = |random: &mut Random, node, page, bytes, wanted| {
        let key = Key { page, node, bytes };
        specs.push(Spec {
            wanted: wanted * times,
            source: match page {
                PageSize::Transparent => Source::Memfd,
                _ => Source::Mount,
            },
            trusted: bytes == 8 * M,
            floor: [None, Some(0), Some(1)][random.below(3)],
            ..Spec::none(key)
        });
    };
    for node in nodes {
        class(random, *node, PageSize::Huge, 4 * M, 3);
        if random.below(2) == 0 {
            class(random, *node, PageSize::Huge, 8 * M, 2);
        }
    }
    class(random, None, PageSize::Transparent, 2 * M, 3);
    specs
}

impl Life {
    pub(super) fn new(seed: u64, faults: Faults) -> Self {
        let mut random = Random::new(seed);
        // Few clients meet all faults more often; many meet each other.
        let is_crowded = random.below(CROWDED) == 0;
        let nodes = nodes(&mut random);
        let specs = specs(&mut random, &nodes, if is_crowded { 8 } else { 1 });
        let most = if is_crowded { 40 } else { 10 };
        let quotas = quotas(|below| random.below(below), most);
        let begin = Instant::now() + Duration::from_secs(1 << 20);
        let mut world = World {
            next_serial: 1,
            has_manager: random.below(3) > 0,
            ..World::default()
        };
        for spec in &specs {
            let pages: &mut Pages = world.pages.entry(spec.key.node).or_default();
            pages.total_bytes += spec.wanted_bytes() * 2;
        }
        let now = Now {
            instant: begin,
            wall_ms: 1 << 40,
        };
        let machine = new_machine(rules(&quotas), &specs, nodes.len() == 1, 1, now);
        let mut life = Self {
            random,
            faults,
            steps: 0,
            begin,
            elapsed: Duration::ZERO,
            machine,
            world,
            books: Books::default(),
            clients: Vec::new(),
            next_client: 0,
            next_connection: 0,
            pending: BTreeMap::new(),
            jobs: Vec::new(),
            given: BTreeSet::new(),
            ever_given: BTreeSet::new(),
            quotas,
            granted: BTreeMap::new(),
            quotas_changed: false,
            filling_is_on: true,
            is_short: false,
            was_refused: false,
            left: BTreeSet::new(),
            nodes,
            most_wanted: specs.iter().map(|spec| spec.wanted).max().unwrap_or(0),
            specs,
            passed_over: BTreeMap::new(),
            begun_beside: Vec::new(),
            looked: Vec::new(),
            most_steps: if is_crowded { 4 * STEPS } else { STEPS },
            is_killed: false,
        };
        if is_crowded {
            let many = 100 + life.random.below(300);
            (0..many).for_each(|_| life.a_client_comes());
        }
        life
    }

    pub(super) fn steps(&self) -> usize {
        self.steps
    }

    pub(super) fn clock(&self) -> Instant {
        self.begin + self.elapsed
    }

    pub(super) fn now(&self) -> Now {
        Now {
            instant: self.clock(),
            wall_ms: (1 << 40) + u64::try_from(self.elapsed.as_millis()).unwrap_or(0),
        }
    }

    pub(super) fn quota(&self, account: &Account) -> u64 {
        self.quotas.get(account).copied().unwrap_or(u64::MAX)
    }

    pub(super) fn most_wanted(&self) -> u32 {
        self.most_wanted
    }

    pub(super) fn is_trusted(&self, key: Key) -> bool {
        self.specs
            .iter()
            .any(|spec| spec.key == key && spec.trusted)
    }

    /// Whose limits hold for a client.
    pub(super) fn accounts_of(&self, client: ClientId) -> Vec<Account> {
        let client = self.clients.iter().find(|one| one.id == client);
        client.map_or_else(Vec::new, Client::accounts)
    }

    /// Whether workers fill at the moment, and do not wait.
    pub(super) fn fills_now(&self) -> bool {
        self.filling_is_on && !self.is_short
    }

    /// Once in so many times, if this life has such faults.
    pub(super) fn now_and_then(&mut self, fault: Faults, times: usize) -> bool {
        // Drawn in any case, so that a life with fewer faults is much the same.
        let drawn = self.random.below(times) == 0;
        drawn && self.faults.has(fault)
    }

    /// Plays so many steps, then lets everything come to rest.
    pub(super) fn play(&mut self, steps: usize) {
        self.tick(Duration::ZERO);
        while self.steps < steps.min(self.most_steps) {
            self.steps += 1;
            self.one_step();
            self.go_on();
        }
        self.rest();
        self.check_rest();
    }

    /// The next daemon, if this one was killed; then what is always true.
    fn go_on(&mut self) {
        while self.is_killed || self.machine.is_drained() {
            self.restart();
        }
        self.hang_up_on_ended_grants();
        self.world.collect();
        self.world.had.extend(self.world.files.values());
        self.check();
        self.begun_beside.clear();
    }

    fn one_step(&mut self) {
        match self.random.below(100) {
            0..25 => self.a_client_requests(),
            25..38 => self.a_client_lets_go(),
            38..42 => self.a_client_hangs_up(),
            42..70 => self.a_worker_is_done(),
            70..80 => self.time_passes(),
            80..85 => self.a_client_is_rude(),
            85..88 => self.other_processes_take_pages(),
            88..91 => self.the_owner_changes_something(),
            91..93 => self.world.is_full = self.now_and_then(Faults::NO_SPACE, 2),
            93..95 if self.now_and_then(Faults::KILLED, 2) => self.is_killed = true,
            95 => self.the_daemon_is_stopped(),
            96 => self.pressure_changes(),
            _ => self.a_client_comes(),
        }
    }

    fn a_client_comes(&mut self) {
        let user = &USERS[self.random.below(USERS.len())];
        let by_grant = self.random.below(3) == 0;
        let grant = self.some_grant().filter(|_| by_grant);
        self.next_client += 1;
        self.next_connection += 1;
        self.clients.push(Client {
            id: self.next_client,
            user,
            grant,
            connection: Some(self.next_connection),
            leases: Vec::new(),
        });
    }

    fn time_passes(&mut self) {
        let jump = self.now_and_then(Faults::CLOCK, 8);
        let ms = if jump {
            86_400_000
        } else {
            self.random.below(1500) as u64
        };
        self.tick(Duration::from_millis(ms));
    }

    /// Everyone leaves, and whatever is under way comes to its end.
    fn rest(&mut self) {
        self.faults = Faults(0);
        self.world.is_full = false;
        self.is_short = false;
        for pages in self.world.pages.values_mut() {
            pages.other_bytes = 0;
        }
        let specs = self.specs.clone();
        self.happens(self.configured(&specs));
        for client in 0..self.clients.len() {
            self.leaves(client);
        }
        self.turn_filling(true);
        for _ in 0..200 {
            for inode in self.world.inodes.values_mut() {
                inode.stray_bytes = 0;
                inode.pin_bytes = 0;
            }
            self.world.collect();
            while !self.jobs.is_empty() {
                self.job_is_done(0);
            }
            self.tick(Duration::from_secs(2));
            self.go_on();
        }
    }

    pub(super) fn new_daemon(&mut self) {
        self.machine = new_machine(
            rules(&self.quotas),
            &self.specs,
            self.nodes.len() == 1,
            self.world.next_serial,
            self.now(),
        );
        self.filling_is_on = true;
        self.looked.clear();
    }

    pub(super) fn wanted(&mut self, slabs: u32) {
        self.most_wanted = self.most_wanted.max(slabs);
    }
}

fn new_machine(rules: Rules, specs: &[Spec], one_node: bool, next: Serial, now: Now) -> Machine {
    Machine::new(Start {
        rules,
        specs: specs.to_vec(),
        one_node,
        names: (0xabc, next),
        rate: 0,
        now,
    })
}
