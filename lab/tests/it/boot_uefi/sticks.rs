//! Sticks that are full, cannot be written, or lack a file.

use crate::boot_uefi::DEADLINE;
use crate::boot_uefi::started::{exit_device, power_on, power_on_machine, start};
use crate::common::checkers::check_stick;
use crate::common::qemu::ovmf_is_here;
use firstlight_lab::boot::{Machine, Uefi, record_of_result};
use firstlight_lab::stick;
use firstlight_wire::handover::{NOTE, VERSION};
use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

#[test]
fn debians_checkers_find_nothing_wrong_with_a_stick() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let mut image = b"\x7fELF\x02\x01".to_vec();
    image.resize(64, 0);
    image[18] = 62;
    fs::write(path("image"), image).unwrap();
    fs::write(path("loader"), b"MZ").unwrap();
    let (loader, image) = (path("loader"), path("image"));
    let mut flat = vec![0; 64];
    flat[56..60].copy_from_slice(b"ARM\x64");
    fs::write(path("flat"), flat).unwrap();
    let flat = path("flat");
    let programs = |image| {
        let loader = &*loader;
        Some(stick::Programs { loader, image })
    };
    let stick = stick::Stick {
        x86_64: programs(&image),
        aarch64: programs(&flat),
        words: "",
    };
    stick.write(&path("stick")).unwrap();
    check_stick(&path("stick"));
}

#[test]
fn a_stick_that_cannot_be_written_is_said_before_the_run() {
    if !ovmf_is_here() {
        return;
    }
    let started = start(|_| {}, "if=none,id=stick", &exit_device(), "");
    started
        .says("the stick cannot be written")
        .says("this run's result is shown on the screen alone")
        .says("the lines above are the result");
    assert_eq!(started.status, Some(85));
}

/// The text of the QR code at the end of a run with `words`, whose stick cannot be written, and what
/// the serial ports had: the log and the events.
fn photographed(words: &str) -> [String; 3] {
    let change = |uefi: &mut Uefi| write_words(&uefi.stick, words);
    let screen = ["-device", "VGA"].map(String::from);
    let mut machine = power_on(change, "if=none,id=stick", &screen);
    let shown = "the QR code has the summary; the machine can be switched off";
    assert_eq!(machine.until(shown), None, "{}", machine.log());
    let begin = Instant::now();
    // QEMU takes its time to show what the guest wrote.
    let code = loop {
        let picture = machine.screen();
        if let Some(code) = picture.code() {
            break code;
        }
        let size = (picture.width, picture.height);
        assert!(begin.elapsed() < DEADLINE, "no code on {size:?} pixels");
        sleep(Duration::from_millis(50));
    };
    let (log, events) = (machine.log(), machine.events());
    let mut rest = events.lines();
    for line in code.lines() {
        let is_event = rest.any(|event| event == line);
        assert!(is_event, "{line:?} of the code is not of\n{events}");
    }
    [code, log, events]
}

/// Where nothing else has the result, a photo of the screen does.
#[test]
fn the_code_on_the_screen_is_the_result_of_the_run() {
    if !ovmf_is_here() {
        return;
    }
    let [code, log, events] = photographed("selftest");
    let [seen, whole] = [("code", &code), ("events", &events)]
        .map(|(name, text)| record_of_result(name, text.as_bytes()).unwrap());
    assert_eq!(seen.source.command_line, "selftest");
    assert_eq!(seen.selftest, whole.selftest);
    assert_eq!(seen.selftest.as_ref().unwrap().failures, 0);
    assert_eq!(seen.memory, whole.memory);
    assert_eq!(seen.machine.cpus, whole.machine.cpus);
    assert_eq!(seen.milestones, whole.milestones);
    assert!(seen.milestones.all_allocatable_ns.is_some(), "{code}");
    let mib = seen.memory.managed_frames.unwrap() >> 8;
    let line = format!("memory: {mib} MiB allocatable of ");
    assert!(log.contains(&line), "{line:?} is missing in\n{log}");
    let is_cut = |note: &String| note.contains("ends before the run did");
    assert!(!seen.notes.iter().any(is_cut), "{code}");
}

/// A code that is full lacks phases, never why the run failed, or how it ended.
#[test]
fn the_code_on_the_screen_says_why_a_run_failed() {
    if !ovmf_is_here() {
        return;
    }
    let [code, _, events] = photographed("test=panic-other");
    for name in ["failure", "end"] {
        let is_it = |line: &&str| line.starts_with(&format!("{{\"event\":\"{name}\""));
        let event = events.lines().find(is_it);
        assert!(event.is_some(), "no {name} in\n{events}");
        assert_eq!(code.lines().find(is_it), event, "{code}");
    }
}

/// Firmware's management mode may wait for all CPUs: one that waits for a start, as after an INIT, does not
/// come there.
#[test]
fn other_cpus_are_halted_while_firmware_is_called() {
    if !ovmf_is_here() {
        return;
    }
    let machine = Machine {
        memory_mib: 512,
        cpus: 3,
        ..Machine::default()
    };
    let mut machine = power_on_machine(machine, "", |_| {}, "if=none,id=stick", &[]);
    let shown = "the lines above are the result; the machine can be switched off";
    assert_eq!(machine.until(shown), None, "{}", machine.log());
    // A CPU that sleeps until it has work has interrupts enabled (bit 9); it wakes, and emulated no INIT does
    // anything to it. One that was reset begins at 0xfff0.
    let is_halted = |registers: &str| {
        let flags = registers.split("RFL=").skip(1);
        let flags = flags.map(|rest| u64::from_str_radix(&rest[..8], 16).unwrap());
        flags.filter(|flags| flags >> 9 & 1 == 0).count() == 3
            && registers.matches("HLT=1").count() == 3
    };
    // The CPU that ended the run halts last, behind its last line.
    let begin = Instant::now();
    loop {
        let registers = machine.registers();
        if is_halted(&registers) {
            break;
        }
        assert!(begin.elapsed() < DEADLINE, "{registers}");
        sleep(Duration::from_millis(50));
    }
}

type Partition = std::io::Cursor<Vec<u8>>;

/// Opens the file system of a stick.
fn volume(stick: &Path) -> fatfs::FileSystem<fatfs::StdIoWrapper<Partition>> {
    let disk = fs::read(stick).unwrap();
    let partition = std::io::Cursor::new(disk[1 << 20..].to_vec());
    fatfs::FileSystem::new(partition, fatfs::FsOptions::new()).unwrap()
}

/// Changes the files of a stick.
pub(crate) fn change(
    stick: &Path,
    change: impl FnOnce(&fatfs::FileSystem<fatfs::StdIoWrapper<&mut Partition>>),
) {
    let disk = fs::read(stick).unwrap();
    let (table, partition) = disk.split_at(1 << 20);
    let mut partition = Partition::new(partition.to_vec());
    let volume = fatfs::FileSystem::new(&mut partition, fatfs::FsOptions::new()).unwrap();
    change(&volume);
    volume.unmount().unwrap();
    fs::write(stick, [table, &partition.into_inner()].concat()).unwrap();
}

/// Writes the words for the image.
fn write_words(stick: &Path, words: &str) {
    change(stick, |volume| {
        let folder = volume.root_dir().open_dir("firstlight").unwrap();
        let mut file = folder.open_file("cmdline.txt").unwrap();
        file.write_all(words.as_bytes()).unwrap();
    });
}

#[test]
fn a_full_stick_loses_nothing_that_was_there() {
    if !ovmf_is_here() {
        return;
    }
    let fill = |uefi: &mut Uefi| {
        change(&uefi.stick, |volume| {
            let folder = volume.root_dir().open_dir("firstlight").unwrap();
            folder
                .create_file("result.jsonl")
                .unwrap()
                .write_all(b"an earlier one\n")
                .unwrap();
            let mut rest = folder.create_file("everything else").unwrap();
            // Until nothing fits.
            while rest.write_all(&[7; 512]).is_ok() {}
        });
    };
    let started = start(fill, "", &exit_device(), "");
    started
        .says("the stick cannot be written")
        .says("the lines above are the result");
    let result = stick::result(&started.uefi.stick).unwrap();
    assert_eq!(result.as_deref(), Some(&b"an earlier one\n"[..]));
    assert!(
        volume(&started.uefi.stick)
            .root_dir()
            .open_file("firstlight/everything else")
            .is_ok()
    );
}

#[test]
fn a_stick_without_an_image_says_so() {
    if !ovmf_is_here() {
        return;
    }
    let removed = |uefi: &mut Uefi| {
        change(&uefi.stick, |volume| {
            volume.root_dir().remove("firstlight/image.elf").unwrap()
        });
    };
    let started = start(removed, "", &[], "");
    started
        .says("\\firstlight\\image.elf cannot be read")
        .says("the machine was not changed");
    let cut = |uefi: &mut Uefi| {
        change(&uefi.stick, |volume| {
            let mut file = volume.root_dir().open_file("firstlight/image.elf").unwrap();
            file.seek(SeekFrom::Start(5000)).unwrap();
            file.truncate().unwrap();
        });
    };
    let started = start(cut, "", &[], "");
    started.says("\\firstlight\\image.elf: it is cut: ");
    assert_eq!(started.status, Some(0));
    // There is no screen any more when the image looks at the hand-over.
    let newer = |uefi: &mut Uefi| {
        change(&uefi.stick, |volume| {
            let mut file = volume.root_dir().open_file("firstlight/image.elf").unwrap();
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes).unwrap();
            let mut parts = bytes.windows(NOTE.len());
            let note = parts.position(|part| part == NOTE).unwrap();
            let version = u64::try_from(note + NOTE.len() - 4).unwrap();
            file.seek(SeekFrom::Start(version)).unwrap();
            file.write_all(&[VERSION + 1]).unwrap();
        });
    };
    let started = start(newer, "", &[], "");
    started
        .says("\\firstlight\\image.elf: it reads a hand-over of version 2, this loader writes 1")
        .says("the machine was not changed");
    assert_eq!(started.status, Some(0));
}

#[test]
fn an_image_that_cannot_be_moved_says_so() {
    if !ovmf_is_here() {
        return;
    }
    let fixed = |uefi: &mut Uefi| {
        change(&uefi.stick, |volume| {
            let folder = volume.root_dir().open_dir("firstlight").unwrap();
            let mut words = folder.open_file("cmdline.txt").unwrap();
            words.write_all(b"test=occupied").unwrap();
            // The number of its sections, with relocations in some.
            let mut image = folder.open_file("image.elf").unwrap();
            image.seek(SeekFrom::Start(60)).unwrap();
            image.write_all(&[0, 0]).unwrap();
        });
    };
    let started = start(fixed, "", &[], "");
    started
        .says("\\firstlight\\image.elf: its place is taken and it has no relocations")
        .says("the machine was not changed");
    assert_eq!(started.status, Some(0));
}
