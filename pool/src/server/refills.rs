//! What guests gave back while they run, and how much of it is put back.
//!
//! Once a second each allocated slab is asked how many pages it has. What is missing
//! was given back by its guest. Where the class says so, a worker puts a part of
//! it back, one lease after the other, a little at a time; [`Reserve`] has the
//! rule, [`crate::fill::Refill`] the work.

use super::pool::Pool;
use super::workers::Ticket;
use crate::fill::{Job, Refill, Scan, Tenure, Work};
use crate::lease::{Due, Reserve, Serial, Whose};
use crate::protocol::{PageSize, PoolRow};
use crate::store::Key;
use crate::store::slab::SlabId;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How much is put back of one lease before others have their turn.
const TURN_BYTES: u64 = 64 << 20;

/// How long a lease rests after a turn that put nothing back, or failed, most
/// likely for want of memory; not so long if its guest gives more back.
const REST: Duration = Duration::from_secs(10);

/// A lease that a worker may put pages back into.
#[derive(Debug)]
struct Refilled {
    key: Key,
    reserve: Reserve,
    /// Bytes of the slab that are missing, as last seen.
    missing_bytes: u64,
    tenure: Arc<Tenure>,
    /// What a worker that is at it does.
    under_way: Option<Turn>,
    /// Why the last attempt failed; none where it did not.
    trouble: Option<String>,
}

/// What is put back in one turn.
#[derive(Debug)]
struct Turn {
    /// At most.
    bytes: u64,
    page_bytes: u64,
    done_bytes: Arc<AtomicU64>,
    /// Stopped where pages came back that are promised to others.
    scan: Arc<Scan>,
}

impl Turn {
    fn lacking_bytes(&self) -> u64 {
        let done_bytes = self.done_bytes.load(Ordering::Relaxed);
        let bytes = self.bytes.saturating_sub(done_bytes);
        if self.scan.is_stopped() {
            // The one that is under way, or its first.
            bytes.min(self.page_bytes)
        } else {
            bytes
        }
    }
}

/// All leases, and what was done.
#[derive(Debug)]
pub(super) struct Refills {
    after: Duration,
    leases: BTreeMap<Serial, Refilled>,
    /// Whose turn was last on each node.
    last: BTreeMap<Option<u32>, Serial>,
    /// Bytes put back since the beginning, by class.
    refilled_bytes: BTreeMap<Key, u64>,
    /// Leases whose slab is being made as long as it was.
    shortening: BTreeSet<Serial>,
}

impl Refills {
    /// What is put back was missing for as long as `after`.
    pub(super) fn new(after: Duration) -> Self {
        Self {
            after,
            leases: BTreeMap::new(),
            last: BTreeMap::new(),
            refilled_bytes: BTreeMap::new(),
            shortening: BTreeSet::new(),
        }
    }

    /// A lease begins; up to `budget_bytes` of what is given back are kept ready.
    pub(super) fn begin(&mut self, serial: Serial, key: Key, budget_bytes: u64) {
        let refilled = Refilled {
            key,
            reserve: Reserve::new(budget_bytes, key.page.bytes(), self.after),
            missing_bytes: 0,
            tenure: Arc::default(),
            under_way: None,
            trouble: None,
        };
        self.leases.insert(serial, refilled);
    }

    /// A lease is over: settling its tenure means that nothing is put
    /// back any more.
    pub(super) fn end(&mut self, serial: Serial) -> Option<Arc<Tenure>> {
        let refilled = self.leases.remove(&serial)?;
        refilled.tenure.end();
        Some(refilled.tenure)
    }

    /// A slab is as long as it was.
    pub(super) fn shortened(&mut self, serial: Serial) {
        self.shortening.remove(&serial);
    }

    /// The tenure of a lease, for a test to hold.
    #[cfg(test)]
    pub(super) fn tenure(&self, serial: Serial) -> Arc<Tenure> {
        Arc::clone(&self.leases[&serial].tenure)
    }

    /// Completes the row of a class.
    pub(super) fn complete(&self, row: &mut PoolRow) {
        let key = Key {
            page: row.page,
            node: row.node,
            bytes: row.size_class_bytes,
        };
        let of_class = || self.leases.values().filter(|lease| lease.key == key);
        row.hole_bytes = of_class().map(|lease| lease.missing_bytes).sum();
        row.refilled_bytes = self.refilled_bytes.get(&key).copied().unwrap_or(0);
        if row.trouble.is_none() {
            row.trouble = of_class().find_map(|lease| lease.trouble.clone());
        }
    }

    /// Bytes that workers will yet put back at most, by class.
    pub(super) fn lacking(&self) -> impl Iterator<Item = (Key, u64)> {
        let leases = self.leases.values();
        leases.filter_map(|lease| Some((lease.key, lease.under_way.as_ref()?.lacking_bytes())))
    }

    /// Such pages come back, and are promised to others: what is left of them for guests is looked at anew.
    pub(super) fn stop(&self, page: PageSize) {
        let leases = self.leases.values();
        let of_such = leases.filter(|lease| lease.key.page == page);
        for turn in of_such.filter_map(|lease| lease.under_way.as_ref()) {
            turn.scan.stop();
        }
    }

    /// Whether a turn is to end, for a test to see.
    #[cfg(test)]
    pub(super) fn is_stopped(&self, serial: Serial) -> bool {
        let turn = self.leases[&serial].under_way.as_ref();
        turn.is_some_and(|turn| turn.scan.is_stopped())
    }

    /// The next lease on `node` that something is due for, after the one that
    /// had its turn last.
    fn next(&self, node: Option<u32>, now: Instant) -> Option<(Serial, Key, Due)> {
        let due = |(serial, lease): (&Serial, &Refilled)| {
            let mine = lease.key.node == node && lease.under_way.is_none();
            let due = mine.then(|| lease.reserve.due(now)).flatten()?;
            Some((*serial, lease.key, due))
        };
        let last = self.last.get(&node).copied().unwrap_or(0);
        let behind = (Bound::Excluded(last), Bound::Unbounded);
        let mut behind = self.leases.range(behind).filter_map(due);
        behind
            .next()
            .or_else(|| self.leases.range(..=last).find_map(due))
    }
}

impl Pool {
    /// Asks each allocated slab how much of it is missing, or too much. What is reserved behind its end is not seen: a
    /// private mapping reserves as much where nothing can take it away.
    pub(super) fn look_for_holes(&mut self) {
        let now = Instant::now();
        let mut too_long = Vec::new();
        for (serial, lease) in self.machine.leases().iter() {
            let Some(refilled) = self.refills.leases.get_mut(&serial) else {
                continue;
            };
            let Ok(slab) = self.files.get(lease.slab) else {
                continue;
            };
            let Ok(held_bytes) = slab.held_bytes() else {
                continue;
            };
            let bytes = slab.bytes();
            let is_longer = || slab.length().is_ok_and(|length| length > bytes);
            if held_bytes > bytes || is_longer() {
                too_long.push(serial);
            }
            refilled.missing_bytes = bytes.saturating_sub(held_bytes);
            if refilled.missing_bytes == 0 {
                refilled.trouble = None;
            }
            // While a worker is at it, what it filled and what the guest did cannot be told apart.
            if refilled.under_way.is_none() {
                refilled.reserve.look(refilled.missing_bytes, now);
            }
        }
        too_long.retain(|serial| !self.refills.shortening.contains(serial));
        for serial in too_long {
            self.shorten(serial);
        }
    }

    /// Gives every worker that is idle a lease to put pages back into.
    pub(super) fn begin_refills(&mut self) {
        for node in self.machine.nodes() {
            if !self.workers.may_refill(node) {
                continue;
            }
            // Each that finds nothing left rests; it is the same for the next of its class.
            let now = Instant::now();
            let mut claims = None;
            let mut left_bytes = BTreeMap::new();
            while let Some((serial, key, due)) = self.refills.next(node, now) {
                self.refills.last.insert(node, serial);
                let left_bytes = *left_bytes.entry(key).or_insert_with(|| {
                    let claims = claims.get_or_insert_with(|| self.claims(false));
                    self.files.left_bytes(key, claims.iter().copied())
                });
                let Err(error) = self.begin_refill(node, serial, due, left_bytes) else {
                    break;
                };
                self.refilled(serial, &[], Err(error));
            }
        }
    }

    fn begin_refill(
        &mut self,
        node: Option<u32>,
        serial: Serial,
        due: Due,
        left_bytes: u64,
    ) -> io::Result<()> {
        let gone = || io::Error::other("the lease is over");
        let lease = self.machine.leases().get(serial).ok_or_else(gone)?;
        let slab = self.files.get(lease.slab)?;
        let page = lease.key.page;
        let turn_pages = (TURN_BYTES / page.bytes()).max(1);
        let most_pages = due.most_pages.min(turn_pages);
        let left_pages = left_bytes / page.bytes();
        if left_pages == 0 {
            let text = format!(
                "what is free of {page} pages is for slabs that are being filled or replaced"
            );
            return Err(io::Error::new(io::ErrorKind::StorageFull, text));
        }
        let most_pages = most_pages.min(left_pages);
        let refilled = self.refills.leases.get_mut(&serial).ok_or_else(gone)?;
        let refill = Refill {
            page,
            bytes: slab.bytes(),
            reserve: due.reserve,
            most_pages,
            new_pages: due.new_pages,
            tenure: Arc::clone(&refilled.tenure),
            scan: Arc::new(Scan::from(due.looked, due.first_page)),
        };
        let scan = Arc::clone(&refill.scan);
        let job = Job {
            cancel: refilled.tenure.ended(),
            ..Job::new(
                Ticket::Refill(node, serial),
                slab.file(),
                Work::Refill(refill),
            )
        };
        refilled.under_way = Some(Turn {
            bytes: most_pages.saturating_mul(page.bytes()),
            page_bytes: page.bytes(),
            done_bytes: Arc::clone(&job.done_bytes),
            scan,
        });
        self.workers.refill(node, job)
    }

    /// A client made its slab longer than what it was allocated: the rest goes back.
    fn shorten(&mut self, serial: Serial) {
        let lease = self.machine.leases().get(serial);
        let of = lease.map(|lease| (lease.whose, lease.slab));
        let cut = |(whose, slab)| self.cut_to_length(whose, slab, Ticket::Shorten(serial));
        if of.is_some_and(cut) {
            self.refills.shortening.insert(serial);
        }
    }

    /// Has what lies or is reserved behind a slab's end taken away; whether it is there.
    pub(super) fn cut_to_length(&mut self, whose: Whose, slab: SlabId, ticket: Ticket) -> bool {
        let Ok(slab) = self.files.get(slab) else {
            return false;
        };
        let work = Work::Shorten {
            bytes: slab.bytes(),
        };
        let job = Job::new(ticket, slab.file(), work);
        self.workers.take_away(whose, job);
        true
    }

    /// A worker has put pages back.
    pub(super) fn refilled(&mut self, serial: Serial, pages: &[u64], result: io::Result<()>) {
        // A lease that is over has none to count for.
        let Some(lease) = self.refills.leases.get_mut(&serial) else {
            return;
        };
        let turn = lease.under_way.take();
        let early = turn.and_then(|turn| turn.scan.ended_early());
        lease.reserve.put_back(pages);
        lease.reserve.turn_ended(early);
        lease.missing_bytes = lease.reserve.missing_bytes();
        let bytes = pages.len() as u64 * lease.key.page.bytes();
        *self.refills.refilled_bytes.entry(lease.key).or_default() += bytes;
        let now = Instant::now();
        match result {
            Ok(()) => {
                lease.trouble = None;
                if pages.is_empty() && early.is_none() {
                    lease.reserve.rest(now + REST);
                }
            }
            Err(error) => {
                lease.trouble = Some(format!("nothing is put back for guests: {error}"));
                lease.reserve.rest(now + REST);
            }
        }
    }
}
