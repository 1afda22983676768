//! Memory that is added later, with its descriptors.

use crate::kit::{self, GIANT_FRAMES, GIB, HUGE_BYTES, MIB, Uninitialised, leak, range};
use crate::memmap_machine::{Eight, Fresh as _, Sixteen};
use firstlight::addr::{Frame, FrameRange, Order, PAGE_BYTES, PHYS_END, PhysRange};
use firstlight::blocks::{BlockSize, Blocks};
use firstlight::frames::{BlockError, Frames, HotplugError, Refusal};
use firstlight::layout::{LayoutPolicy, SECTION_FRAMES, ZoneSegment};
use firstlight::memmap::{
    Descriptor, Memmap, MemmapError, MemmapPolicy, Part, SectionState, Writer,
};
use firstlight::node::{NodeId, ZoneKind};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering};

/// One piece of memory for a DIMM, whose address is kept.
struct Dimm(std::cell::Cell<Option<(PhysRange, usize)>>);
// SAFETY: memory of its own for every range, leaked, on a border of pages.
unsafe impl firstlight::platform::Platform for Dimm {
    fn map(&self, range: PhysRange) -> Option<std::ptr::NonNull<u8>> {
        let start = Uninitialised::default().map(range)?;
        self.0.set(Some((range, start.addr().get())));
        Some(start)
    }
}

/// Uninitialised storage that lives as long as the test.
fn storage(bytes: u64) -> &'static mut [MaybeUninit<u8>] {
    leak(MaybeUninit::uninit(), usize::try_from(bytes).unwrap())
}

/// A memory map of `pages` pages from frame 0 on.
fn small<T: Descriptor>(pages: u64) -> Memmap<'static, T> {
    let segment = ZoneSegment {
        frames: FrameRange::new(0, pages).unwrap(),
        node: NodeId(0),
        zone: ZoneKind::Dma,
    };
    let (directory, bytes) = Memmap::<T>::bytes_for(&[segment]).unwrap();
    let policy = MemmapPolicy::default();
    Memmap::in_memory(&[segment], storage(directory), storage(bytes), policy).unwrap()
}

fn directory_for<T: Descriptor>(frames: FrameRange) -> &'static mut [MaybeUninit<u8>] {
    storage(Memmap::<T>::bytes_to_add(frames).unwrap())
}

#[test]
fn added_memory_describes_itself() {
    let sections = if cfg!(miri) { 1 } else { 16 };
    let memmap = small::<Sixteen>(100);
    let before = memmap.progress();
    let mut taken_bytes = 0;
    // Also where it begins inside a line of descriptors; not in the order of addresses.
    for start in [64 * GIANT_FRAMES + 3, 32 * GIANT_FRAMES] {
        let count = if cfg!(miri) {
            100
        } else {
            sections * SECTION_FRAMES
        };
        let dimm = ZoneSegment {
            frames: FrameRange::new(start, start + count).unwrap(),
            node: NodeId(5),
            zone: ZoneKind::Movable,
        };
        let platform = Box::leak(Box::new(Dimm(std::cell::Cell::new(None))));
        let directory = directory_for::<Sixteen>(dimm.frames);
        taken_bytes += directory.len() as u64;
        assert!(memmap.of(dimm.frames.start()).is_none());
        // SAFETY: each platform has memory of its own.
        let own = unsafe { memmap.add(dimm, directory, platform) }.unwrap();
        taken_bytes += own.addrs().bytes();
        assert_eq!(own.start(), dimm.frames.start());
        assert!(own.count() <= (count * 16).div_ceil(PAGE_BYTES) + 1);
        let (mapped, address) = platform.0.get().unwrap();
        assert_eq!(mapped, own.addrs());
        assert_eq!(
            memmap.state(dimm.frames.start()),
            Some(SectionState::Untouched)
        );
        memmap.describe(Part::Whole);
        for number in start..start + count {
            let frame = Frame::new(number);
            assert!(memmap.is_ready(frame));
            let descriptor = memmap.peek(frame).unwrap();
            assert!(descriptor.is_fresh(memmap.place(frame).unwrap()));
            let at = std::ptr::from_ref(descriptor).addr();
            let end = address + usize::try_from(own.addrs().bytes()).unwrap();
            assert!(at >= address && at + 16 <= end);
        }
        assert!(memmap.of(dimm.frames.end()).is_none());
    }
    let after = memmap.progress();
    assert_eq!(after.ready_sections, after.sections);
    assert_eq!(after.reserved_bytes - before.reserved_bytes, taken_bytes);
    assert_eq!(memmap.ranges_needed(), 3);
    assert!(memmap.peek(Frame::new(99)).is_some());
}

/// One memory, whenever it is mapped.
struct Socket(*mut u8);
// SAFETY: memory that is leaked, for the one range that is mapped.
unsafe impl firstlight::platform::Platform for Socket {
    fn map(&self, _: PhysRange) -> Option<std::ptr::NonNull<u8>> {
        std::ptr::NonNull::new(self.0)
    }
}

/// Memory that goes has no descriptors; what comes back has new ones, and its directory still.
#[test]
fn memory_that_goes_takes_its_descriptors_along() {
    let memmap = small::<Eight>(100);
    let frames =
        FrameRange::new(64 * GIANT_FRAMES, 64 * GIANT_FRAMES + 2 * SECTION_FRAMES).unwrap();
    let dimm = ZoneSegment {
        frames,
        node: NodeId(1),
        zone: ZoneKind::Movable,
    };
    let space = storage(frames.count() * 8 + PAGE_BYTES)
        .as_mut_ptr()
        .cast::<u8>();
    let space = space.wrapping_add(space.align_offset(PAGE_BYTES as usize));
    let socket: &'static _ = Box::leak(Box::new(Socket(space)));
    let before = memmap.progress();
    let other = ZoneSegment {
        node: NodeId(2),
        ..dimm
    };
    // SAFETY: one after the other, each in memory that nothing else uses.
    unsafe {
        assert!(!memmap.remove(frames), "never added");
        memmap
            .add(dimm, directory_for::<Eight>(frames), socket)
            .unwrap();
        let part = FrameRange::new(frames.start().get(), frames.end().get() - 1).unwrap();
        assert!(!memmap.remove(part), "not as it was added");
        assert!(memmap.of(frames.start()).is_some());
        assert!(memmap.remove(frames) && !memmap.remove(frames));
        assert!(memmap.of(frames.start()).is_none() && memmap.peek(frames.start()).is_none());
        assert_eq!(memmap.ranges_needed(), 1);
        // It needs no directory, and is written anew.
        memmap.add(dimm, &mut [], socket).unwrap();
        assert_eq!(memmap.state(frames.start()), Some(SectionState::Untouched));
        let place = memmap.place(frames.start()).unwrap();
        assert!(memmap.of(frames.start()).unwrap().is_fresh(place));
        assert!(memmap.remove(frames));
        // Of another node it is another range.
        let small = memmap.add(other, &mut [], socket).unwrap_err();
        assert!(matches!(small, MemmapError::TooLittleStorage { .. }));
        memmap
            .add(other, directory_for::<Eight>(frames), socket)
            .unwrap();
        assert_eq!(memmap.place(frames.start()).unwrap().node, NodeId(2));
        assert!(memmap.remove(frames));
    }
    assert_eq!(memmap.progress().reserved_bytes, before.reserved_bytes);
}

#[test]
fn memory_with_descriptors_is_not_added_again() {
    let memmap = small::<Eight>(2048);
    let add = |start, end, bytes: u64| {
        let frames = FrameRange::new(start, end).unwrap();
        let dimm = ZoneSegment {
            frames,
            node: NodeId(1),
            zone: ZoneKind::Normal,
        };
        let platform = Box::leak(Box::new(Dimm(std::cell::Cell::new(None))));
        // SAFETY: each platform has memory of its own.
        let added = unsafe { memmap.add(dimm, storage(bytes), platform) };
        (added, platform.0.get().is_some())
    };
    let needed = Memmap::<Eight>::bytes_to_add(FrameRange::new(4096, 8192).unwrap()).unwrap();
    assert!(add(4096, 8192, needed).0.is_ok());
    for (start, end, known) in [
        (0, 8, (0, 2048)),
        (8191, 9000, (4096, 8192)),
        (2047, 4097, (0, 2048)),
    ] {
        let known = FrameRange::new(known.0, known.1).unwrap();
        let frames = FrameRange::new(start, end).unwrap();
        // Refused before anything is mapped.
        let refused = (Err(MemmapError::Described { frames, known }), false);
        assert_eq!(add(start, end, needed), refused);
    }
    let (small, mapped) = add(9000, 12_000, needed - 8);
    assert!(
        matches!(small, Err(MemmapError::TooLittleStorage { .. })) && !mapped,
        "{small:?}"
    );
    assert!(memmap.of(Frame::new(9000)).is_none());
}

/// The descriptors of a window's memory lie elsewhere: in an array that a kernel has for all frames.
/// All of what comes is free then, its first frames too.
#[test]
fn what_comes_may_have_its_descriptors_elsewhere() {
    let machine = crate::kit::layout_with_windows(
        range(4 * GIB, 5 * GIB),
        &[],
        &[(0, range(8 * GIB, 9 * GIB))],
        &LayoutPolicy::DEFAULT,
    );
    let all = range(4 * GIB, 9 * GIB).inner_frames();
    let base = crate::memmap_machine::linear::array::<Sixteen>(all.start().get(), all.count());
    let directory = storage(Memmap::<Sixteen>::directory_bytes(all) as u64);
    // SAFETY: there is space for these frames, leaked, which no other code uses.
    let memmap = unsafe { Memmap::linear(base, all, directory, MemmapPolicy::default()) }.unwrap();
    let platform: &'static Uninitialised = Box::leak(Box::default());
    let frames = Frames::build(machine, platform).unwrap();

    let dimm = range(8 * GIB, 8 * GIB + 128 * MIB);
    frames.add(dimm).unwrap();
    let first = dimm.inner_frames().start();
    frames
        .allocate_range(kit::block(first, Order::PAGE))
        .unwrap();
    let descriptor = memmap.of(first).unwrap();
    assert!(std::ptr::eq(
        descriptor,
        base.wrapping_add(first.get() as usize)
    ));
    assert!(descriptor.is_fresh(memmap.place(first).unwrap()));
    frames.free(first, Order::PAGE).unwrap();
    // Gone and come again: its descriptors are where they were.
    frames.offline(dimm).unwrap();
    frames.remove(dimm).unwrap();
    frames.add(dimm).unwrap();
    assert!(std::ptr::eq(memmap.of(first).unwrap(), descriptor));
    frames.validate().unwrap();
}

/// Memory of a device has descriptors, and no blocks; nothing of it is allocated or freed. So may it
/// lie in a window, or where no memory can come.
#[test]
fn memory_of_a_device_has_descriptors_and_no_blocks() {
    let layout = crate::kit::layout_with_windows(
        range(4 * GIB, 5 * GIB),
        &[],
        &[(0, range(8 * GIB, 9 * GIB))],
        &LayoutPolicy::DEFAULT,
    );
    let memmap = small::<Sixteen>(100);
    let platform: &'static Uninitialised = Box::leak(Box::default());
    let frames = Frames::build(layout, platform).unwrap();
    let before = (
        frames.statistics(),
        Blocks::new(&frames, BlockSize::SMALLEST).count(),
    );
    for start in [8 * GIB + 256 * MIB, 64 * GIB] {
        let device = range(start, start + HUGE_BYTES).inner_frames();
        let segment = ZoneSegment {
            frames: device,
            node: NodeId(0),
            zone: ZoneKind::Normal,
        };
        let directory = directory_for::<Sixteen>(device);
        // SAFETY: nothing else uses it: the allocator does not have it.
        let own = unsafe { memmap.add(segment, directory, platform) }.unwrap();
        let frame = own.end();
        assert!(
            memmap
                .of(frame)
                .unwrap()
                .is_fresh(memmap.place(frame).unwrap())
        );

        let blocks = Blocks::new(&frames, BlockSize::SMALLEST);
        assert!(blocks.of(frame).is_none());
        assert_eq!((frames.statistics(), blocks.count()), before);
        assert_eq!(frames.is_allocated(frame), None);
        let freed = frames.free(frame, Order::PAGE);
        assert!(
            matches!(
                freed,
                Err(BlockError::OutsideMemory { .. } | BlockError::Reserved { .. })
            ),
            "{freed:?}"
        );
        assert!(frames.free_frames(device).is_err());
        assert!(
            frames
                .allocate_range(kit::block(frame, Order::PAGE))
                .is_err()
        );
        assert!(matches!(
            frames.offline(device.addrs()),
            Err(HotplugError {
                why: Refusal::NotMemory,
                ..
            })
        ));
        assert_eq!((frames.statistics(), blocks.count()), before);
    }
    frames.validate().unwrap();
}

#[test]
#[cfg_attr(miri, ignore = "many threads")]
fn several_cpus_add_memory_while_others_touch_it() {
    let memmap = small::<Eight>(512);
    let dimms = 64u64;
    let frames_of = |dimm: u64| {
        FrameRange::new((dimm + 1) * GIANT_FRAMES, (dimm + 1) * GIANT_FRAMES + 1024).unwrap()
    };
    let refused = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            // Both try all: one of them succeeds for each.
            scope.spawn(|| {
                for dimm in 0..dimms {
                    let frames = frames_of(dimm);
                    let segment = ZoneSegment {
                        frames,
                        node: NodeId(2),
                        zone: ZoneKind::Normal,
                    };
                    let platform = Box::leak(Box::new(Dimm(std::cell::Cell::new(None))));
                    let directory = directory_for::<Eight>(frames);
                    // SAFETY: each platform has memory of its own.
                    let added = unsafe { memmap.add(segment, directory, platform) };
                    if let Err(error) = added {
                        assert!(matches!(error, MemmapError::Described { .. }), "{error}");
                        refused.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        scope.spawn(|| {
            for dimm in (0..dimms).rev() {
                while memmap.of(frames_of(dimm).end()).is_none()
                    && memmap.of(frames_of(dimm).start()).is_none()
                {
                    std::thread::yield_now();
                }
            }
        });
    });
    assert_eq!(refused.into_inner(), dimms);
    assert_eq!(memmap.ranges(Part::Whole).count() as u64, dimms + 1);
}

#[test]
fn provided_memory_and_ranges_are_checked() {
    let extent = |start, end| ZoneSegment {
        frames: FrameRange::new(start, end).unwrap(),
        node: NodeId(0),
        zone: ZoneKind::Normal,
    };
    let bytes_for = Memmap::<Eight>::bytes_for;
    assert_eq!(bytes_for(&[]), Err(MemmapError::NoMemory));
    for bad in [
        [extent(0, 10), extent(9, 20)],
        [extent(0, 10), extent(10, 10)],
        [extent(50, 60), extent(0, 10)],
    ] {
        let frames = bad[1].frames;
        assert_eq!(bytes_for(&bad), Err(MemmapError::Unordered { frames }));
    }
    // The last frame with an address, and what lies beyond.
    let end = PHYS_END / PAGE_BYTES;
    assert!(bytes_for(&[extent(end - 1, end)]).is_ok());
    for beyond in [
        extent(end - 1, end + 1),
        extent(u64::MAX - 1, u64::MAX),
        extent(0, u64::MAX),
    ] {
        let frames = beyond.frames;
        assert_eq!(
            bytes_for(&[beyond]),
            Err(MemmapError::NoSuchMemory { frames })
        );
    }
    let extents = [extent(100, 200)];
    let (directory_bytes, bytes) = bytes_for(&extents).unwrap();
    let policy = MemmapPolicy {
        writer: Writer::plain(),
        always_write: false,
    };
    let made = |directory, memory| {
        Memmap::<Eight>::in_memory(&extents, storage(directory), storage(memory), policy)
    };
    assert!(made(directory_bytes, bytes).is_ok());
    for error in [
        made(8, bytes).unwrap_err(),
        made(directory_bytes, 64).unwrap_err(),
    ] {
        assert!(
            matches!(error, MemmapError::TooLittleStorage { .. }),
            "{error}"
        );
    }
    // A page holds 512 descriptors of 8 bytes, its own among them, and no other frame.
    let platform = Box::leak(Box::new(Dimm(std::cell::Cell::new(None))));
    let page = extent(4096, 4097);
    // SAFETY: the platform has memory of its own.
    let added = unsafe { small::<Eight>(8).add(page, storage(512), platform) };
    let error = added.unwrap_err();
    assert!(matches!(error, MemmapError::TooSmall { .. }), "{error}");
}
