//! Machines with an Arm processor, by EDK2: one stick for both processors; ACPI or a device tree, at either exception
//! level.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicUsize;

use super::started::power_on_machine;
use super::{record, says};
use crate::common::qemu::{arm_uefi_is_here, ovmf_is_here};
use firstlight_lab::boot::{
    Board, Machine, Processor, Unwatched, find_image, find_loader, record_of_result,
};
use firstlight_lab::stick::{self, Programs, Stick};

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
