//! A restart without firmware: guests' memory over several nodes outlives it, and a table that is
//! damaged, foreign, or names what it must not is refused with a reason.

use crate::common::image::image;
use crate::common::qemu;
use crate::hand_over::qemu::Boot;

use firstlight::addr::{PhysAddr, PhysRange};
use firstlight::preserve::{Draft, PreservedRange};
use firstlight_lab::boot::events::Outcome;
use firstlight_lab::boot::{
    self, Accelerator, BootError, Clock, Machine, Request, Unwatched, Wish,
};
use firstlight_lab::record::{Record, Restart};
use qemu::qemu_is_here;
use std::num::NonZeroU64;
use std::sync::atomic::AtomicUsize;

const MIB: u64 = 1 << 20;
/// Instructions from entry to memory that a warm kernel may take beyond a cold one: the same kernel before the
/// restart, and one without a word on its command line. No share of these: what is taken over costs as much however
/// short a cold start is.
const MOST_MORE: u64 = 15_000;

fn run(clock: Clock, memory_mib: u64, nodes: u32, append: &str) -> Result<Record, BootError> {
    let request = Request {
        machine: Machine {
            memory_mib,
            nodes,
            cpus: 2 * nodes,
            clock,
            ..Machine::default()
        },
        wish: Wish::This(Accelerator::Tcg),
        append: append.into(),
        ..Request::default()
    };
    boot::run(&request, &AtomicUsize::new(0), &mut Unwatched)
}

fn restarted(clock: Clock, memory_mib: u64, nodes: u32, append: &str) -> (Record, Restart) {
    let append = format!("restart=warm {append}");
    let record = run(clock, memory_mib, nodes, &append).unwrap_or_else(|error| {
        let tail = match &error {
            BootError::CheckFailed(fault) | BootError::Guest(fault) => fault.tail.join("\n"),
            _ => String::new(),
        };
        panic!("{append}: {error}\n{tail}")
    });
    let restart = record.restart.clone().unwrap();
    (record, restart)
}

/// Milestones of both kernels are in order, and the pause lies between them.
fn check_times(record: &Record, restart: &Restart) {
    let (cold, warm) = (&record.milestones, &restart.milestones);
    let order = [
        cold.entry_ns,
        cold.all_allocatable_ns,
        cold.cpus_started_ns,
        warm.entry_ns,
        warm.layout_ns,
        warm.all_allocatable_ns,
        warm.cpus_started_ns,
    ];
    assert!(order.iter().all(Option::is_some), "{order:?}");
    assert!(order.is_sorted(), "{order:?}");
    let first = restart.phases.first().unwrap();
    assert_eq!(
        (&*first.name, Some(first.end_ns)),
        ("restart", warm.entry_ns)
    );
    if let Some(pause_ns) = restart.pause_ns {
        let usable_ns = first.start_ns + pause_ns;
        // Each is rounded down by itself.
        assert!(usable_ns + 1 >= warm.all_allocatable_ns.unwrap());
        assert!(usable_ns <= restart.phases.last().unwrap().end_ns);
    }
}

#[test]
fn every_byte_of_guests_outlives_a_restart_on_two_nodes_and_four_cpus() {
    if !qemu_is_here() {
        return;
    }
    for clock in [Clock::Wall, Clock::Instructions] {
        let (record, restart) = restarted(clock, 256, 2, "preserve_bytes=192M descriptors=lazy");
        assert_eq!(restart.refused, None);
        assert_eq!(restart.guest_bytes, 192 * MIB);
        assert_eq!(restart.checked_bytes, 192 * MIB);
        assert_eq!(restart.wrong_pages, 0);
        assert_eq!(restart.released_bytes, 2 * MIB);
        assert_eq!(restart.preserved_bytes, 194 * MIB);
        // Most of memory is the guests', so that an allocation too soon meets them. The rest was
        // in use meanwhile, but for what is smaller than a huge frame.
        assert!(restart.other_bytes > 40 * MIB, "{}", restart.other_bytes);
        // All of it came back.
        assert_eq!(restart.free_frames.before, restart.free_frames.after);
        check_times(&record, &restart);
        let counted = clock == Clock::Instructions;
        assert_eq!(restart.pause_instructions.is_some(), counted);
        assert!(restart.pause_ns.unwrap() > 0);
        assert_eq!((record.machine.cpus, restart.stopped_cpus), (Some(4), 3));
        assert_eq!(record.nodes.len(), 2);
    }
}

#[test]
fn a_table_that_cannot_be_right_is_refused_and_memory_comes_up_fresh() {
    if !qemu_is_here() {
        return;
    }
    let cases = [
        // Of the name, the number of ranges, the checksum, a range's owner.
        ("bit:3", "begins with \""),
        ("bit:162", "expected"),
        ("bit:100", "checksum"),
        ("bit:615", "checksum"),
        ("foreign", "begins with \"ANOTHER!\", expected \"FLHANDOV\""),
        (
            "kernel",
            "range 0: [0x0000000000200000-0x0000000000200fff] cannot be preserved: a part of it is in use for image",
        ),
        ("absent", "cannot be preserved: not all of it is memory"),
        (
            "absent preserve=verified",
            "cannot be preserved: not all of it is memory",
        ),
        ("many", "storage for 1024 entries is too small"),
        ("stale", "expected that of restart 0xffffffffffffffff"),
        ("node", "on node 1000, expected node 0"),
    ];
    for (damage, reason) in cases {
        let append = format!("preserve_bytes=8M restart_damage={damage}");
        let (record, restart) = restarted(Clock::Instructions, 256, 2, &append);
        let refused = restart.refused.as_ref().unwrap();
        assert!(refused.contains(reason), "{damage}: {refused}");
        assert!(
            record.notes.iter().any(|note| note.contains(refused)),
            "{damage}"
        );
        assert_eq!(restart.guest_bytes, 0, "{damage}");
        assert_eq!(restart.pause_ns, None, "{damage}");
        // Nothing is lost: as many frames are free as after a cold start.
        assert_eq!(
            restart.free_frames.before, restart.free_frames.after,
            "{damage}"
        );
        check_times(&record, &restart);
    }
}

#[test]
fn a_byte_that_changed_is_found() {
    if !qemu_is_here() {
        return;
    }
    let append = "restart=warm preserve_bytes=8M restart_damage=guest";
    match run(Clock::Instructions, 256, 2, append) {
        Err(BootError::CheckFailed(fault)) => {
            let log = fault.tail.join("\n");
            assert!(
                log.contains("8 MiB taken over, 8 MiB checked, 1 pages wrong"),
                "{log}"
            );
        }
        other => panic!("{other:?}"),
    }
}

/// With checksums of content the next kernel finds it before a guest does, and uses none of the memory.
#[test]
fn a_byte_that_changed_is_refused_where_content_is_verified() {
    if !qemu_is_here() {
        return;
    }
    for (damage, wrong) in [("", false), ("restart_damage=guest", true)] {
        let append = format!("preserve=verified preserve_bytes=8M {damage}");
        let (_, restart) = restarted(Clock::Instructions, 256, 2, &append);
        assert_eq!(restart.guest_bytes, if wrong { 0 } else { 8 * MIB });
        let refused = restart.refused.unwrap_or_default();
        assert_eq!(
            refused.contains("has content of checksum"),
            wrong,
            "{refused}"
        );
        assert_eq!(restart.free_frames.before, restart.free_frames.after);
    }
}

/// A kernel that was killed leaves its table in memory that the next one may find as it was: QEMU puts such
/// a table there at reset.
#[test]
fn a_cold_start_takes_no_table_that_survived() {
    if !qemu_is_here() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("table");
    let mut place = vec![0; 4096];
    let at = 16 * MIB;
    let mut draft = Draft::new(&mut place, PhysAddr::new(at), NonZeroU64::MIN).unwrap();
    draft
        .add(PreservedRange {
            range: PhysRange::with_size(64 * MIB, 128 * MIB).unwrap(),
            owner: 1,
            tag: 0,
            node: None,
        })
        .unwrap();
    draft.finish();
    std::fs::write(&file, &place).unwrap();
    let machine = Machine {
        memory_mib: 256,
        ..Machine::default()
    };
    let device = format!("loader,file={},addr={at:#x},force-raw=on", file.display());
    let free = |extra: &[String]| {
        let boot = Boot::run(&machine, image(), "preserve=64K@16M", extra);
        boot.ended(Outcome::Ok);
        let refused = "note: hand-over table: of restart 0x1, expected none after a cold start";
        assert_eq!(
            boot.log().contains(refused),
            !extra.is_empty(),
            "{}",
            boot.log()
        );
        let line = boot
            .log()
            .lines()
            .find(|line| line.contains(" MiB allocatable of "));
        line.unwrap().split_once(']').unwrap().1.to_owned()
    };
    assert_eq!(free(&["-device".into(), device]), free(&[]));
}

#[test]
fn what_does_not_fit_its_place_is_not_handed_over() {
    if !qemu_is_here() {
        return;
    }
    for (append, reason) in [
        (
            "preserve=4K@16M restart_damage=many",
            "refused: hand-over table: storage for 101 entries is too small: 102 are needed",
        ),
        ("preserve=4K@2M", "there is no place for a table"),
        ("preserve=4K@1T", "there is no place for a table"),
        ("preserve_bytes=1G", "memory for a guest on node 0"),
    ] {
        let append = format!("restart=warm preserve_bytes=8M {append}");
        match run(Clock::Instructions, 256, 1, &append) {
            Err(BootError::CheckFailed(fault)) => {
                let log = fault.tail.join("\n");
                let line = fault.tail.iter().find(|line| line.contains("refused"));
                let line = line.unwrap_or_else(|| panic!("{append}: {log}"));
                assert!(line.contains(reason), "{append}: {line}");
                // Its state is as before.
                let (_, frames) = line.rsplit_once("; ").unwrap();
                let numbers: Vec<u64> = frames
                    .split(|c: char| !c.is_ascii_digit())
                    .filter_map(|number| number.parse().ok())
                    .collect();
                assert_eq!(numbers[0], numbers[1], "{append}: {line}");
            }
            other => panic!("{append}: {other:?}"),
        }
    }
}

/// The first kernel writes to blocks that it got as zeros: the next one must not take the promise
/// that memory above 4 GiB is untouched for its own.
#[test]
fn memory_is_not_fresh_after_a_restart() {
    if !qemu_is_here() {
        return;
    }
    let append = "preserve_bytes=8M preserve_every=1G fresh zeroed=512M";
    let (record, restart) = restarted(Clock::Instructions, 5 << 10, 1, append);
    assert_eq!(record.zeroed.unwrap().zeroed_bytes, 0);
    assert_eq!(restart.refused, None);
    let said = |note: &String| note.contains("fresh is ignored");
    assert!(record.notes.iter().any(said), "{:?}", record.notes);
}

/// 64 GiB, of which 8 are preserved: a page in each GiB is written, to spare the host.
#[test]
fn memory_is_ready_as_soon_as_after_a_cold_start() {
    if !qemu_is_here() {
        return;
    }
    for nodes in [1, 4] {
        let append = "preserve_bytes=8G preserve_every=1G";
        let (_, restart) = restarted(Clock::Instructions, 64 << 10, nodes, append);
        assert_eq!(restart.guest_bytes, 8 << 30);
        let warm = restart.ready_instructions.unwrap();
        let same = restart.cold_ready_instructions.unwrap();
        let plain = run(Clock::Instructions, 64 << 10, nodes, "")
            .unwrap()
            .milestones;
        let plain = plain.all_allocatable_ns.unwrap() - plain.entry_ns.unwrap();
        let pause = restart.pause_instructions.unwrap();
        println!(
            "{nodes} nodes: {warm} warm, {same} cold, {plain} cold without a word, pause {pause}"
        );
        for cold in [same, plain] {
            assert!(
                warm <= cold + MOST_MORE,
                "{nodes} nodes: {warm} instructions warm, {cold} cold"
            );
        }
    }
}
