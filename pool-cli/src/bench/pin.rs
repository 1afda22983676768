//! `--pin`: guest memory pinned as for a passed-through device, on memory of each page
//! size that is zeroed beforehand and on memory that is not.
//!
//! A device may write to any page at any time, so all of the guest's memory is pinned
//! before it starts, which has the kernel zero what is not there. What a VMM does through
//! VFIO is done here by registered buffers of an I/O ring, on the same file, after QEMU's
//! greeting: the same walk over the same pages without a device. Both variants start on a
//! slab of the pool; of one all pages are given back to the kernel beforehand.

use super::guest::Bench;
use super::own_daemon::{Kind, OwnDaemon, own_folder};
use super::starts::{FLOOR_BYTES, floor, set_aside};
use crate::Program;
use crate::failure::Failure;
use crate::output::{GOOD, HEADING};
use crate::progress::Progress;
use crate::text::{self, bytes};
use firstlight_pool::launch::{AllocateOptions, Need, Plan, Start, allocate};
use firstlight_pool::os::mapping::Mapping;
use firstlight_pool::os::memory_file;
use firstlight_pool::protocol::PageSize;
use io_uring::IoUring;
use serde::Serialize;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt::Write;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The kernel takes no larger buffer.
const BUFFER_BYTES: u64 = 1 << 30;

/// What decides whether files without a name get large pages.
const SHMEM: &str = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";

/// Memory whose pages are pinned until it is dropped.
struct Pinned {
    // First: it lets go of the pages while they are mapped.
    _ring: IoUring,
    _mapping: Mapping,
}

impl Pinned {
    fn new(file: &OwnedFd, bytes: u64) -> io::Result<Self> {
        let length = usize::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mapping = Mapping::new(file, 0, length)?;
        let ring = IoUring::new(1)?;
        let starts = (0..bytes).step_by(usize::try_from(BUFFER_BYTES).unwrap_or(usize::MAX));
        let buffers: Result<Vec<_>, _> = starts
            .map(|at| {
                let offset = usize::try_from(at)?;
                Ok(libc::iovec {
                    iov_base: mapping.address().wrapping_byte_add(offset).cast(),
                    iov_len: usize::try_from((bytes - at).min(BUFFER_BYTES))?,
                })
            })
            .collect();
        let buffers =
            buffers.map_err(|_: std::num::TryFromIntError| io::ErrorKind::InvalidInput)?;
        // SAFETY: the buffers lie in the mapping, which outlives the ring; nothing is ever
        // transferred to them.
        unsafe { ring.submitter().register_buffers(&buffers)? };
        Ok(Self {
            _ring: ring,
            _mapping: mapping,
        })
    }
}

/// Rounds of one page size and variant.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct Row {
    /// `4K`, `thp` or `2M`.
    page: &'static str,
    /// `null` for the floor: 64 MiB, not pinned, without the pool.
    prezeroed: Option<bool>,
    /// Each round, in seconds.
    s: Vec<f64>,
    mean_s: f64,
    /// Standard deviation; zero for one round.
    deviation_s: f64,
    /// Of the mean, from QEMU's greeting until all is pinned: without the pool the kernel zeroes
    /// meanwhile, so what that takes is the difference between the two variants. `null` for the floor.
    pin_mean_s: Option<f64>,
}

/// A start, and how much of it was pinning.
struct Timed {
    all: Duration,
    pin: Duration,
}

impl Row {
    fn of_pinned(page: &'static str, prezeroed: bool, starts: &[Timed]) -> Option<Self> {
        let all: Vec<_> = starts.iter().map(|one| one.all).collect();
        let pins: Vec<_> = starts.iter().map(|one| one.pin).collect();
        let pins = Self::of(page, None, &pins)?;
        let row = Self::of(page, Some(prezeroed), &all)?;
        Some(Self {
            pin_mean_s: Some(pins.mean_s),
            ..row
        })
    }

    fn of(page: &'static str, prezeroed: Option<bool>, times: &[Duration]) -> Option<Self> {
        let s: Vec<f64> = times.iter().map(|time| micro(time.as_secs_f64())).collect();
        let count = f64::from(u32::try_from(s.len()).ok().filter(|count| *count > 0)?);
        let mean = s.iter().sum::<f64>() / count;
        let squares: f64 = s.iter().map(|one| (one - mean).powi(2)).sum();
        let deviation = (squares / (count - 1.0).max(1.0)).sqrt();
        Some(Self {
            page,
            prezeroed,
            s,
            mean_s: micro(mean),
            deviation_s: micro(deviation),
            pin_mean_s: None,
        })
    }
}

fn micro(s: f64) -> f64 {
    (s * 1e6).round() / 1e6
}

/// The document.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct Record {
    schema: &'static str,
    clock: &'static str,
    size_bytes: u64,
    floor_bytes: u64,
    rows: Vec<Row>,
    notes: Vec<String>,
}

/// All page sizes; fewer rounds where `stop` is set meanwhile.
pub(super) fn measure(
    program: Program,
    qemu: &OsStr,
    size_bytes: u64,
    rounds: u32,
    stop: &AtomicBool,
) -> Result<Record, Failure> {
    let mut record = Record {
        schema: "firstlight.bench-pool-pin/1",
        clock: "wall",
        size_bytes,
        floor_bytes: FLOOR_BYTES,
        rows: Vec::new(),
        notes: Vec::new(),
    };
    let bench = Bench::new(qemu).map_err(Failure::pool_at("the guest"))?;
    // The first start of all reads QEMU from the disk.
    floor(&bench)?;
    for (page, kind) in [
        ("4K", Kind::small()),
        ("thp", Kind::of(PageSize::Transparent)),
        ("2M", Kind::of(PageSize::Huge)),
    ] {
        if page == "4K" && !small_pages() {
            let note = format!("4K is left out: {SHMEM} gives files large pages");
            record.notes.push(note);
            continue;
        }
        let _pages = match kind.page {
            PageSize::Huge => Some(set_aside(kind.page, size_bytes)?),
            _ => None,
        };
        record.measure(page, kind, &bench, program, rounds, stop)?;
    }
    Ok(record)
}

fn small_pages() -> bool {
    std::fs::read_to_string(SHMEM).is_ok_and(|text| text.contains("[never]"))
}

impl Record {
    fn measure(
        &mut self,
        page: &'static str,
        kind: Kind,
        bench: &Bench,
        program: Program,
        rounds: u32,
        stop: &AtomicBool,
    ) -> Result<(), Failure> {
        let folder = bench.folder().join(page);
        own_folder(&folder)?;
        let bytes = self.size_bytes;
        let mut daemon =
            OwnDaemon::start(program, &folder, kind, &BTreeSet::from([bytes]), Some("0"))?;
        let mut floors = Vec::new();
        let [mut without, mut with] = [const { Vec::new() }; 2];
        let progress = Progress::new();
        for round in 1..=rounds {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            progress.say(format!("{page} pages, run {round} of {rounds}"));
            floors.push(floor(bench)?.to_qmp());
            for (zeroed, times) in [(false, &mut without), (true, &mut with)] {
                daemon.fill(bytes, 1)?;
                times.push(start_and_pin(bench, &mut daemon, bytes, zeroed)?);
                daemon.empty(bytes)?;
            }
        }
        daemon.stop()?;
        for (prezeroed, starts) in [(false, without), (true, with)] {
            self.rows.extend(Row::of_pinned(page, prezeroed, &starts));
        }
        self.rows.extend(Row::of(page, None, &floors));
        Ok(())
    }

    /// For people: a line for each page size and variant, as others published theirs.
    pub(super) fn table(&self) -> String {
        let mut page = format!(
            "{HEADING}firstlight bench pool --pin: QEMU with {}, started and pinned, seconds{HEADING:#}\n",
            bytes(self.size_bytes)
        );
        let rounds = self.rows.iter().map(|row| row.s.len()).max().unwrap_or(0);
        let mut head = vec!["pages".into(), "pre-zeroed".into()];
        head.extend((1..=rounds).map(|round| format!("round {round}")));
        head.extend(["mean", "deviation", "of it pinning"].map(String::from));
        let mut cells = vec![head];
        for row in &self.rows {
            let variant = match row.prezeroed {
                Some(true) => "with".into(),
                Some(false) => "without".into(),
                None => format!("floor: {}", bytes(self.floor_bytes)),
            };
            let mut line = vec![row.page.into(), variant];
            line.extend((0..rounds).map(|at| row.s.get(at).map_or(String::new(), seconds)));
            let pin = row.pin_mean_s.as_ref().map_or("-".into(), seconds);
            line.extend([seconds(&row.mean_s), seconds(&row.deviation_s), pin]);
            cells.push(line);
        }
        for line in text::table("<<>", &cells) {
            let _ = writeln!(page, "{line}");
        }
        for pair in self.rows.chunks_exact(3) {
            let [without, with, floor] = pair else {
                continue;
            };
            let _ = writeln!(
                page,
                "{}: {GOOD}{:.1} times faster{GOOD:#}, {:.2} times the floor{}",
                with.page,
                without.mean_s / with.mean_s,
                with.mean_s / floor.mean_s,
                apart(without, with),
            );
        }
        for note in &self.notes {
            let _ = writeln!(page, "note: {note}");
        }
        page
    }
}

/// What zeroing takes and what pinning does, of which the pool takes the first away.
fn apart(without: &Row, with: &Row) -> String {
    let both = without.pin_mean_s.zip(with.pin_mean_s);
    both.map_or(String::new(), |(both, pin)| {
        let zeroing = (both - pin).max(0.0);
        format!("; zeroing takes {zeroing:.3} s, pinning {pin:.3} s")
    })
}

fn seconds(s: &f64) -> String {
    format!("{s:.3}")
}

/// From asking for the memory until QEMU greeted and all of it is pinned.
fn start_and_pin(
    bench: &Bench,
    daemon: &mut OwnDaemon,
    bytes: u64,
    zeroed: bool,
) -> Result<Timed, Failure> {
    let need = [Need { bytes, node: None }];
    let mut begin = Instant::now();
    let allocated = allocate(daemon.client(), &need, &AllocateOptions::default());
    let allocated = allocated.map_err(Failure::pool)?;
    if !zeroed {
        for file in &allocated {
            memory_file::punch(&file.memory, 0, bytes)
                .map_err(Failure::pool_at("an empty file"))?;
        }
        begin = Instant::now();
    }
    let arguments = bench.arguments(bytes);
    let plan = Plan::new(bench.qemu(), &arguments, &[], &|_| false).map_err(Failure::pool)?;
    let files: Vec<_> = allocated.iter().map(Start::backing).collect();
    let start = Start::new(bench.qemu(), plan.with_memory(&files));
    let ours: io::Result<Vec<OwnedFd>> =
        allocated.iter().map(|one| one.memory.try_clone()).collect();
    let ours = ours.map_err(Failure::pool_at("the guest's memory"))?;
    let each = allocated.into_iter();
    let start = each.fold(start, |start, one| {
        start.with(one.memory).with(one.lease_pipe)
    });
    bench.time_until(start, begin, || {
        let greeted = Instant::now();
        let pinned: io::Result<Vec<Pinned>> =
            ours.iter().map(|file| Pinned::new(file, bytes)).collect();
        let (all, pin) = (begin.elapsed(), greeted.elapsed());
        drop(pinned?);
        Ok(Timed { all, pin })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_mean_and_deviation_and_the_table_the_published_form() {
        let ms = |times: &[u64]| -> Vec<_> {
            times.iter().copied().map(Duration::from_millis).collect()
        };
        let mut record = Record {
            schema: "firstlight.bench-pool-pin/1",
            clock: "wall",
            size_bytes: 8 << 30,
            floor_bytes: 64 << 20,
            rows: Vec::new(),
            notes: vec!["a note".into()],
        };
        for (prezeroed, times, pins) in [
            (false, ms(&[1000, 1100, 1200]), ms(&[900, 1000, 1100])),
            (true, ms(&[100, 110, 120]), ms(&[40, 50, 60])),
        ] {
            let starts = times.into_iter().zip(pins);
            let starts: Vec<_> = starts.map(|(all, pin)| Timed { all, pin }).collect();
            record.rows.extend(Row::of_pinned("4K", prezeroed, &starts));
        }
        record.rows.extend(Row::of("4K", None, &ms(&[50])));
        assert_eq!(record.rows[0].mean_s, 1.1);
        assert_eq!(record.rows[0].deviation_s, 0.1);
        assert_eq!(record.rows[2].deviation_s, 0.0);
        assert!(Row::of("4K", None, &[]).is_none());
        let table = record.table();
        for line in [
            "4K     without          1.000    1.100    1.200  1.100      0.100          1.000",
            "4K     with             0.100    0.110    0.120  0.110      0.010          0.050",
            "4K     floor: 64 MiB    0.050                    0.050      0.000              -",
            "4K: 10.0 times faster, 2.20 times the floor; zeroing takes 0.950 s, pinning 0.050 s",
            "note: a note",
        ] {
            assert!(
                anstream::adapter::strip_str(&table)
                    .to_string()
                    .contains(line),
                "{table}"
            );
        }
    }
}
