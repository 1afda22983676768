//! How the server learns that a lease is over: its pipe is closed, or a byte comes through it.
//!
//! A pipe waits in its user's queue, as the user's connections do. So ends of leases come in turn
//! with requests, and what they cost is on the user's account: one that ends thousands at once makes
//! itself wait. Their memory stays charged meanwhile.

use super::events::{Events, Theirs};
use crate::lease::{LeasePipe, Serial};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::rc::Rc;

/// Pipes that are looked at in one tick.
const PIPES_A_TICK: usize = 64;

/// The daemon's end of a lease's pipe.
#[derive(Debug)]
struct End {
    pipe: LeasePipe,
    /// Where it waits.
    queue: Option<Rc<Events>>,
}

/// Those of all leases.
#[derive(Debug, Default)]
pub(super) struct Ends {
    pipes: BTreeMap<Serial, End>,
    /// Leases from before whose pipes could not be looked at yet: they last until then.
    unseen: BTreeSet<Serial>,
    /// Leases from before whose pipes wait in no queue yet.
    unwaited: BTreeSet<Serial>,
}

impl Ends {
    /// That of a new lease.
    pub(super) fn made(&mut self, serial: Serial, pipe: LeasePipe) {
        self.pipes.insert(serial, End { pipe, queue: None });
    }

    /// That of a lease from before; what it is to wait in is not known yet.
    pub(super) fn found(&mut self, serial: Serial, pipe: LeasePipe) {
        self.made(serial, pipe);
        self.does_not_wait(serial);
    }

    /// That of a lease from before cannot be looked at now.
    pub(super) fn not_seen(&mut self, serial: Serial) {
        self.unseen.insert(serial);
    }

    /// Some that could not be looked at, to be looked at again.
    pub(super) fn unseen(&mut self) -> Vec<Serial> {
        let some: Vec<_> = self.unseen.iter().copied().take(PIPES_A_TICK).collect();
        self.unseen.retain(|serial| !some.contains(serial));
        some
    }

    /// One that was found waits in no queue.
    pub(super) fn does_not_wait(&mut self, serial: Serial) {
        self.unwaited.insert(serial);
    }

    /// Those that wait in no queue yet; [`Ends::wait`] must follow.
    pub(super) fn unwaited(&mut self) -> Vec<Serial> {
        std::mem::take(&mut self.unwaited).into_iter().collect()
    }

    pub(super) fn serials(&self) -> impl Iterator<Item = Serial> {
        self.pipes.keys().copied()
    }

    /// Descriptors of these and, at most, of the queues of users that hold nothing else.
    pub(super) fn descriptors(&self) -> usize {
        let queues = self.pipes.values().filter_map(|end| end.queue.as_ref());
        let queues: BTreeSet<_> = queues.map(Rc::as_ptr).collect();
        self.pipes.len() + queues.len()
    }

    /// Has one wait in this queue.
    pub(super) fn wait(&mut self, serial: Serial, queue: &Rc<Events>) -> io::Result<()> {
        if let Some(end) = self.pipes.get_mut(&serial) {
            let read = end.pipe.heeds_bytes();
            queue.add(Theirs::LeasePipe(serial), &end.pipe, read)?;
            end.queue = Some(Rc::clone(queue));
        }
        Ok(())
    }

    /// It waits no more, and is the caller's to close.
    pub(super) fn remove(&mut self, serial: Serial) -> Option<LeasePipe> {
        let End { pipe, queue } = self.pipes.remove(&serial)?;
        if let Some(queue) = queue {
            let _ = queue.remove(&pipe);
        }
        Some(pipe)
    }

    /// Whether the lease is over.
    pub(super) fn is_over(&self, serial: Serial) -> bool {
        let end = self.pipes.get(&serial);
        end.is_some_and(|end| end.pipe.is_over().unwrap_or(true))
    }

    /// Closed with this process: a close may wait for a writer.
    pub(super) fn leave(&mut self) {
        std::mem::forget(std::mem::take(&mut self.pipes));
    }
}
