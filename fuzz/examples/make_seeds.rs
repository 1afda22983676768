//! Writes the seed corpus: `cargo run --example make_seeds` in `fuzz/`.
//!
//! Small, well-formed inputs for each target, so that the fuzzer starts past
//! the headers; `run.sh` adds the real tables and logs of `testdata/`.

#[path = "../../engine/tests/it/acpi_tables/mod.rs"]
mod acpi_tables;
#[path = "../../engine/tests/it/fdt_blob/mod.rs"]
mod fdt_blob;

use std::{fs, io, path::Path};

use acpi_tables::{cfmws, cpu, entry, madt, madt_x2apic, memory, sealed, slit, srat, x2apic};
use firstlight::addr::{PhysAddr, PhysRange};
use firstlight::node::NodeId;
use firstlight::preserve::{Draft, PreservedRange};
use firstlight_wire::handover::{Handover, Screen};
use std::num::NonZeroU64;

const PC: &[u8] = include_bytes!("../../testdata/machines/acpi/QEMU_pc.facp.bin");
const Q35: &[u8] = include_bytes!("../../testdata/machines/acpi/QEMU_q35.facp.bin");
const SPCR: &[u8] = include_bytes!("../../testdata/machines/acpi/QEMU_virt.spcr.bin");
const DBG2: &[u8] = include_bytes!("../../testdata/machines/acpi/QEMU_virt.dbg2.bin");

fn e820_row(start: u64, bytes: u64, number: u32) -> Vec<u8> {
    [
        &start.to_le_bytes()[..],
        &bytes.to_le_bytes(),
        &number.to_le_bytes(),
    ]
    .concat()
}

fn efi_row(number: u32, start: u64, pages: u64, attributes: u64) -> Vec<u8> {
    let fields = [u64::from(number), start, 0, pages, attributes, 0];
    fields
        .iter()
        .flat_map(|field| field.to_le_bytes())
        .collect()
}

/// A guest as QEMU makes it: start info, map, one module, a command line.
fn pvh(version: u32) -> Vec<u8> {
    let mut memory = vec![0u8; 0x1a0];
    let mut put = |at: usize, bytes: &[u8]| memory[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &0x336e_c578u32.to_le_bytes());
    put(4, &version.to_le_bytes());
    put(12, &1u32.to_le_bytes());
    put(16, &0x1100u64.to_le_bytes());
    put(24, &0x1120u64.to_le_bytes());
    put(32, &0xf_5a30u64.to_le_bytes());
    put(40, &0x1140u64.to_le_bytes());
    put(48, &4u32.to_le_bytes());
    put(0x100, &0x100_0000u64.to_le_bytes());
    put(0x108, &0x8000u64.to_le_bytes());
    put(0x120, b"console=ttyS0 mem=1G\0");
    let rows = [
        (0, 0x9_fc00, 1),
        (0x9_fc00, 0x400, 2),
        (0x10_0000, 0x3fee_0000, 1),
        (0x3ffe_0000, 0x2_0000, 3),
    ];
    for (index, (start, bytes, number)) in rows.into_iter().enumerate() {
        put(0x140 + 24 * index, &e820_row(start, bytes, number));
    }
    memory
}

/// What the UEFI loader hands over: free memory in two parts, firmware's own, a screen.
fn uefi_handover() -> Vec<u8> {
    let map = [
        efi_row(7, 0, 0x9f, 8),
        efi_row(4, 0x9_f000, 1, 8),
        efi_row(5, 0x7f4e_c000, 0x280, 1 << 63 | 8),
    ];
    let handover = Handover {
        entered_ticks: 1,
        read_ticks: 2,
        exited_ticks: 3,
        system_table: 0x7f9e_e018,
        keeps_results: true,
        screen: Some(Screen {
            address: 0x8000_0000,
            bytes: 1280 * 800 * 4,
            width: 1280,
            height: 800,
            stride: 1280,
        }),
        storage: None,
        descriptor_bytes: 48,
    };
    let mut bytes = vec![0; 512];
    let length = handover.write(&map.concat(), &mut bytes).expect("space");
    bytes.truncate(length);
    bytes
}

/// A program of one small segment with a PVH note and a relocation of each kind.
fn uefi_elf() -> Vec<u8> {
    const START: u64 = 0x20_0000;
    let mut file = vec![0; 0x300];
    let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"\x7fELF\x02\x01\x01");
    put(16, &[2, 0, 62, 0]);
    put(32, &64u64.to_le_bytes());
    put(40, &0x240u64.to_le_bytes());
    put(54, &[56, 0, 2, 0, 64, 0, 3, 0]);
    for (row, fields) in [[1, 0x100, START, 64, 128], [4, 0x140, 0, 24, 24u64]]
        .into_iter()
        .enumerate()
    {
        for (field, at) in fields.into_iter().zip([0, 8, 24, 32, 40]) {
            put(64 + 56 * row + at, &field.to_le_bytes());
        }
    }
    put(0x100, &(START + 8).to_le_bytes());
    put(0x140, b"\x04\0\0\0\x08\0\0\0\x12\0\0\0Xen\0");
    put(0x150, &START.to_le_bytes());
    for (row, kind) in [1u64, 2, 4, 9, 10, 11].into_iter().enumerate() {
        put(0x160 + 24 * row, &(START + 8 * row as u64).to_le_bytes());
        put(0x168 + 24 * row, &kind.to_le_bytes());
    }
    // What is loaded, then its relocations.
    put(0x288, &2u64.to_le_bytes());
    put(0x2c4, &4u32.to_le_bytes());
    put(0x2d8, &0x160u64.to_le_bytes());
    put(0x2e0, &144u64.to_le_bytes());
    put(0x2ec, &1u32.to_le_bytes());
    file
}

/// RSDP, then an image at 0x1000 with root table, MADT, SRAT and SLIT.
fn acpi(pointer_bytes: usize) -> Vec<u8> {
    let tables = [
        madt(&[cpu(0, 0, 1), madt_x2apic(300, 1, 1)]),
        srat(3, &[x2apic(0, 0, 1), memory(0, 0, 1 << 30, 1)]),
        slit(2, &[10, 20, 20, 10]),
    ];
    let root_bytes = 36 + 3 * pointer_bytes;
    let mut at = 0x1000 + root_bytes as u64;
    let mut pointers = Vec::new();
    for table in &tables {
        pointers.extend(&at.to_le_bytes()[..pointer_bytes]);
        at += table.len() as u64;
    }
    let name = if pointer_bytes == 8 { b"XSDT" } else { b"RSDT" };
    let mut rsdp = b"RSD PTR \0FIRST \x02".to_vec();
    let (rsdt, xsdt) = if pointer_bytes == 8 {
        (0, 0x1000)
    } else {
        (0x1000, 0u64)
    };
    rsdp.extend(u32::to_le_bytes(rsdt));
    rsdp.extend(36u32.to_le_bytes());
    rsdp.extend(xsdt.to_le_bytes());
    rsdp.extend([0; 4]);
    [rsdp, sealed(name, 1, &pointers), tables.concat()].concat()
}

fn write(target: &str, seeds: &[(&str, Vec<u8>)]) -> io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("seeds")
        .join(target);
    fs::create_dir_all(&folder)?;
    seeds
        .iter()
        .try_for_each(|(name, bytes)| fs::write(folder.join(name), bytes))
}

/// The first lines of each kernel log in the test data.
fn logs() -> io::Result<()> {
    let machines = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata/machines");
    for file in fs::read_dir(machines)? {
        let path = file?.path();
        let Some(name) = path.file_stem().and_then(|name| name.to_str()) else {
            continue;
        };
        if path.extension().is_some_and(|extension| extension == "txt") {
            let text = fs::read(&path)?;
            let rows: Vec<&[u8]> = text
                .split(|&byte| byte == b'\n')
                .filter(|line| !line.starts_with(b"#"))
                .collect();
            write(
                "kernel_log",
                &[(name, rows[..rows.len().min(24)].join(&b'\n'))],
            )?;
        }
    }
    Ok(())
}

/// The messages of the protocol's description: JSON objects, some over several
/// lines.
fn messages(documentation: &str) -> Vec<Vec<u8>> {
    let blocks = documentation.split("```json\n").skip(1);
    let blocks = blocks.filter_map(|rest| rest.split("```").next());
    let objects = blocks.flat_map(|block| block.split("\n{"));
    let whole = |object: &str| match object.strip_prefix('{') {
        Some(_) => object.to_owned(),
        None => format!("{{{object}"),
    };
    objects.map(|object| whole(object).into_bytes()).collect()
}

fn main() -> io::Result<()> {
    let pc = [
        (0, 0x9_fc00, 1),
        (0x9_fc00, 0x400, 2),
        (0xf_0000, 0x1_0000, 2),
        (0x10_0000, 0x7fee_0000, 1),
        (1 << 32, 2 << 30, 1),
    ];
    let odd = [
        (0, u64::MAX, 2),
        (0x1800, 0x1000, 1),
        (0x2800, 0x1000, 7),
        (u64::MAX, 2, 5),
        (0, 0, 12),
        (1 << 52, 1, 0xefff_ffff),
    ];
    let table = |rows: &[(u64, u64, u32)]| {
        rows.iter()
            .flat_map(|&(a, b, c)| e820_row(a, b, c))
            .collect::<Vec<u8>>()
    };
    write(
        "e820",
        &[("pc", table(&pc)), ("odd", table(&odd)), ("empty", vec![])],
    )?;

    let efi: Vec<u8> = (0..17)
        .flat_map(|number| efi_row(number, u64::from(number) << 16, 16, 0xf))
        .collect();
    let flags = [
        efi_row(7, 0, 1, 0x4_0008),
        efi_row(7, 0x1000, 1, 0x1_0008),
        efi_row(15, 0x800, u64::MAX, 0),
    ]
    .concat();
    let sized = |rows: Vec<u8>| [vec![48], rows].concat();
    write(
        "efi",
        &[("types", sized(efi)), ("attributes", sized(flags))],
    )?;

    write("pvh", &[("v0", pvh(0)), ("v1", pvh(1))])?;
    let mut small = fdt_blob::Blob::new();
    small
        .begin("")
        .begin("memory")
        .cells("reg", &[0, 0, 0x4000_0000])
        .end()
        .end();
    write(
        "fdt",
        &[("virt", fdt_blob::virt()), ("small", small.finish())],
    )?;
    write("acpi_tables", &[("xsdt", acpi(8)), ("rsdt", acpi(4))])?;
    let other = entry(1, &[0; 10]);
    write(
        "madt",
        &[(
            "both",
            madt(&[
                cpu(0, 0, 1),
                other.clone(),
                cpu(1, 255, 0),
                madt_x2apic(70_000, 3, 9),
            ]),
        )],
    )?;
    let generic = entry(5, &[0; 30]);
    let affinity = [
        x2apic(0, 0, 1),
        entry(0, &[1, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        generic,
        memory(1, 1 << 32, 1 << 30, 7),
    ];
    write(
        "srat",
        &[("rev1", srat(1, &affinity)), ("rev3", srat(3, &affinity))],
    )?;
    write(
        "slit",
        &[
            ("two", slit(2, &[10, 20, 20, 10])),
            ("odd", slit(3, &[10, 5, 255, 20, 11, 20, 255, 21, 10])),
        ],
    )?;

    let windows = [vec![0, 0, 32, 0], vec![0; 28], cfmws(1 << 32, 1 << 31, 2)].concat();
    let odd = [cfmws(5 << 28, 1 << 28, 1), vec![1, 0, 20, 0], vec![0; 16]].concat();
    write(
        "cedt",
        &[
            ("two", sealed(b"CEDT", 1, &windows)),
            ("odd", sealed(b"CEDT", 1, &odd)),
        ],
    )?;

    let preserved = |start: u64, bytes: u64, owner: u32| {
        let range = PhysRange::with_size(start, bytes).expect("a range that does not wrap");
        let (tag, node) = (7, Some(NodeId(1)));
        PreservedRange {
            range,
            owner,
            tag,
            node,
        }
    };
    let mut place = vec![0; 256];
    let mut draft = Draft::new(
        &mut place,
        PhysAddr::new(0x10_0000),
        NonZeroU64::new(7).expect("not zero"),
    )
    .expect("space for a header");
    for (start, bytes, owner) in [(0x40_0000, 0x10_0000, 1), (0x80_0000, 0x1000, 2)] {
        draft
            .add(preserved(start, bytes, owner))
            .expect("space for two ranges");
    }
    let bytes = draft.finish();
    let seed = |how: u8| [&[how], &place[..bytes]].concat();
    write(
        "preserve",
        &[("two", seed(0)), ("sealed", seed(1)), ("small", seed(3))],
    )?;

    let event = [
        b"\x08_HID\x0dACPI0013\0\x5b\x80EREG\x00\x0c\0\0\x08\x09\x0a\x04".as_slice(),
        b"\x5b\x80HPMR\x00\x0e\0\0\x07\x09\x01\0\0\0\x0b\x18\0",
    ];
    let mut mcfg = vec![0; 44];
    mcfg.extend(0x40_1000_0000_u64.to_le_bytes());
    mcfg.extend([0, 0, 0, 255, 0, 0, 0, 0]);
    write(
        "acpi_places",
        &[
            ("pc", b"\x5b\x80HPMR\x01\x0b\x00\x0a\x0a\x18".to_vec()),
            ("virt", event.concat()),
            ("mcfg", mcfg),
        ],
    )?;

    let wide = [Q35, &[0; 32]].concat();
    write("fadt", &[("pc", PC.to_vec()), ("wide", wide)])?;
    write(
        "serial_ports",
        &[("spcr", SPCR.to_vec()), ("dbg2", DBG2.to_vec())],
    )?;

    let row = |kind: u8, only: u8, what: u8, start: u32, bytes: u32| {
        [
            &[kind, only, what, 0x66][..],
            &start.to_le_bytes(),
            &bytes.to_le_bytes(),
        ]
        .concat()
    };
    let rows = [
        row(0, 0, 0, 0, 0x9f),
        row(0, 0, 0, 0x100, 0x8000),
        row(6, 0, 0, 0x200, 3),
        row(0x41, 0, 0, 0x8100, 0x100),
    ];
    let changes = [
        row(0, 8, 0, 0x4000, 0xffff_ffff),
        row(6, 8, 1, 0, 1),
        row(3, 0, 2, 0x50, 0x1000),
    ];
    write(
        "memory_map",
        &[(
            "changed",
            [vec![4], rows.concat(), changes.concat()].concat(),
        )],
    )?;

    // Two nodes of 2 GiB below and above a hole, a CPU on each.
    let area = |number: u8, coarse: u8, start: u32, length: u16| {
        [
            &[number, coarse][..],
            &start.to_le_bytes(),
            &length.to_le_bytes(),
        ]
        .concat()
    };
    let areas = [
        area(1, 0, 0, 9),
        area(1, 0, 0x10, 0x7ff0),
        area(2, 0, 0x8000, 0x1000),
        area(1, 0x10, 0x1_0000, 0x8000),
    ];
    let places = [
        x2apic(0, 0, 1),
        x2apic(1, 1, 1),
        memory(0, 0, 1 << 31, 1),
        memory(1, 1 << 32, 1 << 31, 3),
    ];
    for (name, bits) in [("plain", 0), ("movable", 8 + 1), ("mirror", 4)] {
        let seed = [vec![4, bits, 0], areas.concat(), places.concat()].concat();
        write("bring_up", &[(name, seed)])?;
    }

    write("uefi_handover", &[("three", uefi_handover())])?;
    write("uefi_elf", &[("moved", uefi_elf())])?;

    let lines: [&[u8]; 4] = [
        b"BOOT_IMAGE=/vmlinuz root=/dev/sda1 ro quiet mem=2G memmap=64K$0x10000,1M#4M",
        b"memmap=exactmap memmap=640K@0 memmap=1023M@1M memmap=8G!4G -- mem=1",
        b"kernelcore=mirror movable_node kernelcore=30% movablecore=2G \"quoted word=1 2\"",
        b"memmap=2M%1M-1+2 memmap=1G%0x100000000+0xefffffff memmap=1K%1-12 mem=nopentium",
    ];
    for (index, line) in lines.into_iter().enumerate() {
        write("cmdline", &[(&format!("line{index}"), line.to_vec())])?;
    }
    let documentation = include_str!("../../docs/pool-protocol.md");
    for (index, message) in messages(documentation).into_iter().enumerate() {
        write("pool_protocol", &[(&format!("message{index}"), message)])?;
    }
    let launches = [
        "8G\n-M\nq35\ndisk.img",
        "\n-m\nsize=1G,slots=2,maxmem=4G\n-mem-path\n/dev/hugepages\n-mem-prealloc",
        "\n-object\nmemory-backend-ram,id=a,size=1G,host-nodes=1,share=off\n-machine\nq35,memory-backend=a",
        "1G 1G@1\n-numa\nnode,cpus=0\n-numa\nnode,cpus=1",
        "\n-m\n1536\n-numa\nnode,mem=512\n-numa\nnode,mem=1G,nodeid=1",
        "1G\n-object\n{\"qom-type\":\"memory-backend-memfd\",\"id\":\"r\",\"size\":1073741824}\n-machine\nmemory-backend=r",
        "1G 2G\n-x\n{memory}\n{memory1}",
    ];
    for (index, launch) in launches.into_iter().enumerate() {
        write("pool_launch", &[(&format!("line{index}"), launch.into())])?;
    }
    logs()
}
