//! Where descriptors lie, how much space they take, and those of a block of several sections.

use crate::kit;

use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use firstlight::addr::{Frame, Order, PAGE_BYTES, PhysRange};
use firstlight::frames::Frames;
use firstlight::layout::SECTION_FRAMES;
use firstlight::memmap::{Descriptor, Memmap, MemmapPolicy, SectionPlace, SectionState};
use firstlight::platform::Platform;
use kit::{GIB, MIB, Machine, TIB, range};

/// One line.
#[derive(Debug)]
#[repr(C)]
struct Line([AtomicU64; 8]);
// SAFETY: atomic integers.
unsafe impl Descriptor for Line {
    fn template(_: SectionPlace) -> Self {
        Self([const { AtomicU64::new(0) }; 8])
    }
}

/// Half a line.
#[derive(Debug)]
#[repr(C)]
struct Half([AtomicU64; 4]);
// SAFETY: atomic integers.
unsafe impl Descriptor for Half {
    fn template(_: SectionPlace) -> Self {
        Self([const { AtomicU64::new(0) }; 4])
    }
}

/// Memory of this process that lies as the range does modulo 2 MiB, all of it zero: what is
/// never written costs nothing.
struct InStep;

// SAFETY: every range gets memory of its own, leaked.
unsafe impl Platform for InStep {
    fn map(&self, range: PhysRange) -> Option<NonNull<u8>> {
        let phase = usize::try_from(range.start().get() % (2 * MIB)).ok()?;
        let bytes = usize::try_from(range.bytes()).ok()?.checked_add(phase)?;
        let layout = std::alloc::Layout::from_size_align(bytes, 2 << 20).ok()?;
        // SAFETY: the engine maps no empty range; `phase` is inside.
        NonNull::new(unsafe { std::alloc::alloc_zeroed(layout).add(phase) })
    }

    fn is_zero(&self, _: PhysRange) -> bool {
        true
    }
}

fn reserve<T: Descriptor>(machine: &Machine) -> (Memmap<'static, T>, Frames<'static>) {
    let mut layout = machine.layout();
    let memmap = Memmap::reserve(&mut layout, &InStep, MemmapPolicy::default()).unwrap();
    (memmap, Frames::build(layout, &InStep).unwrap())
}

fn check_places<T: Descriptor>(machine: &Machine) {
    let (memmap, frames) = reserve::<T>(machine);
    let size = size_of::<T>() as u64;
    for extent in frames.layout().segments() {
        let (start, end) = (extent.frames.start(), extent.frames.end());
        let first = std::ptr::from_ref(memmap.of(start).unwrap()).addr();
        let bytes = extent.frames.count() * size;
        let step = match bytes {
            ..0x1_0000 => 64,
            0x1_0000..0x400_0000 => PAGE_BYTES,
            _ => 2 * MIB,
        };
        let in_step = start.get() % step * size % step;
        assert_eq!(first as u64 % step, in_step, "{bytes} bytes");
        // One in each section, and the ends.
        let inside = (start.get()..end.get()).step_by(usize::try_from(SECTION_FRAMES - 1).unwrap());
        for number in inside.chain([end.get() - 1]) {
            let at = std::ptr::from_ref(memmap.of(Frame::new(number)).unwrap()).addr();
            assert_eq!((at - first) as u64, (number - start.get()) * size);
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "allocates by the gigabyte")]
fn descriptors_lie_as_their_frames_do() {
    // Banks of all three sizes, that begin anywhere.
    let machine = Machine::new(&[
        (0, range(0x1000, 0x9f000)),
        (0, range(MIB, 90 * MIB + 0x3000)),
        (0, range(128 * MIB + 0x7000, 700 * MIB)),
        (0, range(4 * GIB + 0x5000, 4 * GIB + 0x12_3000)),
        (1, range(5 * GIB + 16 * MIB + 0x3000, 15 * GIB)),
    ]);
    check_places::<Line>(&machine);
    check_places::<Half>(&machine);
}

#[test]
#[cfg_attr(miri, ignore = "allocates by the gigabyte")]
fn space_for_descriptors_follows_memory() {
    // Five ranges of 8 GiB or less over 16 TiB, of two nodes.
    let machine = Machine::new(&[
        (0, range(4 * GIB, 12 * GIB)),
        (0, range(TIB, TIB + 8 * GIB)),
        (0, range(2 * TIB, 2 * TIB + GIB)),
        (1, range(8 * TIB, 8 * TIB + 2 * GIB)),
        (1, range(16 * TIB, 16 * TIB + 8 * GIB)),
    ]);
    let (memmap, frames) = reserve::<Line>(&machine);
    let progress = memmap.progress();
    assert_eq!(progress.written_bytes, 0);
    let descriptors = frames.layout().present_frames() * 64;
    // Each range may lie up to 2 MiB on to be in step, and a node's space ends on 2 MiB.
    let most = descriptors + (5 + 2) * 2 * MIB + PAGE_BYTES;
    let reserved = progress.reserved_bytes;
    assert!(
        (descriptors..=most).contains(&reserved),
        "{reserved}, {most}"
    );
    // 2 bytes a GiB in words of 8, and some 100 a range and node.
    let directory = progress.directory_bytes;
    assert!(directory <= 2 * 27 + 5 * 8 + 7 * 120, "{directory}");
}

#[test]
#[cfg_attr(miri, ignore = "allocates by the gigabyte")]
fn all_sections_of_a_large_block_are_prepared() {
    let (memmap, _) = reserve::<Line>(&Machine::new(&[(0, range(4 * GIB, 6 * GIB))]));
    let giant = Frame::new(5 * GIB / PAGE_BYTES);
    memmap.prepare(&[giant], Order::GIANT);
    assert_eq!(memmap.progress().ready_sections, 8);
    let before = Frame::new(giant.get() - 1);
    assert_eq!(memmap.state(before), Some(SectionState::Untouched));
    assert!(memmap.is_ready(giant));
    assert!(memmap.is_ready(Frame::new(giant.get() + 7 * SECTION_FRAMES)));
}
