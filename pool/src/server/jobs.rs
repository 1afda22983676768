//! What workers have done, as events of the machine.

use super::pool::{Outgoing, Pool};
use super::workers::Ticket;
use crate::fill::Done;
use crate::lease::Whose;
use crate::machine::Event;
use crate::store::slab::SlabId;
use std::io;

impl Pool {
    /// A worker is done.
    pub(super) fn work_done(&mut self, done: Done<Ticket>) -> Vec<Outgoing> {
        let counters = self.machine.counters();
        counters.zeroed_bytes += done.zeroed_bytes;
        counters.zeroed_twice_bytes += done.zeroed_twice_bytes;
        counters.zeroing_ns += done.zeroing_ns;
        if let Ticket::Fill(..) | Ticket::TopUp(_) = done.ticket {
            self.machine.zeroed(done.zeroed_bytes, done.zeroing_ns);
        }
        if let Some(slab) = done.made {
            self.files.insert(slab);
        }
        let event = match done.ticket {
            Ticket::Fill(_, slab) => self.filled(slab, done.result),
            Ticket::TopUp(slab) => {
                self.is_done(slab);
                let error = done.result.err().map(|error| error.to_string());
                Event::ToppedUp { slab, error }
            }
            Ticket::Empty(slab, _) => Event::Emptied {
                slab,
                is_alone: done.is_alone,
                used_bytes: self.files.used_bytes(slab),
            },
            Ticket::ZeroInPlace(slab) => {
                self.is_done(slab);
                // No other process may have come to hold it meanwhile either.
                let is_clean = done.result.is_ok() && done.is_alone;
                Event::Zeroed { slab, is_clean }
            }
            Ticket::EmptyAgain(slab) => Event::EmptiedAgain(slab),
            Ticket::Discard(slab) => {
                if let Some(slab) = self.files.remove(slab) {
                    self.workers.discard(Whose::Nobody, slab);
                }
                Event::Discarded(slab)
            }
            Ticket::Shorten(serial) => {
                self.refills.shortened(serial);
                return Vec::new();
            }
            Ticket::Refill(_, serial) => {
                self.refilled(serial, &done.refilled_pages, done.result);
                self.begin_refills();
                return Vec::new();
            }
        };
        self.step(event)
    }

    fn filled(&mut self, slab: SlabId, result: io::Result<()>) -> Event {
        self.is_done(slab);
        let marked = result.and_then(|()| self.files.get(slab)?.mark_clean());
        let error = marked
            .err()
            .map(|error| format!("filling stopped: {error}"));
        Event::Filled { slab, error }
    }
}
