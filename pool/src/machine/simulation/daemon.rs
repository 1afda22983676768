//! The daemon as far as it is not the machine: actions are carried out on the world, and workers
//! do their work.

use super::life::{Faults, Held, Job, Life, M, Task};
use super::world::{InodeId, Mark, Node};
use crate::lease::{Serial, Whose};
use crate::machine::{Action, Allocation, Event, NotGrown, Step};
use crate::store::Key;
use crate::store::slab::SlabId;
use std::collections::VecDeque;

impl Life {
    /// The machine is told, and what it wants done is done, up to where the daemon is killed.
    pub(super) fn happens(&mut self, event: Event) {
        if self.is_killed {
            return;
        }
        let actions = self.machine.step(self.now(), event);
        self.carry_out(actions);
    }

    pub(super) fn carry_out(&mut self, actions: Vec<Action>) {
        let mut actions = VecDeque::from(actions);
        while let Some(action) = actions.pop_front() {
            if self.now_and_then(Faults::KILLED_BETWEEN, 150) {
                self.is_killed = true;
            }
            if self.is_killed {
                return;
            }
            if let Some(event) = self.act(action) {
                if let Event::NotAllocated { serial, .. } = &event {
                    self.ends(*serial);
                }
                actions.extend(self.machine.step(self.now(), event));
            }
        }
    }

    /// A lease that lasts ends: its slab is on its way back, or was never found.
    pub(super) fn ends(&mut self, serial: Serial) {
        if let Some(lease) = self.machine.leases().get(serial).cloned() {
            self.books.came_back(lease.slab);
            if !lease.has_memory {
                let (_, _, others) = self.machine.returns.back(lease.key, lease.whose);
                self.books.is_lost(lease.slab, others, !self.filling_is_on);
            }
        }
    }

    fn took(&mut self, slab: SlabId, to: u64, bytes: u64) {
        let pending = self.pending.get(&to);
        let whose = pending.map(|pending| (pending.accounts(), pending.whose()));
        let key = self.world.inode(slab).map(|inode| inode.key);
        if let (Some(whose), Some(key)) = (whose, key) {
            self.books.took(slab, whose, key, bytes);
        }
    }

    fn act(&mut self, action: Action) -> Option<Event> {
        match action {
            Action::Reply { to, reply } => {
                if let Some(pending) = self.pending.remove(&to) {
                    self.hears(to, &pending, &reply);
                }
            }
            Action::Allocate(allocation) => return self.allocate(&allocation),
            Action::Grow {
                slab,
                key,
                bytes,
                deadline,
            } => {
                let to = self.machine.takes.connection(slab)?;
                self.took(slab, to, bytes);
                let lacks_pages = !self.has_room(key, bytes - key.bytes, false);
                if lacks_pages || self.now_and_then(Faults::STEPS, 20) {
                    self.books.untook(slab);
                    let why = if lacks_pages {
                        NotGrown::NoPages
                    } else {
                        NotGrown::NoThread
                    };
                    return Some(Event::NotGrown { slab, why });
                }
                let fails = self.now_and_then(Faults::STEPS, 20);
                if let Some(inode) = self.world.inode(slab) {
                    inode.mark = Mark::Filling;
                    inode.bytes = bytes;
                }
                if fails {
                    self.books.came_back(slab);
                    let why = NotGrown::Failed("it cannot be made longer".into());
                    return Some(Event::NotGrown { slab, why });
                }
                self.begin(slab, Task::TopUp(to, deadline));
            }
            Action::Fill {
                slab,
                spec,
                has_pages,
            } => {
                self.is_in_turn(slab, spec.key);
                let lacks = !self.has_room(spec.key, spec.key.bytes, has_pages);
                let next = self.machine.fills.next_of(slab);
                if !lacks && next.is_some_and(|next| !next.has_pages) {
                    let left = self.unclaimed_bytes(spec.key.node) - spec.key.bytes;
                    self.begun_beside.push((spec.key.node, left));
                }
                if lacks || self.now_and_then(Faults::STEPS, 20) {
                    return Some(Event::Filled {
                        slab,
                        error: Some("no pages, or no thread".into()),
                    });
                }
                let is_memfd = spec.source == crate::config::Source::Memfd;
                self.world.create(slab, spec.key, is_memfd);
                self.begin(slab, Task::Fill);
            }
            Action::Cancel(slab) => {
                let jobs = self.jobs.iter_mut().filter(|job| job.slab == slab);
                jobs.for_each(|job| job.is_cancelled = true);
            }
            Action::Prepare { from, spec, .. } => {
                self.was_refused = self.now_and_then(Faults::STEPS, 6);
                let refused = self.was_refused.then(|| "no mount".to_owned());
                let spec = refused.map_or(Ok(spec), Err);
                return Some(Event::Prepared { from, spec });
            }
            Action::OpenGrant { from, grant } => {
                let opened = self.open_grant(&grant);
                return Some(Event::Granted {
                    from,
                    grant,
                    opened,
                });
            }
            Action::Discard(slab) if !self.world.files.contains_key(&slab) => {
                return Some(Event::Discarded(slab));
            }
            other => self.take_back(other),
        }
        None
    }

    /// Free pages of a node that nothing under way will take.
    fn unclaimed_bytes(&self, node: Node) -> u64 {
        let filling = self
            .jobs
            .iter()
            .filter(|job| matches!(job.task, Task::Fill | Task::TopUp(..)));
        let files = filling.filter_map(|job| self.world.files.get(&job.slab));
        let inodes = files.map(|id| &self.world.inodes[id]);
        let claimed = inodes
            .filter(|inode| inode.key.node == node)
            .map(|inode| inode.bytes - inode.held_bytes);
        self.world
            .free_bytes(node)
            .saturating_sub(claimed.sum::<u64>())
    }

    fn has_room(&self, key: Key, bytes: u64, has_pages: bool) -> bool {
        let promised = self.machine.promised(|slab| self.used_bytes(slab));
        let here = promised.iter().filter(|(other, _)| other.node == key.node);
        let promised: u64 = here.map(|(_, bytes)| bytes).sum();
        let left = if has_pages { 0 } else { promised };
        self.unclaimed_bytes(key.node) >= bytes + left
    }

    fn used_bytes(&self, slab: SlabId) -> u64 {
        let inode = self.world.files.get(&slab);
        inode.map_or(0, |id| self.world.inodes[id].used_bytes())
    }

    /// Bytes of a node that came back from slabs that are still being emptied.
    pub(super) fn bytes_on_their_way(&self, node: Node) -> u64 {
        let emptied = self.jobs.iter().filter(|job| job.task == Task::Empty);
        let files = emptied.filter_map(|job| self.world.files.get(&job.slab));
        let inodes = files.map(|id| &self.world.inodes[id]);
        inodes
            .filter(|inode| inode.key.node == node)
            .map(|inode| {
                inode
                    .key
                    .bytes
                    .min(inode.bytes.saturating_sub(inode.used_bytes()))
            })
            .sum()
    }

    fn begin(&mut self, slab: SlabId, task: Task) {
        self.jobs.push(Job {
            slab,
            task,
            is_cancelled: false,
        });
    }

    fn take_back(&mut self, action: Action) {
        match action {
            Action::Empty { slab, .. } => self.begin(slab, Task::Empty),
            Action::ZeroInPlace { slab, .. } => {
                self.books.is_being_zeroed(slab);
                self.begin(slab, Task::Zero);
            }
            Action::EmptyAgain { slab, .. } => self.begin(slab, Task::EmptyAgain),
            Action::Discard(slab) => self.begin(slab, Task::Discard),
            Action::Forget { slab, .. } => {
                self.books.out_of_reach(slab, !self.filling_is_on);
                self.close(slab);
            }
            Action::Leave(slab) => drop(self.world.files.remove(&slab)),
            Action::KeepClean(slab) if self.world.has_manager => {
                if let Some(inode) = self.world.files.get(&slab) {
                    self.world.kept_slabs.insert(slab, *inode);
                }
            }
            Action::UnkeepClean(slab) => drop(self.world.kept_slabs.remove(&slab)),
            Action::UnkeepLease(serial) => drop(self.world.kept_leases.remove(&serial)),
            Action::RemovePipe(serial) => drop(self.world.pipes.remove(&serial)),
            Action::CloseGrant(id) => drop(self.world.grants.remove(&id)),
            Action::RecordRevoked(serial) => {
                let written = self.world.record(|records| {
                    if let Some(record) = records.get_mut(&serial) {
                        record.revoked = true;
                    }
                });
                drop(written);
            }
            Action::RecordOwed { serial, has_pages } => {
                let written = self.world.record(|records| {
                    if let Some(record) = records.get_mut(&serial) {
                        (record.owed, record.lost) = (true, !has_pages);
                    }
                });
                drop(written);
            }
            Action::RecordOver(serial) => {
                let written = self.world.record(|records| drop(records.remove(&serial)));
                drop(written);
            }
            _ => {}
        }
    }

    /// The daemon closes a slab's file, emptied.
    pub(super) fn close(&mut self, slab: SlabId) {
        if let Some(id) = self.world.files.remove(&slab) {
            self.world.empty(id);
        }
    }

    /// The steps of an allocation, up to the first that fails, or to where the daemon is killed.
    fn allocate(&mut self, allocation: &Allocation) -> Option<Event> {
        let (slab, serial) = (allocation.slab, allocation.record.serial);
        if self.books_lack(slab) {
            self.took(slab, allocation.to, allocation.record.bytes);
        }
        let pending = self.pending.get(&allocation.to);
        let whose = pending.map(|pending| (pending.accounts(), pending.whose()));
        self.books.begins(serial, whose.unwrap_or_default());
        for step in Allocation::STEPS {
            if self.now_and_then(Faults::KILLED_BETWEEN, 60) {
                self.is_killed = true;
                return None;
            }
            // All but the mark itself may fail, or have happened all the same.
            let fails = step != Step::Send && self.now_and_then(Faults::STEPS, 60);
            let done = if fails {
                Err("it failed".into())
            } else {
                self.allocation_step(step, allocation)
            };
            match done {
                Ok(Some(event)) => return Some(event),
                Ok(None) => {}
                Err(error) => return Some(Event::NotAllocated { serial, error }),
            }
        }
        Some(Event::Allocated(serial))
    }

    fn books_lack(&self, slab: SlabId) -> bool {
        !self.books.has(slab)
    }

    fn allocation_step(
        &mut self,
        step: Step,
        allocation: &Allocation,
    ) -> Result<Option<Event>, String> {
        let (slab, record) = (allocation.slab, &allocation.record);
        let serial = record.serial;
        match step {
            Step::Mark => {
                if let Some(inode) = self.world.inode(slab) {
                    inode.mark = Mark::Allocated;
                }
            }
            Step::UnkeepClean => drop(self.world.kept_slabs.remove(&slab)),
            Step::KeepLease => {
                let refused = self.now_and_then(Faults::FORGOTTEN, 20);
                if let Some(inode) = self.world.files.get(&slab).filter(|_| !refused)
                    && self.world.has_manager
                {
                    self.world.kept_leases.insert(serial, *inode);
                }
            }
            Step::MakePipe => {
                if self.world.is_full {
                    return Err("no space left".into());
                }
                self.world.pipes.insert(serial, [].into());
            }
            Step::Record => {
                self.world
                    .record(|records| drop(records.insert(serial, record.clone())))?;
                self.world.next_serial = self.world.next_serial.max(serial + 1);
            }
            Step::Send => return Ok(self.send(allocation)),
        }
        Ok(None)
    }

    /// The memory leaves: nothing of it may have been forgotten.
    fn send(&mut self, allocation: &Allocation) -> Option<Event> {
        let (slab, serial, to) = (allocation.slab, allocation.record.serial, allocation.to);
        let pending = self.pending.remove(&to);
        let client = pending.as_ref().map(|pending| pending.client);
        let place = self.clients.iter().position(|one| Some(one.id) == client);
        let Some(place) = place.filter(|place| self.clients[*place].connection == Some(to)) else {
            // It hung up before: the reply does not get through.
            self.ends(serial);
            return Some(Event::PipeClosed(serial));
        };
        let id = self.clients[place].id;
        if let Some(pending) = &pending {
            self.is_what_was_requested(pending, &allocation.reply);
        }
        assert!(
            self.world.journal.contains_key(&serial),
            "lease {serial} is in no journal"
        );
        let inode = *self.world.files.get(&slab).expect("a file");
        self.world
            .pipes
            .get_mut(&serial)
            .expect("a pipe")
            .insert(id);
        let file = self.world.inodes.get_mut(&inode).expect("an inode");
        assert_eq!(file.mark, Mark::Allocated, "{slab} leaves without its mark");
        let is_whole = file.bytes == allocation.reply.bytes && file.held_bytes == file.bytes;
        assert!(
            is_whole && file.is_zero && file.holders.is_empty(),
            "{slab} leaves: {file:?}"
        );
        file.holders.insert(id);
        file.given_to.push(id);
        file.ever_given = true;
        self.books.gave(slab);
        if !self.filling_is_on {
            self.books.filling_is_off();
        }
        self.clients[place].leases.push(Held {
            serial,
            name: allocation.reply.lease.clone(),
            inode,
            connection: Some(to),
            has_pipe: true,
            has_memory: true,
        });
        None
    }

    /// A worker is done with what it had to do, or failed.
    pub(super) fn job_is_done(&mut self, at: usize) {
        let job = self.jobs[at];
        let slab = job.slab;
        let Some(id) = self.world.files.get(&slab).copied() else {
            panic!("{job:?} is for a file that is closed");
        };
        if self.is_interrupted(&job, id) {
            return;
        }
        self.jobs.remove(at);
        let event = match job.task {
            Task::Fill | Task::TopUp(..) => return self.is_filled(job),
            Task::Empty => {
                self.world.empty(id);
                let inode = &self.world.inodes[&id];
                Event::Emptied {
                    slab,
                    is_alone: inode.holders.is_empty(),
                    used_bytes: inode.used_bytes(),
                }
            }
            Task::Zero => return self.is_zeroed(slab, job.is_cancelled),
            Task::EmptyAgain => {
                self.world.empty(id);
                Event::EmptiedAgain(slab)
            }
            Task::Discard => {
                self.close(slab);
                Event::Discarded(slab)
            }
        };
        self.happens(event);
    }

    /// A part of the work is done when a signal comes, or there is nothing to be done for now.
    fn is_interrupted(&mut self, job: &Job, id: InodeId) -> bool {
        let is_interrupted = self.now_and_then(Faults::INTERRUPTED, 8);
        let waits = job.task == Task::Fill && !job.is_cancelled && !self.fills_now();
        match job.task {
            // It may have been past where it waits.
            Task::Fill if waits && self.random.below(4) > 0 => true,
            Task::Fill | Task::TopUp(..) if is_interrupted => {
                let node = self.world.inodes[&id].key.node;
                let free = self.world.free_bytes(node);
                let is_late = matches!(job.task, Task::TopUp(_, until) if until < self.clock());
                let goes_on = !job.is_cancelled && !is_late && free >= 2 * M;
                if let Some(inode) = self.world.inodes.get_mut(&id).filter(|_| goes_on) {
                    inode.held_bytes += (inode.bytes - inode.held_bytes).min(2 * M);
                }
                goes_on
            }
            Task::Empty | Task::EmptyAgain | Task::Discard if is_interrupted => {
                self.world.empty_a_part(id)
            }
            _ => false,
        }
    }

    fn is_filled(&mut self, job: Job) {
        let slab = job.slab;
        let is_late = matches!(job.task, Task::TopUp(_, until) if until < self.clock());
        let fails = self.now_and_then(Faults::NO_PAGES, 12);
        let is_fill = job.task == Task::Fill;
        // It may have been too late for that.
        let ends = job.is_cancelled && (!is_fill || self.random.below(2) == 0);
        let Some(id) = self.world.files.get(&slab).copied() else {
            return;
        };
        let free = self.world.free_bytes(self.world.inodes[&id].key.node);
        let Some(inode) = self.world.inodes.get_mut(&id) else {
            return;
        };
        let lacks = inode.bytes - inode.held_bytes;
        let error = (fails || is_late || ends || lacks > free)
            .then(|| "filling stopped: it failed".to_owned());
        inode.held_bytes += if error.is_some() {
            lacks.min(free) / 2
        } else {
            lacks
        };
        let key = inode.key;
        if error.is_none() && is_fill {
            inode.mark = Mark::Clean;
        }
        if is_fill {
            let next = self.machine.fills.next_of(slab);
            let turn = next.and_then(|next| next.turn);
            let back = turn.map(|whose| self.machine.returns.back(key, whose));
            let had_pages = back.is_some_and(|(is_promised, one_is_lost, _)| {
                is_promised && (!one_is_lost || next.is_some_and(|next| next.has_pages))
            });
            self.happens(Event::Filled { slab, error });
            self.is_clean(slab, key, turn, had_pages);
            return;
        }
        if error.is_some() {
            self.books.came_back(slab);
        }
        self.happens(Event::ToppedUp { slab, error });
    }

    fn is_zeroed(&mut self, slab: SlabId, is_cancelled: bool) {
        let Some(inode) = self.world.inode(slab) else {
            return;
        };
        let key = inode.key;
        let is_whole = inode.bytes == key.bytes;
        let is_clean = is_whole && inode.holders.is_empty() && !is_cancelled;
        if is_clean {
            inode.held_bytes = key.bytes;
            inode.is_zero = true;
            // It is cut to its length before it is zeroed in place.
            inode.reserved_bytes = 0;
            inode.given_to.clear();
            self.books.out_of_reach(slab, true);
        } else {
            self.books.came_back(slab);
        }
        self.happens(Event::Zeroed { slab, is_clean });
        if is_clean {
            self.books.zeroed(key);
            self.is_clean(slab, key, None, false);
        }
    }

    /// A slab that the machine takes for clean now is one more of its class.
    fn is_clean(&mut self, slab: SlabId, key: Key, turn: Option<Whose>, had_pages: bool) {
        let mut clean = self.machine.core.slabs.clean();
        if clean.any(|(clean, _)| clean == slab) {
            drop(clean);
            self.books.clean(key, turn, had_pages);
        }
    }
}
