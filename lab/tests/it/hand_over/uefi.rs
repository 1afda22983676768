//! Hand-overs of the UEFI loader: honest ones, and such as no honest loader makes.

use super::acpi::{fbpt, fpdt};
use super::qemu::Boot;
use super::{DEVICE, HandOver, MIB};
use crate::common::qemu::qemu_is_here;
use firstlight::start::BootSizes;
use firstlight_lab::boot::Machine;
use firstlight_lab::boot::events::{Event, Outcome};
use firstlight_wire::handover::{Handover, Screen, Storage};
use firstlight_wire::milestone;

/// Types of UEFI's memory map.
const RESERVED: u32 = 0;
pub(crate) const LOADER: u32 = 2;
const SERVICES_CODE: u32 = 5;
const SERVICES_DATA: u32 = 6;
pub(crate) const FREE: u32 = 7;
pub(crate) const ACPI_TABLES: u32 = 9;
/// Can be cached; used by services after boot services.
pub(crate) const WRITE_BACK: u64 = 8;
const RUNTIME: u64 = 1 << 63;

pub(crate) const GIB: u64 = 1 << 30;
/// Firmware's tables and functions, of which the second refuses.
const TABLE: u64 = 0x700_0000;
const ACCEPTS: u64 = 0x701_0000;
const REFUSES: u64 = 0x701_0020;
/// A table above 4 GiB.
const HIGH: u64 = 0x1_2000_0000;
const STORAGE: u64 = 0x800_0000;
/// Firmware's times: in its own memory.
const TIMES: u64 = TABLE + 0x8000;

/// Type, start, pages, attributes.
pub(crate) type Descriptor = (u32, u64, u64, u64);

/// A PC of 256 MiB.
fn map() -> Vec<Descriptor> {
    vec![
        (FREE, 0, 0x9f, WRITE_BACK),
        (FREE, MIB, 0x4f00, WRITE_BACK),
        (LOADER, 0x500_0000, 0x2000, WRITE_BACK),
        (SERVICES_DATA, TABLE, 0x10, WRITE_BACK | RUNTIME),
        (SERVICES_CODE, ACCEPTS, 0x10, WRITE_BACK | RUNTIME),
        (FREE, TABLE + 0x2_0000, 0x8fe0, WRITE_BACK),
    ]
}

fn bytes(map: &[Descriptor], descriptor_bytes: usize) -> Vec<u8> {
    let descriptor = |&(kind, start, pages, attributes): &Descriptor| {
        let words = [u64::from(kind), start, 0, pages, attributes];
        let mut bytes = words.map(u64::to_le_bytes).concat();
        bytes.resize(descriptor_bytes, 0xee);
        bytes
    };
    map.iter().flat_map(descriptor).collect()
}

pub(crate) fn handover() -> Handover {
    Handover {
        entered_ticks: 1,
        read_ticks: 2,
        exited_ticks: 3,
        system_table: TABLE,
        keeps_results: true,
        screen: None,
        storage: None,
        descriptor_bytes: 48,
    }
}

pub(crate) fn module(handover: Handover, map: &[Descriptor]) -> Vec<u8> {
    let map = bytes(map, handover.descriptor_bytes as usize);
    let mut module = vec![0; map.len() + 256];
    let length = handover.write(&map, &mut module).unwrap();
    module.truncate(length);
    module
}

/// The system table with its services at `table`, which set variables by the code at `set`.
fn services(table: u64, set: u64) -> (u64, Vec<u8>) {
    let mut bytes = vec![0; 4096];
    let mut put = |at: usize, value: u64| bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    put(88, table + 1024);
    put(1024 + 88, set);
    put(1024 + 104, set);
    (table, bytes)
}

/// `xor eax, eax; ret`, and `mov rax, EFI_OUT_OF_RESOURCES; ret`.
fn code(at: u64) -> (u64, Vec<u8>) {
    let mut bytes = vec![0x31, 0xc0, 0xc3];
    bytes.resize(32, 0xcc);
    bytes.extend([0x48, 0xb8, 9, 0, 0, 0, 0, 0, 0, 0x80, 0xc3]);
    (at, bytes)
}

/// A hand-over by the UEFI loader. The start info has no memory map of its own.
pub(crate) fn uefi(module: Vec<u8>) -> HandOver {
    HandOver {
        module: Some(module),
        memory: vec![services(TABLE, ACCEPTS), code(ACCEPTS)],
        ..HandOver::good().lie(|info| info.map = 0)
    }
}

fn good(boot: &Boot) -> &Boot {
    boot.ended(Outcome::Ok)
        .says("CPUs: 2 of 2 run")
        .says("bytes of results are left with firmware")
}

#[test]
fn descriptors_of_any_size_and_order_are_read() {
    if !qemu_is_here() {
        return;
    }
    for descriptor_bytes in [40, 48, 56, 1000] {
        let handover = Handover {
            descriptor_bytes,
            ..handover()
        };
        let mut map = map();
        // Overlaps, and comes last: what is more restrictive wins.
        map.push((RESERVED, 0xff0_0000, 0x80, WRITE_BACK));
        if descriptor_bytes == 56 {
            map.reverse();
        }
        let boot = uefi(module(handover, &map)).boot();
        good(&boot)
            .says("0x00000ff00000-0x00000ff7ffff] reserved")
            .says("0x00000ff80000-0x00000fffffff] usable")
            .says("firmware has no frame buffer");
    }
}

#[test]
fn a_broken_hand_over_is_refused_with_a_reason() {
    if !qemu_is_here() {
        return;
    }
    let whole = module(handover(), &map());
    let version = {
        let mut bytes = whole.clone();
        bytes[7] = 9;
        bytes
    };
    let odd = {
        let mut bytes = whole.clone();
        bytes[16] = 49;
        bytes
    };
    for (module, words) in [
        (
            whole[..whole.len() - 1].to_vec(),
            "UEFI hand-over of 415 bytes, expected 416",
        ),
        (
            whole[..9].to_vec(),
            "UEFI hand-over of 9 bytes, expected 128",
        ),
        (version, "UEFI hand-over of version 9, expected 1"),
        (
            odd,
            "a memory map of 288 bytes, expected one or more descriptors of 49 bytes",
        ),
    ] {
        uefi(module)
            .boot()
            .ended(Outcome::Machine)
            .says(words)
            .says("start info has no memory map");
    }
    // Something else is a module, too.
    let other = HandOver {
        module: Some(b"an initial file system".to_vec()),
        ..HandOver::good()
    };
    other.boot().ended(Outcome::Ok);
}

#[test]
fn a_map_of_4096_descriptors_comes_up_with_the_loaders_storage() {
    if !qemu_is_here() {
        return;
    }
    let mut long = map();
    let last = long.pop().unwrap();
    let (start, count) = (last.1 + MIB * 64, 4096 - long.len() as u64 - 2);
    long.push((FREE, last.1, MIB * 64 / 4096, WRITE_BACK));
    for page in 0..count {
        let kind = if page % 2 == 0 { RESERVED } else { FREE };
        long.push((kind, start + page * 4096, 1, WRITE_BACK));
    }
    let rest = start + count * 4096;
    long.push((FREE, rest, (256 * MIB - rest) / 4096, WRITE_BACK));
    assert_eq!(long.len(), 4096);
    let ranges = 2 * long.len();
    let storage = Storage {
        start: STORAGE,
        bytes: BootSizes::new(ranges, 256).bytes() as u64,
        ranges: u32::try_from(ranges).unwrap(),
    };
    let with_storage = Handover {
        storage: Some(storage),
        ..handover()
    };
    let boot = uefi(module(with_storage, &long)).boot();
    boot.ended(Outcome::Ok).says("CPUs: 2 of 2 run");
    let reserved = boot.log().matches("] reserved").count();
    assert!(reserved as u64 >= count / 2, "{reserved} reserved regions");
    // Without it the image's own lists are too small, and it says how many entries are enough.
    uefi(module(handover(), &long))
        .boot()
        .ended(Outcome::Machine)
        .says("memory map");
}

#[test]
fn firmware_that_refuses_variables_loses_nothing() {
    if !qemu_is_here() {
        return;
    }
    let with = |table: u64, set: u64, at: u64| HandOver {
        memory: vec![services(table, set), code(at)],
        ..uefi(module(handover(), &map()))
    };
    with(TABLE, REFUSES, ACCEPTS)
        .boot()
        .ended(Outcome::Ok)
        .says("firmware refuses variable ")
        .says("status 0x8000000000000009; the result is shown here alone")
        .says("the lines above are the result; the machine can be switched off");
    // No table, and one that leads nowhere.
    for system_table in [0, 0x7f_0000_0000, u64::MAX - 7] {
        let handover = Handover {
            system_table,
            ..handover()
        };
        uefi(module(handover, &map()))
            .boot()
            .ended(Outcome::Ok)
            .says("the lines above are the result");
    }
    let unwanted = Handover {
        keeps_results: false,
        ..handover()
    };
    uefi(module(unwanted, &map()))
        .boot()
        .ended(Outcome::Ok)
        .says("the lines above are the result");
    // The result of a machine that does not come up is kept as well.
    uefi(module(handover(), &map()))
        .command_line("tsc_hz=2000000000 test=panic")
        .boot()
        .ended(Outcome::Panic)
        .says("bytes of results are left with firmware");
}

#[test]
fn services_may_use_8_kib_of_stack_and_may_fail() {
    if !qemu_is_here() {
        return;
    }
    let with = |set: u64, code: Vec<u8>, line: &str| {
        let whole = HandOver {
            memory: vec![services(TABLE, set), (set, code)],
            ..uefi(module(handover(), &map()))
        };
        whole.command_line(line).boot()
    };
    let line = "tsc_hz=2000000000";
    // sub rsp, 8192; mov rdi, rsp; mov ecx, 1024; mov rax, -1; rep stosq; add rsp, 8192;
    // xor eax, eax; ret; rdi is the caller's in this convention.
    let deep = vec![
        0x57, 0x48, 0x81, 0xec, 0, 0x20, 0, 0, 0x48, 0x89, 0xe7, 0xb9, 0, 4, 0, 0, 0x48, 0xc7,
        0xc0, 0xff, 0xff, 0xff, 0xff, 0xf3, 0x48, 0xab, 0x48, 0x81, 0xc4, 0, 0x20, 0, 0, 0x5f,
        0x31, 0xc0, 0xc3,
    ];
    good(&with(ACCEPTS, deep, line));
    // ud2; a write to address 0, which has a stack of its own.
    for code in [vec![0x0f, 0x0b], vec![0xc6, 4, 0x25, 0, 0, 0, 0, 1]] {
        for (line, outcome) in [
            (line, Outcome::Ok),
            ("tsc_hz=2000000000 test=panic", Outcome::Panic),
        ] {
            let boot = with(ACCEPTS, code.clone(), line);
            boot.ended(outcome)
                .says("a fault in firmware's own code: it does not keep the result")
                .says("the machine can be switched off");
        }
    }
}

#[test]
fn failures_anywhere_leave_one_result() {
    if !qemu_is_here() {
        return;
    }
    for (test, outcome, words) in [
        (
            "panic-other",
            Outcome::Panic,
            "requested by the command line, on CPU 1",
        ),
        (
            "panic-all",
            Outcome::Panic,
            "requested by the command line, on all CPUs",
        ),
        (
            "panic-twice",
            Outcome::Panic,
            ", while another failure was reported",
        ),
        ("panic", Outcome::Panic, "requested by the command line"),
        ("page-fault", Outcome::Fault, "fault: CPU 0: page fault"),
    ] {
        let boot = uefi(module(handover(), &map()))
            .command_line(&format!("tsc_hz=2000000000 test={test}"))
            .boot();
        boot.ended(outcome)
            .says("bytes of results are left with firmware");
        assert_eq!(boot.log().matches(words).count(), 1, "{}", boot.log());
        let count = |is_it: fn(&&Event) -> bool| boot.events().iter().filter(is_it).count();
        let starts = count(|event| matches!(event, Event::Start { .. }));
        let reasons = count(|event| matches!(event, Event::Failure { .. }));
        assert_eq!((starts, reasons), (1, 1), "{test}");
        // Also what was before the report; another CPU than the first leaves the first's alone.
        let names = [milestone::LOADER_READ, milestone::ALL_ALLOCATABLE];
        for name in names.iter().filter(|_| test != "panic-all") {
            assert!(boot.milestone(name).is_some(), "{test}: {name}");
        }
    }
}

#[test]
fn a_run_that_ends_before_services_are_mapped_does_not_call_them() {
    if !qemu_is_here() {
        return;
    }
    let mut long = map();
    long.push((SERVICES_CODE, HIGH, 0x10, WRITE_BACK | RUNTIME));
    // More than the image's own lists hold.
    for page in 0..4096 {
        long.push((RESERVED, GIB + page * 0x2000, 1, WRITE_BACK));
    }
    let early = HandOver {
        memory: vec![services(TABLE, HIGH), code(ACCEPTS)],
        ..uefi(module(handover(), &long))
    };
    let boot = early.boot();
    boot.ended(Outcome::Machine)
        .says("memory map")
        .says("the machine can be switched off");
    assert!(!boot.log().contains("fault"), "{}", boot.log());
}

#[test]
fn memory_is_never_fresh_after_uefi() {
    if !qemu_is_here() {
        return;
    }
    let boot = uefi(module(handover(), &map()))
        .command_line("tsc_hz=2000000000 fresh")
        .boot();
    good(&boot).says("fresh is ignored: UEFI firmware");
}

#[test]
fn services_and_screens_above_4_gib_are_used() {
    if !qemu_is_here() {
        return;
    }
    let mut map = map();
    map.push((SERVICES_CODE, HIGH, 0x10, WRITE_BACK | RUNTIME));
    map.push((FREE, HIGH + 0x1_0000, 0xfff0, WRITE_BACK));
    let screen = |address| {
        let screen = Some(Screen {
            address,
            bytes: 800 * 600 * 4,
            width: 800,
            height: 600,
            stride: 800,
        });
        let handover = Handover {
            screen,
            ..handover()
        };
        HandOver {
            memory: vec![services(TABLE, HIGH), code(HIGH)],
            machine: Machine {
                memory_mib: 5 << 10,
                cpus: 2,
                ..Machine::default()
            },
            ..uefi(module(handover, &map))
        }
    };
    // Not in the map: a device.
    let high = screen(5 * GIB).boot();
    good(&high);
    assert!(!high.log().contains("frame buffer"), "{}", high.log());
    for (address, words) in [
        (
            HIGH + MIB,
            "frame buffer at 0x120100000, 1920000 bytes: memory is there",
        ),
        (
            1 << 45,
            "or it is beyond this processor's addresses; not used",
        ),
        (6, "UEFI hand-over: a screen of 800 x 600 pixels"),
    ] {
        good(&screen(address).boot()).says(words);
    }
}

#[test]
fn an_interrupt_that_firmware_left_pending_is_acknowledged() {
    if !qemu_is_here() {
        return;
    }
    let line = "tsc_hz=2000000000 test=pending-timer";
    let boot = uefi(module(handover(), &map())).command_line(line).boot();
    good(&boot);
    HandOver::good()
        .command_line(line)
        .boot()
        .ended(Outcome::Ok)
        .says("CPUs: 2 of 2 run");
}

/// With a table of firmware's times at `claimed`, where the content of `there` is at `at`.
fn timed(claimed: u64, at: u64, there: Vec<u8>) -> HandOver {
    let mut map = map();
    // The loader of these tests has ACPI's tables in it.
    map[2].0 = ACPI_TABLES;
    let mut hand_over = uefi(module(handover(), &map)).tables([fpdt(claimed)]);
    hand_over.memory.push((at, there));
    hand_over
}

#[test]
fn times_of_firmware_are_shown_beside_those_of_the_loader() {
    if !qemu_is_here() {
        return;
    }
    let names = [
        milestone::FIRMWARE_STARTED,
        milestone::LOADER_LOADING,
        milestone::LOADER_STARTING,
        milestone::BOOT_SERVICES_ENDING,
        milestone::BOOT_SERVICES_LEFT,
    ];
    // Nanoseconds, of two ticks each; zero is none.
    let boot = timed(TIMES, TIMES, fbpt([7, 500, 600, 0, u64::MAX])).boot();
    good(&boot)
        .says("firmware begins to run (FPDT)")
        .says("firmware starts the UEFI loader (FPDT)")
        .says("UEFI's boot services have ended (FPDT)");
    let seen = names.map(|name| boot.milestone(name));
    let ticks = [Some(14), Some(1000), Some(1200), None, Some(u64::MAX)];
    assert_eq!(seen, ticks.map(|ticks| Some((ticks?, Some("fpdt")))));
    assert_eq!(
        boot.milestone(milestone::LOADER_READ),
        Some((2, Some("tsc")))
    );
    assert!(matches!(
        boot.milestone(milestone::ENTRY),
        Some((1.., None))
    ));

    // Pointers that lead nowhere, to registers, to memory that the image allocates; other content.
    let whole = || fbpt([1; 5]);
    let cut = {
        let mut bytes = whole();
        bytes[4] = 55;
        bytes
    };
    for (claimed, at, there, words) in [
        (TIMES + 0x1000, TIMES, whole(), "expected table FBPT, found"),
        (TIMES, TIMES, cut, "FBPT: entry at 8 has length 48, but 47"),
        (0x900_0000, 0x900_0000, whole(), "8 bytes at 0x9000000"),
        (DEVICE, TIMES, whole(), "8 bytes at 0xfee00000"),
        (u64::MAX, TIMES, whole(), "8 bytes at 0xffffffffffffffff"),
    ] {
        let boot = timed(claimed, at, there).boot();
        good(&boot).says(words);
        assert_eq!(names.map(|name| boot.milestone(name)), [None; 5]);
    }
    // Tables themselves lie in memory: said, and not read.
    let boot = uefi(module(handover(), &map()))
        .tables([fpdt(TIMES)])
        .boot();
    good(&boot).says("no performance table (FPDT) was looked for");
}
