//! Firmware that forgets variables, has no space for them, or has other ones.

use crate::boot_uefi::started::{exit_device, start};
use crate::common::qemu::ovmf_is_here;
use firstlight_lab::boot::Uefi;
use firstlight_lab::stick;
use firstlight_wire::parts::{PART_BYTES, VENDOR, name, part};
use std::fs;
use std::ops::Range;
use std::path::Path;

#[test]
fn firmware_that_forgets_variables_is_noticed_at_the_next_start() {
    if !ovmf_is_here() {
        return;
    }
    // Variables that cannot be written are kept in memory, and gone after the reset.
    let shown = "the lines above are the result; the machine can be switched off";
    let started = start(|_| {}, "if=pflash,format=raw", &[], shown);
    started
        .says("bytes of results are left with firmware")
        .says("the last run left no result: it was ended, or firmware does not keep variables")
        .says(shown);
    assert_eq!(stick::result(&started.uefi.stick).unwrap(), None);
}

/// Non-volatile, for boot services and after them.
const ATTRIBUTES: u32 = 7;
/// Bytes of a variable before its name, where firmware can check signatures.
const HEAD_BYTES: usize = 60;
const OTHERS: [u8; 16] = [0x11; 16];

/// The space for variables in their file: that of the store, behind two heads.
fn space(file: &[u8]) -> Range<usize> {
    assert_eq!(&file[40..44], b"_FVH", "no store of variables");
    let head = usize::from(u16::from_le_bytes([file[48], file[49]]));
    let store = u32::from_le_bytes(file[head + 16..head + 20].try_into().unwrap());
    head + 28..head + usize::try_from(store).unwrap()
}

/// Takes firmware with a quarter of the space for variables, where that is installed. Nearly full, it writes
/// all of it anew, byte by byte, and QEMU each to the file.
fn take_the_small_build(uefi: &mut Uefi) {
    let [code, variables] = ["CODE", "VARS"].map(|part| format!("/usr/share/OVMF/OVMF_{part}.fd"));
    if Path::new(&code).is_file() && fs::copy(variables, &uefi.variables).is_ok() {
        uefi.code = code.into();
    }
}

/// Adds variables, by vendor, name and content, behind those that are there.
fn add<'v>(uefi: &Uefi, variables: impl IntoIterator<Item = ([u8; 16], &'v [u16], Vec<u8>)>) {
    let mut file = fs::read(&uefi.variables).unwrap();
    let mut at = space(&file).start;
    let word = |file: &[u8], at: usize| {
        usize::try_from(u32::from_le_bytes(file[at..at + 4].try_into().unwrap())).unwrap()
    };
    while file[at..at + 2] == [0xaa, 0x55] {
        at += (HEAD_BYTES + word(&file, at + 36) + word(&file, at + 40)).next_multiple_of(4);
    }
    for (vendor, name, content) in variables {
        let name: Vec<u8> = name
            .iter()
            .flat_map(|letter| letter.to_le_bytes())
            .collect();
        let sizes = [&name, &content].map(|part| u32::try_from(part.len()).unwrap().to_le_bytes());
        let variable = [
            // It is there.
            &[0xaa, 0x55, 0x3f, 0][..],
            &ATTRIBUTES.to_le_bytes(),
            &[0; 28],
            sizes.as_flattened(),
            &vendor,
            &name,
            &content,
        ]
        .concat();
        file[at..at + variable.len()].copy_from_slice(&variable);
        at += variable.len().next_multiple_of(4);
    }
    fs::write(&uefi.variables, file).unwrap();
}

/// The parts of a result.
fn parts(text: &[u8]) -> impl Iterator<Item = (u8, Vec<u8>)> {
    (0..8).filter_map(|number| {
        let mut buffer = [0; PART_BYTES];
        Some((number, part(text, number, &mut buffer)?.to_vec()))
    })
}

const TEXT: [u8; 2500] = [b'x'; 2500];

#[test]
fn a_result_that_does_not_fit_firmware_is_shown() {
    if !ovmf_is_here() {
        return;
    }
    const EACH: usize = 4 << 10;
    // Firmware itself needs some 11 KiB, and gets 14.
    let fill = |uefi: &mut Uefi| {
        take_the_small_build(uefi);
        let space = space(&fs::read(&uefi.variables).unwrap()).len() - (14 << 10);
        let sizes = (0..space).step_by(EACH).map(|at| EACH.min(space - at));
        let variables: Vec<_> = (1..)
            .zip(sizes.filter(|size| *size > 2 * HEAD_BYTES))
            .map(|(at, size)| ([b'A'.into(), at, 0], vec![7; size - HEAD_BYTES - 6]))
            .collect();
        let variables = variables.iter();
        add(
            uefi,
            variables.map(|(name, content)| (OTHERS, &name[..], content.clone())),
        );
    };
    let started = start(fill, "", &exit_device(), "");
    started
        .says("firmware refuses variable ")
        .says("status 0x8000000000000009; the result is shown here alone")
        .says("the lines above are the result; the machine can be switched off");
    assert_eq!(started.status, Some(85));
    assert_eq!(stick::result(&started.uefi.stick).unwrap(), None);
}

#[test]
fn parts_without_the_rest_are_deleted_and_other_variables_stay() {
    if !ovmf_is_here() {
        return;
    }
    let theirs = b"of other software, with the same name".to_vec();
    let left = |uefi: &mut Uefi| {
        let mut all = parts(&TEXT);
        let (first, last) = (all.next().unwrap(), all.nth(1).unwrap());
        let names = [first.0, last.0].map(name);
        let ours = names.iter().zip([first.1, last.1]);
        let ours = ours.map(|(name, part)| (VENDOR, &name[..], part));
        add(uefi, ours.chain([(OTHERS, &names[0][..], theirs.clone())]));
    };
    let started = start(left, "", &[], "");
    started
        .says("the last run's result is not whole: variable Firstlight1 of 3 is missing or damaged; it is deleted")
        .says("bytes of results are left with firmware")
        .says("is in \\firstlight\\result.jsonl on the stick");
    let result = stick::result(&started.uefi.stick).unwrap().unwrap();
    assert!(result.ends_with(b"{\"event\":\"end\",\"outcome\":\"ok\"}\n"));
    let variables = fs::read(&started.uefi.variables).unwrap();
    let is_there = variables.windows(theirs.len()).any(|part| part == theirs);
    assert!(is_there, "another vendor's variable is gone");
}

#[test]
fn a_result_stays_with_firmware_until_the_stick_can_be_written() {
    if !ovmf_is_here() {
        return;
    }
    let left = |uefi: &mut Uefi| {
        let names: Vec<_> = (0..8).map(name).collect();
        let all = parts(&TEXT);
        add(
            uefi,
            all.map(|(number, part)| (VENDOR, &names[usize::from(number)][..], part)),
        );
    };
    let first = start(left, "if=none,id=stick", &[], "");
    first
        .says("the result cannot be written to the stick")
        .says("firmware keeps it: make space on the stick")
        .says("the machine is switched off");
    assert_eq!(stick::result(&first.uefi.stick).unwrap(), None);
    let again = |uefi: &mut Uefi| {
        fs::copy(&first.uefi.variables, &uefi.variables).unwrap();
    };
    let second = start(again, "", &[], "");
    second.says("the result, 2500 bytes, is in \\firstlight\\result.jsonl on the stick");
    let result = stick::result(&second.uefi.stick).unwrap();
    assert_eq!(result.as_deref(), Some(&TEXT[..]));
}
