//! Batches of a job: when each may be done, and what all of them cost.

use super::{Mapper, Policy, is_over};
use crate::os::background;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// Does `step` without keeping out of the way, if that is what the worker does
/// otherwise: the kernel holds locks meanwhile that others wait for. hugetlbfs has
/// a few for the touching of all files, tmpfs that of this process' address space;
/// with no CPU idle, a waiter would wait for seconds.
pub(super) fn in_one_go<T>(comes_back: bool, step: impl FnOnce() -> T) -> T {
    if comes_back {
        // Refused, it takes its time.
        let _ = background::run_as_usual();
    }
    let done = step();
    if comes_back {
        let _ = background::run_when_idle();
    }
    done
}

/// What is paid for at once of a page that is put back.
const PIECE_BYTES: u64 = 2 << 20;

fn not_wanted() -> io::Error {
    io::Error::new(io::ErrorKind::Interrupted, "not wanted any more")
}

pub(super) fn length(bytes: u64) -> io::Result<usize> {
    usize::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// Bytes that the pace has allowed and a worker did not need yet, also in jobs before this one: by the size of the page that
/// they are for, so that small pages do not spend what a large one has waited for.
pub(super) type Paid = BTreeMap<u64, u64>;

/// The steps of a job, and what they cost.
#[derive(Debug)]
pub struct Batches<'j> {
    policy: &'j Policy,
    cancel: &'j AtomicBool,
    done_bytes: &'j AtomicU64,
    /// Bytes of a batch.
    pub(super) batch_bytes: u64,
    zeroed_bytes: u64,
    zeroing_ns: u64,
    zeroed_twice_bytes: u64,
    /// Whether the worker keeps out of the way, but not in the middle of a page.
    pub(super) comes_back: bool,
    refilled_pages: Vec<u64>,
    paid: &'j mut Paid,
}

impl<'j> Batches<'j> {
    pub(super) fn new(
        policy: &'j Policy,
        cancel: &'j AtomicBool,
        done_bytes: &'j AtomicU64,
        paid: &'j mut Paid,
    ) -> Self {
        Self {
            policy,
            cancel,
            done_bytes,
            batch_bytes: policy.batch_bytes.max(1 << 20),
            zeroed_bytes: 0,
            zeroing_ns: 0,
            zeroed_twice_bytes: 0,
            comes_back: false,
            refilled_pages: Vec::new(),
            paid,
        }
    }

    /// What maps files of clients.
    pub(super) fn mapper(&self) -> &'j Mapper {
        &self.policy.mapper
    }

    /// Waits until a page of `bytes` may be zeroed; what was paid for one and not needed is
    /// still good. `false` where it would have to wait and `is_stopped`.
    ///
    /// By pieces, each for the worker that asks first: a large page waits for no end of small ones, nor they for it.
    pub(super) fn pay(&mut self, bytes: u64, is_stopped: impl Fn() -> bool) -> io::Result<bool> {
        while self.paid_for(bytes) < bytes {
            let piece = PIECE_BYTES.min(bytes - self.paid_for(bytes));
            let stop = || self.is_over() || is_stopped();
            let may = match &self.policy.background {
                // Stopped, it asks once without waiting: others wait without an end.
                Some(pace) => pace.wait(piece, stop) || !self.is_over() && pace.may(piece),
                None => !self.is_over(),
            };
            if !may {
                return if self.is_over() {
                    Err(not_wanted())
                } else {
                    Ok(false)
                };
            }
            *self.paid.entry(bytes).or_default() += piece;
        }
        Ok(true)
    }

    fn paid_for(&self, bytes: u64) -> u64 {
        self.paid.get(&bytes).copied().unwrap_or_default()
    }

    fn is_over(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
    }

    /// Does something that zeroes `bytes`, paid for, or finds it need not.
    pub(super) fn timed(
        &mut self,
        bytes: u64,
        step: impl FnOnce() -> io::Result<bool>,
    ) -> io::Result<bool> {
        let begin = Instant::now();
        let zeroed = step()?;
        if zeroed {
            self.spend(bytes, begin);
            self.paid.remove(&bytes);
        }
        Ok(zeroed)
    }

    /// A page was a hole and is none any more.
    pub(super) fn refilled(&mut self, page: u64) {
        self.refilled_pages.push(page);
    }

    pub(super) fn take_refilled(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.refilled_pages)
    }

    fn spend(&mut self, bytes: u64, since: Instant) {
        let spent_ns = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.zeroing_ns = self.zeroing_ns.saturating_add(spent_ns);
        self.zeroed_bytes += bytes;
        self.done_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Waits for the pace, unless it is not wanted any more.
    fn wait(&self, bytes: u64) -> io::Result<()> {
        let go_on = match &self.policy.background {
            Some(pace) => pace.wait(bytes, || self.is_over()),
            None => !self.is_over(),
        };
        if go_on { Ok(()) } else { Err(not_wanted()) }
    }

    /// Of these bytes, some were zeroed by the kernel and by the worker.
    pub(super) fn zeroed_twice(&mut self, bytes: u64) {
        self.zeroed_twice_bytes += bytes;
    }

    /// Bytes zeroed, and the time that took.
    pub(super) fn spent(&self) -> (u64, u64) {
        (self.zeroed_bytes, self.zeroing_ns)
    }

    /// Of these bytes, those that were zeroed twice.
    pub(super) fn twice_bytes(&self) -> u64 {
        self.zeroed_twice_bytes
    }

    /// Goes from `start` to `end` in batches, at the worker's pace.
    pub(super) fn each(
        &mut self,
        start: u64,
        end: u64,
        deadline: Option<Instant>,
        step: impl Fn(u64, u64) -> io::Result<()>,
    ) -> io::Result<()> {
        self.go(start, end, deadline, |batches, at, bytes| {
            let begin = Instant::now();
            step(at, bytes)?;
            batches.spend(bytes, begin);
            Ok(())
        })
    }

    /// Work that zeroes nothing, and counts as none: all of the file up to `end`, by pieces.
    pub(super) fn look(
        &mut self,
        end: u64,
        step: impl Fn(u64, u64) -> io::Result<()>,
    ) -> io::Result<()> {
        self.go(0, end, None, |_, at, bytes| step(at, bytes))
    }

    fn go(
        &mut self,
        start: u64,
        end: u64,
        deadline: Option<Instant>,
        mut step: impl FnMut(&mut Self, u64, u64) -> io::Result<()>,
    ) -> io::Result<()> {
        let batch_bytes = self.batch_bytes;
        let mut at = start;
        while at < end {
            // To the next multiple, so that pages are never asked for by halves.
            let next = (at - at % batch_bytes).saturating_add(batch_bytes);
            let bytes = next.min(end) - at;
            self.wait(bytes)?;
            if is_over(deadline) {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "out of time"));
            }
            step(self, at, bytes)?;
            at += bytes;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Pace, Watch};
    use super::*;
    use crate::os::pressure::Gauge;
    use std::sync::Arc;

    #[test]
    fn what_was_paid_for_and_not_needed_is_still_good_and_no_more() {
        const PAGE: u64 = 2 << 20;
        // One page, and then none ever.
        let pace = Pace::new(
            Some(0),
            PAGE,
            Arc::new(Watch::new(None, Gauge::of_machine())),
        );
        let policy = Policy {
            background: Some(Arc::new(pace)),
            ..Policy::default()
        };
        let (cancel, done) = (AtomicBool::new(false), AtomicU64::new(0));
        let on = || false;
        let mut paid = Paid::new();
        let mut batches = Batches::new(&policy, &cancel, &done, &mut paid);
        assert!(batches.pay(PAGE, on).unwrap());
        // By the next job, too; whatever would have to be waited for is given up.
        let mut batches = Batches::new(&policy, &cancel, &done, &mut paid);
        assert!(batches.pay(PAGE, || true).unwrap());
        assert!(!batches.timed(PAGE, || Ok(false)).unwrap());
        assert!(batches.pay(PAGE, || true).unwrap(), "it was not needed");
        assert!(batches.timed(PAGE, || Ok(true)).unwrap());
        assert_eq!(done.load(Ordering::Relaxed), PAGE);
        assert!(
            !batches.pay(PAGE, || true).unwrap(),
            "it waits for its pace"
        );
        cancel.store(true, Ordering::Relaxed);
        batches.pay(PAGE, on).expect_err("no more of them");
    }

    /// What a large page has paid for when its turn is stopped is not lost.
    #[test]
    fn a_large_page_is_paid_for_by_pieces() {
        let watch = Arc::new(Watch::new(None, Gauge::of_machine()));
        let pace = Arc::new(Pace::new(Some(0), PIECE_BYTES, watch));
        let policy = Policy {
            background: Some(Arc::clone(&pace)),
            ..Policy::default()
        };
        let (cancel, done, mut paid) = (AtomicBool::new(false), AtomicU64::new(0), Paid::new());
        let large = 3 * PIECE_BYTES;
        let mut pay = || {
            let mut batches = Batches::new(&policy, &cancel, &done, &mut paid);
            let is_paid = batches.pay(large, || true).unwrap();
            (is_paid, batches.paid_for(large))
        };
        assert_eq!(pay(), (false, PIECE_BYTES));
        assert_eq!(pay(), (false, PIECE_BYTES));
        pace.set_rate(None);
        assert_eq!(pay(), (true, large));
    }

    /// Guests with large pages get on beside guests with small ones, however often turns are stopped.
    #[test]
    fn what_a_large_page_has_paid_for_is_spent_by_no_small_one() {
        let watch = Arc::new(Watch::new(None, Gauge::of_machine()));
        let pace = Arc::new(Pace::new(Some(0), PIECE_BYTES, watch));
        let policy = Policy {
            background: Some(pace),
            ..Policy::default()
        };
        let (cancel, done, mut paid) = (AtomicBool::new(false), AtomicU64::new(0), Paid::new());
        let mut pay = |bytes| {
            let mut batches = Batches::new(&policy, &cancel, &done, &mut paid);
            let is_paid = batches.pay(bytes, || true).unwrap();
            (is_paid, batches.paid_for(bytes))
        };
        assert_eq!(pay(3 * PIECE_BYTES), (false, PIECE_BYTES));
        assert_eq!(pay(PIECE_BYTES), (false, 0));
        assert_eq!(pay(3 * PIECE_BYTES), (false, PIECE_BYTES));
    }
}
