//! QEMU's virtio memory device, whose size its monitor changes, in our image.

use crate::common::hotplug::{Guest, MIB};
use crate::common::qemu::qemu_is_here;

use std::collections::BTreeMap;
use std::fs;

use firstlight_lab::boot::{Board, Machine, Slots};
use serde_json::Value;

/// A PC of 256 MiB with four slots for DIMMs.
fn start(board: Board, append: &str, devices: &[&str]) -> Guest {
    Guest::start(&machine(board, 8), append, devices)
}

/// A machine of 256 MiB with four slots for DIMMs, and space for so many GiB.
pub(crate) fn machine(board: Board, most_gib: u64) -> Machine {
    Machine {
        board,
        memory_mib: 256,
        hotplug: Some(Slots {
            slots: 4,
            max_memory_mib: most_gib << 10,
        }),
        ..Machine::default()
    }
}

/// Start, size, action and whether it was refused.
fn row(event: &Value) -> (u64, u64, &str, bool) {
    let number = |name: &str| event[name].as_u64().unwrap();
    let action = event["action"].as_str().unwrap();
    (
        number("start") - (4 << 30),
        number("bytes") / MIB,
        action,
        !event["refused"].is_null(),
    )
}

/// Blocks are plugged and unplugged as the host wants, all of them are free memory between, and the
/// host has its memory again.
#[test]
fn memory_comes_and_goes_in_blocks_and_the_host_has_it_again() {
    if !qemu_is_here() {
        return;
    }
    let devices = [
        "-object",
        "memory-backend-ram,id=m0,size=1G,reserve=off",
        "-device",
        "virtio-mem-pci,id=vm0,memdev=m0,requested-size=16M",
    ];
    let mut guest = start(Board::Q35, "touch", &devices);
    guest.until("the size of the start", |guest| guest.events().len() == 1);
    let began = guest.resident();
    let grown = guest.resize("vm0", 272, 1);
    assert_eq!(row(&grown[0]), (16 * MIB, 256, "add", false));
    assert_eq!(grown[0]["failures"], 0);
    assert_eq!(
        (grown[0]["node"].as_u64(), grown[0]["zone"].as_str()),
        (Some(0), Some("Normal"))
    );
    let full = guest.resident();
    assert!(full > began + 240, "{began} to {full} MiB");
    // The highest go first, one block of 2 MiB or many.
    let one = guest.resize("vm0", 270, 1);
    assert_eq!(row(&one[0]), (270 * MIB, 2, "remove", false));
    let shrunk = guest.resize("vm0", 16, 1);
    assert_eq!(row(&shrunk[0]), (16 * MIB, 254, "remove", false));
    let free = |event: &Value| event["free_frames"].as_u64().unwrap();
    assert_eq!(free(&grown[0]) - free(&shrunk[0]), 256 * MIB / 4096);
    assert_eq!(guest.plugged("vm0"), 16);
    let empty = guest.resident();
    assert!(empty + 240 < full, "{full} to {empty} MiB");
    guest.end();
}

/// With descriptors, beside a DIMM and another device, and with pages in use.
#[test]
fn what_is_in_use_stays_until_it_is_free_and_devices_are_apart() {
    if !qemu_is_here() {
        return;
    }
    let devices = [
        "-object",
        "memory-backend-ram,id=m0,size=1G,reserve=off",
        "-device",
        "virtio-mem-pci,id=vm0,memdev=m0,memaddr=0x100000000",
        "-object",
        "memory-backend-ram,id=m1,size=1G,reserve=off",
        "-device",
        "virtio-mem-pci,id=vm1,memdev=m1,memaddr=0x180000000",
        "-object",
        "memory-backend-ram,id=m2,size=128M,reserve=off",
        "-device",
        "pc-dimm,memdev=m2,addr=0x140000000",
    ];
    let append = "descriptors=early hold_one_in=1";
    let mut guest = start(Board::Pc, append, &devices);
    let came = guest.resize("vm0", 512, 1);
    assert_eq!(row(&came[0]), (0, 512, "add", false));
    let other = guest.resize("vm1", 200, 1);
    // Memory with descriptors comes in 128 MiB: the rest is left to the host.
    assert_eq!(row(&other[0]), (2 << 30, 128, "add", false));
    // A page of the highest piece is in use; the next try, a second later, finds it free.
    let gone = guest.resize("vm0", 0, 3);
    let rows: Vec<_> = gone.iter().map(row).collect();
    let expected = [
        (0, 384, "remove", false),
        (0, 128, "resize", true),
        (384 * MIB, 128, "remove", false),
    ];
    assert_eq!(rows, expected);
    let why = gone[1]["refused"].as_str().unwrap();
    assert!(
        why.starts_with("0x8000000 of 0x20000000 bytes are in use: "),
        "{why}"
    );
    assert_eq!((guest.plugged("vm0"), guest.plugged("vm1")), (0, 128));
    let log = guest.end();
    let served = "hotplug: 4 slots, 2 memory devices, until the power button is pressed";
    assert!(log.contains(served), "{log}");
}

/// The last column of the table of outcomes, by the first.
pub(crate) fn documented() -> BTreeMap<String, u64> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/hotplug-devices.md");
    let text = fs::read_to_string(page).unwrap();
    let (_, table) = text
        .split_once("| what happens | Linux | ours |\n|---|---|---|\n")
        .unwrap();
    let rows = table.lines().take_while(|line| line.starts_with('|'));
    let cells = rows.map(|row| {
        row.trim_matches('|')
            .split('|')
            .map(str::trim)
            .collect::<Vec<_>>()
    });
    cells
        .map(|cells| {
            let ours = cells[2].trim_start_matches("0x");
            (cells[0].to_owned(), u64::from_str_radix(ours, 16).unwrap())
        })
        .collect()
}

/// What the board is answered where guests are started with words and space for so many GiB.
pub(crate) fn answers(start: impl Fn(&str, u64) -> Guest) -> BTreeMap<String, u64> {
    let mut seen = BTreeMap::new();
    let mut say = |what: &str, status: u64| {
        assert_eq!(seen.insert(what.to_owned(), status), None, "{what}");
    };
    let mut guest = start("", 900);
    say("a DIMM of 128 MiB comes", guest.plug("dimm1", 128, None));
    say("a DIMM of 64 MiB comes", guest.plug("dimm2", 64, None));
    say(
        "a DIMM of 128 MiB comes 64 MiB into a block",
        guest.plug("dimm3", 128, None),
    );
    say(
        "a DIMM comes where the window has no tables",
        guest.plug("dimm4", 128, Some(800 << 30)),
    );
    say("a free DIMM is to go", guest.pull("dimm1"));
    guest.end();
    let mut guest = start("descriptors=early", 8);
    say(
        "a DIMM of 2 MiB comes, `descriptors=early`",
        guest.plug("dimm1", 2, None),
    );
    say("a DIMM that was refused is to go", guest.pull("dimm1"));
    guest.end();
    let mut guest = start("memhp_default_state=offline", 8);
    say(
        "a DIMM comes, `memhp_default_state=offline`",
        guest.plug("dimm1", 128, None),
    );
    say("a DIMM that waits offline is to go", guest.pull("dimm1"));
    guest.end();
    let mut guest = start("hold_one_in=1", 8);
    guest.plug("dimm1", 128, None);
    say("a DIMM with a page in use is to go", guest.pull("dimm1"));
    guest.end();
    seen
}

/// What the board is answered is what the page says beside Linux's answers.
#[test]
fn the_board_is_answered_as_the_page_says() {
    if !qemu_is_here() {
        return;
    }
    let start = |append: &str, most_gib| Guest::start(&machine(Board::Q35, most_gib), append, &[]);
    assert_eq!(answers(start), documented());
}
