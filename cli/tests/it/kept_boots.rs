//! `scripts/boots/kept.sh`: a boot on the instruction clock is told from the record of the same boot
//! before; whatever differs makes another. A machine with UEFI is resumed where one of its shape came to
//! its stick.

use crate::common::guest;
use crate::common::schema;

use guest::{image, ovmf_is_here, qemu_is_here};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// What the image says first.
const GREETING: &[u8] = b"a memory engine on bare metal";

/// Boots with the records in `kept`; whether records were used is the last line on stderr.
fn boot(kept: &Path, words: &[&str], all: bool) -> Output {
    let mut command =
        Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/boots/kept.sh"));
    command
        .args([env!("CARGO_BIN_EXE_firstlight"), "boot", "--json"])
        .args(["--memory", "256M", "--accel", "tcg"])
        .args(words)
        .env("FIRSTLIGHT_KEPT_BOOTS", kept)
        .env_remove("CI_ALL");
    if all {
        command.env("CI_ALL", "1");
    }
    command.output().unwrap()
}

/// Boots made, and told; started and resumed by UEFI.
fn all_counted(output: &Output) -> [u32; 4] {
    let stderr = String::from_utf8_lossy(&output.stderr);
    let line = stderr.lines().last().unwrap();
    let mut numbers = line.split(' ').filter_map(|word| word.parse().ok());
    [(); 4].map(|()| numbers.next().unwrap())
}

fn counted(output: &Output) -> (u32, u32) {
    let [made, told, _, _] = all_counted(output);
    (made, told)
}

/// The record, but for what the host took.
fn guests_part(output: &Output) -> Value {
    let mut record = schema::document(&output.stdout);
    record.as_object_mut().unwrap().remove("host").unwrap();
    record
}

#[test]
fn a_boot_is_told_only_if_nothing_differs() {
    let Some(image) = image().filter(|_| qemu_is_here()) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("kept");
    let counted_words = ["--clock", "instructions", "--image", image];
    let first = boot(&kept, &counted_words, false);
    assert_eq!(counted(&first), (1, 0));
    let again = boot(&kept, &counted_words, false);
    assert_eq!(counted(&again), (0, 1));
    assert_eq!(guests_part(&first), guests_part(&again));

    // The image in another place, and one with another letter.
    let copy = folder.path().join("copy");
    let mut bytes = fs::read(image).unwrap();
    fs::write(&copy, &bytes).unwrap();
    let words = ["--clock", "instructions", "--image", copy.to_str().unwrap()];
    assert_eq!(counted(&boot(&kept, &words, false)), (0, 1));
    let mut parts = bytes.windows(GREETING.len());
    let at = parts.position(|part| part == GREETING).unwrap();
    bytes[at] = b'A';
    fs::write(&copy, &bytes).unwrap();
    assert_eq!(counted(&boot(&kept, &words, false)), (1, 0));

    // The image in a folder with a sign of QEMU's in its name.
    let odd = folder.path().join("x=1");
    fs::create_dir(&odd).unwrap();
    let odd = odd.join("image");
    for letter in *b"BC" {
        bytes[at] = letter;
        fs::write(&odd, &bytes).unwrap();
        let words = ["--clock", "instructions", "--image", odd.to_str().unwrap()];
        assert_eq!(counted(&boot(&kept, &words, false)), (1, 0), "{letter}");
    }

    // Another word, also one that names a file of this host with equal content, and another machine.
    let files = ["one", "two"].map(|name| folder.path().join(name));
    let [one, two] = files.map(|file| {
        fs::write(&file, "equal").unwrap();
        format!("note={}", file.display())
    });
    for more in [
        ["--append", "mem=128M"],
        ["--append", &one],
        ["--append", &two],
        ["--cpus", "2"],
    ] {
        let words = [&counted_words[..], &more].concat();
        assert_eq!(counted(&boot(&kept, &words, false)), (1, 0), "{more:?}");
    }
    // A clock on the wall is never the same.
    for _ in 0..2 {
        assert_eq!(counted(&boot(&kept, &["--image", image], false)), (0, 0));
    }
    // All are made where that is requested, and nothing is counted.
    let all = boot(&kept, &counted_words, true);
    assert!(all.stderr.is_empty(), "{all:?}");
    assert_eq!(guests_part(&first), guests_part(&all));
}

#[test]
fn a_guest_that_goes_wrong_is_told_as_it_was() {
    let Some(image) = image().filter(|_| qemu_is_here()) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let words = [
        "--clock",
        "instructions",
        "--image",
        image,
        "--append",
        "test=panic",
    ];
    let [first, again] = [(); 2].map(|()| boot(folder.path(), &words, false));
    assert_eq!((counted(&first), counted(&again)), ((1, 0), (0, 1)));
    assert_eq!(first.status.code(), again.status.code());
    assert!(!first.status.success());
    let said = String::from_utf8_lossy(&first.stderr).into_owned();
    assert!(said.contains("requested by the command line"), "{said}");
    let last = |text: &str| text.rfind("boots on the instruction clock").unwrap();
    let again = String::from_utf8_lossy(&again.stderr).into_owned();
    assert_eq!(said[..last(&said)], again[..last(&again)]);
}

/// Firmware is the same for each stick, until it looks at it.
#[test]
fn a_machine_with_uefi_is_resumed_at_its_stick() {
    let Some(image) = image().filter(|_| ovmf_is_here()) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let words = |append| ["--firmware", "uefi", "--image", image, "--append", append];
    let selftest = |output: &Output| guests_part(output)["selftest"].clone();
    let boot = |words: &[&str]| boot(folder.path(), words, false);

    let first = boot(&words("selftest"));
    assert_eq!(all_counted(&first), [0, 0, 1, 0], "{first:?}");
    assert_eq!(selftest(&first)["failures"], 0);
    // Another stick.
    let other = boot(&words("note=other"));
    assert_eq!(all_counted(&other), [0, 0, 0, 1], "{other:?}");
    let record = guests_part(&other);
    assert_eq!(record["source"]["command_line"], "note=other");
    assert_eq!(record["selftest"], Value::Null);

    // What was saved and is damaged is no boot that went well.
    for entry in fs::read_dir(folder.path()).unwrap() {
        let machine = entry.unwrap().path().join("machine");
        let bytes = fs::read(&machine).unwrap();
        fs::write(&machine, &bytes[..bytes.len() / 2]).unwrap();
    }
    let damaged = boot(&words("selftest"));
    assert!(!damaged.status.success(), "{damaged:?}");
}

/// A test's own QEMU stands first in PATH and ends with a call of the one that it found there.
#[test]
fn a_qemu_before_the_kept_one_is_not_called_back() {
    if !qemu_is_here() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let script = "found=$(command -v qemu-system-x86_64)
        printf '#!/bin/sh\\nexec %s \"$@\"\\n' \"$found\" >\"$0/qemu-system-x86_64\"
        chmod +x \"$0/qemu-system-x86_64\"
        PATH=$0:$PATH exec timeout 60 qemu-system-x86_64 --version";
    let output =
        Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/boots/kept.sh"))
            .args(["sh", "-c", script])
            .arg(folder.path())
            .env("FIRSTLIGHT_KEPT_BOOTS", folder.path().join("kept"))
            .env_remove("CI_ALL")
            .output()
            .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(output.stdout.starts_with(b"QEMU emulator"), "{output:?}");
}
