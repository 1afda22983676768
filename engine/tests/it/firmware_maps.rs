//! e820, EFI and PVH: every type, and every way to be cut or to overflow.

use firstlight::addr::{PhysAddr, PhysRange};
use firstlight::firmware::{MemoryImage, e820, efi, pvh};
use firstlight::map::{Doubt, MapEntry, MemoryKind};

fn e820_entry(start: u64, bytes: u64, number: u32) -> Vec<u8> {
    [
        &start.to_le_bytes()[..],
        &bytes.to_le_bytes(),
        &number.to_le_bytes(),
    ]
    .concat()
}

#[test]
fn e820_types() {
    for (number, kind) in [
        (1, MemoryKind::Usable),
        (2, MemoryKind::Reserved),
        (3, MemoryKind::AcpiReclaimable),
        (4, MemoryKind::AcpiNvs),
        (5, MemoryKind::Unusable),
        (6, MemoryKind::Reserved),
        (7, MemoryKind::Persistent),
        (12, MemoryKind::Persistent),
        (0xefff_ffff, MemoryKind::SoftReserved),
    ] {
        let table = e820_entry(0x1000, u64::MAX, number);
        let entry = e820::entries(&table).unwrap().next().unwrap();
        assert_eq!(
            (entry.start, entry.bytes, entry.kind, entry.doubt),
            (0x1000, u64::MAX, kind, None)
        );
        assert_eq!(
            entry.attributes.special_purpose,
            kind == MemoryKind::SoftReserved
        );
    }
    for number in [0, 8, 11, 13, 128, u32::MAX] {
        let table = e820_entry(0, 1, number);
        let entry = e820::entries(&table).unwrap().next().unwrap();
        assert_eq!(
            (entry.kind, entry.doubt),
            (MemoryKind::Reserved, Some(Doubt::UnknownType(number)))
        );
    }
}

#[test]
fn e820_cut_anywhere_is_refused() {
    let table = [e820_entry(0, 1, 1), e820_entry(1, 1, 2)].concat();
    for length in 0..=table.len() {
        match e820::entries(&table[..length]) {
            Ok(entries) => assert_eq!(entries.count() * 20, length),
            Err(error) => assert!(length % 20 != 0 && error.table_bytes == length),
        }
    }
}

fn efi_descriptor(number: u32, start: u64, pages: u64, attributes: u64, size: usize) -> Vec<u8> {
    let mut bytes = vec![0xa5; size];
    bytes[..4].copy_from_slice(&number.to_le_bytes());
    bytes[8..16].copy_from_slice(&start.to_le_bytes());
    bytes[24..32].copy_from_slice(&pages.to_le_bytes());
    bytes[32..40].copy_from_slice(&attributes.to_le_bytes());
    bytes
}

#[test]
fn efi_types() {
    use MemoryKind::*;
    let expected = [
        Reserved,
        Usable,
        Usable,
        Usable,
        Usable,
        Reserved,
        Reserved,
        Usable,
        Unusable,
        AcpiReclaimable,
        AcpiNvs,
        Reserved,
        Reserved,
        Reserved,
        Persistent,
        Unaccepted,
    ];
    for (number, kind) in (0u32..).zip(expected) {
        for size in [40, 48, 64] {
            let map = efi_descriptor(number, 0x4000, 3, 0xf, size);
            let entries: Vec<MapEntry> = efi::entries(&map, size).unwrap().collect();
            assert_eq!(
                entries,
                [MapEntry::new(0x4000, 0x3000, kind)],
                "type {number}"
            );
        }
    }
    for number in [16, 0x7000_0000, 0x8000_0000, u32::MAX] {
        let entry = efi::typed(0, 1, number, 0xf);
        assert_eq!(
            (entry.kind, entry.doubt),
            (Reserved, Some(Doubt::UnknownType(number)))
        );
    }
}

#[test]
fn efi_attributes() {
    let special = efi::typed(0, 1, 7, efi::WRITE_BACK | efi::SPECIAL_PURPOSE);
    assert_eq!(
        (special.kind, special.attributes.special_purpose),
        (MemoryKind::SoftReserved, true)
    );
    // Only conventional memory can be set aside; loader data in it is still in use.
    assert_eq!(
        efi::typed(0, 1, 2, efi::WRITE_BACK | efi::SPECIAL_PURPOSE).kind,
        MemoryKind::Usable
    );
    let mirrored = efi::typed(0, 1, 7, efi::WRITE_BACK | efi::MORE_RELIABLE);
    assert_eq!(
        (mirrored.kind, mirrored.attributes.more_reliable),
        (MemoryKind::Usable, true)
    );
    for number in [1, 2, 3, 4, 7] {
        let services = efi::typed(0, 1, number, efi::WRITE_BACK | efi::RUNTIME);
        assert_eq!(services.kind, MemoryKind::Reserved, "type {number}");
    }
    let uncached = efi::typed(0, 1, 7, 1);
    assert_eq!(
        (uncached.kind, uncached.doubt),
        (MemoryKind::Reserved, Some(Doubt::NotWriteBack(1)))
    );
    assert_eq!(efi::typed(0, u64::MAX, 7, 0xf).bytes, u64::MAX);
}

#[test]
fn efi_sizes_that_cannot_be_are_refused() {
    let map = efi_descriptor(7, 0, 1, 0xf, 48);
    for size in 0..40 {
        assert_eq!(
            efi::entries(&map, size).err(),
            Some(efi::EfiError::DescriptorSize { seen_bytes: size })
        );
    }
    for size in [40, 47, 49, usize::MAX] {
        assert!(
            matches!(
                efi::entries(&map, size).err(),
                Some(efi::EfiError::PartialDescriptor { .. })
            ),
            "{size}"
        );
    }
    assert_eq!(efi::entries(&[], usize::MAX).unwrap().count(), 0);
}

/// A start info at 0x1000, map at 0x1100, module list at 0x1200, text at 0x1300.
fn guest() -> Vec<u8> {
    let mut memory = vec![0u8; 0x400];
    let mut put = |at: usize, bytes: &[u8]| memory[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &pvh::MAGIC.to_le_bytes());
    put(4, &1u32.to_le_bytes());
    put(12, &1u32.to_le_bytes());
    put(16, &0x1200u64.to_le_bytes());
    put(24, &0x1300u64.to_le_bytes());
    put(32, &0xe_0000u64.to_le_bytes());
    put(40, &0x1100u64.to_le_bytes());
    put(48, &2u32.to_le_bytes());
    put(0x100, &e820_entry(0, 0xa_0000, 1));
    put(0x118, &e820_entry(0xa_0000, 0x6_0000, 9));
    put(0x200, &0x100_0000u64.to_le_bytes());
    put(0x208, &0x1234u64.to_le_bytes());
    put(0x300, b"console=ttyS0\0");
    memory
}

#[test]
fn pvh_start_info_and_what_it_points_to() {
    let bytes = guest();
    let memory = MemoryImage::new(PhysAddr::new(0x1000), &bytes);
    let info = pvh::StartInfo::read(&memory, PhysAddr::new(0x1000)).unwrap();
    assert_eq!(info.rsdp, Some(PhysAddr::new(0xe_0000)));
    let entries: Vec<MapEntry> = info.map_entries(&memory).unwrap().collect();
    assert_eq!(entries[0], MapEntry::new(0, 0xa_0000, MemoryKind::Usable));
    assert_eq!(entries[1].doubt, Some(Doubt::UnknownType(9)));
    assert_eq!(entries.len(), 2);
    let modules: Vec<pvh::Module> = info.modules(&memory).unwrap().collect();
    assert_eq!(
        modules,
        [pvh::Module {
            start: 0x100_0000,
            bytes: 0x1234,
            command_line: None
        }]
    );
    assert_eq!(info.command_line(&memory), Ok(Some(&b"console=ttyS0"[..])));
    // A closure reads as well as an image does.
    let direct = |range: PhysRange| {
        let start = range.start().get().checked_sub(0x1000)? as usize;
        bytes.get(start..start.checked_add(range.bytes() as usize)?)
    };
    assert_eq!(
        pvh::StartInfo::read(&direct, PhysAddr::new(0x1000)),
        Ok(info)
    );
}

#[test]
fn pvh_version_0_has_no_map() {
    let mut bytes = guest();
    bytes[4] = 0;
    let info = pvh::StartInfo::parse(&bytes[..40]).unwrap();
    assert_eq!((info.memory_map, info.memory_map_entries), (None, 0));
    let memory = MemoryImage::new(PhysAddr::new(0x1000), &bytes);
    assert_eq!(
        info.map_entries(&memory).err(),
        Some(pvh::PvhError::NoMemoryMap)
    );
    assert_eq!(info.modules(&memory).unwrap().count(), 1);
}

#[test]
fn pvh_cut_at_every_byte() {
    let bytes = guest();
    for length in 0..56 {
        let error = pvh::StartInfo::parse(&bytes[..length]).unwrap_err();
        assert!(
            matches!(error, pvh::PvhError::Truncated { seen_bytes, .. } if seen_bytes == length),
            "{length}"
        );
    }
    let info = pvh::StartInfo::parse(&bytes).unwrap();
    for length in 0..bytes.len() {
        let memory = MemoryImage::new(PhysAddr::new(0x1000), &bytes[..length]);
        assert_eq!(
            info.map_entries(&memory).is_ok(),
            length >= 0x130,
            "{length:#x}"
        );
        assert_eq!(
            info.modules(&memory).is_ok(),
            length >= 0x220,
            "{length:#x}"
        );
        match info.command_line(&memory) {
            Ok(line) => assert!(line == Some(b"console=ttyS0") && length > 0x30d),
            Err(pvh::PvhError::Unreadable { .. }) => assert!(length <= 0x300),
            Err(pvh::PvhError::Unterminated { bytes, .. }) => {
                assert_eq!(bytes as usize, length - 0x300)
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn pvh_pointers_that_wrap_or_cover_too_much() {
    let mut bytes = guest();
    bytes[16..56].fill(0xff);
    bytes[12..16].fill(0xff);
    let memory = MemoryImage::new(PhysAddr::new(0x1000), &bytes);
    let info = pvh::StartInfo::parse(&bytes).unwrap();
    assert!(matches!(
        info.map_entries(&memory).err(),
        Some(pvh::PvhError::Unreadable { .. })
    ));
    assert!(matches!(
        info.modules(&memory).err(),
        Some(pvh::PvhError::Unreadable { .. })
    ));
    assert!(matches!(
        info.command_line(&memory),
        Err(pvh::PvhError::Unreadable { .. })
    ));
    bytes[0] ^= 1;
    assert!(matches!(
        pvh::StartInfo::parse(&bytes),
        Err(pvh::PvhError::BadMagic { .. })
    ));
    // A short read is an error.
    let stingy = |_: PhysRange| Some(&b"\x78\xc5\x6e\x33"[..]);
    assert!(matches!(
        pvh::StartInfo::read(&stingy, PhysAddr::ZERO),
        Err(pvh::PvhError::Unreadable { .. })
    ));
}

#[test]
fn pvh_command_line_without_end_is_bounded() {
    let endless = vec![b'x'; 1 << 20];
    let mut head = guest();
    head[24..32].copy_from_slice(&0u64.to_le_bytes());
    let none = pvh::StartInfo::parse(&head).unwrap();
    let memory = MemoryImage::new(PhysAddr::new(0x10_0000), &endless);
    assert_eq!(none.command_line(&memory), Ok(None));
    let info = pvh::StartInfo {
        command_line: Some(PhysAddr::new(0x10_0000)),
        ..none
    };
    let address = 0x10_0000;
    assert_eq!(
        info.command_line(&memory),
        Err(pvh::PvhError::Unterminated {
            address,
            bytes: pvh::COMMAND_LINE_BYTES
        })
    );
}
