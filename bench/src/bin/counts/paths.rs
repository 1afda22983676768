//! The paths that are counted: each prepares, then does its work in
//! [`measured`].

use std::error::Error;
use std::hint::black_box;
use std::mem::MaybeUninit;
use std::sync::atomic::AtomicU64;

use firstlight::addr::{Frame, FrameRange, Order, PhysRange};
use firstlight::blocks::{Block, BlockId, BlockSize, Blocks};
use firstlight::firmware::acpi::{Madt, Srat};
use firstlight::firmware::e820;
use firstlight::firmware::fdt::{Fdt, FdtSlot};
use firstlight::frames::{Cpu, Frames, Request};
use firstlight::map::{MemoryMap, Region, ScratchEntry};
use firstlight::memmap::{Descriptor, Memmap, MemmapPolicy, PageDescriptor, SectionPlace};
use firstlight::node::NodeId;
use firstlight::start::{Boot, BootStorage, TreeNodes, start};
use firstlight::topology::{NodeInfo, TopologyBuilder, TopologyRange, TopologyStorage, add_srat};
use firstlight_bench::machine::{GIB, Machine, cpu_caches};
use firstlight_bench::tables;
use firstlight_host::metadata::MetadataSpace;

use crate::expected::Doubled;
use crate::measured;

/// The order of a huge frame.
const HUGE: u8 = Order::HUGE.get();

type Outcome = Result<(), Box<dyn Error>>;

/// A path to count.
pub(crate) struct Path {
    pub(crate) name: &'static str,
    pub(crate) run: fn() -> Outcome,
}

const fn path(name: &'static str, run: fn() -> Outcome) -> Path {
    Path { name, run }
}

/// The file of the committed counts.
pub(crate) const FILE: &str = if cfg!(feature = "page-16k") {
    "counts-16k.txt"
} else {
    "counts.txt"
};

/// Those that are counted with pages of 16 KiB, too: others' names or machines are of 4 KiB.
const WITH_16K: [&str; 6] = [
    "frames_64g_1_node",
    "first_page",
    "page_pairs_1000",
    "huge_pairs_1000",
    "cpu_page_pairs_1000",
    "cpu_huge_pairs_1000",
];

/// The paths that are counted with this size of pages.
pub(crate) fn all() -> impl Iterator<Item = &'static Path> {
    let is_counted = |path: &&Path| !cfg!(feature = "page-16k") || WITH_16K.contains(&path.name);
    ALL.iter().filter(is_counted)
}

/// All of them. Names are those of `counts.txt`.
const ALL: &[Path] = &[
    path("memory_map_20_entries", memory_map),
    path("layout_64g_1_node", || layout(64, 1)),
    path("layout_512g_4_nodes", || layout(512, 4)),
    path("layout_4t_8_nodes", || layout(4096, 8)),
    path("layout_1t_1024_ranges", || scattered(1, 1024)),
    path("layout_32t_1024_ranges", || scattered(32, 1024)),
    path("layout_32t_2048_ranges", || scattered(32, 2048)),
    path("frames_64g_1_node", || frames(64, 1)),
    path("frames_512g_4_nodes", || frames(512, 4)),
    path("frames_4t_8_nodes", || frames(4096, 8)),
    path("first_page", || {
        with_frames(|frames| take(frames, Order::PAGE))
    }),
    path("first_huge", || {
        with_frames(|frames| take(frames, Order::HUGE))
    }),
    path("first_giant", || {
        with_frames(|frames| take(frames, Order::GIANT))
    }),
    path("page_pairs_1000", || {
        with_frames(|frames| pairs(frames, Order::PAGE))
    }),
    path("pages_held_4096", || {
        with_frames(|frames| held(frames, Order::PAGE))
    }),
    path("huge_pairs_1000", || {
        with_frames(|frames| pairs(frames, Order::HUGE))
    }),
    path("huge_held_4096", || {
        with_frames(|frames| held(frames, Order::HUGE))
    }),
    path("1_frame_1000", || with_frames(|frames| rows(frames, 1))),
    path("3_frames_1000", || with_frames(|frames| rows(frames, 3))),
    path("21_frames_1000", || with_frames(|frames| rows(frames, 21))),
    path("100_frames_1000", || {
        with_frames(|frames| rows(frames, 100))
    }),
    path("512_frames_1000", || {
        with_frames(|frames| rows(frames, 512))
    }),
    path("1_frame_beside_holes_1000", || {
        with_holes(64, |frames| rows(frames, 1))
    }),
    path("3_frames_beside_holes_1000", || {
        with_holes(64, |frames| rows(frames, 3))
    }),
    path("21_frames_beside_holes_1000", || {
        with_holes(64, |frames| rows(frames, 21))
    }),
    path("100_frames_beside_holes_1000", || {
        with_holes(64, |frames| rows(frames, 100))
    }),
    path("512_frames_beside_holes_1000", || {
        with_holes(64, |frames| rows(frames, 512))
    }),
    path("3_frames_1g_1000", || {
        with_frames_of(1, |frames| rows(frames, 3))
    }),
    path("21_frames_1g_1000", || {
        with_frames_of(1, |frames| rows(frames, 21))
    }),
    path("100_frames_1g_1000", || {
        with_frames_of(1, |frames| rows(frames, 100))
    }),
    path("512_frames_1g_1000", || {
        with_frames_of(1, |frames| rows(frames, 512))
    }),
    path("3_frames_beside_holes_1g_1000", || {
        with_holes(1, |frames| rows(frames, 3))
    }),
    path("21_frames_beside_holes_1g_1000", || {
        with_holes(1, |frames| rows(frames, 21))
    }),
    path("100_frames_beside_holes_1g_1000", || {
        with_holes(1, |frames| rows(frames, 100))
    }),
    path("512_frames_beside_holes_1g_1000", || {
        with_holes(1, |frames| rows(frames, 512))
    }),
    path("all_512_frames_64g", || with_free(64, all_huge)),
    path("3_frames_of_free_64g_1000", || {
        with_free(64, |frames| rows(frames, 3))
    }),
    path("100_frames_of_free_64g_1000", || {
        with_free(64, |frames| rows(frames, 100))
    }),
    path("3_frames_of_free_1g_1000", || {
        with_free(1, |frames| rows(frames, 3))
    }),
    path("100_frames_of_free_1g_1000", || {
        with_free(1, |frames| rows(frames, 100))
    }),
    path("cpu_page_pairs_1000", || with_cpu(cached_pairs::<0>)),
    path("cpu_huge_pairs_1000", || with_cpu(cached_pairs::<HUGE>)),
    path("cpu_order_2_bursts_1000", || with_cpu(bursts)),
    path("cpu_pages_held_65536", || {
        with_cpu(cached_held::<0, 65_536>)
    }),
    path("cpu_huge_held_4096", || with_cpu(cached_held::<HUGE, 4096>)),
    path("cpu_random_free_65536", || with_cpu(random_free)),
    path("cpu_random_free_huge_4096", || with_cpu(random_free_huge)),
    path("cpu_near_full_20000", near_full),
    path("cpu_3_frames_1000", || with_cpu(|cpu| pieces(cpu, 3, 1))),
    path("cpu_16_frames_1000", || with_cpu(|cpu| pieces(cpu, 16, 1))),
    path("cpu_10_frames_1000", || with_cpu(|cpu| pieces(cpu, 10, 1))),
    path("cpu_1_frame_aligned_512_1000", || {
        with_cpu(|cpu| pieces(cpu, 1, 512))
    }),
    path("cpu_512_frames_1000", || {
        with_cpu(|cpu| pieces(cpu, 512, 1))
    }),
    path("cpu_512_frames_1g_16_cpus_1000", || {
        with_cpus_of(1, 16, |cpu| pieces(cpu, 512, 1))
    }),
    path("cpu_huge_pairs_1g_16_cpus_1000", || {
        with_cpus_of(1, 16, cached_pairs::<HUGE>)
    }),
    path("take_page_at", || with_frames(claim)),
    path("offline_1g_of_64g", || offline(64)),
    path("offline_1g_of_4t", || offline(4096)),
    path("blocks_list_2t", || with_blocks(list_blocks)),
    path("blocks_lookup_2t", || with_blocks(look_up_block)),
    path("read_4096_cpus", read_cpus),
    path("read_tree_virt", read_tree),
    path("start_tree_virt", || start_tree(VIRT)),
    path("start_tree_virt_4_nodes", || start_tree(VIRT_4_NODES)),
    path("memmap_4t_8_nodes", || memmap(4096, 8)),
    path("first_touch_64_bytes", || {
        with_memmap::<PageDescriptor>(first_touch)
    }),
    path("first_touch_8_bytes", || with_memmap::<Eight>(first_touch)),
    path("descriptors_1000", || {
        with_memmap::<PageDescriptor>(ready_descriptors)
    }),
    path("is_ready_1000", is_ready),
    path("prepare_32_pages_1000", prepare),
];

/// Paths that do twice the work of others, and may cost so many percent of them: a step that is
/// quadratic would cost 400.
pub(crate) const DOUBLED: &[Doubled] = &[Doubled {
    name: "layout_32t_2048_ranges",
    half: "layout_32t_1024_ranges",
    most_percent: 230,
}];

/// A descriptor of 8 bytes, zero at first.
struct Eight(#[expect(dead_code, reason = "only written")] AtomicU64);
// SAFETY: an atomic integer.
unsafe impl Descriptor for Eight {
    fn template(_: SectionPlace) -> Self {
        Self(AtomicU64::new(0))
    }
}

/// Written also where it is zero already.
const WRITTEN: fn() -> MemmapPolicy = || MemmapPolicy {
    always_write: true,
    ..MemmapPolicy::default()
};

/// Runs `work` once, counted, and returns its value.
fn counted<T>(work: impl FnOnce() -> T) -> Result<T, Box<dyn Error>> {
    let mut work = Some(work);
    let mut made = None;
    measured(&mut || made = work.take().map(|work| work()));
    black_box(made).ok_or_else(|| "nothing was run".into())
}

fn memory_map() -> Outcome {
    let table = tables::e820();
    let mut scratch = [ScratchEntry::default(); 20];
    let mut regions = [Region::default(); 100];
    let map = counted(|| -> Result<_, Box<dyn Error>> {
        let entries = e820::entries(black_box(&table))?;
        let mut corrections = 0;
        let map = MemoryMap::build(entries, &mut scratch, &mut regions, &mut |_| {
            corrections += 1
        })?;
        Ok((map, corrections))
    })??;
    assert!(map.1 > 0 && map.0.regions().len() > 10);
    Ok(())
}

fn layout(gib: u64, nodes: u16) -> Outcome {
    let machine = Machine::pc(gib * GIB, nodes);
    let mut storage = machine.storage();
    let parts = machine.parts(&mut storage)?;
    counted(|| parts.build())??;
    Ok(())
}

/// From rows of memory and of nodes to a layout: ranges on 64 nodes, which take turns, and a hole
/// after each.
fn scattered(tib: u64, ranges: u64) -> Outcome {
    let each = tib * 1024 * GIB / ranges;
    let range = |at: u64| {
        let range = PhysRange::new(at * each, (at + 1) * each - (128 << 20)).ok_or("a range")?;
        Ok((range, NodeId((at % 64) as u16)))
    };
    let machine = Machine {
        nodes: 64,
        memory: (0..ranges)
            .map(range)
            .collect::<Result<_, Box<dyn Error>>>()?,
        reserved: Vec::new(),
    };
    let mut storage = machine.storage();
    let layout = counted(|| machine.layout(&mut storage))??;
    assert_eq!(layout.ranges().len() as u64, ranges);
    assert_eq!(layout.nodes().len(), 64);
    Ok(())
}

fn frames(gib: u64, nodes: u16) -> Outcome {
    let machine = Machine::pc(gib * GIB, nodes);
    let space = MetadataSpace::new(machine.metadata_bytes())?;
    let mut storage = machine.storage();
    let layout = machine.layout(&mut storage)?;
    counted(|| Frames::build(layout, &space))??;
    Ok(())
}

/// Runs `path` on a machine of 64 GiB that is up.
fn with_frames(path: impl FnOnce(&Frames<'_>) -> Outcome) -> Outcome {
    with_frames_of(64, path)
}

/// Runs `path` on a machine with so much memory that is up.
fn with_frames_of(gib: u64, path: impl FnOnce(&Frames<'_>) -> Outcome) -> Outcome {
    let machine = Machine::pc(gib * GIB, 1);
    let space = MetadataSpace::new(machine.metadata_bytes())?;
    let mut storage = machine.storage();
    let frames = Frames::build(machine.layout(&mut storage)?, &space)?;
    path(&frames)
}

/// On so much memory without a machine, all of it free.
fn with_free(gib: u64, path: impl FnOnce(&Frames<'_>) -> Outcome) -> Outcome {
    let span = FrameRange::new(0, gib << 18).ok_or("a span")?;
    let mut tables = vec![MaybeUninit::uninit(); 8 << 20];
    let frames = Frames::over(span, &mut tables)?;
    frames.add(PhysRange::with_size(0, gib * GIB).ok_or("a range")?)?;
    path(&frames)
}

/// Goes on with a CPU of a machine of 64 GiB.
fn with_cpu(path: impl FnOnce(&mut Cpu<'_, '_>) -> Outcome) -> Outcome {
    with_cpu_of(64, path)
}

/// Goes on with the CPU of a machine of so much memory.
fn with_cpu_of(gib: u64, path: impl FnOnce(&mut Cpu<'_, '_>) -> Outcome) -> Outcome {
    with_cpus_of(gib, 1, path)
}

/// Goes on with one of so many CPUs of a machine of so much memory.
fn with_cpus_of(gib: u64, cpus: usize, path: impl FnOnce(&mut Cpu<'_, '_>) -> Outcome) -> Outcome {
    let machine = Machine::pc(gib * GIB, 1);
    let space = MetadataSpace::new(machine.metadata_bytes())?;
    let mut storage = machine.storage();
    let frames = Frames::build(machine.layout(&mut storage)?, &space)?;
    frames.provide_cpus(cpu_caches(cpus))?;
    let mut cpu = frames.cpu(0, NodeId(0))?;
    path(&mut cpu)
}

/// Pairs through a CPU's cache, after the first one filled it.
fn cached_pairs<const ORDER: u8>(cpu: &mut Cpu<'_, '_>) -> Outcome {
    // A constant, as in a kernel.
    const { assert!(Order::new(ORDER).is_some()) };
    let order = Order::new(ORDER).unwrap_or_default();
    let first = cpu.allocate(Request::new(order))?;
    cpu.free(first, order)?;
    counted(|| -> Outcome {
        let order = Order::new(ORDER).unwrap_or_default();
        for _ in 0..1000 {
            let frame = cpu.allocate(Request::new(order))?;
            cpu.free(black_box(frame), order)?;
        }
        Ok(())
    })?
}

/// 1000 blocks of order 2, 50 at a time.
fn bursts(cpu: &mut Cpu<'_, '_>) -> Outcome {
    let order = Order::new(2).ok_or("an order")?;
    let mut blocks = [Frame::new(0); 50];
    counted(|| -> Outcome {
        for _ in 0..20 {
            for block in &mut blocks {
                *block = cpu.allocate(Request::new(order))?;
            }
            for &block in &blocks {
                cpu.free(black_box(block), order)?;
            }
        }
        Ok(())
    })?
}

/// So many blocks are allocated, then freed.
fn cached_held<const ORDER: u8, const COUNT: usize>(cpu: &mut Cpu<'_, '_>) -> Outcome {
    // A constant, as in a kernel.
    const { assert!(Order::new(ORDER).is_some()) };
    let mut blocks = vec![Frame::new(0); COUNT];
    counted(|| -> Outcome {
        let order = Order::new(ORDER).unwrap_or_default();
        for block in &mut blocks {
            *block = cpu.allocate(Request::new(order))?;
        }
        for &block in &blocks {
            cpu.free(black_box(block), order)?;
        }
        Ok(())
    })?
}

/// 65,536 pages are freed, in an order that jumps from huge frame to huge frame.
fn random_free(cpu: &mut Cpu<'_, '_>) -> Outcome {
    let mut pages = Vec::new();
    for _ in 0..65_536 {
        pages.push(cpu.allocate(Request::new(Order::PAGE))?);
    }
    counted(|| -> Outcome {
        // An odd step visits each once.
        for at in 0..pages.len() {
            let page = pages[at * 25_717 % pages.len()];
            cpu.free(page, Order::PAGE)?;
        }
        Ok(())
    })?
}

/// 4096 huge frames are freed, in an order that jumps from giant frame to giant frame.
fn random_free_huge(cpu: &mut Cpu<'_, '_>) -> Outcome {
    let mut huges = Vec::new();
    for _ in 0..4096 {
        huges.push(cpu.allocate(Request::new(Order::HUGE))?);
    }
    counted(|| -> Outcome {
        for at in 0..huges.len() {
            let huge = huges[at * 1_301 % huges.len()];
            cpu.free(huge, Order::HUGE)?;
        }
        Ok(())
    })?
}

/// 20,000 pages are freed and allocated in bursts of up to 256, of 16 GiB that are held but for
/// one page in a thousand.
fn near_full() -> Outcome {
    with_cpu_of(16, |cpu| {
        let mut held = Vec::new();
        while let Ok(page) = cpu.allocate(Request::new(Order::PAGE)) {
            held.push(page);
        }
        let mut random = 7u64;
        let mut below = move |most: usize| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            usize::try_from(random % most as u64).unwrap_or(0)
        };
        for at in (1..held.len()).rev() {
            held.swap(at, below(at + 1));
        }
        for page in held.drain(..held.len() / 1000) {
            cpu.free(page, Order::PAGE)?;
        }
        counted(|| -> Outcome {
            let mut at = 0;
            while at < 20_000 {
                let burst = &mut held[at..][..below(256) + 1];
                for page in &*burst {
                    cpu.free(*page, Order::PAGE)?;
                }
                for page in &mut *burst {
                    *page = cpu.allocate(Request::new(Order::PAGE))?;
                }
                at += burst.len();
            }
            Ok(())
        })?
    })
}

/// 1000 pairs of so many frames in a row, past the caches, after the first one.
fn rows(frames: &Frames<'_>, count: u64) -> Outcome {
    let request = Request::new(Order::PAGE);
    let pair = || -> Outcome {
        let range = frames.allocate_frames(count, 1, request)?;
        Ok(frames.free_frames(black_box(range))?)
    };
    pair()?;
    counted(|| (0..1000).try_for_each(|_| pair()))?
}

/// All of 64 GiB, 2 MiB at a time, as a kernel takes it that maps what it has: none is freed.
fn all_huge(frames: &Frames<'_>) -> Outcome {
    let (huge, request) = (Order::HUGE.frames(), Request::new(Order::PAGE));
    let all = frames.statistics().free_frames / huge;
    counted(|| (0..all).try_for_each(|_| frames.allocate_frames(huge, huge, request).map(drop)))??;
    match frames.allocate_frames(huge, huge, request) {
        Ok(_) => Err("more than all".into()),
        Err(_) => Ok(()),
    }
}

/// On a machine of so much memory where 2,048 single pages are free among 4,096.
fn with_holes(gib: u64, path: impl FnOnce(&Frames<'_>) -> Outcome) -> Outcome {
    with_frames_of(gib, |frames| {
        let request = Request::new(Order::PAGE);
        let pages: Result<Vec<_>, _> = (0..4096).map(|_| frames.allocate(request)).collect();
        for &page in pages?.iter().step_by(2) {
            frames.free(page, Order::PAGE)?;
        }
        path(frames)
    })
}

/// 1000 pairs of so many frames, so aligned.
fn pieces(cpu: &mut Cpu<'_, '_>, frames: u64, align_frames: u64) -> Outcome {
    counted(|| -> Outcome {
        for _ in 0..1000 {
            let request = Request::new(Order::PAGE);
            let range = cpu.allocate_frames(frames, align_frames, request)?;
            cpu.free_frames(black_box(range))?;
        }
        Ok(())
    })?
}

/// Space for descriptors of 8 bytes is reserved, nothing written.
fn memmap(gib: u64, nodes: u16) -> Outcome {
    let machine = Machine::pc(gib * GIB, nodes);
    let space = MetadataSpace::new(machine.descriptor_bytes(8))?;
    let mut storage = machine.storage();
    let mut layout = machine.layout(&mut storage)?;
    counted(|| Memmap::<Eight>::reserve(&mut layout, &space, WRITTEN()))??;
    Ok(())
}

/// Runs `path` on a machine of 64 GiB with space for descriptors.
fn with_memmap<T: Descriptor>(path: impl FnOnce(&Memmap<'_, T>) -> Outcome) -> Outcome {
    let machine = Machine::pc(64 * GIB, 1);
    let space = MetadataSpace::new(machine.descriptor_bytes(size_of::<T>()))?;
    let mut storage = machine.storage();
    let mut layout = machine.layout(&mut storage)?;
    path(&Memmap::reserve(&mut layout, &space, WRITTEN())?)
}

/// The first touch of a section of 32,768 frames writes it.
fn first_touch<T: Descriptor>(memmap: &Memmap<'_, T>) -> Outcome {
    let frame = Frame::new((32 << 18) + 12_345);
    let found = counted(|| memmap.of(black_box(frame)).is_some())?;
    assert!(found && memmap.progress().touched_sections == 1);
    Ok(())
}

/// Descriptors that are ready.
fn ready_descriptors<T: Descriptor>(memmap: &Memmap<'_, T>) -> Outcome {
    let first = 32 << 18;
    memmap.of(Frame::new(first));
    let found = counted(|| {
        let frames = first..first + 1000;
        let found = frames.filter(|number| memmap.of(Frame::new(black_box(*number))).is_some());
        found.count()
    })?;
    assert_eq!(found, 1000);
    Ok(())
}

/// Goes on with descriptors of 64 GiB in an array, those of the first section ready.
fn with_linear(path: impl FnOnce(&Memmap<'_, Eight>) -> Outcome) -> Outcome {
    let frames = FrameRange::new(0, 64 << 18).ok_or("a range")?;
    let mut array = Vec::<Eight>::with_capacity(64 << 18);
    let mut directory = vec![MaybeUninit::uninit(); Memmap::<Eight>::directory_bytes(frames)];
    let base = array.as_mut_ptr();
    // SAFETY: the vector has space for them, and nothing else uses it.
    let memmap = unsafe { Memmap::linear(base, frames, &mut directory, WRITTEN()) }?;
    memmap.of(Frame::new(0));
    path(&memmap)
}

/// Whether descriptors in an array are ready: they are.
fn is_ready() -> Outcome {
    with_linear(|memmap| {
        let ready = counted(|| {
            let frames = (0..1000).map(|number| Frame::new(black_box(number)));
            frames.filter(|frame| memmap.is_ready(*frame)).count()
        })?;
        assert_eq!(ready, 1000);
        Ok(())
    })
}

/// The hook for a refill of 32 pages whose descriptors are ready.
fn prepare() -> Outcome {
    with_linear(|memmap| {
        let blocks: Vec<_> = (64..96).map(Frame::new).collect();
        counted(|| {
            for _ in 0..1000 {
                memmap.prepare(black_box(&blocks), Order::PAGE);
            }
        })?;
        assert_eq!(memmap.progress().touched_sections, 1);
        Ok(())
    })
}

fn take(frames: &Frames<'_>, order: Order) -> Outcome {
    counted(|| frames.allocate(Request::new(order)))??;
    Ok(())
}

fn pairs(frames: &Frames<'_>, order: Order) -> Outcome {
    counted(|| -> Outcome {
        for _ in 0..1000 {
            let frame = frames.allocate(Request::new(order))?;
            frames.free(black_box(frame), order)?;
        }
        Ok(())
    })?
}

/// 4,096 pages allocated, then freed.
fn held(frames: &Frames<'_>, order: Order) -> Outcome {
    let mut blocks = vec![None; 4096];
    counted(|| -> Outcome {
        for block in &mut blocks {
            *block = Some(frames.allocate(Request::new(order))?);
        }
        for &block in blocks.iter().flatten() {
            frames.free(block, order)?;
        }
        Ok(())
    })?
}

fn claim(frames: &Frames<'_>) -> Outcome {
    let frame = Frame::new((32 << 18) + 12_345);
    let page = FrameRange::block(frame, Order::PAGE).ok_or("a page")?;
    counted(|| frames.allocate_range(black_box(page)))??;
    Ok(())
}

/// 1 GiB goes offline, of which 4,096 pages are in use, with content that is moved away.
fn offline(gib: u64) -> Outcome {
    with_frames_of(gib, |frames| {
        let movable = Request::new(Order::PAGE).movable();
        let giant = frames.allocate(Request::new(Order::GIANT))?;
        frames.free(giant, Order::GIANT)?;
        let range = FrameRange::block(giant, Order::GIANT).ok_or("a range")?;
        // In every huge frame eight.
        let mut pages = Vec::new();
        for at in (0..1 << 18).step_by(64) {
            let page = Frame::new(giant.get() + at);
            frames.allocate_range(FrameRange::block(page, Order::PAGE).ok_or("a page")?)?;
            pages.push(page);
        }
        counted(|| -> Outcome {
            let isolation = frames.isolate(range)?;
            for &page in &pages {
                black_box(frames.allocate(movable)?);
                frames.free(page, Order::PAGE)?;
            }
            Ok(isolation.offline()?)
        })?
    })
}

/// 2 TiB, all of it online, in 16,384 blocks of 128 MiB.
fn with_blocks(path: impl FnOnce(&Blocks<&Frames<'_>>) -> Outcome) -> Outcome {
    let memory = PhysRange::new(0, 2048 * GIB).ok_or("a range")?;
    let machine = Machine {
        nodes: 1,
        memory: vec![(memory, NodeId(0))],
        reserved: Vec::new(),
    };
    let mut storage = machine.storage();
    let layout = machine.layout(&mut storage)?;
    let space = MetadataSpace::new(machine.metadata_bytes())?;
    let frames = Frames::build(layout, &space)?;
    path(&Blocks::new(&frames, BlockSize::SMALLEST))
}

/// All that Linux's directory of a block has, of all blocks.
fn list_blocks(blocks: &Blocks<&Frames<'_>>) -> Outcome {
    let seen = counted(|| {
        let facts = |block: &Block<'_, &Frames<'_>>| {
            let (state, nodes) = (block.state(), block.nodes().count());
            black_box((
                block.id(),
                state,
                block.zones(),
                nodes,
                block.is_removable(),
            ));
        };
        blocks.iter().inspect(facts).count()
    })?;
    assert_eq!(seen, 16_384);
    Ok(())
}

fn look_up_block(blocks: &Blocks<&Frames<'_>>) -> Outcome {
    let found = counted(|| blocks.get(black_box(BlockId(12_345))).is_some())?;
    assert!(found);
    Ok(())
}

fn read_cpus() -> Outcome {
    let (madt, srat) = tables::acpi(4096, 64);
    let (mut nodes, mut ranges) = ([NodeInfo::EMPTY; 64], [TopologyRange::EMPTY; 64]);
    let cpus = counted(|| -> Result<_, Box<dyn Error>> {
        let mut enabled = 0;
        for cpu in Madt::parse(black_box(&madt))?.cpus() {
            enabled += u32::from(cpu?.enabled);
        }
        let mut builder = TopologyBuilder::new(TopologyStorage {
            nodes: &mut nodes,
            ranges: &mut ranges,
        });
        add_srat(
            &mut builder,
            Srat::parse(black_box(&srat))?.entries(),
            &mut |_| {},
        )?;
        let topology = builder.finish(&mut |_| {});
        let sum: u32 = topology.nodes().iter().map(|node| node.cpus).sum();
        Ok((enabled, sum))
    })??;
    assert_eq!(cpus, (4096, 4096));
    Ok(())
}

/// QEMU's machine `virt` with a CPU and 2 GiB, 7 KB; with 8 CPUs and 8 GiB on 4 nodes, 9 KB.
const VIRT: &[u8] = include_bytes!("../../../trees/virt-aarch64-2g.dtb");
const VIRT_4_NODES: &[u8] = include_bytes!("../../../trees/virt-aarch64-4-nodes.dtb");

/// All that a bring-up reads of a device tree, once.
fn read_tree() -> Outcome {
    let mut slots = [FdtSlot::EMPTY; 16];
    let read = counted(|| -> Result<_, Box<dyn Error>> {
        let tree = Fdt::parse_in(black_box(VIRT), &mut slots, &["arm,pl011"])?;
        let memory = tree.map_entries()?.count() + tree.reserved().count();
        let cpus = tree.cpus().count() + tree.distances().count();
        let left = (tree.bootargs(), tree.initrd()?, tree.psci(), tree.stdout());
        Ok((memory, cpus, black_box(left).3.is_some()))
    })??;
    assert_eq!(read, (1, 1, true));
    Ok(())
}

/// From the bytes of a tree to the allocator of its machine.
fn start_tree(bytes: &[u8]) -> Outcome {
    let space = MetadataSpace::new(64 << 20)?;
    let mut slots = [FdtSlot::EMPTY; 32];
    let mut storage = BootStorage::<64, 4>::EMPTY;
    let frames = counted(|| -> Result<_, Box<dyn Error>> {
        let tree = Fdt::parse_in(black_box(bytes), &mut slots, &["arm,pl011"])?;
        let boot = Boot {
            command_line: tree.bootargs(),
            nodes: &TreeNodes(tree),
            ..Boot::new(tree.map_entries()?)
        };
        Ok(start(boot, &mut storage, &space, &mut |_| {})?)
    })??;
    frames.allocate(Request::new(Order::HUGE))?;
    Ok(())
}
