//! The code of `docs/kernel.md` and `docs/kernel-memory.md`, run as it stands there: a synthetic machine of two
//! nodes whose direct map is reserved address space.
//!
//! The oracle is one plain rule a frame: usable in the table, below the command
//! line's limit, and not in use.

/// The kernel's log, of all tests.
static LOG: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Lines go to the kernel's log.
macro_rules! println {
    ($($line:tt)*) => {
        crate::kernel_guide::LOG.lock().unwrap().push(format!($($line)*))
    };
}

/// The code of the page on memory, extracted by `build.rs`.
#[expect(unreachable_pub, reason = "in a kernel it is a module that others use")]
mod kernel {
    include!(concat!(env!("OUT_DIR"), "/kernel_guide.rs"));
}

/// The ten lines of the first page.
#[expect(unreachable_pub, reason = "in a kernel it is a module that others use")]
mod ten_lines {
    include!(concat!(env!("OUT_DIR"), "/kernel_ten_lines.rs"));
}

use crate::acpi_tables;

use acpi_tables::{memory, x2apic};
use firstlight::addr::{Frame, Order, PhysRange};
use firstlight::frames::{AllocError, Frames, Request};
use firstlight::node::{NodeId, ZoneKind};
use firstlight::platform::DirectMap;
use firstlight::start::{BootStorage, StartError};
use firstlight_host::reserve::Reservation;
use kernel::bring_up;
use std::collections::HashSet;
use std::sync::{Mutex, OnceLock};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// Where the command line ends memory.
const LIMIT: u64 = 5 * GIB;
/// Start, bytes, type: 1 is usable.
const E820: [(u64, u64, u32); 6] = [
    (0, 0x9_fc00, 1),
    (0x9_fc00, 0x400, 2),
    (0xf_0000, 0x1_0000, 2),
    (MIB, 2 * GIB - 2 * MIB, 1),
    (2 * GIB - MIB, MIB, 3),
    (4 * GIB, 2 * GIB, 1),
];
const KERNEL: PhysRange = range(16 * MIB, 40 * MIB);
const LOADER_TABLES: PhysRange = range(48 * MIB, 49 * MIB);
const INITRD: PhysRange = range(64 * MIB, 72 * MIB);
/// Removed by the command line, besides everything from [`LIMIT`] on.
const TAKEN_AWAY: PhysRange = range(4 * GIB + 256 * MIB, 4 * GIB + 257 * MIB);

const fn range(start: u64, end: u64) -> PhysRange {
    PhysRange::new(start, end).unwrap()
}

fn e820() -> Vec<u8> {
    let row = |(start, bytes, kind): (u64, u64, u32)| {
        [
            &start.to_le_bytes()[..],
            &bytes.to_le_bytes(),
            &kind.to_le_bytes(),
        ]
        .concat()
    };
    E820.into_iter().flat_map(row).collect()
}

/// Two domains, 1 below 2 GiB and 2 above 4 GiB, with a CPU each.
fn srat() -> Vec<u8> {
    let cpus = [x2apic(1, 0, 1), x2apic(2, 1, 1)];
    let ranges = [memory(1, 0, 2 * GIB, 1), memory(2, 4 * GIB, 2 * GIB, 1)];
    acpi_tables::srat(3, &[cpus, ranges].concat())
}

/// Whether the kernel may have the frame, by the plain rule.
fn is_free_at_start(frame: Frame) -> bool {
    let (start, end) = (frame.addr().get(), frame.addr().get() + 4096);
    let usable = E820
        .iter()
        .any(|&(from, bytes, kind)| kind == 1 && from <= start && end <= from + bytes);
    let taken = [range(0, 4096), KERNEL, LOADER_TABLES, INITRD, TAKEN_AWAY];
    usable && end <= LIMIT && !taken.iter().any(|taken| taken.contains(frame.addr()))
}

/// The storage's type in the page.
type Storage = BootStorage<128, 16>;

fn storage() -> &'static mut Storage {
    Box::leak(Box::new(Storage::EMPTY))
}

/// Six GiB of address space, never unmapped.
fn direct_map() -> (&'static Reservation, &'static DirectMap) {
    let memory: &Reservation = Box::leak(Box::new(Reservation::new(6 << 30).unwrap()));
    let offset = memory.base().as_ptr().expose_provenance();
    // SAFETY: six GiB are mapped at `offset` and never unmapped, more than the table
    // shows below its last row's end; nothing else uses them; there is one `Layout`.
    let platform: &DirectMap = Box::leak(Box::new(unsafe { DirectMap::new(offset) }));
    (memory, platform)
}

/// Physical memory and the allocator on it.
fn machine(srat: Option<&[u8]>) -> (&'static Reservation, Frames<'static>) {
    let (memory, platform) = direct_map();
    let line = b"quiet mem=5G memmap=1M$0x110000000 kernelcore=2560M kernelcore=lots";
    let tables = (&e820()[..], srat, &line[..]);
    let frames = bring_up(tables, (KERNEL, LOADER_TABLES, INITRD), storage(), platform);
    (memory, frames.unwrap())
}

/// A page of the nearest node that has one.
fn page(frames: &Frames<'_>, node: NodeId) -> Result<Frame, AllocError> {
    frames.allocate(Request::new(Order::PAGE).on(node))
}

/// Lines of code, which are not too wide for a page.
fn code_lines(code: &str) -> usize {
    let widest = code.lines().map(str::len).max();
    assert!(widest <= Some(100), "{widest:?}");
    let is_code = |line: &&str| !line.trim().is_empty() && !line.trim().starts_with("//");
    code.lines().filter(is_code).count()
}

#[test]
fn the_pages_show_as_many_lines_of_code_as_they_say() {
    let ten = include_str!(concat!(env!("OUT_DIR"), "/kernel_ten_lines.rs"));
    assert_eq!(code_lines(ten), 10);
    let code = include_str!(concat!(env!("OUT_DIR"), "/kernel_guide.rs"));
    assert!((10..25).contains(&code_lines(code)));
    // What the page says of the storage.
    assert_eq!(size_of::<Storage>().div_ceil(1024), 28);
    assert_eq!(size_of::<BootStorage<1, 0>>(), 192);
}

#[test]
fn ten_lines_hand_out_all_that_is_not_in_use() {
    let (_, direct) = direct_map();
    let table = e820();
    let map = || firstlight::firmware::e820::entries(&table).unwrap();
    let in_use = [
        (KERNEL, "kernel"),
        (LOADER_TABLES, "the loader's page tables"),
    ];
    let frames = ten_lines::memory(map(), &in_use, direct).unwrap();
    let all = take_all(&frames);
    let is_taken = |frame: &Frame| in_use.iter().any(|(range, _)| range.contains(frame.addr()));
    assert!(!all.iter().any(is_taken));
    let tables: u64 = tables(&frames).iter().map(|range| range.bytes()).sum();
    let usable = E820.iter().filter(|&&(_, _, kind)| kind == 1);
    let usable: u64 = usable.map(|&(_, bytes, _)| bytes / 4096 * 4096).sum();
    let in_use = KERNEL.bytes() + LOADER_TABLES.bytes() + tables + 4096;
    assert_eq!(all.len() as u64, (usable - in_use) / 4096);
    // Once: the storage is taken.
    let again = ten_lines::memory(map(), &[], direct);
    assert_eq!(again.map(drop).unwrap_err(), StartError::StorageTaken);
}

/// All frames that are free, one page each.
fn take_all(frames: &Frames<'_>) -> Vec<Frame> {
    let any = Request::new(Order::PAGE).zone(ZoneKind::Movable);
    core::iter::from_fn(|| frames.allocate(any).ok()).collect()
}

/// The range of the allocator's own tables.
fn tables(frames: &Frames<'_>) -> Vec<PhysRange> {
    let early = frames.layout().early();
    assert_eq!(early.untracked(), 0);
    let tables = early.owners().iter();
    let tables = tables.filter(|taken| taken.owner() == "frame allocator tables");
    tables.map(|taken| taken.range).collect()
}

#[test]
fn every_frame_of_the_machine_once_and_no_other() {
    let (memory, frames) = machine(Some(&srat()));
    let tables = tables(&frames);
    assert_eq!(tables.len(), 3, "the lists, and one for each node");
    let mut expected: HashSet<Frame> = (0..LIMIT / 4096)
        .map(Frame::new)
        .filter(|&frame| is_free_at_start(frame))
        .filter(|frame| !tables.iter().any(|taken| taken.contains(frame.addr())))
        .collect();
    let at_start = frames.statistics();
    assert_eq!(at_start.free_frames, expected.len() as u64);
    // The initial RAM disk may be freed.
    let freeable = INITRD.bytes() / 4096;
    assert_eq!(at_start.managed_frames, at_start.free_frames + freeable);

    let all = take_all(&frames);
    for frame in &all {
        assert!(expected.remove(frame), "{frame:?} twice, or not to be had");
        if frame.get() % 251 == 0 {
            let address = usize::try_from(frame.addr().get()).unwrap();
            // SAFETY: the frame lies in the six GiB, is this thread's, and no
            // reference to it exists.
            unsafe { memory.base().add(address).write_bytes(0xa5, 4096) };
        }
    }
    assert!(
        expected.is_empty(),
        "{} were not handed out",
        expected.len()
    );
    frames.validate().unwrap();

    for frame in all {
        frames.free(frame, Order::PAGE).unwrap();
    }
    assert_eq!(frames.statistics(), at_start);
    frames.validate().unwrap();
}

#[test]
fn every_cpu_gets_memory_of_its_node() {
    static FRAMES: OnceLock<Frames<'static>> = OnceLock::new();
    let frames = FRAMES.get_or_init(|| machine(Some(&srat())).1);
    let at_start = frames.statistics();
    let cpu = |node: NodeId| {
        let mine: Vec<_> = (0..2000).map(|_| page(frames, node).unwrap()).collect();
        let huge = Request::new(Order::HUGE).only_on(node);
        let huge = frames.allocate(huge).unwrap();
        for frame in mine.iter().chain([&huge]) {
            assert_eq!(
                frame.addr().get() >= 4 * GIB,
                node == NodeId(1),
                "{frame:?}"
            );
            assert_eq!(frames.is_allocated(*frame), Some(true));
        }
        frames.free(huge, Order::HUGE).unwrap();
        mine
    };
    let mut held = HashSet::new();
    std::thread::scope(|scope| {
        let cpus = [0, 1, 0, 1].map(|node| scope.spawn(move || cpu(NodeId(node))));
        for frame in cpus.into_iter().flat_map(|cpu| cpu.join().unwrap()) {
            assert!(held.insert(frame), "{frame:?} is held by two CPUs");
        }
    });
    assert_eq!(held.len(), 8000);
    for frame in held {
        frames.free(frame, Order::PAGE).unwrap();
    }
    assert_eq!(frames.statistics(), at_start);
    frames.validate().unwrap();
}

#[test]
fn what_was_reserved_for_boot_can_be_freed() {
    let (_, frames) = machine(Some(&srat()));
    let before = frames.statistics().free_frames;
    let (start, end) = (INITRD.start().frame().get(), INITRD.end().frame().get());
    for frame in (start..end).step_by(512).map(Frame::new) {
        frames.free(frame, Order::HUGE).unwrap();
    }
    assert_eq!(frames.statistics().free_frames, before + (end - start));
    frames.validate().unwrap();
}

#[test]
fn without_a_srat_that_can_be_read_there_is_one_node() {
    let short: &[u8] = &srat()[..40];
    for table in [None, Some(short)] {
        let (_, frames) = machine(table);
        assert_eq!(frames.layout().nodes().len(), 1);
        let held = [0, 1, 2].map(|_| page(&frames, NodeId(0)).unwrap());
        assert!(held.into_iter().all(is_free_at_start));
        assert!(page(&frames, NodeId(1)).is_err());
    }
    let log = LOG.lock().unwrap();
    for expected in [
        "SRAT: 40 bytes",
        "kernelcore=lots",
        "does not fill its page",
    ] {
        assert!(
            log.iter().any(|line| line.contains(expected)),
            "{expected}: {log:?}"
        );
    }
}

#[test]
fn a_machine_without_memory_does_not_start_and_says_why() {
    // SAFETY: there is no memory to map.
    let platform: &DirectMap = Box::leak(Box::new(unsafe { DirectMap::new(0) }));
    let in_use = (KERNEL, LOADER_TABLES, INITRD);
    let start = |e820| bring_up((e820, None, b""), in_use, storage(), platform);
    let bytes = [0; 8];
    assert_eq!(start(&[]).unwrap_err(), StartError::NoMemory { bytes });
    let cut = start(&[0; 19]).unwrap_err();
    assert!(matches!(cut, StartError::E820(_)), "{cut}");
}
