//! Files made by hand: one image as the linker writes it, and what is wrong in others.

use super::relocate::*;
use super::*;
use alloc::vec;

const START: u64 = 0x20_0000;
/// Where the parts are in the file.
const SEGMENT: usize = 0x200;
const NOTE_AT: usize = 0x300;
const RELOCATIONS: usize = 0x400;
const SECTIONS: usize = 0x800;

fn put<const N: usize>(file: &mut [u8], at: usize, value: u64) {
    file[at..at + N].copy_from_slice(&value.to_le_bytes()[..N]);
}

/// One segment of 256 bytes, which is 8 KiB in memory, both notes, and `relocations`: kind,
/// address, addend.
fn elf(relocations: &[(u32, u64, i64)]) -> Vec<u8> {
    let mut file = vec![0; 0x1000];
    file[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    put::<2>(&mut file, 16, PROGRAM);
    put::<2>(&mut file, 18, X86_64);
    for (at, value) in [(54, 56), (56, 2), (58, 64), (60, 3)] {
        put::<2>(&mut file, at, value);
    }
    put::<8>(&mut file, 32, 64);
    put::<8>(&mut file, 40, SECTIONS as u64);
    for (row, fields) in [
        [LOAD, SEGMENT as u64, START, 256, 8192],
        [NOTE, NOTE_AT as u64, 0, 52, 52],
    ]
    .into_iter()
    .enumerate()
    {
        let at = 64 + 56 * row;
        put::<4>(&mut file, at, fields[0]);
        for (at, value) in [
            (8, fields[1]),
            (24, fields[2]),
            (32, fields[3]),
            (40, fields[4]),
        ] {
            put::<8>(&mut file, 64 + 56 * row + at, value);
        }
    }
    for (at, byte) in (0..=255).enumerate() {
        file[SEGMENT + at] = byte;
    }
    file[NOTE_AT..NOTE_AT + 16].copy_from_slice(b"\x04\0\0\0\x08\0\0\0\x12\0\0\0Xen\0");
    put::<8>(&mut file, NOTE_AT + 16, START + 0x10);
    file[NOTE_AT + 24..NOTE_AT + 52].copy_from_slice(&handover::NOTE);
    // Section 1 is what is loaded, section 2 its relocations.
    put::<8>(&mut file, SECTIONS + 64 + 8, ALLOCATED);
    put::<4>(&mut file, SECTIONS + 128 + 4, WITH_ADDENDS);
    put::<8>(&mut file, SECTIONS + 128 + 24, RELOCATIONS as u64);
    put::<8>(
        &mut file,
        SECTIONS + 128 + 32,
        24 * relocations.len() as u64,
    );
    put::<4>(&mut file, SECTIONS + 128 + 44, 1);
    for (row, (kind, address, addend)) in relocations.iter().enumerate() {
        let at = RELOCATIONS + 24 * row;
        put::<8>(&mut file, at, *address);
        put::<8>(&mut file, at + 8, u64::from(*kind));
        put::<8>(&mut file, at + 16, addend.cast_unsigned());
    }
    file
}

fn written(file: &[u8], place: u64) -> Result<Vec<u8>, ElfError> {
    let image = Image::parse(file)?;
    let mut memory = vec![0xcc; usize::try_from(image.range.end - image.range.start).unwrap()];
    image.write(place, &mut memory).map(|()| memory)
}

#[test]
fn the_image_is_written_where_it_is_linked() {
    let file = elf(&[]);
    let image = Image::parse(&file).unwrap();
    assert_eq!(
        (image.range.clone(), image.entry),
        (START..START + 8192, START + 0x10)
    );
    let memory = written(&file, START).unwrap();
    assert_eq!(memory[..256], file[SEGMENT..SEGMENT + 256]);
    assert!(memory[256..].iter().all(|byte| *byte == 0));
}

#[test]
fn every_address_moves_with_it_once() {
    let mut file = elf(&[
        (ADDRESS_64, START + 8, 0),
        (ADDRESS_32, START + 16, 0),
        (SIGNED_ADDRESS_32, START + 20, 0),
        (RELATIVE_32, START + 24, 0),
        (CALL_32, START + 28, 0),
        // Two instructions that read the same word of the table, at 0x80.
        (TABLE_RELATIVE_32, START + 32, -4),
        (TABLE_RELATIVE_32, START + 40, -4),
    ]);
    put::<8>(&mut file, SEGMENT + 8, START + 0x1000);
    put::<4>(&mut file, SEGMENT + 16, START + 4);
    put::<4>(&mut file, SEGMENT + 20, START);
    put::<4>(&mut file, SEGMENT + 32, 0x80 - 36);
    put::<4>(&mut file, SEGMENT + 40, 0x80 - 44);
    put::<8>(&mut file, SEGMENT + 0x80, START + 7);
    let delta = 0x7dc0_0000 - START;
    let memory = written(&file, START + delta).unwrap();
    let mut expected = written(&file, START).unwrap();
    put::<8>(&mut expected, 8, START + delta + 0x1000);
    put::<4>(&mut expected, 16, START + delta + 4);
    put::<4>(&mut expected, 20, START + delta);
    put::<8>(&mut expected, 0x80, START + delta + 7);
    assert_eq!(memory, expected);
}

#[test]
fn relocations_that_are_not_known_are_refused() {
    let moved = |relocation| written(&elf(&[relocation]), START + (2 << 20));
    for (kind, address) in [
        (42, START),
        (ADDRESS_64, START - 1),
        (ADDRESS_64, START + 8192 - 7),
        (ADDRESS_32, u64::MAX),
        (TABLE_RELATIVE_32, START + 8192),
    ] {
        let expected = Err(ElfError::Relocation { kind, address });
        assert_eq!(moved((kind, address, 0)), expected);
        // Where it is linked, none is read.
        assert!(written(&elf(&[(kind, address, 0)]), START).is_ok());
    }
    // Bytes 0x00 to 0x03 name a word far outside.
    let far = moved((TABLE_RELATIVE_32, START, 0));
    assert!(
        matches!(
            far,
            Err(ElfError::Relocation {
                address: 0x0322_0100,
                ..
            })
        ),
        "{far:x?}"
    );
    let mut none = elf(&[]);
    put::<4>(&mut none, SECTIONS + 128 + 4, 0);
    assert_eq!(written(&none, START + (2 << 20)), Err(ElfError::Fixed));
}

#[test]
fn an_address_that_cannot_name_its_place_is_refused() {
    const GIB: u64 = 1 << 30;
    let signed = (SIGNED_ADDRESS_32, START + 8, 0);
    let unsigned = (ADDRESS_32, START + 16, 0);
    let whole = (ADDRESS_64, START + 24, 0);
    let bytes = 8192;
    let far = |address, reach, place| {
        let end = place + bytes;
        Err(ElfError::Far {
            address,
            reach,
            end,
        })
    };
    for (relocation, reach) in [(signed, 2 * GIB), (unsigned, 4 * GIB)] {
        let file = elf(&[whole, relocation]);
        assert_eq!(Image::parse(&file).unwrap().reach(), reach);
        let highest = reach - bytes;
        let memory = written(&file, highest).unwrap();
        let at = usize::try_from(relocation.1 - START).unwrap();
        let moved = u32::from_le_bytes(memory[at..at + 4].try_into().unwrap());
        let linked = u32::from_le_bytes(file[SEGMENT + at..SEGMENT + at + 4].try_into().unwrap());
        let delta = u32::try_from(highest - START).unwrap();
        assert_eq!(moved, linked.wrapping_add(delta));
        let above = written(&file, highest + PAGE_BYTES);
        assert_eq!(above, far(relocation.1, reach, highest + PAGE_BYTES));
    }
    // Lower than it is linked is no farther.
    assert!(written(&elf(&[signed, unsigned]), START - (1 << 20)).is_ok());
    // What has no address of 32 bits is bounded by its entry, which has 32.
    let file = elf(&[whole]);
    assert_eq!(Image::parse(&file).unwrap().reach(), 4 * GIB);
    assert!(written(&file, 16 * GIB).is_ok());
}

#[test]
fn what_is_no_image_is_refused() {
    let changed = |at: usize, value: u64| {
        let mut file = elf(&[]);
        put::<8>(&mut file, at, value);
        Image::parse(&file).map(|image| image.range).unwrap_err()
    };
    assert_eq!(changed(0, 0), ElfError::Format);
    assert_eq!(changed(16, 3), ElfError::Format, "position-independent");
    assert_eq!(Image::parse(b"\x7fELF").unwrap_err(), ElfError::Format);
    assert!(matches!(changed(32, u64::MAX), ElfError::Cut { .. }));
    assert!(matches!(
        changed(64 + 8, 0x1000),
        ElfError::Cut {
            what: "segment",
            ..
        }
    ));
    assert!(
        matches!(changed(64 + 24, 4096), ElfError::Range { .. }),
        "below 1 MiB"
    );
    assert!(
        matches!(changed(64 + 24, u64::MAX - 9), ElfError::Range { .. }),
        "wraps"
    );
    assert!(
        matches!(changed(64 + 24, END - 4096), ElfError::Range { .. }),
        "above 4 GiB"
    );
    assert!(
        matches!(changed(64 + 24, (4 << 20) - 4096), ElfError::Range { .. }),
        "two tables"
    );
    assert!(
        matches!(changed(64 + 40, 3 << 20), ElfError::Range { .. }),
        "too large"
    );
    assert!(
        matches!(changed(64 + 40, 255), ElfError::Range { .. }),
        "more file than memory"
    );
    assert_eq!(changed(NOTE_AT + 8, 17), ElfError::Entry(None));
    let mut other = elf(&[]);
    other[NOTE_AT + 12] = b'Y';
    let other = Image::parse(&other).map(|image| image.range);
    assert_eq!(other, Err(ElfError::Entry(None)), "of another name");
    assert_eq!(changed(NOTE_AT + 16, 7), ElfError::Entry(Some(7)));
    let mut many = elf(&[]);
    put::<2>(&mut many, 56, 65);
    assert!(matches!(
        Image::parse(&many),
        Err(ElfError::Many { seen: 65, .. })
    ));
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    let file = elf(&[(ADDRESS_64, START + 8, 0)]);
    let end = SECTIONS + 3 * 64;
    for length in 0..end {
        let result = written(&file[..length], START + (2 << 20));
        assert!(result.is_err(), "{length}");
    }
    assert!(written(&file[..end], START + (2 << 20)).is_ok());
}

#[test]
fn an_image_of_another_release_is_refused() {
    let file = elf(&[]);
    assert_eq!(Image::parse(&file).unwrap().check_handover(), Ok(()));
    let bytes = 64 + 56 + 32;
    for (at, value, seen) in [
        (NOTE_AT + 48, 2, Some(2)),
        // Another name, another number, a note that is cut, none.
        (NOTE_AT + 36, b'f', None),
        (NOTE_AT + 32, 2, None),
        (bytes, 51, None),
        (bytes, 24, None),
        (NOTE_AT + 28, 3, None),
    ] {
        let mut file = file.clone();
        file[at] = value;
        let image = Image::parse(&file).unwrap();
        assert_eq!(image.check_handover(), Err(ElfError::Handover(seen)));
    }
    // Either may come first, and a name without end is none.
    let mut file = elf(&[]);
    let (pvh, own) = file[NOTE_AT..NOTE_AT + 52].split_at_mut(24);
    let swapped = [own, pvh].concat();
    file[NOTE_AT..NOTE_AT + 52].copy_from_slice(&swapped);
    assert_eq!(Image::parse(&file).unwrap().check_handover(), Ok(()));
    file[NOTE_AT..NOTE_AT + 4].fill(0xff);
    assert_eq!(Image::parse(&file).unwrap_err(), ElfError::Entry(None));
}
