//! The image for aarch64, entered as by the UEFI loader, with hand-overs that no honest firmware makes: its screen or its
//! serial port lies where memory is.

use crate::common::here::is_here;
use crate::hand_over::acpi::table;
use crate::hand_over::uefi::{
    ACPI_TABLES, Descriptor, FREE, GIB, LOADER, WRITE_BACK, handover, module, uefi,
};
use crate::hand_over::{HandOver, MIB};
use crate::image_tree::{Ended, IMAGE, JUMP, QEMU, TREE, boot};
use firstlight_lab::boot::events::Outcome;
use firstlight_wire::handover::{Handover, Screen};

/// What QEMU's board has at 0x9000000.
const PL011: u64 = 0x900_0000;
/// Memory above 4 GiB, of which only a part of the first GiB is there, and at its end a table.
const HIGH: u64 = 4 * GIB;
const TABLE: u64 = HIGH + 64 * MIB - 0x1_0000;

/// 256 MiB from 1 GiB on, of which the loader has 1 MiB, and 64 MiB from 4 GiB on.
fn map() -> Vec<Descriptor> {
    let free = |start, end: u64| (FREE, start, (end - start) / 4096, WRITE_BACK);
    vec![
        free(GIB, TREE),
        (LOADER, TREE, 256, WRITE_BACK),
        free(TREE + MIB, GIB + 256 * MIB),
        free(HIGH, TABLE),
        (ACPI_TABLES, TABLE, 1, WRITE_BACK),
    ]
}

/// What ACPI says of the console's port: a PL011.
fn spcr(address: u64) -> Vec<u8> {
    let mut body = [0; 44];
    body[0] = 3;
    body[4..8].copy_from_slice(&[0, 32, 0, 3]);
    body[8..16].copy_from_slice(&address.to_le_bytes());
    table(b"SPCR", &body)
}

/// Boots so, with a table of ACPI above 4 GiB, and looks at all memory.
fn tested(handover: Handover, port: u64) -> Ended {
    let hand_over = HandOver {
        pointers: vec![TABLE],
        ..uefi(module(handover, &map()))
    };
    let (content, told) = hand_over.command_line("selftest").contents(TREE);
    // Firmware has vector registers on: mov x2, 3 << 20; msr cpacr_el1, x2; isb.
    let code = [&[0xd2a0_0602, 0xd518_1042, 0xd503_3fdf], &JUMP[..]].concat();
    let contents: [(u64, &[u8]); 2] = [(TREE, &content), (TABLE, &spcr(port))];
    // The image's second instruction is for that loader.
    boot(["virt", "3328M"], &code, &contents, [told, IMAGE + 4])
}

/// Registers of devices never make memory one of them, nor the rest of its 2 MiB.
#[test]
fn memory_stays_memory_where_registers_are_said_to_be() {
    if !is_here(QEMU) {
        return;
    }
    let ok = Some(Outcome::Ok.exit_status());
    // In a hole beside memory, and where memory is.
    for (address, refused) in [
        (TABLE + 0x1000, None),
        (
            TABLE - 0x2000,
            Some("frame buffer at 0x103fee000, 4096 bytes: memory is there"),
        ),
    ] {
        let screen = Screen {
            address,
            bytes: 4096,
            width: 32,
            height: 32,
            stride: 32,
        };
        let with_screen = Handover {
            screen: Some(screen),
            ..handover()
        };
        let Ended { status, log, .. } = tested(with_screen, PL011);
        assert_eq!(status, ok, "{address:#x}\n{log}");
        assert!(log.contains("end: ok"), "{address:#x}\n{log}");
        assert!(log.contains(refused.unwrap_or_default()), "{log}");
    }
    // The log's port.
    let Ended { status, log, .. } = tested(handover(), TABLE - MIB);
    assert_eq!((status, log.as_str()), (ok, ""));
}
