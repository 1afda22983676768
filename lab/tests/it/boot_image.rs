//! Our image on emulated machines of many shapes: real QEMU, the real image, and
//! what the record says of them. On the instruction clock, so that nothing here
//! depends on how busy the host is.

use crate::common::qemu;

use firstlight_lab::boot::{
    self, Accelerator, Board, BootError, Clock, Machine, Misdeed, Request, Unwatched, Wish,
};
use firstlight_lab::record::{Node, Record};
use qemu::{qemu_is_here, real_qemu};
use serde_json::Value;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

const PAGE_BYTES: u64 = 4096;
/// What firmware keeps for itself, and the hole below 1 MiB.
const FIRMWARE_BYTES: u64 = 2 << 20;

fn request(machine: Machine, append: &str) -> Request {
    Request {
        machine,
        wish: Wish::This(Accelerator::Tcg),
        append: append.into(),
        ..Request::default()
    }
}

fn run(request: &Request) -> Result<Record, BootError> {
    boot::run(request, &AtomicUsize::new(0), &mut Unwatched)
}

/// A boot that has to go well.
fn record(request: &Request) -> Record {
    run(request).unwrap_or_else(|error| panic!("{:?}: {error}: {error:?}", request.machine))
}

fn machine(board: Board, memory_mib: u64, nodes: u32, cpus: u32, clock: Clock) -> Machine {
    Machine {
        board,
        memory_mib,
        nodes,
        cpus,
        clock,
        firmware: boot::Firmware::Loader,
        balloon: false,
        hotplug: None,
    }
}

fn small() -> Machine {
    machine(Board::Q35, 256, 1, 1, Clock::Instructions)
}

/// Whether the machine in `record` is the one that was asked for.
fn check(record: &Record, machine: &Machine) {
    let what = format!("{machine:?}");
    assert_eq!(record.kind, "boot", "{what}");
    assert_eq!(record.clock, machine.clock.name(), "{what}");
    let asked_bytes = machine.memory_mib << 20;
    let present = record.memory.present_frames.unwrap();
    let missing = asked_bytes - present * PAGE_BYTES;
    assert!(missing < FIRMWARE_BYTES, "{what}: {missing} bytes missing");
    assert_eq!(record.machine.memory_bytes, Some(present * PAGE_BYTES));
    let counts = [record.machine.nodes, record.machine.cpus];
    let asked = [machine.nodes, machine.cpus].map(|count| Some(u64::from(count)));
    assert_eq!(counts, asked, "{what}");

    assert_eq!(record.nodes.len(), machine.nodes as usize, "{what}");
    // Kernels number nodes as firmware first names them, and it names CPUs first.
    let mut nodes: Vec<&Node> = record.nodes.iter().collect();
    nodes.sort_by_key(|node| node.domain);
    let mut end = 0;
    for ((node, mib), domain) in nodes.iter().zip(machine.node_mib()).zip(0..) {
        assert_eq!(node.domain, Some(domain), "{what}");
        let cpus = machine.node_cpus(domain).len() as u64;
        assert_eq!(node.cpus, Some(cpus), "{what}: domain {domain}");
        assert!(node.start_frame >= end, "{what}");
        end = node.end_frame;
        let missing = (mib << 20) - node.present_frames * PAGE_BYTES;
        assert!(missing < FIRMWARE_BYTES, "{what}: domain {domain}");
        for (distance, to) in node.distances.iter().zip(0..) {
            let expected = if to == node.node { 10 } else { 20 };
            assert_eq!(*distance, expected, "{what}");
        }
    }
    let nodes: u64 = record.nodes.iter().map(|node| node.present_frames).sum();
    let zones: u64 = record.zones.iter().map(|zone| zone.present_frames).sum();
    assert_eq!((nodes, zones), (present, present), "{what}");
    let memory = &record.memory;
    let managed = memory.managed_frames.unwrap();
    assert_eq!(managed + memory.reserved_frames.unwrap(), present, "{what}");
    assert!(memory.metadata_written_bytes.unwrap() < 1 << 20, "{what}");
    times(record, &what);
}

fn times(record: &Record, what: &str) {
    let milestones = &record.milestones;
    let order = [
        Some(0),
        milestones.entry_ns,
        milestones.layout_ns,
        milestones.first_frame_ns,
        milestones.all_allocatable_ns,
    ];
    assert!(order.iter().all(Option::is_some), "{what}: {order:?}");
    assert!(order.is_sorted() && order[1] > Some(0), "{what}: {order:?}");
    assert!(milestones.cpus_started_ns >= milestones.layout_ns, "{what}");
    let mut end = 0;
    for phase in &record.phases {
        assert_eq!(phase.start_ns, end, "{what}: {}", phase.name);
        end = phase.end_ns;
    }
    assert!(Some(end) >= milestones.all_allocatable_ns, "{what}");
    let host = record.host.as_ref().unwrap();
    assert_eq!(host.lines_ns.len(), record.log.len(), "{what}");
    assert!(host.lines_ns.is_sorted(), "{what}");
    assert!(
        host.first_output_ns <= host.lines_ns.first().copied(),
        "{what}"
    );
    assert!(!record.gaps.is_empty(), "{what}");
    assert_eq!((host.exit_status, host.attempts), (Some(85), 1), "{what}");
    let markers: Vec<u8> = host.markers.iter().map(|marker| marker.code).collect();
    let begin = markers.iter().position(|code| *code == 0x10).unwrap();
    assert!(markers[begin..].contains(&0x25), "{what}: {markers:?}");
}

#[test]
fn machines_of_every_shape_come_up_as_asked() {
    use Board::{Microvm, Pc, Q35};
    use Clock::{Instructions, Wall};
    if !qemu_is_here() {
        return;
    }
    for (board, memory_mib, nodes, cpus, clock) in [
        (Q35, 200, 1, 1, Instructions),
        (Q35, 4096, 1, 4, Wall),
        (Q35, 1001, 3, 2, Instructions),
        (Q35, 7001, 4, 1, Instructions),
        (Q35, 960 << 10, 4, 2, Instructions),
        (Pc, 200, 2, 1, Instructions),
        (Pc, 3001, 2, 3, Wall),
        (Pc, 4099, 4, 4, Instructions),
        (Pc, 960 << 10, 1, 1, Instructions),
        (Microvm, 201, 1, 1, Instructions),
        (Microvm, 5001, 1, 2, Wall),
        (Microvm, 960 << 10, 1, 2, Instructions),
    ] {
        let machine = machine(board, memory_mib, nodes, cpus, clock);
        check(&record(&request(machine.clone(), "")), &machine);
    }
}

#[test]
fn the_allocator_passes_its_test_on_every_board() {
    if !qemu_is_here() {
        return;
    }
    for (board, nodes) in [(Board::Q35, 3), (Board::Pc, 2), (Board::Microvm, 1)] {
        let machine = machine(board, 3001, nodes, 2, Clock::Instructions);
        let record = record(&request(machine.clone(), "selftest"));
        check(&record, &machine);
        let selftest = record.selftest.unwrap();
        assert_eq!((selftest.failures, selftest.cpus), (0, 2));
        assert_eq!(selftest.allocated_blocks, selftest.freed_blocks);
        assert!(selftest.allocated_blocks > 1000, "{selftest:?}");
        // Its own few pages are in use meanwhile.
        let managed = record.memory.managed_frames.unwrap();
        let kept = managed.checked_sub(selftest.all_frames);
        assert!(kept.is_some_and(|kept| kept < 1000), "{selftest:?}");
    }
}

/// The guest's part: all but what depends on the host.
fn guest_part(mut record: Record) -> Value {
    record.host = None;
    serde_json::to_value(record).unwrap()
}

#[test]
fn two_boots_on_the_instruction_clock_are_the_same() {
    if !qemu_is_here() {
        return;
    }
    let machine = machine(Board::Q35, 65 << 10, 2, 2, Clock::Instructions);
    let request = Request {
        qemu: Some(real_qemu(machine.board.processor())),
        ..request(machine, "selftest bench=alloc")
    };
    let one = guest_part(record(&request));
    assert_eq!(one, guest_part(record(&request)));
    let rows = one["bench"].as_array().unwrap();
    let measured = |contestant: &str, workload: &str| {
        let rows = rows.iter().filter(|row| {
            row["contestant"] == contestant
                && row["workload"] == workload
                && row["operations"].as_u64() > Some(0)
        });
        rows.count()
    };
    for workload in ["pair", "bulk", "random-free", "cross-cpu"] {
        // Orders 0 and 9, on 1 and on 2 CPUs.
        assert_eq!(measured("firstlight", workload), 4, "{workload}");
        assert_eq!(measured("spin-lifo", workload), 4, "{workload}");
    }
    assert_eq!(measured("firstlight", "mixed"), 2);
    assert_eq!(measured("lifo", "near-full"), 2);
    // Were times left out of the comparison, another machine would compare equal, too.
    let mut other = request.clone();
    other.machine.memory_mib += 1;
    let other = guest_part(record(&other));
    assert_ne!(one["milestones"], other["milestones"]);
}

#[test]
fn all_contestants_of_the_bench_work_on_as_many_blocks() {
    if !qemu_is_here() {
        return;
    }
    let machine = machine(Board::Q35, 2 << 10, 1, 2, Clock::Wall);
    let record = guest_part(record(&request(machine, "bench=alloc")));
    let rows = record["bench"].as_array().unwrap();
    let mut seen = 0;
    for row in rows {
        let key = |row: &Value| ["workload", "order", "threads"].map(|key| row[key].clone());
        let ours = |other: &&Value| other["contestant"] == "firstlight" && key(other) == key(row);
        let ours = rows.iter().find(ours).unwrap();
        let operations = row["operations"].as_u64().unwrap();
        assert_eq!(ours["operations"], operations, "{row}");
        if row["order"] == 9 && (row["workload"] == "bulk" || row["workload"] == "random-free") {
            // All but an eighth of those that the machine has.
            assert!((800..1024).contains(&operations), "{row}");
            seen += 1;
        }
    }
    // Two workloads, three contestants, 1 and 2 CPUs.
    assert_eq!(seen, 12);
}

#[test]
fn every_cpu_of_the_bench_has_blocks_in_every_round() {
    if !qemu_is_here() {
        return;
    }
    let machine = machine(Board::Q35, 256, 1, 3, Clock::Wall);
    let record = guest_part(record(&request(machine, "bench=alloc")));
    let rows = record["bench"].as_array().unwrap();
    let pairs = rows.iter().filter(|row| row["workload"] == "pair");
    let mut seen = 0;
    for row in pairs {
        let each = row["operations"].as_u64().unwrap() / row["threads"].as_u64().unwrap();
        assert_eq!(each, 10_000, "{row}");
        seen += 1;
    }
    // Three contestants, two orders, 1, 2 and 3 CPUs.
    assert_eq!(seen, 18);
}

#[test]
fn a_guest_that_goes_wrong_is_told_as_what_it_is() {
    if !qemu_is_here() {
        return;
    }
    let misdeed = |word: &str| {
        let request = Request {
            silence: Duration::from_secs(20),
            ..request(small(), word)
        };
        let error = run(&request).unwrap_err();
        assert!(matches!(error, BootError::Guest(_)), "{word}: {error}");
        let fault = error.fault().unwrap();
        assert!(!fault.tail.is_empty(), "{word}");
        assert!(fault.command.join(" ").contains(word));
        fault.misdeed.clone()
    };
    let fault = misdeed("test=page-fault");
    assert!(matches!(fault, Misdeed::Faulted(_)), "{fault:?}");
    let fault = misdeed("test=double-fault");
    assert!(matches!(fault, Misdeed::Faulted(_)), "{fault:?}");
    let fault = misdeed("test=double-fault-other");
    assert!(matches!(fault, Misdeed::Faulted(_)), "{fault:?}");
    let fault = misdeed("test=panic");
    assert!(matches!(fault, Misdeed::Panicked(_)), "{fault:?}");
    let fault = misdeed("test=rubbish");
    assert!(matches!(fault, Misdeed::Rubbish(_)), "{fault:?}");
}

#[test]
fn code_is_not_written_and_data_not_executed() {
    if !qemu_is_here() {
        return;
    }
    for (word, access) in [
        ("test=write-code", "writing 0x"),
        ("test=run-data", "executing 0x"),
    ] {
        let error = run(&request(small(), word)).unwrap_err();
        let fault = error.fault().unwrap();
        let tail = fault.tail.join("\n");
        assert!(matches!(fault.misdeed, Misdeed::Faulted(_)), "{fault:?}");
        let words = ["page fault", access, "not allowed there"];
        assert!(words.iter().all(|words| tail.contains(words)), "{tail}");
    }
}

/// A real machine's NMI may come at any time, also to the CPU that reports.
#[test]
fn interrupts_do_not_end_a_report() {
    if !qemu_is_here() {
        return;
    }
    let request = Request {
        silence: Duration::from_secs(20),
        ..request(
            machine(Board::Q35, 256, 1, 2, Clock::Instructions),
            "test=fault-interrupted",
        )
    };
    let error = run(&request).unwrap_err();
    let fault = error.fault().unwrap();
    let tail = fault.tail.join("\n");
    assert!(matches!(fault.misdeed, Misdeed::Faulted(_)), "{fault:?}");
    assert_eq!(tail.matches("fault: ").count(), 1, "{tail}");
    for words in ["fault: CPU 0: page fault", "rax ", "r15 ", "end: fault"] {
        assert!(tail.contains(words), "{words} in\n{tail}");
    }
}

#[test]
fn a_guest_that_says_nothing_more_is_ended() {
    if !qemu_is_here() {
        return;
    }
    let request = Request {
        silence: Duration::from_secs(15),
        ..request(small(), "test=hang")
    };
    let error = run(&request).unwrap_err();
    let fault = error.fault().unwrap();
    assert!(matches!(fault.misdeed, Misdeed::Hung(_)), "{fault:?}");
}

#[test]
fn a_machine_without_memory_is_not_the_guests_mistake() {
    if !qemu_is_here() {
        return;
    }
    let error = run(&request(small(), "test=no-map")).unwrap_err();
    assert!(matches!(error, BootError::Machine(_)), "{error:?}");
}

#[test]
fn words_are_obeyed_and_unknown_ones_noted() {
    if !qemu_is_here() {
        return;
    }
    let record = record(&request(small(), "mem=128M frobnicate=yes"));
    let frames = record.memory.present_frames.unwrap();
    assert!(frames <= (128 << 20) / PAGE_BYTES, "{frames}");
    let noted = record.notes.iter().any(|note| note.contains("frobnicate"));
    assert!(noted, "{:?}", record.notes);
    assert!(record.source.command_line.contains("frobnicate=yes"));
}

#[test]
fn a_machine_without_acpi_comes_up() {
    if !qemu_is_here() {
        return;
    }
    for board in Board::PCS {
        let machine = machine(board, 512, 1, 1, Clock::Instructions);
        let request = Request {
            extra: ["-machine", "acpi=off"].map(String::from).to_vec(),
            ..request(machine.clone(), "")
        };
        let record = record(&request);
        check(&record, &machine);
    }
}

/// A SRAT whose rows are `rows`; QEMU adds the checksum.
fn with_srat(rows: &[u8]) -> (Request, tempfile::NamedTempFile) {
    let file = tempfile::NamedTempFile::new().unwrap();
    let body = [&[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], rows].concat();
    std::fs::write(file.path(), body).unwrap();
    let table = format!("sig=SRAT,rev=3,data={}", file.path().display());
    let request = Request {
        extra: vec!["-acpitable".into(), table],
        ..request(small(), "")
    };
    (request, file)
}

/// A row of memory of `domain`.
fn memory_row(domain: u8, base: u64, bytes: u64, length: u8) -> Vec<u8> {
    let mut row = vec![1, length, domain, 0, 0, 0, 0, 0];
    row.extend(base.to_le_bytes());
    row.extend(bytes.to_le_bytes());
    row.extend([0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    row
}

#[test]
fn a_broken_table_of_nodes_is_mended_and_said() {
    if !qemu_is_here() {
        return;
    }
    // As it should be: two nodes of 128 MiB each.
    let halves = [
        memory_row(3, 0, 128 << 20, 40),
        memory_row(7, 128 << 20, 128 << 20, 40),
    ]
    .concat();
    let (request, _file) = with_srat(&halves);
    let whole = record(&request);
    let domains: Vec<_> = whole.nodes.iter().map(|node| node.domain).collect();
    assert_eq!(domains, [Some(3), Some(7)]);
    let said = whole.corrections.len() + whole.notes.len();
    // A row that ends behind the table; one that is too short; one that overlaps.
    for row in [
        memory_row(1, 200 << 20, 56 << 20, 200),
        memory_row(1, 200 << 20, 56 << 20, 7),
        memory_row(1, 100 << 20, 156 << 20, 40),
    ] {
        let rows = [memory_row(0, 0, 200 << 20, 40), row].concat();
        let (request, _file) = with_srat(&rows);
        let record = record(&request);
        let remarks = record.corrections.len() + record.notes.len();
        assert!(
            remarks > said,
            "{:?} {:?}",
            record.corrections,
            record.notes
        );
        let frames = record.memory.present_frames.unwrap();
        assert_eq!(frames, whole.memory.present_frames.unwrap());
    }
}

#[test]
fn a_late_cpu_does_not_hold_up_the_others() {
    if !qemu_is_here() {
        return;
    }
    let machine = machine(Board::Q35, 512, 1, 2, Clock::Instructions);
    let record = record(&request(machine, "test=late-cpu"));
    assert_eq!(record.host.unwrap().exit_status, Some(85));
}

/// The first instructions are all that such a processor executes; they say it on both ports.
#[test]
fn a_pc_without_long_mode_is_said_in_words() {
    if !qemu_is_here() {
        return;
    }
    let request = Request {
        wish: Wish::This(Accelerator::Tcg),
        extra: ["-cpu", "qemu32"].map(String::from).to_vec(),
        ..Request::default()
    };
    let error = boot::run(&request, &AtomicUsize::new(0), &mut Unwatched).unwrap_err();
    assert!(matches!(error, BootError::Machine(_)), "{error:?}");
    let said = error.to_string();
    assert!(
        said.contains("this processor has no long mode: expected x86-64"),
        "{said}"
    );
}

#[test]
fn an_arm_processor_of_32_bits_is_refused_before_the_boot() {
    for name in ["cortex-a15", "cortex-a7,pmu=off"] {
        let request = Request {
            machine: Machine {
                board: Board::VirtAarch64,
                ..Machine::default()
            },
            extra: ["-cpu", name].map(String::from).to_vec(),
            ..Request::default()
        };
        let error = boot::run(&request, &AtomicUsize::new(0), &mut Unwatched).unwrap_err();
        let said = error.to_string();
        assert!(
            said.contains("has 32 bits: expected a processor of 64"),
            "{said}"
        );
    }
}
