//! The aarch64 image with pages of 16 and of 64 KiB, built with the engine's features and booted: `make test-pages`.

use crate::common::here::is_here;

use firstlight_lab::boot::{self, Board, BootError, Clock, Machine, Misdeed, Request, Unwatched};
use firstlight_lab::record::Record;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicUsize;

/// The image with pages of so many KiB, in a folder of its own: the file of 4 KiB has the name of this one.
fn image(kib: u64) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("pages");
    let build = Command::new(env!("CARGO"))
        .args(["build", "--release", "--quiet", "-p", "firstlight-image"])
        .args(["--target", "aarch64-unknown-none", "--features"])
        .arg(format!("page-{kib}k"))
        .arg("--target-dir")
        .arg(&folder)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&build.stderr);
    assert!(build.status.success(), "the image does not build: {told}");
    let built = folder.join("aarch64-unknown-none/release/firstlight-image");
    let named = folder.join(format!("image-{kib}k"));
    std::fs::copy(built, &named).unwrap();
    named
}

/// Boots with so many MiB on 2 nodes with 2 CPUs.
fn run(image: &Path, memory_mib: u64, append: &str, extra: &[&str]) -> Result<Record, BootError> {
    let request = Request {
        image: Some(image.to_owned()),
        machine: Machine {
            board: Board::VirtAarch64,
            memory_mib,
            nodes: 2,
            cpus: 2,
            clock: Clock::Instructions,
            ..Machine::default()
        },
        append: append.into(),
        extra: extra.iter().map(|word| String::from(*word)).collect(),
        ..Request::default()
    };
    boot::run(&request, &AtomicUsize::new(0), &mut Unwatched)
}

/// The end of the log of a guest that fails.
fn failure(image: &Path, memory_mib: u64, append: &str, extra: &[&str]) -> (Misdeed, String) {
    let error = run(image, memory_mib, append, extra).unwrap_err();
    let fault = error.fault().unwrap_or_else(|| panic!("{append}: {error}"));
    (fault.misdeed.clone(), fault.tail.join("\n"))
}

#[test]
#[ignore = "builds the image twice: make test-pages"]
fn an_arm_image_boots_with_pages_of_16_and_of_64_kib() {
    if !is_here("qemu-system-aarch64") {
        return;
    }
    for kib in [16, 64] {
        let image = image(kib);
        let word = u64::from_le_bytes(std::fs::read(&image).unwrap()[24..32].try_into().unwrap());
        // The header of Linux's Image: bits 1 and 2.
        assert_eq!(word, if kib == 16 { 0b100 } else { 0b110 });

        // All of memory, some above the first tables' 4 GiB, at both levels; what firmware and tables took is small.
        for (memory_mib, level) in [(512 << 10, "off"), (3 << 10, "on")] {
            let level = format!("virtualization={level}");
            let extra = ["-machine", &level];
            let record = run(&image, memory_mib, "zeroed=64M", &extra).unwrap();
            assert_eq!(record.page_bytes(), kib << 10);
            assert_eq!(record.memory.present_frames, Some((memory_mib << 10) / kib));
            let managed = (record.memory.managed_frames.unwrap() * kib) >> 10;
            assert!(
                managed + 16 > memory_mib,
                "{kib}: {managed} of {memory_mib} MiB"
            );
            let all_run = |line: &String| line.ends_with("CPUs: 2 of 2 run");
            assert!(record.log.iter().any(all_run), "{:?}", record.log);
            assert_eq!(record.zeroed.unwrap().wrong_blocks, 0);
        }
        // Pages that appear later, at a border that is none of a block of 64 KiB's.
        let record = run(&image, (3 << 10) + 200, "accept=1 test=stale-page", &[]).unwrap();
        let repeated = |note: &String| note.contains("a page fault was repeated");
        assert!(record.notes.iter().any(repeated), "{:?}", record.notes);
        let online = |line: &String| line.contains("frames online") && line.ends_with("0 failures");
        assert!(record.log.iter().any(online), "{:?}", record.log);

        // The image's own protection.
        for (test, words) in [
            ("page-fault", "writing 0x0"),
            ("write-code", "writing 0x402"),
            ("run-data", "executing 0x402"),
            ("early-touch accept=1", "reading 0x100000000"),
        ] {
            let (misdeed, tail) = failure(&image, (3 << 10) + 64, &format!("test={test}"), &[]);
            assert!(
                matches!(misdeed, Misdeed::Faulted(_)),
                "{kib} {test}: {tail}"
            );
            assert!(tail.contains(words), "{kib} {test}: {tail}");
        }
        // It moves itself, within a block of 64 KiB's and to another.
        for (distance, place) in [(0x860_0000_u64, "0x486"), (0x8000_0000, "0xc00")] {
            let mut file = std::fs::read(&image).unwrap();
            file[8..16].copy_from_slice(&distance.to_le_bytes());
            let moved = image.with_extension("moved");
            std::fs::write(&moved, file).unwrap();
            let (_, tail) = failure(&moved, 2560, "test=write-code", &[]);
            let expected = format!("writing {place}");
            assert!(tail.contains(&expected), "{expected}: {tail}");
        }
        // A processor without such pages.
        let old = ["-cpu", "cortex-a72"];
        if kib == 16 {
            let (misdeed, tail) = failure(&image, 512, "", &old);
            assert!(!matches!(misdeed, Misdeed::Faulted(_)), "{tail}");
            assert!(tail.contains("no pages of 16 KiB"), "{tail}");
        } else {
            run(&image, 512, "", &old).unwrap();
        }
    }
}
