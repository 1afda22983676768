//! Our image on processors other than x86-64, emulated: the same record of the same machine, on
//! the instruction clock, so that nothing here depends on how busy the host is.

use crate::common::here;
use crate::common::qemu::real_qemu;

use firstlight_lab::boot::{self, Board, BootError, Clock, Machine, Misdeed, Request, Unwatched};
use firstlight_lab::record::Record;
use here::is_here;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;

/// Both boards, as far as their QEMU is here.
fn boards() -> impl Iterator<Item = Board> {
    let boards = [Board::VirtAarch64, Board::VirtRiscv64];
    let is_here = |board: &Board| is_here(&format!("qemu-system-{}", board.processor()));
    boards.into_iter().filter(is_here)
}

fn machine(board: Board, memory_mib: u64, nodes: u32, cpus: u32) -> Machine {
    Machine {
        board,
        memory_mib,
        nodes,
        cpus,
        clock: Clock::Instructions,
        ..Machine::default()
    }
}

/// MiB of which 256 lie above 4 GiB.
fn beyond_4g(board: Board) -> u64 {
    let memory_starts_at = if board == Board::VirtAarch64 { 1 } else { 2 };
    ((4 - memory_starts_at) << 10) + 256
}

/// The image for a board, looked for once.
fn image(board: Board) -> PathBuf {
    static IMAGES: Mutex<Vec<(Board, PathBuf)>> = Mutex::new(Vec::new());
    let mut images = IMAGES.lock().unwrap();
    if let Some((_, image)) = images.iter().find(|(known, _)| *known == board) {
        return image.clone();
    }
    let stop = AtomicUsize::new(0);
    let image = boot::find_image(board.processor(), &stop, &mut Unwatched).unwrap();
    images.push((board, image.clone()));
    image
}

fn run(machine: Machine, append: &str) -> Result<Record, BootError> {
    run_with(machine, append, None)
}

fn run_with(machine: Machine, append: &str, qemu: Option<PathBuf>) -> Result<Record, BootError> {
    let request = Request {
        image: Some(image(machine.board)),
        machine,
        append: append.into(),
        qemu,
        ..Request::default()
    };
    boot::run(&request, &AtomicUsize::new(0), &mut Unwatched)
}

/// What went wrong with a guest that has to go wrong, and the end of its log.
fn misdeed(machine: Machine, append: &str) -> (Misdeed, String) {
    let error = run(machine, append).unwrap_err();
    let fault = error.fault().unwrap_or_else(|| panic!("{append}: {error}"));
    (fault.misdeed.clone(), fault.tail.join("\n"))
}

#[test]
fn machines_come_up_as_asked() {
    for board in boards() {
        for (memory_mib, nodes, cpus) in [(200, 1, 1), (1001, 3, 3), (16 << 20 >> 1, 4, 4)] {
            let what = format!("{board} {memory_mib} {nodes} {cpus}");
            let machine = machine(board, memory_mib, nodes, cpus);
            let record = run(machine.clone(), "").unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(
                record.machine.memory_bytes,
                Some(memory_mib << 20),
                "{what}"
            );
            let counts = [record.machine.nodes, record.machine.cpus];
            assert_eq!(
                counts,
                [nodes, cpus].map(|count| Some(count.into())),
                "{what}"
            );
            for (node, (mib, number)) in record.nodes.iter().zip(machine.node_mib().zip(0..)) {
                assert_eq!(node.domain, Some(number), "{what}");
                assert_eq!(node.present_frames, mib << 8, "{what}");
                assert_eq!(
                    node.cpus,
                    Some(machine.node_cpus(number).len() as u64),
                    "{what}"
                );
                for (distance, to) in node.distances.iter().zip(0..) {
                    assert_eq!(*distance, if to == node.node { 10 } else { 20 }, "{what}");
                }
            }
            let milestones = &record.milestones;
            let order = [
                milestones.entry_ns,
                milestones.layout_ns,
                milestones.all_allocatable_ns,
                milestones.cpus_started_ns,
            ];
            assert!(
                order.iter().all(Option::is_some) && order.is_sorted(),
                "{what}: {order:?}"
            );
            let host = record.host.as_ref().unwrap();
            let markers: Vec<u8> = host.markers.iter().map(|marker| marker.code).collect();
            let expected = [
                0x10, 0x11, 0x20, 0x21, 0x22, 0x23, 0x24, 0x25, 0x30, 0x31, 0x40, 0x41,
            ];
            assert_eq!(markers, expected, "{what}");
            assert_eq!(host.lines_ns.len(), record.log.len(), "{what}");
            let is_event = |line: &String| line.contains("@firstlight");
            assert!(
                !record.log.iter().any(is_event),
                "{what}: events are not of the log"
            );
        }
    }
}

#[test]
fn the_allocator_passes_its_test() {
    for board in boards() {
        let record = run(machine(board, 2 << 10, 2, 4), "selftest descriptors=lazy").unwrap();
        let selftest = record.selftest.unwrap();
        assert_eq!((selftest.cpus, selftest.failures), (4, 0), "{board}");
        assert!(selftest.all_frames > 500_000, "{board}");
    }
}

/// With its virtualization QEMU starts every CPU at EL2, and its tree names `smc` instead of `hvc`.
/// All go on at EL1, where a fault is reported; at EL2 nothing would be translated.
#[test]
fn all_cpus_run_that_start_at_el2() {
    for board in boards().filter(|board| *board == Board::VirtAarch64) {
        let run = |append: &str| {
            let request = Request {
                image: Some(image(board)),
                machine: machine(board, 512, 2, 4),
                append: append.into(),
                extra: ["-machine", "virtualization=on"].map(String::from).to_vec(),
                ..Request::default()
            };
            boot::run(&request, &AtomicUsize::new(0), &mut Unwatched)
        };
        let record = run("selftest").unwrap();
        let all_run = |line: &String| line.ends_with("CPUs: 4 of 4 run");
        assert!(record.log.iter().any(all_run), "{:?}", record.log);
        let selftest = record.selftest.unwrap();
        assert_eq!((selftest.cpus, selftest.failures), (4, 0));

        let error = run("test=double-fault-other").unwrap_err();
        let fault = error.fault().unwrap_or_else(|| panic!("{error}"));
        let tail = fault.tail.join("\n");
        assert!(matches!(fault.misdeed, Misdeed::Faulted(_)), "{tail}");
        assert!(
            tail.contains("fault: CPU 3: ") && tail.contains("writing 0x0"),
            "{tail}"
        );
    }
}

/// Linux's boot protocol lets a loader choose. With another distance from a border of 2 MiB in its header QEMU puts the image
/// elsewhere; it moves itself, at either level.
#[test]
fn an_arm_image_runs_where_its_loader_puts_it() {
    let board = Board::VirtAarch64;
    if !boards().any(|here| here == board) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let moved = folder.path().join("image");
    // Within the GiB that it is linked for, and in another.
    for (distance, place, level) in [
        (0x860_0000_u64, "0x486", "virtualization=off"),
        (0x8000_0000, "0xc00", "virtualization=on"),
    ] {
        let mut file = std::fs::read(image(board)).unwrap();
        file[8..16].copy_from_slice(&distance.to_le_bytes());
        std::fs::write(&moved, file).unwrap();
        let run = |append: &str| {
            let request = Request {
                image: Some(moved.clone()),
                machine: machine(board, 2560, 1, 2),
                append: append.into(),
                extra: ["-machine", level].map(String::from).to_vec(),
                ..Request::default()
            };
            boot::run(&request, &AtomicUsize::new(0), &mut Unwatched)
        };
        let record = run("zeroed=64M").unwrap();
        assert!(record.memory.present_frames.unwrap() > 2550 << 8);
        let all_run = |line: &String| line.ends_with("CPUs: 2 of 2 run");
        assert!(record.log.iter().any(all_run), "{:?}", record.log);
        // Its code is protected there.
        let error = run("test=write-code").unwrap_err();
        let fault = error.fault().unwrap_or_else(|| panic!("{error}"));
        let tail = fault.tail.join("\n");
        let expected = format!("writing {place}");
        assert!(tail.contains(&expected), "{expected}: {tail}");
    }
}

#[test]
fn memory_that_must_be_accepted_comes_online() {
    for board in boards() {
        let record = run(machine(board, beyond_4g(board), 1, 2), "accept=1").unwrap();
        let online = |line: &String| line.contains("frames online") && line.ends_with("0 failures");
        assert!(record.log.iter().any(online), "{board}: {:?}", record.log);
    }
}

/// An access may fault after another CPU has made its page appear. The image makes such a fault itself
/// and checks all registers after it.
#[test]
fn a_page_fault_that_is_out_of_date_is_repeated() {
    for board in boards() {
        let append = "test=stale-page accept=1";
        let memory_mib = beyond_4g(board) - 240;
        let record = run(machine(board, memory_mib, 1, 2), append).unwrap();
        let repeated = |note: &String| note.contains("a page fault was repeated");
        assert!(
            record.notes.iter().any(repeated),
            "{board}: {:?}",
            record.notes
        );
        let online = |line: &String| line.contains("frames online") && line.ends_with("0 failures");
        assert!(record.log.iter().any(online), "{board}: {:?}", record.log);
    }
}

/// The image with only one of its modes of translation, 8 to 10 (3 to 5 levels): the others become
/// one that no processor has.
fn with_mode(board: Board, only: u64) -> PathBuf {
    let mut file = std::fs::read(image(board)).unwrap();
    let word = |file: &[u8], at: usize| u64::from_le_bytes(file[at..at + 8].try_into().unwrap());
    let places = |at: usize| [(10, at), (9, at + 24), (8, at + 48)];
    let is_list = |at: &usize| {
        places(*at)
            .iter()
            .all(|(mode, at)| word(&file, *at) == mode << 60)
    };
    let lists: Vec<usize> = (0..file.len() - 64).step_by(8).filter(is_list).collect();
    let [list] = lists[..] else {
        panic!("boot_modes of entry.s is in the image at {lists:x?}, expected once");
    };
    for (_, at) in places(list).iter().filter(|(mode, _)| *mode != only) {
        file[*at..*at + 8].copy_from_slice(&(11_u64 << 60).to_le_bytes());
    }
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("riscv64-mode-{only}"));
    std::fs::write(&path, file).unwrap();
    path
}

/// 3 levels reach 256 GiB of equal addresses, more levels all memory of the board.
#[test]
fn fewer_levels_of_page_tables_reach_less_memory() {
    for board in boards().filter(|board| *board == Board::VirtRiscv64) {
        for (mode, most_gib) in [(8, 256 - 2), (9, 300), (10, 300)] {
            let request = Request {
                image: Some(with_mode(board, mode)),
                machine: machine(board, 300 << 10, 1, 2),
                append: "zeroed=64M".into(),
                ..Request::default()
            };
            let record = boot::run(&request, &AtomicUsize::new(0), &mut Unwatched)
                .unwrap_or_else(|error| panic!("mode {mode}: {error}"));
            let present: u64 = record.nodes.iter().map(|node| node.present_frames).sum();
            assert_eq!(present, most_gib << 18, "mode {mode}");
            assert!(record.milestones.cpus_started_ns.is_some(), "mode {mode}");
            let left_out = |seen: &String| seen.contains("memory from 0x4000000000 on");
            assert_eq!(
                record.corrections.iter().any(left_out),
                mode == 8,
                "mode {mode}"
            );
        }
    }
}

#[test]
fn two_boots_on_the_instruction_clock_are_the_same() {
    for board in boards() {
        let [first, second] = [(); 2].map(|()| {
            let qemu = real_qemu(board.processor());
            run_with(machine(board, 3000, 2, 2), "", Some(qemu)).unwrap()
        });
        assert_eq!(
            first.milestones.all_allocatable_ns,
            second.milestones.all_allocatable_ns
        );
        assert_eq!(first.log, second.log, "{board}");
    }
}

#[test]
fn faults_are_reported_with_registers() {
    for board in boards() {
        let null = "writing 0x0";
        for (test, cpu, words) in [
            ("test=page-fault", 0, null),
            ("test=double-fault", 0, null),
            ("test=double-fault-other", 1, null),
            ("test=early-touch accept=1", 0, "reading 0x100000000"),
            ("test=write-code", 0, "writing "),
            ("test=run-data", 0, "executing "),
        ] {
            let (misdeed, tail) = misdeed(machine(board, beyond_4g(board), 1, 2), test);
            let what = format!("{board} {test}: {misdeed:?}\n{tail}");
            assert!(matches!(misdeed, Misdeed::Faulted(_)), "{what}");
            assert!(
                tail.contains(&format!("fault: CPU {cpu}: ")) && tail.contains(words),
                "{what}"
            );
            let registers = match board {
                Board::VirtAarch64 => ["x0 ", "x28", "x30"],
                _ => ["ra ", "s11", "t6 "],
            };
            assert!(registers.iter().all(|name| tail.contains(name)), "{what}");
            if board == Board::VirtRiscv64 && test.contains("double") {
                assert!(tail.contains("tp  0000000000000001"), "{what}");
            }
        }
        let (misdeed, tail) = misdeed(machine(board, 256, 1, 1), "test=panic");
        assert!(matches!(misdeed, Misdeed::Panicked(_)), "{board}: {tail}");
        assert!(tail.contains("requested by the command line"), "{tail}");
    }
}

/// On real machines no host answers a marker: the call is an exception within the report.
#[test]
fn a_fault_shows_its_registers_where_no_host_listens() {
    for board in boards() {
        let registers = match board {
            Board::VirtAarch64 => "x1  0000000000001111 x2  0000000000002222",
            _ => "t0  0000000000001111 t1  0000000000002222",
        };
        for listens in ["on", "off"] {
            let request = Request {
                image: Some(image(board)),
                machine: machine(board, 256, 1, 1),
                append: "test=page-fault".into(),
                extra: ["-semihosting-config".into(), format!("enable={listens}")].to_vec(),
                ..Request::default()
            };
            let error = boot::run(&request, &AtomicUsize::new(0), &mut Unwatched).unwrap_err();
            let fault = error.fault().unwrap_or_else(|| panic!("{board}: {error}"));
            let tail = fault.tail.join("\n");
            assert!(tail.contains(registers), "{board}, {listens}:\n{tail}");
        }
    }
}

#[test]
fn a_late_cpu_does_not_hold_up_the_others() {
    for board in boards() {
        let record = run(machine(board, 256, 1, 3), "test=late-cpu").unwrap();
        let joined = |note: &String| note.contains("1 CPU joined late; work now runs on 3");
        assert!(
            record.notes.iter().any(joined),
            "{board}: {:?}",
            record.notes
        );
    }
}

/// Of what needs a PC, the image says so and ends.
#[test]
fn what_only_a_pc_has_is_refused() {
    for board in boards() {
        for (append, words) in [
            ("restart=warm", "cannot enter itself again"),
            ("hotplug=3", "no slots of DIMMs or no power button"),
            ("test=no-map", "no usable memory"),
            ("balloon", "a virtio device of version 1: expected 2"),
        ] {
            let error = run(machine(board, 256, 1, 1), append).unwrap_err();
            assert!(
                matches!(error, BootError::Machine(_)),
                "{board} {append}: {error}"
            );
            let tail = error.fault().unwrap().tail.join("\n");
            assert!(tail.contains(words), "{board} {append}:\n{tail}");
        }
        let turns = run(machine(board, 256, 1, 1), "turns_hz=1000").unwrap();
        let ignored = |note: &String| note.contains("turns_hz= is ignored");
        assert!(
            turns.notes.iter().any(ignored),
            "{board}: {:?}",
            turns.notes
        );
    }
}

#[test]
fn a_balloon_in_memory_is_found_by_the_tree() {
    for board in boards() {
        let machine = Machine {
            balloon: true,
            clock: Clock::Wall,
            ..machine(board, 256, 1, 1)
        };
        let record = run(
            machine,
            "reporting=on reporting.delay_ms=1 balloon_bytes=32M",
        )
        .unwrap();
        let balloon = record.balloon.unwrap();
        assert_eq!(
            (balloon.transport.as_str(), balloon.reported_bytes > 0),
            ("mmio", true),
            "{board}"
        );
    }
}
