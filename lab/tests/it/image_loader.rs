//! The image, read by the loader that Cloud Hypervisor and Firecracker use
//! (`linux-loader`): accepted, its PVH note found, every segment in place. The
//! note and the segments are also read here byte by byte, so that a loader which
//! is less forgiving than this one finds nothing to refuse either.

use crate::common::image;

use image::image;
use linux_loader::loader::elf::{Elf, PvhBootCapability};
use linux_loader::loader::{KernelLoader, KernelLoaderResult};
use std::io::Cursor;
use std::ops::Range;
use std::sync::LazyLock;
use vm_memory::{Address, Bytes, GuestAddress, GuestMemoryMmap};

/// Where both monitors put the kernel at the earliest.
const HIGH_MEMORY: u64 = 1 << 20;
/// Memory of the guest: the smallest the image is meant for.
const GUEST_BYTES: usize = 64 << 20;
/// Xen's number for the 32-bit entry point.
const PHYS32_ENTRY: u32 = 18;

const LOAD: u32 = 1;
const NOTE: u32 = 4;
const EXECUTE: u32 = 1;
const WRITE: u32 = 2;

/// The file, built like the one people boot.
static IMAGE: LazyLock<Vec<u8>> = LazyLock::new(|| std::fs::read(image()).unwrap());

/// A row of the program header.
#[derive(Clone, Debug)]
struct Segment {
    kind: u32,
    flags: u32,
    file: Range<usize>,
    address: u64,
    memory_bytes: u64,
    align: u64,
    /// Where the row itself lies in the file.
    row: usize,
}

fn u16_at(file: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(file[at..at + 2].try_into().unwrap())
}

fn u32_at(file: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(file[at..at + 4].try_into().unwrap())
}

fn u64_at(file: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(file[at..at + 8].try_into().unwrap())
}

fn index(file: &[u8], at: usize) -> usize {
    u64_at(file, at).try_into().unwrap()
}

fn entry(file: &[u8]) -> u64 {
    u64_at(file, 24)
}

fn segments(file: &[u8]) -> Vec<Segment> {
    let (first, bytes, count) = (index(file, 32), u16_at(file, 54), u16_at(file, 56));
    assert_eq!(bytes, 56, "rows of a 64-bit program header");
    (0..usize::from(count))
        .map(|number| {
            let row = first + 56 * number;
            let (offset, file_bytes) = (index(file, row + 8), index(file, row + 32));
            Segment {
                kind: u32_at(file, row),
                flags: u32_at(file, row + 4),
                file: offset..offset + file_bytes,
                address: u64_at(file, row + 24),
                memory_bytes: u64_at(file, row + 40),
                align: u64_at(file, row + 48),
                row,
            }
        })
        .collect()
}

fn of_kind(file: &[u8], kind: u32) -> Vec<Segment> {
    let mut segments = segments(file);
    segments.retain(|segment| segment.kind == kind);
    segments
}

/// Whose the notes are; empty where lengths do not add up.
fn owners(mut notes: &[u8]) -> Vec<&[u8]> {
    let mut owners = Vec::new();
    while !notes.is_empty() {
        let padded = |at| u32_at(notes, at).next_multiple_of(4) as usize;
        let (name, end) = (u32_at(notes, 0) as usize, 12 + padded(0) + padded(4));
        if end > notes.len() {
            return Vec::new();
        }
        owners.push(&notes[12..12 + name]);
        notes = &notes[end..];
    }
    owners
}

fn load(file: &[u8]) -> Result<(GuestMemoryMmap, KernelLoaderResult), String> {
    let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), GUEST_BYTES)]).unwrap();
    let high = Some(GuestAddress(HIGH_MEMORY));
    let loaded = Elf::load(&memory, None, &mut Cursor::new(file), high);
    loaded
        .map(|loaded| (memory, loaded))
        .map_err(|error| error.to_string())
}

/// What a strict loader would refuse, in words.
fn refused(file: &[u8]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut expect = |holds: bool, what: &str| {
        if !holds {
            wrong.push(what.to_owned());
        }
    };
    expect(file[..6] == *b"\x7fELF\x02\x01", "64 bits, little-endian");
    expect(u16_at(file, 16) == 2, "at fixed addresses (ET_EXEC)");
    expect(u16_at(file, 18) == 62, "for x86-64");

    let notes = of_kind(file, NOTE);
    expect(notes.len() == 1, "one note segment: the last would win");
    for note in notes {
        expect(note.align == 4, "notes aligned to 4");
        let bytes = &file[note.file.clone()];
        expect(
            owners(bytes) == [&b"Xen\0"[..], b"Firstlight\0"],
            "a note of Xen and then ours",
        );
        // Lengths of name and descriptor, type, name, descriptor.
        expect(
            u32_at(bytes, 0) == 4 && u32_at(bytes, 4) == 8,
            "lengths 4 and 8",
        );
        expect(u32_at(bytes, 8) == PHYS32_ENTRY, "type 18");
        expect(bytes[12..16] == *b"Xen\0", "of Xen");
        let target = u64_at(bytes, 16);
        expect(target == entry(file), "the note names the entry point");
        expect(u32::try_from(target).is_ok(), "which 32 bits can reach");
        let inside = of_kind(file, LOAD).into_iter().any(|code| {
            let bytes = u64::try_from(code.file.len()).unwrap();
            code.flags & EXECUTE != 0 && (code.address..code.address + bytes).contains(&target)
        });
        expect(inside, "the entry point lies in code");
    }

    let loaded = of_kind(file, LOAD);
    let both = |segment: &Segment| segment.flags & (WRITE | EXECUTE) == WRITE | EXECUTE;
    expect(
        !loaded.iter().any(both),
        "nothing both writable and executable",
    );
    let ends: Vec<_> = loaded
        .iter()
        .map(|segment| (segment.address, segment.address + segment.memory_bytes))
        .collect();
    let apart = ends.windows(2).all(|pair| pair[0].1 <= pair[1].0);
    expect(apart, "segments ascending and apart");
    let inside = ends
        .iter()
        .all(|&(start, end)| start >= HIGH_MEMORY && end <= GUEST_BYTES as u64);
    expect(inside, "all of memory that a small guest has");
    wrong
}

#[test]
fn the_loader_accepts_the_image_and_finds_its_entry() {
    let (_, loaded) = load(&IMAGE).unwrap();
    let entry = GuestAddress(entry(&IMAGE));
    assert_eq!(loaded.kernel_load, entry);
    assert_eq!(
        loaded.pvh_boot_cap,
        PvhBootCapability::PvhEntryPresent(entry)
    );
    assert!(loaded.setup_header.is_none());
}

#[test]
fn every_segment_is_in_memory_as_in_the_file() {
    let (memory, loaded) = load(&IMAGE).unwrap();
    let mut end = 0;
    for segment in of_kind(&IMAGE, LOAD) {
        let mut seen = vec![0xa5; usize::try_from(segment.memory_bytes).unwrap()];
        let start = GuestAddress(segment.address);
        memory.read_slice(&mut seen, start).unwrap();
        let (filled, rest) = seen.split_at(segment.file.len());
        assert!(filled == &IMAGE[segment.file.clone()], "{segment:x?}");
        assert!(rest.iter().all(|&byte| byte == 0), "{segment:x?}");
        end = start.unchecked_add(segment.memory_bytes).raw_value();
    }
    assert!(end > HIGH_MEMORY);
    assert_eq!(loaded.kernel_end, end);
}

#[test]
fn a_strict_reader_finds_nothing_wrong() {
    assert_eq!(refused(&IMAGE), [""; 0]);
}

/// The checks above can fail: each of these copies has one thing wrong.
#[test]
fn a_damaged_image_is_noticed() {
    let [note] = &of_kind(&IMAGE, NOTE)[..] else {
        panic!("one note, as the test before says");
    };
    let code = of_kind(&IMAGE, LOAD);
    let code = code.iter().find(|code| code.flags & EXECUTE != 0).unwrap();
    let absent = Some(PvhBootCapability::PvhEntryNotPresent);
    let ignored = Some(PvhBootCapability::PvhEntryIgnored);
    let elsewhere = GuestAddress(entry(&IMAGE) & !0xff | 0xff);
    let elsewhere = Some(PvhBootCapability::PvhEntryPresent(elsewhere));
    let same = Some(load(&IMAGE).unwrap().1.pvh_boot_cap);
    // Where, the new byte, what the strict reader says, what the loader finds.
    let damages = [
        (note.file.start + 8, 17, "type 18", absent),
        (
            note.file.start + 36,
            b'Y',
            "a note of Xen and then ours",
            same,
        ),
        (note.file.start + 12, b'Y', "of Xen", absent),
        (
            note.file.start + 16,
            0xff,
            "the note names the entry point",
            elsewhere,
        ),
        (note.row, 0, "one note segment: the last would win", ignored),
        (note.row + 48, 8, "notes aligned to 4", same),
        (
            code.row + 4,
            7,
            "nothing both writable and executable",
            same,
        ),
        (code.row + 4, 4, "the entry point lies in code", same),
        (16, 3, "at fixed addresses (ET_EXEC)", same),
        (0, 0, "64 bits, little-endian", None),
        (
            code.row + 24 + 3,
            0x40,
            "all of memory that a small guest has",
            None,
        ),
    ];
    for (at, byte, wrong, capability) in damages {
        let mut damaged = IMAGE.clone();
        assert_ne!(damaged[at], byte, "{wrong}");
        damaged[at] = byte;
        let told = refused(&damaged);
        assert!(told.iter().any(|told| told == wrong), "{wrong}: {told:?}");
        let found = load(&damaged).ok().map(|(_, loaded)| loaded.pvh_boot_cap);
        assert_eq!(found, capability, "{wrong}");
    }
}
