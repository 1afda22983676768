//! Frames that are real memory, to zero and to read, and workers that do.

use std::alloc::{Layout as Bytes, alloc, dealloc};
use std::ptr::NonNull;
use std::slice;

use firstlight::addr::{Frame, FrameRange, Order, PAGE_BYTES, PhysRange};
use firstlight::background::Next;
use firstlight::frames::{Frames, Hooks};
use firstlight::memmap::Writer;
use firstlight::zeroing::{ALL_BYTES, Knob, MappedMemory, Memory, Worker, ZeroCheck, Zeroing};

use super::{GIANT_BYTES, HUGE_BYTES};

/// Nanoseconds.
pub(crate) const MS: u64 = 1_000_000;
/// Where it begins.
const START: u64 = 4 * GIANT_BYTES;

/// Memory of so many bytes, filled with a byte that is not zero.
pub(crate) struct RealMemory {
    first: NonNull<u8>,
    bytes: Bytes,
    pub(crate) mapped: MappedMemory,
}

// SAFETY: plain memory; what frames are read and written is each test's to decide.
unsafe impl Sync for RealMemory {}

impl RealMemory {
    /// So many huge frames.
    pub(crate) fn new(huges: u64) -> Self {
        let (size, align) = (huges * HUGE_BYTES, HUGE_BYTES);
        let bytes = Bytes::from_size_align(size as usize, align as usize).unwrap();
        // SAFETY: not empty; filled at once.
        let first = NonNull::new(unsafe {
            let first = alloc(bytes);
            first.write_bytes(0xa5, bytes.size());
            first
        })
        .unwrap();
        let offset = first.as_ptr().expose_provenance();
        let offset = offset.wrapping_sub(START as usize);
        // SAFETY: frames of `frames` lie there; a test that frees what is not its own keeps no reference.
        let mapped = unsafe { MappedMemory::new(offset, Writer::default()) };
        Self {
            first,
            bytes,
            mapped,
        }
    }

    /// All of it as frames of node 0, free and of unknown content.
    pub(crate) fn frames(&self) -> Frames<'_> {
        let memory = PhysRange::with_size(START, self.bytes.size() as u64).unwrap();
        let span = memory.inner_frames();
        let tables = usize::try_from(Frames::bytes_for(span, 8).unwrap()).unwrap();
        let frames = Frames::over(span, Box::leak(Box::new_uninit_slice(tables))).unwrap();
        frames.add(memory).unwrap();
        frames
    }

    /// The bytes of a block that the caller has, for as long as it has it.
    #[expect(clippy::mut_from_ref, reason = "blocks do not overlap")]
    pub(crate) fn block(&self, frame: Frame, order: Order) -> &mut [u8] {
        let range = FrameRange::block(frame, order).unwrap();
        let at = (range.addrs().start().get() - START) as usize;
        // SAFETY: inside the memory, and the caller's alone.
        unsafe {
            slice::from_raw_parts_mut(self.first.as_ptr().add(at), range.addrs().bytes() as usize)
        }
    }
}

impl Drop for RealMemory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.first.as_ptr(), self.bytes) }
    }
}

/// A kernel that zeroes, and reads what is said to be zero.
pub(crate) struct Kernel<'r> {
    pub(crate) memory: &'r RealMemory,
    pub(crate) check: ZeroCheck,
}

impl<'r> Kernel<'r> {
    pub(crate) fn new(memory: &'r RealMemory) -> Self {
        let check = ZeroCheck::new();
        // Tests are built with and without debug assertions.
        check.set_one_in(1);
        Self { memory, check }
    }
}

impl Hooks for Kernel<'_> {
    unsafe fn zero(&self, range: FrameRange) -> bool {
        // SAFETY: just taken for a request.
        unsafe { self.memory.mapped.zero(range) };
        true
    }

    unsafe fn is_zero(&self, range: FrameRange) -> bool {
        // SAFETY: likewise.
        unsafe { self.check.is_zero(&self.memory.mapped, range) }
    }
}

/// Workers that zero all there is.
pub(crate) fn eager<'a, 'm, M: Memory>(
    frames: &'a Frames<'m>,
    memory: &'a M,
) -> Zeroing<'a, 'm, M> {
    let zeroing = Zeroing::new(frames, memory);
    for (knob, value) in [
        (Knob::Enabled, 1),
        (Knob::LowBytes, ALL_BYTES),
        (Knob::HighBytes, ALL_BYTES),
        (Knob::WakeBytes, PAGE_BYTES),
    ] {
        zeroing.set(knob, value).unwrap();
    }
    zeroing
}

/// Steps at once, until there is nothing to do; bytes that were zeroed.
pub(crate) fn run<M: Memory>(worker: &mut Worker<'_, '_, M>, now_ns: u64) -> u64 {
    let mut zeroed = 0;
    for _ in 0..100_000 {
        let step = worker.step(|| now_ns);
        zeroed += step.zeroed_bytes;
        if let Next::At(at) = step.next {
            assert!(at > now_ns);
            return zeroed;
        }
    }
    panic!("the worker does not come to an end");
}

pub(crate) fn zero_bytes(frames: &Frames<'_>) -> u64 {
    frames.validate().unwrap();
    frames.statistics().zero.frames * PAGE_BYTES
}

/// Whether all bytes are `byte`: each is compared with its neighbour, fast even where not optimised.
pub(crate) fn is_filled(bytes: &[u8], byte: u8) -> bool {
    bytes[0] == byte && bytes[1..] == bytes[..bytes.len() - 1]
}
