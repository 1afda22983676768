//! One life of the daemon and its clients.

use super::books::Books;
use super::world::{ClientId, InodeId, World};
use crate::config::{Config, Source};
use crate::lease::Serial;
use crate::lease::quota::Rules;
use crate::machine::{ConnectionId, Machine, Now, Spec, Start};
use crate::os::peer::Peer;
use crate::protocol::{LeaseId, PageSize};
use crate::store::Key;
use crate::store::slab::SlabId;
use firstlight_figures::random::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

/// Users with a limit.
pub(super) const QUOTA_USERS: [u32; 3] = [1000, 1001, 1002];

pub(super) const M: u64 = 1 << 20;

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
    pub(super) const ALL: Self = Self(511);

    pub(super) fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub(super) fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub(super) fn each(self) -> impl Iterator<Item = Self> {
        (0..9)
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
    pub(super) uid: u32,
    pub(super) connection: Option<ConnectionId>,
    pub(super) leases: Vec<Held>,
}

/// What a worker has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Task {
    Fill,
    TopUp(ConnectionId, Instant),
    Empty(Option<u64>),
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
    pub(super) pending: BTreeMap<ConnectionId, ClientId>,
    pub(super) jobs: Vec<Job>,
    /// Leases that were given back while they lasted, as the next daemon knows.
    pub(super) given: BTreeSet<Serial>,
    /// Leases that were ever given back.
    pub(super) ever_given: BTreeSet<Serial>,
    pub(super) quotas: BTreeMap<u32, u64>,
    pub(super) quotas_changed: bool,
    pub(super) filling_is_on: bool,
    specs: Vec<Spec>,
    most_wanted: u32,
    /// The daemon was killed in the middle.
    pub(super) is_killed: bool,
}

fn specs(random: &mut Random) -> Vec<Spec> {
    let class = |page, bytes, wanted, source| Spec {
        wanted,
        source,
        ..Spec::none(Key {
            page,
            node: None,
            bytes,
        })
    };
    let mut specs = vec![
        class(PageSize::Huge, 4 * M, 3, Source::Mount),
        class(PageSize::Transparent, 2 * M, 3, Source::Memfd),
    ];
    if random.below(2) == 0 {
        let mut trusted = class(PageSize::Huge, 8 * M, 2, Source::Mount);
        trusted.trusted = true;
        specs.push(trusted);
    }
    specs
}

pub(super) fn rules(quotas: &BTreeMap<u32, u64>) -> Rules {
    let each = quotas.iter();
    let text: String = each
        .map(|(uid, bytes)| format!("[[quota]]\nuid = {uid}\nbytes = {bytes}\n"))
        .collect();
    let config = Config::parse(Path::new("simulation"), &text).expect("a configuration");
    Rules::new(&config, u32::MAX).expect("rules")
}

impl Life {
    pub(super) fn new(seed: u64, faults: Faults) -> Self {
        let mut random = Random::new(seed);
        let specs = specs(&mut random);
        let quotas: BTreeMap<u32, u64> = QUOTA_USERS
            .iter()
            .map(|uid| (*uid, (1 + random.below(10) as u64) * 2 * M))
            .collect();
        let begin = Instant::now() + Duration::from_secs(1 << 20);
        let wanted: u64 = specs.iter().map(Spec::wanted_bytes).sum();
        let world = World {
            next_serial: 1,
            has_manager: random.below(3) > 0,
            total_bytes: wanted * 2,
            ..World::default()
        };
        let now = Now {
            instant: begin,
            wall_ms: 1 << 40,
        };
        let machine = new_machine(rules(&quotas), &specs, 1, now);
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
            quotas_changed: false,
            filling_is_on: true,
            specs,
            most_wanted: 3,
            is_killed: false,
        };
        life.tick(Duration::ZERO);
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

    pub(super) fn quota(&self, uid: u32) -> u64 {
        self.quotas.get(&uid).copied().unwrap_or(u64::MAX)
    }

    pub(super) fn most_wanted(&self) -> u32 {
        self.most_wanted
    }

    pub(super) fn is_trusted(&self, key: Key) -> bool {
        self.specs
            .iter()
            .any(|spec| spec.key == key && spec.trusted)
    }

    pub(super) fn limited_user_of(&self, client: ClientId) -> Option<u32> {
        let client = self.clients.iter().find(|one| one.id == client)?;
        QUOTA_USERS.contains(&client.uid).then_some(client.uid)
    }

    pub(super) fn peer(uid: u32) -> Peer {
        Peer {
            pid: 1,
            uid,
            user: uid,
            gid: uid,
            groups: Vec::new(),
            cgroup: None,
        }
    }

    /// Once in so many times, if this life has such faults.
    pub(super) fn now_and_then(&mut self, fault: Faults, times: usize) -> bool {
        // Drawn in any case, so that a life with fewer faults is much the same.
        let drawn = self.random.below(times) == 0;
        drawn && self.faults.has(fault)
    }

    /// Plays so many steps, then lets everything come to rest.
    pub(super) fn play(&mut self, steps: usize) {
        while self.steps < steps {
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
        self.world.collect();
        self.world.look();
        self.check();
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
            93..96 if self.now_and_then(Faults::KILLED, 2) => self.is_killed = true,
            _ => self.a_client_comes(),
        }
    }

    fn a_client_comes(&mut self) {
        let users = [1000, 1001, 1002, 0, 1003];
        let uid = users[self.random.below(users.len())];
        self.next_client += 1;
        self.next_connection += 1;
        self.clients.push(Client {
            id: self.next_client,
            uid,
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
        self.world.other_bytes = 0;
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
            self.world.next_serial,
            self.now(),
        );
        self.filling_is_on = true;
    }

    pub(super) fn wanted(&mut self, slabs: u32) {
        self.most_wanted = self.most_wanted.max(slabs);
    }
}

fn new_machine(rules: Rules, specs: &[Spec], next: Serial, now: Now) -> Machine {
    Machine::new(Start {
        rules,
        specs: specs.to_vec(),
        one_node: true,
        names: (0xabc, next),
        rate: 0,
        now,
    })
}
