//! Memory hotplug of QEMU, driven through its monitor, in our image.

use crate::common::image::image;
use crate::common::qemu;

use std::ffi::OsString;
use std::fmt::Write;
use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use firstlight_lab::boot::hotplug::Script;
use firstlight_lab::boot::{
    self, Accelerator, Board, Clock, Machine, Request, Slots, Unwatched, Wish,
};
use firstlight_lab::record::{Hotplugged, Record};
use qemu::{QEMU, qemu_is_here};
use serde_json::{Value, json};

/// What came of a script on a machine of so many MiB, with slots and most memory in GiB.
fn drive(machine: Machine, slots: u32, most_gib: u64, script: &str, append: &str) -> Record {
    let request = Request {
        machine: Machine {
            hotplug: Some(Slots {
                slots,
                max_memory_mib: most_gib << 10,
            }),
            ..machine
        },
        script: Some(script.parse::<Script>().unwrap()),
        append: append.into(),
        wish: Wish::This(Accelerator::Tcg),
        ..Request::default()
    };
    let record = boot::run(&request, &AtomicUsize::new(0), &mut Unwatched);
    let record = record.unwrap_or_else(|error| panic!("{script}: {error}: {error:?}"));
    assert_eq!(record.notes, Vec::<String>::new(), "{script}");
    record
}

fn machine(memory_mib: u64, nodes: u32) -> Machine {
    Machine {
        memory_mib,
        nodes,
        cpus: nodes,
        ..Machine::default()
    }
}

/// Whether each row was refused, and with which words.
fn outcomes(record: &Record, expected: &[Option<&str>]) {
    let rows: &[Hotplugged] = &record.hotplug;
    assert_eq!(rows.len(), expected.len(), "{rows:#?}");
    for (row, expected) in rows.iter().zip(expected) {
        match (&row.refused, expected) {
            (None, None) => {}
            (Some(seen), Some(words)) if seen.contains(words) => {}
            _ => panic!("expected {expected:?}: {row:#?}"),
        }
        let took = match row.event.as_str() {
            "add" => row.allocatable_ns,
            _ => row.gone_ns,
        };
        let is_used = expected.is_none() && !(row.offline && row.event == "add");
        assert_eq!(took.is_some(), is_used, "{row:#?}");
    }
}

#[test]
fn dimms_come_and_go_on_both_boards() {
    if !qemu_is_here() {
        return;
    }
    for board in [Board::Q35, Board::Pc] {
        let script = "at 0 add 1G\nat 20 add 512M\nat 40 remove dimm1\nat 60 add 2G node 0\n\
                      at 80 remove dimm3\nat 100 remove dimm2";
        let machine = Machine {
            board,
            ..machine(256, 1)
        };
        let record = drive(machine, 4, 8, script, "descriptors=early");
        outcomes(&record, &[None; 6]);
        let added = &record.hotplug[0];
        assert_eq!((added.bytes, added.node), (1 << 30, Some(0)));
        assert_eq!(added.zone.as_deref(), Some("Normal"));
        assert!(added.described_ns >= added.allocatable_ns);
    }
}

/// A frame that stays in use when a DIMM goes, or is not free when it came, shows in the events.
#[test]
fn all_of_a_dimm_and_no_other_frame_is_free_when_it_came_and_gone_when_it_went() {
    if !qemu_is_here() {
        return;
    }
    // 64 bytes for each of its frames lie in itself.
    let whole = 1 << 18;
    for (append, frames) in [("", whole), ("descriptors=early", whole - whole / 64)] {
        let script = "at 0 add 1G\nat 50 remove dimm1";
        let record = drive(machine(256, 1), 1, 4, script, append);
        outcomes(&record, &[None; 2]);
        let free = |row: usize| record.hotplug[row].free_frames.unwrap();
        assert_eq!(free(0) - free(1), frames, "{append}");
    }
}

#[test]
fn a_dimm_that_descriptors_would_take_whole_is_refused_with_that_reason() {
    if !qemu_is_here() {
        return;
    }
    let script = "at 0 add 2M\nat 20 remove dimm1\nat 40 add 4M";
    let record = drive(machine(256, 1), 2, 4, script, "descriptors=early");
    let whole = Some("its descriptors would take all of");
    outcomes(&record, &[whole, None, None]);
}

/// 64 GiB can be allocated 500,000 instructions after the event, on one CPU and before its
/// descriptors are written; what of it goes again costs at most 1,000 a huge frame.
#[test]
fn a_large_dimm_is_allocatable_at_once() {
    if !qemu_is_here() {
        return;
    }
    for append in ["", "descriptors=lazy movable_node", "descriptors=early"] {
        let machine = Machine {
            clock: Clock::Instructions,
            ..machine(2048, 1)
        };
        let record = drive(machine, 1, 66, "at 0 add 64G\nat 10 remove dimm1", append);
        outcomes(&record, &[None, None]);
        let [added, removed] = &record.hotplug[..] else {
            panic!("{append}: {:#?}", record.hotplug);
        };
        let instructions = added.instructions.unwrap();
        assert!(instructions <= 500_000, "{append}: {instructions}");
        let instructions = removed.instructions.unwrap();
        let huge_frames = (64 << 30) / (2 << 20);
        assert!(
            instructions <= 1_000 * huge_frames,
            "{append}: {instructions}"
        );
        let movable = added.zone.as_deref() == Some("Movable");
        assert_eq!(movable, append.contains("movable_node"));
        // Written behind, by this one CPU.
        let described = added.described_ns;
        assert_eq!(described.is_some(), append.contains("descriptors="));
        assert!(described.is_none_or(|at| Some(at) > added.allocatable_ns));
    }
}

/// What is in use stays, with a reason, and goes once it is free; so do those that the guest could
/// not use.
#[test]
fn what_is_refused_has_a_reason() {
    if !qemu_is_here() {
        return;
    }
    // Every second DIMM has a page in use until it was to go once. At one moment the guest may see the
    // second first. A second between what is asked of it is enough on a busy host, too.
    let script = "at 0 add 256M\nat 25 add 256M\nat 50 remove dimm2\nat 1000 remove dimm2\n\
                  at 2000 remove dimm2\nat 2050 remove dimm1";
    let record = drive(machine(256, 1), 2, 4, script, "hold_one_in=2");
    let in_use = Some("1 frame is in use, frame ");
    // QEMU has no DIMM of that name any more.
    let gone = Some("not found");
    outcomes(&record, &[None, None, in_use, None, gone, None]);
    // It stays where it came to; one that is gone is nowhere.
    let place = |row: usize| (record.hotplug[row].node, record.hotplug[row].zone.clone());
    assert_eq!(place(2), (Some(0), Some("Normal".into())));
    assert_eq!(place(4), (None, None));

    // A size QEMU does not take, a node there is not, one slot too many.
    let script = "at 0 add 3M\nat 0 add 128M node 7\nat 0 add 128M\nat 0 add 128M";
    let record = drive(machine(256, 2), 1, 4, script, "");
    outcomes(
        &record,
        &[Some("multiple"), Some("node"), None, Some("no free slots")],
    );
    assert_eq!(record.hotplug[2].node, Some(1), "of the last node");

    // More than --max-memory has space for.
    let record = drive(machine(256, 2), 2, 1, "at 0 add 8G\nat 0 add 128M", "");
    assert_eq!(record.hotplug.len(), 2);
    assert!(record.hotplug[0].refused.is_some());
    assert_eq!(record.hotplug[1].refused, None);
}

/// QEMU announces one window, of the last node, for DIMMs of all: each has its own node, and the zone
/// that the command line says, also where another was before.
#[test]
fn dimms_of_two_nodes_come_to_the_zone_of_the_policy() {
    if !qemu_is_here() {
        return;
    }
    let script = "at 0 add 128M node 0\nat 20 add 128M node 1\nat 40 add 1G node 0\n\
                  at 60 add 128M node 1\nat 80 remove dimm1\nat 100 remove dimm2\n\
                  at 120 add 128M node 1\nat 140 add 128M node 0\nat 160 remove dimm3";
    let nodes = [0, 1, 0, 1, 0, 1, 1, 0, 0];
    for (append, zone) in [
        ("", Some("Normal")),
        ("movable_node", Some("Movable")),
        ("memhp_default_state=online_movable", Some("Movable")),
        (
            "movable_node memhp_default_state=online_kernel",
            Some("Normal"),
        ),
        ("memhp_default_state=offline descriptors=early", None),
    ] {
        let record = drive(machine(256, 2), 6, 4, script, append);
        outcomes(&record, &[None; 9]);
        for (row, node) in record.hotplug.iter().zip(nodes) {
            assert_eq!(row.node, Some(node), "{append}: {row:#?}");
            assert_eq!(row.zone.as_deref(), zone, "{append}: {row:#?}");
            assert_eq!(row.offline, zone.is_none(), "{append}: {row:#?}");
        }
    }
}

/// DIMMs leave while others come, whose slots are used again; then as many as QEMU has slots for leave
/// in another order.
#[test]
fn dimms_fill_all_slots_and_leave_in_another_order() {
    if !qemu_is_here() {
        return;
    }
    const SLOTS: u32 = 256;
    // One more comes for each that leaves early: the last of them fit into slots of these only. The
    // guest looks at low slots first, so these are free long before, though it is behind with the rest.
    const EARLY: u32 = 16;
    let mut script = String::new();
    let mut early = Vec::new();
    for dimm in 1..=SLOTS + EARLY {
        let at = if dimm <= SLOTS { 0 } else { 1000 } + dimm * 2;
        writeln!(script, "at {at} add 128M").unwrap();
        if (17..17 + 2 * EARLY).contains(&dimm) && dimm % 2 == 1 {
            early.push(dimm - 16);
            writeln!(script, "at {at} remove dimm{}", dimm - 16).unwrap();
        }
    }
    let left: Vec<u32> = (1..=SLOTS + EARLY)
        .filter(|dimm| !early.contains(dimm))
        .collect();
    assert_eq!(left.len(), SLOTS as usize);
    for turn in 0..left.len() {
        // 101 and 256 have no common divisor: each once.
        let dimm = left[turn * 101 % left.len()];
        writeln!(script, "at {} remove dimm{dimm}", 1600 + turn * 2).unwrap();
    }
    let record = drive(machine(32 << 10, 1), SLOTS, 64, &script, "");
    outcomes(&record, &[None; 2 * (SLOTS + EARLY) as usize]);
}

/// QEMU's reports of outcomes (`_OST`) in a boot of `arguments` that `commands` come before: the DIMM, of
/// what, and the outcome.
fn outcomes_of_early(arguments: &[OsString], commands: &[Value]) -> Vec<(String, u64, u64)> {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut qemu = Command::new(QEMU);
    qemu.args(arguments).args(["-S", "-qmp", "stdio"]);
    let theirs = std::os::fd::OwnedFd::from(theirs);
    qemu.stdin(Stdio::from(theirs.try_clone().unwrap()))
        .stdout(Stdio::from(theirs));
    let mut child = qemu.spawn().unwrap();
    drop(qemu);
    ours.set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    let mut say = ours.try_clone().unwrap();
    let mut execute = |command: &Value| writeln!(say, "{command}").unwrap();
    execute(&json!({"execute": "qmp_capabilities"}));
    commands.iter().for_each(&mut execute);
    execute(&json!({"execute": "cont"}));
    let mut outcomes = Vec::new();
    for line in BufReader::new(ours).lines() {
        let Ok(line) = line else { break };
        let said: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(said.get("error"), None, "{said}");
        let info = &said["data"]["info"];
        if said["event"] != "ACPI_DEVICE_OST" {
            continue;
        }
        let number = |name: &str| info[name].as_u64().unwrap();
        let device = info["device"].as_str().unwrap().to_owned();
        outcomes.push((device, number("source"), number("status")));
        if outcomes.len() == 1 {
            // The guest looks for changes before it looks at the button.
            execute(&json!({"execute": "system_powerdown"}));
        }
    }
    let _ = child.kill();
    child.wait().unwrap();
    outcomes
}

#[test]
fn a_dimm_that_came_before_the_guest_serves_is_used_once() {
    if !qemu_is_here() {
        return;
    }
    let machine = Machine {
        hotplug: Some(Slots {
            slots: 2,
            max_memory_mib: 1024,
        }),
        ..machine(256, 1)
    };
    let arguments = qemu::arguments(&machine, image(), "hotplug=2", &[], "null", "null");
    let memory = json!({"qom-type": "memory-backend-ram", "id": "m", "size": 128 << 20});
    let dimm = json!({"driver": "pc-dimm", "id": "dimm1", "memdev": "m"});
    let commands = [("object-add", memory), ("device_add", dimm)]
        .map(|(name, arguments)| json!({"execute": name, "arguments": arguments}));
    let outcomes = outcomes_of_early(&arguments, &commands);
    assert_eq!(outcomes, [("dimm1".to_owned(), 1, 0)]);
}
