//! Real memory as the frames of a machine: [`Ground`].

use crate::machine::{GIB, Machine, Storage, cpu_caches};
use firstlight::addr::{Frame, FrameRange, Order, PhysRange};
use firstlight::frames::{CpuCache, Frames, Hooks, Request};
use firstlight::memmap::Writer;
use firstlight::memmap::writer::Line;
use firstlight::node::NodeId;
use firstlight::zeroing::{ALL_BYTES, Knob, MappedMemory, Memory, Zeroing};
use firstlight_host::metadata::MetadataSpace;
use firstlight_host::reserve::Reservation;
use firstlight_host::writer;
use std::error::Error;
use std::io;

/// Where memory begins, in physical addresses: a machine whose memory all lies above 4 GiB.
const START: u64 = 4 * GIB;

/// Memory, resident and on huge pages, and the machine that has it.
pub(super) struct Ground {
    memory: Reservation,
    machine: Machine,
    storage: Storage,
    tables: MetadataSpace,
    caches: &'static [CpuCache],
}

impl Ground {
    /// `bytes` bytes, a multiple of 2 MiB.
    pub(super) fn new(bytes: u64) -> io::Result<Self> {
        let mut memory = Reservation::huge(usize::try_from(bytes).unwrap_or(usize::MAX))?;
        // Resident, and not zero: a page that nobody zeroed would be seen.
        memory.as_mut_slice().fill(0xa5);
        let range = PhysRange::with_size(START, bytes).unwrap_or_default();
        let machine = Machine {
            nodes: 1,
            memory: vec![(range, NodeId(0))],
            reserved: Vec::new(),
        };
        Ok(Self {
            memory,
            storage: machine.storage(),
            tables: MetadataSpace::new(machine.metadata_bytes())?,
            caches: cpu_caches(1),
            machine,
        })
    }

    /// Its memory, written by `writer`.
    pub(super) fn mapped(&self, writer: Writer) -> MappedMemory {
        let first = self.memory.base().as_ptr().expose_provenance();
        let start = usize::try_from(START).unwrap_or(usize::MAX);
        // SAFETY: frames of the machine are the memory of the reservation, at this offset, as long
        // as `self` is, which its users borrow; benches free only what they allocated.
        unsafe { MappedMemory::new(first.wrapping_sub(start), writer) }
    }

    /// An allocator over all of it, that zeroes on the spot by `kernel`, for one CPU.
    pub(super) fn frames<'f>(
        &'f mut self,
        kernel: &'f Kernel,
    ) -> Result<Frames<'f>, Box<dyn Error>> {
        self.tables.reset();
        let layout = self.machine.layout(&mut self.storage)?;
        let frames = Frames::build(layout, &self.tables)?.with_hooks(kernel);
        frames.provide_cpus(self.caches)?;
        Ok(frames)
    }
}

/// What a kernel adds: zeroing on the spot.
pub(super) struct Kernel(pub(super) MappedMemory);

impl Hooks for Kernel {
    unsafe fn zero(&self, range: FrameRange) -> bool {
        // SAFETY: the caller's promise: taken for a request.
        unsafe { self.0.zero(range) };
        true
    }
}

/// The widest stores past the caches.
pub(super) fn best() -> Writer {
    writer::best()
}

/// Stores through the caches: the C library's memset, as kernels clear pages. Plain stores would not
/// do: there are processors that keep long rows of them out of the caches.
pub(super) fn through() -> Writer {
    unsafe fn fill(first: *mut u64, words: usize, line: &Line) {
        if *line == [0; 8] {
            // SAFETY: as the caller promised.
            return unsafe { first.write_bytes(0, words) };
        }
        for at in 0..words {
            // SAFETY: likewise.
            unsafe { first.add(at).write(line[(first.addr() / 8 + at) % 8]) }
        }
    }
    // SAFETY: `fill` follows the rule, with ordinary stores.
    unsafe { Writer::new("memset", fill) }
}

/// A worker over `frames` that zeroes all there is, as fast as it can.
pub(super) fn eager<'a, 'm>(
    frames: &'a Frames<'m>,
    memory: &'a MappedMemory,
) -> Result<Zeroing<'a, 'm, MappedMemory>, Box<dyn Error>> {
    let zeroing = Zeroing::new(frames, memory);
    for (knob, value) in [
        (Knob::Enabled, 1),
        (Knob::LowBytes, ALL_BYTES),
        (Knob::HighBytes, ALL_BYTES),
        (Knob::WakeBytes, 4096),
        (Knob::BusyPerMs, 0),
        (Knob::DelayMs, 1),
    ] {
        zeroing.set(knob, value)?;
    }
    Ok(zeroing)
}

/// All free memory is of unknown content afterwards.
pub(super) fn forget(frames: &Frames<'_>) -> Result<(), Box<dyn Error>> {
    for order in [Order::GIANT, Order::HUGE] {
        let taken: Vec<Frame> =
            std::iter::from_fn(|| frames.allocate(Request::new(order)).ok()).collect();
        for frame in taken {
            frames.free(frame, order)?;
        }
    }
    Ok(())
}
