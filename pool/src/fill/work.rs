//! What is done to a file, batch by batch.

use super::{Manner, Refill, is_over};
use crate::os::mapping::Mapping;
use crate::os::{background, memory_file};
use crate::protocol::PageSize;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A kind of work.
#[derive(Debug, Clone)]
pub enum Work {
    /// Let the kernel put zeroed pages wherever `start..end` has none.
    Fill {
        /// What backs the file.
        page: PageSize,
        /// First byte.
        start: u64,
        /// Behind the last byte.
        end: u64,
        /// Give up then.
        deadline: Option<Instant>,
    },
    /// Give all pages back to the kernel, also those that are mapped, and let
    /// nobody open the file once more.
    Empty,
    /// Give back what lies behind so many bytes.
    Shorten {
        /// Bytes of the slab.
        bytes: u64,
    },
    /// Zero all `bytes` with our own stores, then read all of it: once nobody
    /// else holds the file, and not at all where somebody goes on to.
    ZeroInPlace {
        /// Bytes of the file.
        bytes: u64,
        /// Whether it never had a name: then our own descriptor is no opening.
        memfd: bool,
    },
    /// Put pages back where a guest that runs gave some back.
    Refill(Refill),
}

impl Work {
    pub(super) fn run(self, file: &OwnedFd, batches: &mut Batches<'_>) -> io::Result<()> {
        match self {
            Self::Fill {
                page,
                start,
                end,
                deadline,
            } => {
                batches.batch_bytes = batches.batch_bytes.max(page.bytes());
                let step_bytes = if batches.comes_back {
                    page.bytes()
                } else {
                    batches.batch_bytes
                };
                let comes_back = batches.comes_back;
                batches.each(start, end, deadline, |at, bytes| {
                    steps(at, bytes, step_bytes).try_for_each(|(at, bytes)| {
                        in_one_go(comes_back, || fill(file, page, at, bytes))
                    })
                })
            }
            Self::Empty => {
                let closed = memory_file::close_to_others(file);
                memory_file::set_length(file, 0)?;
                closed
            }
            Self::Shorten { bytes } => memory_file::set_length(file, bytes),
            Self::ZeroInPlace { bytes, memfd } => {
                memory_file::close_to_others(file)?;
                until_alone(file, memfd)?;
                if u64::try_from(rustix::fs::fstat(file)?.st_size) != Ok(bytes) {
                    return Err(io::Error::other("its length was changed"));
                }
                batches.each(0, bytes, None, |at, bytes| zero(file, at, bytes))?;
                batches.look(bytes, |at, bytes| verify(file, at, bytes))
            }
            Self::Refill(refill) => refill.run(file, batches),
        }
    }
}

/// `at..at + bytes` in steps that end at multiples of `step_bytes`.
pub(super) fn steps(at: u64, bytes: u64, step_bytes: u64) -> impl Iterator<Item = (u64, u64)> {
    let end = at.saturating_add(bytes);
    let next = move |at: &u64| Some((at - at % step_bytes).saturating_add(step_bytes).min(end));
    std::iter::successors(Some(at), next)
        .take_while(move |at| *at < end)
        .map(move |at| (at, next(&at).unwrap_or(end) - at))
}

/// Does `step` without keeping out of the way, if that is what the worker does
/// otherwise: the kernel holds locks meanwhile that others wait for. hugetlbfs has
/// a few for the touching of all files, tmpfs that of this process' address space;
/// with no CPU idle, who waits for one would wait for seconds.
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

fn fill(file: &OwnedFd, page: PageSize, at: u64, bytes: u64) -> io::Result<()> {
    match page {
        PageSize::Huge | PageSize::Giant => memory_file::allocate(file, at, bytes),
        // Allocated pages of tmpfs are zeroed only when they are touched.
        PageSize::Transparent => memory_file::populate(file, at, length(bytes)?),
    }
}

/// A process that ends closes its files one after the other, perhaps the
/// lease pipe before the memory: what is still held at first may be free soon.
fn until_alone(file: &OwnedFd, memfd: bool) -> io::Result<()> {
    const STEPS: u32 = 100;
    for _ in 0..STEPS {
        let alone = if memfd {
            memory_file::has_no_other_holder(memory_file::reopen(file)?)?
        } else {
            memory_file::has_no_other_holder(file)?
        };
        if alone {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(1));
    }
    Err(io::Error::other("another process holds it"))
}

fn zero(file: &OwnedFd, at: u64, bytes: u64) -> io::Result<()> {
    let mut mapping = Mapping::new(file, at, length(bytes)?)?;
    // A page that was given back meanwhile comes back zeroed, or as an error here.
    mapping.populate()?;
    mapping.zero();
    Ok(())
}

fn verify(file: &OwnedFd, at: u64, bytes: u64) -> io::Result<()> {
    let mapping = Mapping::new(file, at, length(bytes)?)?;
    match mapping.first_nonzero() {
        None => Ok(()),
        Some(offset) => Err(io::Error::other(format!(
            "byte {} is not zero after zeroing",
            at.saturating_add(offset as u64)
        ))),
    }
}

pub(super) fn length(bytes: u64) -> io::Result<usize> {
    usize::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// The steps of a job, and what they cost.
#[derive(Debug)]
pub struct Batches<'j> {
    manner: &'j Manner,
    cancel: &'j AtomicBool,
    done_bytes: &'j AtomicU64,
    batch_bytes: u64,
    zeroed_bytes: u64,
    zeroing_ns: u64,
    /// Whether the worker keeps out of the way, but not in the middle of a page.
    pub(super) comes_back: bool,
    refilled_pages: Vec<u64>,
    /// Bytes the pace has allowed for that were not needed yet.
    paid_bytes: u64,
}

impl<'j> Batches<'j> {
    pub(super) fn new(
        manner: &'j Manner,
        cancel: &'j AtomicBool,
        done_bytes: &'j AtomicU64,
    ) -> Self {
        Self {
            manner,
            cancel,
            done_bytes,
            batch_bytes: manner.batch_bytes.max(1 << 20),
            zeroed_bytes: 0,
            zeroing_ns: 0,
            comes_back: false,
            refilled_pages: Vec::new(),
            paid_bytes: 0,
        }
    }

    /// Waits until `bytes` may be zeroed; what was paid for and not needed is
    /// still good.
    pub(super) fn pay(&mut self, bytes: u64) -> io::Result<()> {
        if self.paid_bytes < bytes {
            self.wait(bytes)?;
            self.paid_bytes = bytes;
        }
        Ok(())
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
            self.paid_bytes = 0;
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
        let stop = || self.cancel.load(Ordering::Relaxed);
        let go_on = match &self.manner.background {
            Some(pace) => pace.wait(bytes, stop),
            None => !stop(),
        };
        if go_on {
            return Ok(());
        }
        let text = "not wanted any more";
        Err(io::Error::new(io::ErrorKind::Interrupted, text))
    }

    /// Bytes zeroed, and the time that took.
    pub(super) fn spent(&self) -> (u64, u64) {
        (self.zeroed_bytes, self.zeroing_ns)
    }

    /// Goes from `start` to `end` in batches, at the worker's pace.
    fn each(
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

    /// The same for work that zeroes nothing.
    fn look(&mut self, end: u64, step: impl Fn(u64, u64) -> io::Result<()>) -> io::Result<()> {
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
    use super::super::Pace;
    use super::*;
    use std::sync::Arc;

    #[test]
    fn what_was_paid_for_and_not_needed_is_still_good_and_no_more() {
        const PAGE: u64 = 2 << 20;
        // One page, and then none ever.
        let pace = Pace::new(Some(0), PAGE, None, "/nonexistent");
        let manner = Manner {
            background: Some(Arc::new(pace)),
            ..Manner::default()
        };
        let (cancel, done) = (AtomicBool::new(false), AtomicU64::new(0));
        let mut batches = Batches::new(&manner, &cancel, &done);
        batches.pay(PAGE).unwrap();
        // Whatever would have to be waited for is given up now.
        cancel.store(true, Ordering::Relaxed);
        assert!(!batches.timed(PAGE, || Ok(false)).unwrap());
        batches.pay(PAGE).expect("it was not needed");
        assert!(batches.timed(PAGE, || Ok(true)).unwrap());
        assert_eq!(done.load(Ordering::Relaxed), PAGE);
        batches
            .pay(PAGE)
            .expect_err("the next one waits for its pace");
    }
}
