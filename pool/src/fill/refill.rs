//! Putting pages back where a guest gave some back, while it runs.
//!
//! The kernel zeroes a page where the file has none and leaves the others as they
//! are, whatever the guest does at that moment. Three things are different from
//! filling what no client has yet:
//!
//! - the guest, its VMM, and the end of the lease wait for the same locks:
//!   so it goes page by page, and no page is begun and then left lying because a
//!   CPU has better things to do;
//! - the lease may end at any moment, and nothing is put back after that:
//!   [`Tenure`] keeps the two apart;
//! - hugetlbfs tells how many pages a file has, not where (`mincore` answers for
//!   pages this process has mapped, `SEEK_HOLE` sees none): so each page is
//!   asked for, and the count says whether it was a hole.

use super::batches::{Batches, in_one_go};
use super::mapper::Mapper;
use crate::os::memory_file;
use crate::protocol::PageSize;
use std::collections::HashSet;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A lease as seen by a worker that puts pages back: still on, or over.
///
/// ```
/// use firstlight_pool::fill::Tenure;
/// let tenure = Tenure::default();
/// assert_eq!(tenure.during(|| 7), Some(7));
/// tenure.end();
/// assert_eq!(tenure.during(|| 7), None);
/// tenure.settle();
/// ```
#[derive(Debug, Default)]
pub struct Tenure {
    ended: Arc<AtomicBool>,
    step: Mutex<()>,
}

impl Tenure {
    /// The lease is over. Waits for nothing: a step may still be under way.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }

    /// Waits for a step that is under way. After [`Tenure::end`] and this there
    /// never is one again.
    pub fn settle(&self) {
        drop(self.step.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Does `step` if the lease is still on; settling waits for it.
    pub fn during<T>(&self, step: impl FnOnce() -> T) -> Option<T> {
        let _settled = self.step.lock().unwrap_or_else(PoisonError::into_inner);
        (!self.ended.load(Ordering::Acquire)).then(step)
    }

    /// Set once the lease is over.
    pub(crate) fn ended(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.ended)
    }
}

/// What to put back into one slab.
#[derive(Debug, Clone)]
pub struct Refill {
    /// What backs it.
    pub page: PageSize,
    /// Bytes of the slab.
    pub bytes: u64,
    /// Pages of the guest's reserve: what was given back of it is put back first.
    pub reserve: Vec<u64>,
    /// Pages to put back at most.
    pub most_pages: u64,
    /// Of these, the ones that are not of the reserve yet.
    pub new_pages: u64,
    /// The lease.
    pub tenure: Arc<Tenure>,
    /// Where it begins, and how far it is.
    pub scan: Arc<Scan>,
}

/// A search for holes that is under way.
#[derive(Debug, Default)]
pub struct Scan {
    stop: AtomicBool,
    ended_early: AtomicBool,
    looked: AtomicUsize,
    reached: AtomicU64,
}

impl Scan {
    /// One that begins at a page, after so many of the reserve.
    #[must_use]
    pub fn from(looked: usize, page: u64) -> Self {
        Self {
            looked: AtomicUsize::new(looked),
            reached: AtomicU64::new(page),
            ..Self::default()
        }
    }

    /// It is to end with the page under way, or with its first.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
    }

    /// Whether it is.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// How many pages of the reserve were looked at, and the page that was looked at last of the others.
    fn at(&self) -> (usize, u64) {
        let looked = self.looked.load(Ordering::Relaxed);
        (looked, self.reached.load(Ordering::Relaxed))
    }

    /// Where it was stopped before its end: where the next one is to begin.
    #[must_use]
    pub fn ended_early(&self) -> Option<(usize, u64)> {
        let ended_early = self.ended_early.load(Ordering::Relaxed);
        ended_early.then(|| self.at())
    }
}

impl Refill {
    pub(super) fn run(&self, file: &OwnedFd, batches: &mut Batches<'_>) -> io::Result<()> {
        let pages = self.bytes / self.page.bytes();
        let reserve: HashSet<u64> = self.reserve.iter().copied().collect();
        let (looked, first_page) = self.scan.at();
        let mut done = 0;
        for page in self.reserve.iter().skip(looked) {
            if done == self.most_pages {
                return Ok(());
            }
            let Some(filled) = self.step(file, *page, done, batches)? else {
                return Ok(());
            };
            done += u64::from(filled);
            self.scan.looked.fetch_add(1, Ordering::Relaxed);
        }
        let most_pages = self.most_pages.min(done + self.new_pages);
        let others = (0..pages).map(|step| (first_page + step) % pages);
        for page in others.filter(|page| !reserve.contains(page)) {
            if done == most_pages {
                break;
            }
            self.scan.reached.store(page, Ordering::Relaxed);
            let Some(filled) = self.step(file, page, done, batches)? else {
                break;
            };
            done += u64::from(filled);
        }
        Ok(())
    }

    /// Says whether there was a hole; nothing where it was stopped. Then it still puts one page back, if it need not wait
    /// for its pace: however often turns are stopped, guests get on.
    fn step(
        &self,
        file: &OwnedFd,
        page: u64,
        done_pages: u64,
        batches: &mut Batches<'_>,
    ) -> io::Result<Option<bool>> {
        let bytes = self.page.bytes();
        let is_over = done_pages > 0 && self.scan.is_stopped();
        if is_over || !batches.pay(bytes, || self.scan.is_stopped())? {
            self.scan.ended_early.store(true, Ordering::Relaxed);
            return Ok(None);
        }
        let over = || io::Error::new(io::ErrorKind::Interrupted, "the lease is over");
        let (comes_back, mapper) = (batches.comes_back, batches.mapper());
        let filled = batches.timed(bytes, || {
            let put_back = || self.put_back(file, page * bytes, mapper);
            in_one_go(comes_back, || self.tenure.during(put_back)).ok_or_else(over)?
        })?;
        if filled {
            batches.refilled(page);
        }
        Ok(Some(filled))
    }

    /// Says whether the file has more or fewer pages now: one that the guest takes
    /// or gives back at the very same moment may be mistaken for this one.
    fn put_back(&self, file: &OwnedFd, at: u64, mapper: &Mapper) -> io::Result<bool> {
        let stat = rustix::fs::fstat(file)?;
        let bytes = self.page.bytes();
        if u64::try_from(stat.st_size).is_ok_and(|length| length < at + bytes) {
            return Err(io::Error::other("its client made it shorter"));
        }
        match self.page {
            PageSize::Huge | PageSize::Giant => {
                if memory_file::held_bytes(file)? >= self.bytes {
                    return Ok(false);
                }
                let reserved = mapper.reserve(file, at, bytes);
                reserved.map_err(|error| self.why_none(error))?;
                memory_file::refill(file, at, bytes)?;
            }
            PageSize::Transparent => {
                // Touching a page that is there is not for nothing here.
                if !memory_file::has_hole(file, at, bytes)? {
                    return Ok(false);
                }
                mapper.populate(file, at, bytes)?;
            }
        }
        Ok(rustix::fs::fstat(file)?.st_blocks != stat.st_blocks)
    }

    fn why_none(&self, error: io::Error) -> io::Error {
        if error.kind() != io::ErrorKind::StorageFull {
            return error;
        }
        let text = format!(
            "fewer than two huge pages of {} are free, or its mount or a cgroup allows no more",
            self.page
        );
        io::Error::new(error.kind(), text)
    }
}
