//! The page tables of the crate `x86_64` in frames of our allocator, in real memory: what is
//! mapped is found, every table is a frame of ours, and all frames come back.

use firstlight::addr::PhysRange;
use firstlight::early::{Direction, EarlyFlags, EarlyMemory, EarlyRegion};
use firstlight::frames::{Cpu, CpuCache, Frames};
use firstlight::map::{MapEntry, MemoryKind};
use firstlight::node::NodeId;
use firstlight::platform::DirectMap;
use firstlight::start::{Boot, BootStorage, start};
use firstlight::x86_64::PageTableFrames;
use firstlight_host::reserve::Reservation;
use std::collections::HashSet;
use std::fmt::Debug;
use x86_64::structures::paging::mapper::{CleanUp, MapToError, Mapper, Translate};
use x86_64::structures::paging::{
    FrameAllocator, FrameDeallocator, OffsetPageTable, Page, PageSize, PageTable, PageTableFlags,
    PhysFrame, Size1GiB, Size2MiB, Size4KiB,
};
use x86_64::{PhysAddr, VirtAddr};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// Three GiB of real memory that starts at physical address 0, and the allocator on it.
fn machine() -> (u64, Frames<'static>) {
    let memory: &Reservation = Box::leak(Box::new(Reservation::new(3 << 30).unwrap()));
    let offset = memory.base().as_ptr().expose_provenance();
    // SAFETY: three GiB are mapped at `offset` and never unmapped; nothing else uses them.
    let platform: &DirectMap = Box::leak(Box::new(unsafe { DirectMap::new(offset) }));
    let storage: &mut BootStorage<16, 1> = Box::leak(Box::new(BootStorage::EMPTY));
    let boot = Boot {
        reserved: &[(PhysRange::new(MIB, 2 * MIB).unwrap(), "kernel")],
        ..Boot::new([MapEntry::new(0, 3 * GIB, MemoryKind::Usable)])
    };
    let frames = start(boot, storage, platform, &mut |seen| panic!("{seen}")).unwrap();
    (offset as u64, frames)
}

/// An allocator of `x86_64`'s that remembers what it handed out.
struct Remembers<'a, A> {
    inner: &'a mut A,
    held: HashSet<u64>,
}

// SAFETY: the inner allocator's frames.
unsafe impl<S: PageSize, A: FrameAllocator<S>> FrameAllocator<S> for Remembers<'_, A> {
    fn allocate_frame(&mut self) -> Option<PhysFrame<S>> {
        let frame = self.inner.allocate_frame()?;
        let start = frame.start_address().as_u64();
        assert!(self.held.insert(start), "{start:#x} was handed out twice");
        assert_eq!(
            start % S::SIZE,
            0,
            "{start:#x} is not aligned to {:#x}",
            S::SIZE
        );
        Some(frame)
    }
}

impl<S: PageSize, A: FrameDeallocator<S>> FrameDeallocator<S> for Remembers<'_, A> {
    unsafe fn deallocate_frame(&mut self, frame: PhysFrame<S>) {
        let start = frame.start_address().as_u64();
        assert!(self.held.remove(&start), "{start:#x} was not handed out");
        // SAFETY: the caller's promise.
        unsafe { self.inner.deallocate_frame(frame) };
    }
}

/// Maps a new frame of size S at `at`.
fn map<S: PageSize + Debug, A>(
    table: &mut OffsetPageTable<'_>,
    at: u64,
    frames: &mut A,
) -> PhysFrame<S>
where
    A: FrameAllocator<S> + FrameAllocator<Size4KiB>,
    for<'t> OffsetPageTable<'t>: Mapper<S>,
{
    let page = Page::<S>::from_start_address(VirtAddr::new(at)).unwrap();
    let frame = FrameAllocator::<S>::allocate_frame(frames).unwrap();
    let flags = PageTableFlags::PRESENT | PageTableFlags::WRITABLE;
    // SAFETY: the table is loaded into no processor, and the frame was just allocated.
    unsafe { table.map_to(page, frame, flags, frames) }
        .unwrap()
        .ignore();
    frame
}

/// Unmaps what is at `at` and frees its frame.
fn unmap<S: PageSize + Debug, A>(table: &mut OffsetPageTable<'_>, at: u64, frames: &mut A)
where
    A: FrameDeallocator<S>,
    for<'t> OffsetPageTable<'t>: Mapper<S>,
{
    let page = Page::<S>::from_start_address(VirtAddr::new(at)).unwrap();
    let (frame, flush) = table.unmap(page).unwrap();
    flush.ignore();
    // SAFETY: it is not mapped any more.
    unsafe { frames.deallocate_frame(frame) };
}

/// Pages of all sizes at addresses far apart are mapped, read through the tables, unmapped.
fn map_all_sizes<A>(offset: u64, inner: &mut A)
where
    A: FrameAllocator<Size4KiB> + FrameAllocator<Size2MiB> + FrameAllocator<Size1GiB>,
    A: FrameDeallocator<Size4KiB> + FrameDeallocator<Size2MiB> + FrameDeallocator<Size1GiB>,
{
    let held = HashSet::new();
    let frames = &mut Remembers { inner, held };
    let root: PhysFrame<Size4KiB> = frames.allocate_frame().unwrap();
    let root_at = (offset + root.start_address().as_u64()) as *mut PageTable;
    // SAFETY: a frame of real memory that was just allocated, written before it is read; and
    // all frames are mapped at `offset`.
    let mut table = unsafe {
        root_at.write(PageTable::new());
        OffsetPageTable::new(&mut *root_at, VirtAddr::new(offset))
    };

    let pages: Vec<u64> = (0..600).map(|at| 0x4000_0000 + at * 4096).collect();
    for &at in &pages {
        let frame: PhysFrame<Size4KiB> = map(&mut table, at, frames);
        let first = (offset + frame.start_address().as_u64()) as *mut u64;
        // SAFETY: this frame's own memory.
        unsafe { first.write(at) };
    }
    let huge: PhysFrame<Size2MiB> = map(&mut table, 0x7f00_0020_0000, frames);
    let giant: PhysFrame<Size1GiB> = map(&mut table, 0xffff_8000_4000_0000, frames);
    // 602 blocks, and tables: the root, three for the first 512 pages and one for the rest,
    // two for the huge page, one for the giant one.
    assert_eq!(frames.held.len(), 602 + 1 + 4 + 2 + 1);

    for &at in &pages {
        let found = table.translate_addr(VirtAddr::new(at + 7)).unwrap();
        assert_eq!(found.as_u64() % 4096, 7);
        let first = (offset + (found.as_u64() & !4095)) as *const u64;
        // SAFETY: a page that was written above.
        assert_eq!(unsafe { first.read() }, at);
    }
    let found = |at| table.translate_addr(VirtAddr::new(at));
    let behind = |start: PhysAddr, bytes| Some(start + bytes);
    assert_eq!(
        found(0x7f00_0021_2345),
        behind(huge.start_address(), 0x1_2345)
    );
    assert_eq!(
        found(0xffff_8000_5234_5678),
        behind(giant.start_address(), 0x1234_5678)
    );
    assert_eq!(found(0x1000), None);

    for &at in &pages {
        unmap::<Size4KiB, _>(&mut table, at, frames);
    }
    unmap::<Size2MiB, _>(&mut table, 0x7f00_0020_0000, frames);
    unmap::<Size1GiB, _>(&mut table, 0xffff_8000_4000_0000, frames);
    // SAFETY: the tables below the root are of this allocator and empty.
    unsafe { table.clean_up(frames) };
    assert_eq!(frames.held.len(), 1, "only the root is left");
    // SAFETY: no table uses it any more.
    unsafe { FrameDeallocator::<Size4KiB>::deallocate_frame(frames, root) };
}

#[test]
fn page_tables_in_frames_of_the_shared_levels() {
    let (offset, frames) = machine();
    let before = frames.statistics();
    // SAFETY: only frames that were allocated are freed.
    map_all_sizes(offset, &mut unsafe { PageTableFrames::new(&frames) });
    assert_eq!(frames.statistics(), before);
    frames.validate().unwrap();
}

#[test]
fn page_tables_in_early_memory() {
    let memory: &Reservation = Box::leak(Box::new(Reservation::new(3 << 30).unwrap()));
    let offset = memory.base().as_ptr().expose_provenance() as u64;
    let mut ranges = [EarlyRegion::EMPTY; 4];
    // A page that is freed between others is a hole.
    let mut reserved = vec![EarlyRegion::EMPTY; 1024];
    let mut early = EarlyMemory::new(&mut ranges, &mut reserved, &mut []);
    let all = PhysRange::new(0, 3 * GIB).unwrap();
    early.add(all, EarlyFlags::NONE).unwrap();
    for direction in [Direction::TopDown, Direction::BottomUp] {
        early.set_direction(direction);
        // SAFETY: only frames that were allocated are freed.
        map_all_sizes(offset, &mut unsafe { PageTableFrames::new(&mut early) });
        assert_eq!(early.reserved_bytes(), 0);
    }
    early.set_limit(firstlight::addr::PhysAddr::new(GIB));
    // SAFETY: nothing is freed.
    let mut tables = unsafe { PageTableFrames::new(&mut early) };
    let table: PhysFrame<Size4KiB> = tables.allocate_frame().unwrap();
    assert_eq!(table.start_address().as_u64(), 4096, "the first that fits");
    // The first page is never allocated.
    assert!(FrameAllocator::<Size1GiB>::allocate_frame(&mut tables).is_none());
}

#[test]
fn page_tables_in_frames_of_a_cpus_cache() {
    let (offset, frames) = machine();
    static CPUS: [CpuCache; 1] = [CpuCache::new()];
    let before = frames.statistics();
    frames.provide_cpus(&CPUS).unwrap();
    let mut cpu: Cpu<'_, '_> = frames.cpu(0, NodeId(0)).unwrap();
    // SAFETY: likewise.
    map_all_sizes(offset, &mut unsafe { PageTableFrames::new(&mut cpu) });
    cpu.close().unwrap();
    assert_eq!(frames.statistics(), before);
    frames.validate().unwrap();
}

#[test]
fn no_memory_is_no_frame() {
    let (offset, frames) = machine();
    // SAFETY: nothing is freed.
    let mut frames = unsafe { PageTableFrames::new(&frames) };
    let giants = core::iter::from_fn(|| FrameAllocator::<Size1GiB>::allocate_frame(&mut frames));
    // The kernel is in the first GiB, the allocator's tables are in the last.
    assert_eq!(giants.count(), 1);
    while FrameAllocator::<Size2MiB>::allocate_frame(&mut frames).is_some() {}
    let mut pages = Vec::new();
    while let Some(page) = FrameAllocator::<Size4KiB>::allocate_frame(&mut frames) {
        pages.push(page);
    }
    let root = pages.pop().unwrap();
    let root_at = (offset + root.start_address().as_u64()) as *mut PageTable;
    // SAFETY: as above.
    let mut table = unsafe {
        root_at.write(PageTable::new());
        OffsetPageTable::new(&mut *root_at, VirtAddr::new(offset))
    };
    let page = Page::<Size4KiB>::containing_address(VirtAddr::new(0x5000));
    // SAFETY: the table is loaded into no processor.
    let refused = unsafe { table.map_to(page, pages[0], PageTableFlags::PRESENT, &mut frames) };
    assert!(matches!(refused, Err(MapToError::FrameAllocationFailed)));
}
