//! What happens in a life: what clients, workers, other processes and the owner do.

use super::life::{Faults, Job, Life, M, Pending, Task};
use super::users::{ROOT, rules};
use super::world::{InodeId, Mark};
use crate::machine::{ConnectionId, Event, Reach, Seen, Spec};
use crate::protocol::{
    FillChange, Give, Label, PageSize, PoolRow, Request, Resize, StatusQuery, Take,
};
use crate::store::slab::SlabId;
use std::collections::BTreeSet;
use std::time::Duration;

/// Slabs of a class that are there or will be.
fn present(row: &PoolRow) -> u32 {
    row.clean_slabs + row.filling_slabs + row.allocated_slabs + row.unknown_slabs
}

impl Life {
    fn some(&mut self, len: usize) -> Option<usize> {
        (len > 0).then(|| self.random.below(len))
    }

    /// A client with a connection that is not waiting for a reply.
    fn connected(&mut self) -> Option<(usize, ConnectionId)> {
        let client = self.some(self.clients.len())?;
        let connection = self.clients[client].connection?;
        (!self.pending.contains_key(&connection)).then_some((client, connection))
    }

    pub(super) fn request(&mut self, client: usize, from: ConnectionId, request: Request) {
        let take = match &request {
            Request::Take(take) => Some(take.clone()),
            _ => None,
        };
        let pending = Pending {
            client: self.clients[client].id,
            user: self.clients[client].user,
            grant: self.clients[client].grant,
            was_ready: take
                .as_ref()
                .is_some_and(|take| self.is_ready(self.clients[client].grant, take)),
            take,
        };
        let (peer, grant) = (pending.user.peer(), pending.grant);
        self.pending.insert(from, pending);
        self.happens(Event::Request {
            from,
            peer,
            grant,
            request,
        });
    }

    /// Some clients say what they are called, others never.
    pub(super) fn label(&self, client: usize) -> Option<Label> {
        let id = self.clients[client].id;
        id.is_multiple_of(2)
            .then(|| Label::new(&format!("client {id}")))
    }

    pub(super) fn a_client_requests(&mut self) {
        let Some((client, from)) = self.connected() else {
            return;
        };
        match self.random.below(10) {
            0..7 => {
                let bytes = [1, 2 * M, 3 * M, 4 * M, 5 * M, 7 * M, 8 * M];
                let ms = [0, 0, 50, 60_000, u32::MAX];
                let pages = [
                    None,
                    None,
                    Some(PageSize::Huge),
                    Some(PageSize::Transparent),
                ];
                let nodes = [None, None, Some(0), Some(1)];
                let mut take = Take {
                    bytes: bytes[self.random.below(bytes.len())],
                    node: nodes[self.random.below(nodes.len())],
                    page: pages[self.random.below(pages.len())],
                    max_topup_ms: ms[self.random.below(ms.len())],
                    topup_if_faster: false,
                    label: self.label(client),
                };
                // What comes by a grant mostly requests what that is for.
                let grant = self.clients[client].grant;
                if let Some(grant) = grant.and_then(|id| self.granted.get(&id))
                    && self.random.below(4) > 0
                {
                    (take.bytes, take.node, take.page) = (grant.class_bytes, None, None);
                }
                self.request(client, from, Request::Take(take));
            }
            7 => self.request(client, from, Request::Status(StatusQuery::default())),
            _ => self.a_client_gives(client, from),
        }
    }

    /// Its own lease on its connection; or another's, which it must not end.
    fn a_client_gives(&mut self, client: usize, from: ConnectionId) {
        let Some(other) = self.some(self.clients.len()) else {
            return;
        };
        let Some(at) = self.some(self.clients[other].leases.len()) else {
            return;
        };
        let held = self.clients[other].leases[at].clone();
        let (user, grant) = (self.clients[client].user, self.clients[client].grant);
        let may = (user.is_root() && grant.is_none()) || held.connection == Some(from);
        let lasted = self.machine.leases().get(held.serial).is_some();
        let is_member = user.is_client() || grant.is_some();
        if lasted && may && is_member {
            self.ends(held.serial);
            self.given.insert(held.serial);
            self.ever_given.insert(held.serial);
        }
        let give = Request::Give(Give { lease: held.name });
        self.request(client, from, give);
        if self.is_killed {
            return;
        }
        let lasts = self.machine.leases().get(held.serial).is_some();
        assert_eq!(
            lasts,
            lasted && !(may && is_member),
            "lease {}: another's",
            held.serial
        );
    }

    /// A pipe or the memory of a lease is closed, or both.
    pub(super) fn a_client_lets_go(&mut self) {
        let Some(client) = self.some(self.clients.len()) else {
            return;
        };
        let Some(at) = self.some(self.clients[client].leases.len()) else {
            return;
        };
        let keeps = self.now_and_then(Faults::RUDE, 3);
        self.lets_go(client, at, keeps);
    }

    fn lets_go(&mut self, client: usize, at: usize, keeps: bool) {
        let id = self.clients[client].id;
        let held = &mut self.clients[client].leases[at];
        let (serial, inode, had_pipe) = (held.serial, held.inode, held.has_pipe);
        held.has_pipe = false;
        held.has_memory &= keeps;
        if !held.has_memory {
            if let Some(inode) = self.world.inodes.get_mut(&inode) {
                inode.holders.remove(&id);
            }
            self.clients[client].leases.remove(at);
        }
        if !had_pipe {
            return;
        }
        if let Some(writers) = self.world.pipes.get_mut(&serial) {
            writers.remove(&id);
        }
        if self.machine.leases().get(serial).is_some() && !self.is_killed {
            self.ends(serial);
            self.happens(Event::PipeClosed(serial));
        }
    }

    pub(super) fn a_client_hangs_up(&mut self) {
        if let Some(client) = self.some(self.clients.len()) {
            self.hangs_up(client);
        }
    }

    pub(super) fn hangs_up(&mut self, client: usize) {
        let Some(connection) = self.clients[client].connection.take() else {
            return;
        };
        self.pending.remove(&connection);
        self.happens(Event::HungUp(connection));
        let waits = |job: &&Job| matches!(job.task, Task::TopUp(to, _) if to == connection);
        let goes_on = self.jobs.iter().filter(waits).any(|job| !job.is_cancelled);
        assert!(
            !goes_on || self.is_killed,
            "memory is zeroed for {connection}, which hung up"
        );
        if self.random.below(2) == 0 {
            self.next_connection += 1;
            self.clients[client].connection = Some(self.next_connection);
        }
    }

    /// A client ends.
    pub(super) fn leaves(&mut self, client: usize) {
        self.hangs_up(client);
        self.clients[client].connection = None;
        while !self.clients[client].leases.is_empty() {
            self.lets_go(client, 0, false);
        }
    }

    /// A client draws pages into its file, or has some pinned, with a lease or without.
    pub(super) fn a_client_is_rude(&mut self) {
        if !self.now_and_then(Faults::RUDE, 1) {
            return;
        }
        let Some(client) = self.some(self.clients.len()) else {
            return;
        };
        let Some(at) = self.some(self.clients[client].leases.len()) else {
            return;
        };
        let held = self.clients[client].leases[at].clone();
        let node = self
            .world
            .inodes
            .get(&held.inode)
            .map(|inode| inode.key.node);
        let free = node.map_or(0, |node| self.world.free_bytes(node));
        let pins = self.random.below(2) == 0;
        let draws = self.random.below(3) > 0;
        let reserves = self.random.below(3) == 0;
        let Some(inode) = self.world.inodes.get_mut(&held.inode) else {
            return;
        };
        inode.is_zero = false;
        if held.has_pipe && pins && !inode.is_memfd {
            inode.pin_bytes = 2 * M;
        } else if reserves && !held.has_pipe && free >= 2 * M {
            inode.reserved_bytes = 2 * M;
        } else if draws && !held.has_pipe && free >= 2 * M && inode.held_bytes < inode.key.bytes {
            inode.held_bytes += 2 * M;
            if pins && !inode.is_memfd {
                inode.pin_bytes = 2 * M;
            }
        } else if !held.has_pipe {
            // The transfer is over.
            inode.pin_bytes = 0;
            inode.stray_bytes = 0;
        }
    }

    pub(super) fn other_processes_take_pages(&mut self) {
        let takes = self.now_and_then(Faults::NO_PAGES, 2);
        let nodes: Vec<_> = self.world.pages.keys().copied().collect();
        let node = nodes[self.random.below(nodes.len())];
        let free = self.world.free_bytes(node);
        if let Some(pages) = self.world.pages.get_mut(&node) {
            pages.other_bytes = if takes { pages.other_bytes + free } else { 0 };
        }
    }

    pub(super) fn pressure_changes(&mut self) {
        self.is_short = self.now_and_then(Faults::PRESSURE, 2);
    }

    /// The daemon ends as it should; what is clean goes back, or is left for the next one.
    pub(super) fn the_daemon_is_stopped(&mut self) {
        if !self.now_and_then(Faults::STOPPED, 1) {
            return;
        }
        let keep = self.random.below(2) == 0;
        let slabs: Vec<_> = self.machine.core.slabs.clean().collect();
        let clean: Vec<_> = slabs
            .iter()
            .filter_map(|(slab, _)| self.world.files.get(slab).copied())
            .collect();
        let revoked = self.look();
        let seen = self.seen(revoked);
        self.happens(Event::Stop { keep, seen });
        if self.is_killed {
            return;
        }
        assert!(self.machine.core.slabs.clean().next().is_none());
        for (slab, _) in slabs {
            let has_file = self.world.files.contains_key(&slab);
            assert!(
                !has_file,
                "{slab} was clean, and is neither left nor closed"
            );
        }
        self.is_killed = true;
        if keep && self.world.has_manager {
            // One that was zeroed in place keeps its mark, and goes with the daemon.
            let inodes = &self.world.inodes;
            let is_marked =
                |id: &&InodeId| inodes.get(id).is_some_and(|one| one.mark == Mark::Clean);
            self.left.extend(clean.iter().filter(is_marked));
            return;
        }
        for id in clean.iter().filter(|_| !keep) {
            let inode = self.world.inodes.get(id);
            let is_gone = inode.is_none_or(|one| one.held_bytes == 0);
            assert!(is_gone, "{inode:?} stays, and nothing keeps it");
        }
    }

    pub(super) fn configured(&self, specs: &[Spec]) -> Event {
        Event::Configured {
            rules: rules(&self.quotas),
            specs: specs.to_vec(),
            rate: 0,
        }
    }

    /// An owner's client, for one request.
    pub(super) fn as_owner(&mut self, request: Request) {
        self.next_connection += 1;
        let from = self.next_connection;
        let pending = Pending {
            client: 0,
            user: &ROOT,
            grant: None,
            take: None,
            was_ready: false,
        };
        self.pending.insert(from, pending);
        self.happens(Event::Request {
            from,
            peer: ROOT.peer(),
            grant: None,
            request,
        });
    }

    pub(super) fn turn_filling(&mut self, on: bool) {
        self.filling_is_on = on;
        if !on {
            self.books.filling_is_off();
        }
        self.as_owner(Request::Fill(FillChange {
            on: Some(on),
            rate: None,
        }));
    }

    pub(super) fn the_owner_changes_something(&mut self) {
        if !self.now_and_then(Faults::OWNER, 1) {
            return;
        }
        match self.random.below(12) {
            0..3 => {
                let slabs = u32::try_from(self.random.below(6)).unwrap_or(0);
                self.wanted(slabs);
                let node = self.nodes[self.random.below(self.nodes.len())];
                let before = self.machine.core.slabs.specs();
                self.was_refused = false;
                self.as_owner(Request::Resize(Resize {
                    page: PageSize::Huge,
                    node,
                    size_class_bytes: 4 * M,
                    slabs,
                }));
                let after = self.machine.core.slabs.specs();
                assert!(!self.was_refused || before == after, "{before:?} {after:?}");
            }
            3..5 => self.turn_filling(true),
            5 => self.turn_filling(false),
            6 => {
                let bytes = (1 + self.random.below(6) as u64) * 2 * M;
                let accounts: Vec<_> = self.quotas.keys().cloned().collect();
                let account = accounts[self.random.below(accounts.len())].clone();
                let changed = bytes < self.quota(&account);
                self.quotas.insert(account, bytes);
                self.quotas_changed |= changed;
                let specs = self.machine.core.slabs.specs();
                self.happens(self.configured(&specs));
            }
            7 if self.random.below(4) == 0 => self.as_owner(Request::Drain),
            8..11 => self.the_owner_grants(),
            11 => self.a_grant_ends(),
            _ => {}
        }
    }

    pub(super) fn tick(&mut self, passed: Duration) {
        self.elapsed += passed;
        // What a client gave no more time for comes to its end.
        let now = self.clock();
        let late = |job: &Job| matches!(job.task, Task::TopUp(_, until) if until < now);
        while let Some(at) = self.jobs.iter().position(late) {
            self.job_is_done(at);
        }
        if self.is_killed {
            return;
        }
        let before = self.machine.core.slabs.rows();
        let draining = self.machine.is_draining();
        let specs = self.machine.core.slabs.specs().into_iter().zip(&before);
        let full = specs.filter(|(_, row)| {
            row.filling_slabs == 0 && (draining || present(row) >= row.wanted_slabs)
        });
        let full: Vec<_> = full.map(|(spec, _)| spec.key).collect();
        // A look begins after a tick, and is done by the next one, or takes longer.
        let revoked = match self.random.below(4) {
            0 => Vec::new(),
            1 => self.look(),
            _ => std::mem::take(&mut self.looked),
        };
        let seen = self.seen(revoked);
        full.into_iter().for_each(|key| self.books.full(key));
        self.happens(Event::Tick(seen));
        if !self.is_killed {
            if self.looked.is_empty() {
                self.looked = self.look();
            }
            self.gave_way_to_pressure(&before);
            self.no_worker_is_idle();
        }
    }

    /// A class above its floor gives one clean slab back while the machine is short of memory;
    /// no other ever does.
    fn gave_way_to_pressure(&self, before: &[PoolRow]) {
        let specs = self.machine.core.slabs.specs();
        let after = self.machine.core.slabs.rows();
        for ((spec, before), after) in specs.iter().zip(before).zip(&after) {
            let floor = spec.floor.filter(|_| self.is_short);
            let gives = floor.is_some_and(|floor| before.clean_slabs > floor);
            assert_eq!(
                after.clean_slabs,
                before.clean_slabs - u32::from(gives),
                "{spec:?}"
            );
        }
    }

    /// A node that lacks slabs, and does not wait after trouble, has one that is being filled,
    /// whatever other nodes do.
    fn no_worker_is_idle(&self) {
        let filling = self.jobs.iter().filter(|job| job.task == Task::Fill);
        let files = filling.filter_map(|job| self.world.files.get(&job.slab));
        let busy: BTreeSet<_> = files.map(|id| self.world.inodes[id].key.node).collect();
        for row in self.machine.core.slabs.rows() {
            let lacks = present(&row) < row.wanted_slabs && row.trouble.is_none();
            assert!(
                !lacks || busy.contains(&row.node) || self.machine.is_draining(),
                "nothing is filled: {row:?}"
            );
        }
    }

    /// What clients can do with revoked slabs now.
    fn look(&self) -> Vec<Reach> {
        let reach = |slab: SlabId| {
            let inode = self.world.inodes.get(self.world.files.get(&slab)?)?;
            Some(Reach {
                slab,
                is_alone: inode.holders.is_empty(),
                holds_pages: inode.held_bytes > 0,
                used_bytes: inode.used_bytes(),
            })
        };
        self.machine.revoked().filter_map(reach).collect()
    }

    fn seen(&self, revoked: Vec<Reach>) -> Seen {
        Seen {
            is_paused: self.is_short,
            revoked,
        }
    }

    pub(super) fn a_worker_is_done(&mut self) {
        if let Some(at) = self.some(self.jobs.len()) {
            self.job_is_done(at);
        }
    }
}
