//! What is done to a file, batch by batch.

use super::batches::{Batches, in_one_go, length};
use super::refill::Refill;
use crate::os::mapping::Mapping;
use crate::os::memory_file;
use crate::protocol::PageSize;
use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;
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
    /// no process open the file once more.
    Empty,
    /// Give back what lies behind so many bytes.
    Shorten {
        /// Bytes of the slab.
        bytes: u64,
    },
    /// Zero all `bytes` with our own stores, then read all of it: once no
    /// other process holds the file, and not at all where one goes on to.
    ZeroInPlace {
        /// Bytes of the file.
        bytes: u64,
    },
    /// Put pages back where a guest that runs gave some back.
    Refill(Refill),
}

impl Work {
    /// Whether it is to be known who else has the file when it is done.
    pub(super) fn ends_with_a_look(&self) -> bool {
        matches!(self, Self::Empty | Self::ZeroInPlace { .. })
    }

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
            Self::ZeroInPlace { bytes } => {
                memory_file::close_to_others(file)?;
                until_alone(file)?;
                if u64::try_from(rustix::fs::fstat(file)?.st_size) != Ok(bytes) {
                    return Err(io::Error::other("its length was changed"));
                }
                // What its client reserved behind the end would stay promised.
                memory_file::set_length(file, bytes)?;
                let twice_bytes = Cell::new(0);
                let zeroed = batches.each(0, bytes, None, |at, bytes| {
                    twice_bytes.set(twice_bytes.get() + zero(file, at, bytes)?);
                    Ok(())
                });
                batches.zeroed_twice(twice_bytes.get());
                zeroed?;
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

fn fill(file: &OwnedFd, page: PageSize, at: u64, bytes: u64) -> io::Result<()> {
    match page {
        PageSize::Huge | PageSize::Giant => {
            memory_file::reserve(file, at, bytes)?;
            memory_file::allocate(file, at, bytes)
        }
        // Allocated pages of tmpfs are zeroed only when they are touched.
        PageSize::Transparent => memory_file::populate(file, at, length(bytes)?),
    }
}

/// A process that ends closes its files one after the other, perhaps the
/// lease pipe before the memory: what is still held at first may be free soon.
fn until_alone(file: &OwnedFd) -> io::Result<()> {
    const STEPS: u32 = 100;
    for _ in 0..STEPS {
        if memory_file::has_no_other_holder(file)? {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(1));
    }
    Err(io::Error::other("another process holds it"))
}

/// Zeroes what was there, and lets the kernel zero what was a hole: a guest gave it back. Bytes that
/// both zeroed, where a hole is smaller than the file's pages.
fn zero(file: &OwnedFd, at: u64, bytes: u64) -> io::Result<u64> {
    let stat = rustix::fs::fstat(file)?;
    let page = u64::try_from(stat.st_blksize).unwrap_or(0);
    let is_whole = u64::try_from(stat.st_size) == Ok(memory_file::held_bytes(file)?);
    // Page by page where there are holes: of a page the kernel zeroes all or nothing.
    let step_bytes = if is_whole { bytes } else { page.max(4096) };
    let mut twice_bytes = 0;
    for (at, bytes) in steps(at, bytes, step_bytes) {
        let before = memory_file::held_bytes(file)?;
        let mut mapping = Mapping::new(file, at, length(bytes)?)?;
        mapping.populate()?;
        let filled_bytes = memory_file::held_bytes(file)?.saturating_sub(before);
        if filled_bytes < bytes {
            mapping.zero();
            twice_bytes += filled_bytes;
        }
    }
    Ok(twice_bytes)
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
