//! Machines with an Arm processor, by EDK2: one stick for both processors; ACPI or a device tree, at either exception
//! level.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicUsize;

use super::started::power_on_machine;
use super::{record, says};
use crate::boot_memory_device::{answers, documented, machine};
use crate::common::hotplug::{Guest, MIB};
use crate::common::qemu::{arm_uefi_is_here, ovmf_is_here};
use firstlight_lab::boot::{
    Board, Machine, Processor, Slots, Unwatched, find_image, find_loader, record_of_result,
};
use firstlight_lab::stick::{self, Programs, Stick};
use serde_json::Value;

/// Loader and image.
fn files(processor: Processor) -> (PathBuf, PathBuf) {
    let stop = AtomicUsize::new(0);
    (
        find_loader(processor, &stop, &mut Unwatched).unwrap(),
        find_image(processor, &stop, &mut Unwatched).unwrap(),
    )
}

fn programs((loader, image): &(PathBuf, PathBuf)) -> Option<Programs<'_>> {
    Some(Programs { loader, image })
}

fn write_for_both(path: &Path, words: &str) {
    let [x86_64, aarch64] = [Processor::X86_64, Processor::Aarch64].map(files);
    let stick = Stick {
        x86_64: programs(&x86_64),
        aarch64: programs(&aarch64),
        words,
    };
    stick.write(path).unwrap();
}

/// On the Arm machine by ACPI.
#[test]
fn one_stick_starts_machines_with_both_processors() {
    let folder = tempfile::tempdir().unwrap();
    let both = folder.path().join("both");
    let boards = [
        (Board::VirtAarch64, arm_uefi_is_here()),
        (Board::Q35, ovmf_is_here()),
    ];
    for (board, _) in boards.into_iter().filter(|(_, is_here)| *is_here) {
        if !both.exists() {
            write_for_both(&both, "zeroed=64M");
        }
        let machine = Machine {
            board,
            memory_mib: 512,
            cpus: 2,
            ..Machine::default()
        };
        let change = |uefi: &mut firstlight_lab::boot::Uefi| {
            fs::copy(&both, &uefi.stick).unwrap();
        };
        let started = power_on_machine(machine, "", change, "", &[]).ended("");
        assert_eq!(started.status, Some(0), "{board}: {}", started.log);
        let result = stick::result(&started.uefi.stick).unwrap();
        let result = result.unwrap_or_else(|| panic!("{board}: {}", started.log));
        let record = record_of_result("result", &result).unwrap();
        assert_eq!(record.source.command_line, "zeroed=64M", "{board}");
        assert_eq!(record.machine.cpus, Some(2), "{board}");
        assert!(record.memory.present_frames.unwrap() > 440 << 8, "{board}");
    }
}

/// DIMMs by the registers that the DSDT names, a device by PCI's table; the first 1 GiB of the window is below 4 GiB, where
/// there were registers for all that firmware says.
#[test]
fn memory_comes_and_goes_below_4_gib_and_above() {
    if !arm_uefi_is_here() {
        return;
    }
    let machine = Machine {
        board: Board::VirtAarch64,
        memory_mib: 2 << 10,
        cpus: 2,
        hotplug: Some(Slots {
            slots: 4,
            max_memory_mib: 8 << 10,
        }),
        ..Machine::default()
    };
    let devices = [
        "-object",
        "memory-backend-ram,id=m0,size=1G,reserve=off",
        "-device",
        "virtio-mem-pci,id=vm0,memdev=m0,memaddr=0x180000000",
    ];
    let words = "hotplug=4 descriptors=early";
    let mut guest = Guest::by_uefi(machine, words, &devices);
    let came = [("dimm1", 3_u64 << 30, "DMA"), ("dimm2", 4 << 30, "Normal")];
    for (row, (dimm, start, zone)) in (1..).zip(came) {
        assert_eq!(guest.plug(dimm, 1024, None), 0);
        let event = guest.event(row);
        assert_eq!(event["start"], start, "{event}");
        assert_eq!(event["zone"], zone, "{event}");
        assert_eq!(event["node"], 0, "{event}");
        assert_eq!(event["failures"], 0, "{event}");
        assert!(event["described_ticks"].is_u64(), "{event}");
    }
    assert_eq!((guest.pull("dimm1"), guest.pull("dimm2")), (0, 0));
    // 64 bytes for each of its frames lie in itself.
    let free = |event: &Value| event["free_frames"].as_u64().unwrap();
    let (full, empty) = (guest.event(2), guest.event(4));
    assert_eq!(free(&full) - free(&empty), 2 * ((1 << 18) - (1 << 12)));
    // Across 4 GiB it is of two zones, so Movable.
    assert_eq!(guest.plug("dimm3", 2048, None), 0);
    assert_eq!(guest.event(5)["zone"], "Movable");
    for (mib, action) in [(512, "add"), (0, "remove")] {
        let event = guest.resize("vm0", mib, 1).remove(0);
        assert_eq!(event["action"], action, "{event}");
        assert_eq!(event["bytes"], 512 * MIB, "{event}");
        assert_eq!(guest.plugged("vm0"), mib);
    }
    assert_eq!(guest.pull("dimm3"), 0);
    guest.end();
}

/// `make arm`: minutes.
#[test]
#[ignore = "minutes of firmware: make arm"]
fn arm_machines_answer_the_board_as_the_page_says() {
    assert!(arm_uefi_is_here());
    let start = |append: &str, most_gib| {
        let machine = machine(Board::VirtAarch64, most_gib);
        Guest::by_uefi(machine, &format!("hotplug=4 {append}"), &[])
    };
    assert_eq!(answers(start), documented());
}

/// `make arm`: minutes.
#[test]
#[ignore = "minutes of firmware: make arm"]
fn arm_machines_of_many_shapes_come_up() {
    assert!(arm_uefi_is_here());
    for (cpus, nodes, memory_mib, options, words) in [
        (1, 1, 256, "acpi=on", "selftest"),
        (1, 1, 256, "acpi=off", "selftest"),
        (4, 4, 6 << 10, "acpi=on", "selftest"),
        (4, 4, 6 << 10, "acpi=off", "selftest"),
        (
            4,
            2,
            2 << 10,
            "acpi=on,virtualization=on",
            "selftest test=occupied",
        ),
        (
            4,
            2,
            2 << 10,
            "acpi=off,virtualization=on",
            "selftest test=occupied",
        ),
        (123, 4, 8 << 10, "acpi=on", ""),
        (123, 4, 8 << 10, "acpi=off", ""),
    ] {
        let machine = Machine {
            board: Board::VirtAarch64,
            memory_mib,
            nodes,
            cpus,
            ..Machine::default()
        };
        eprintln!("{options}: {cpus} CPUs, {nodes} nodes, {memory_mib} MiB, {words:?}");
        let record = record(machine, words, &["-machine", options]);
        assert_eq!(
            (record.machine.cpus, record.machine.nodes),
            (Some(cpus.into()), Some(nodes.into()))
        );
        if words.contains("selftest") {
            let selftest = record.selftest.as_ref().unwrap();
            assert_eq!((selftest.failures, selftest.cpus), (0, u64::from(cpus)));
        }
        assert!(
            says(&record, "entered by the UEFI loader"),
            "{:?}",
            record.log
        );
    }
}
