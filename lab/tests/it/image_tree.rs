//! The image for aarch64, entered with trees that no honest loader hands over: cut, foreign, with
//! numbers that cannot be. It brings the machine up or says why it cannot, and its end is clear.
//!
//! A kernel without a loader: QEMU puts image and tree into memory and starts the first CPU at a few
//! instructions that jump to the image. On riscv64 firmware reads the tree first.

use crate::common::here;
use crate::common::tree;

use firstlight_lab::boot::events::{Event, Events, Outcome};
use firstlight_lab::boot::{self, Processor, Unwatched};
use firstlight_wire::marker;
use here::is_here;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::sync::atomic::AtomicUsize;
use tree::{place, property, region};

pub(crate) const QEMU: &str = "qemu-system-aarch64";
/// Where the instructions, the image and the tree lie, in the first 256 MiB of memory.
const MEMORY: u64 = 0x4000_0000;
const CODE: u64 = MEMORY + 0x400_0000;
pub(crate) const IMAGE: u64 = MEMORY + 0x20_0000;
pub(crate) const TREE: u64 = MEMORY + 0x800_0000;
const MEMORY_BYTES: u64 = 256 << 20;

/// A tree as QEMU makes it: of one CPU and 2 GiB of memory.
fn good() -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata/machines/trees");
    let mut tree = fs::read(folder.join("virt-aarch64-2g.dtb")).unwrap();
    memory(&mut tree, MEMORY, MEMORY_BYTES);
    tree
}

/// Names other memory.
fn memory(tree: &mut [u8], start: u64, bytes: u64) {
    region(tree, b"memory@40000000\0", start, bytes);
}

fn image() -> &'static Path {
    static IMAGE: LazyLock<PathBuf> = LazyLock::new(|| {
        boot::find_image(Processor::Aarch64, &AtomicUsize::new(0), &mut Unwatched).unwrap()
    });
    &IMAGE
}

/// What jumps to the image: ldr x0, 16 bytes on; ldr x1, 20 bytes on; br x1; nop; the two values.
pub(crate) const JUMP: [u32; 4] = [0x5800_0080, 0x5800_00a1, 0xd61f_0020, 0xd503_201f];

/// Boots with `tree` in memory and its address said to be `at`; the outcome and the log.
fn boot_at(tree: &[u8], at: u64) -> (Outcome, String) {
    boot_on("virt", &JUMP, tree, at)
}

/// [`boot_at`] on a board where `code`, which ends as [`JUMP`], comes first.
fn boot_on(board: &str, code: &[u32], tree: &[u8], at: u64) -> (Outcome, String) {
    let Ended {
        status, log, what, ..
    } = start(board, code, tree, at);
    let events = Events::read(b"", log.as_bytes());
    assert!(events.rubbish.is_none(), "{:?}\n{log}", events.rubbish);
    let outcome = events
        .outcome()
        .unwrap_or_else(|| panic!("{status:?} {what}\n{log}"));
    assert_eq!(status, Some(outcome.exit_status()), "{what}\n{log}");
    let ends = |event: &&Event| matches!(event, Event::End { .. });
    assert_eq!(events.list.iter().filter(ends).count(), 1, "{log}");
    (outcome, log)
}

/// What came of a boot.
pub(crate) struct Ended {
    pub(crate) status: Option<i32>,
    pub(crate) log: String,
    /// What QEMU said.
    what: String,
    markers: Vec<u8>,
}

/// Boots so, whatever comes of it.
fn start(board: &str, code: &[u32], tree: &[u8], at: u64) -> Ended {
    boot([board, "256M"], code, &[(TREE, tree)], [at, IMAGE])
}

/// Boots a board with so much memory and what it holds at which addresses; what is handed over, and where the image is
/// entered.
pub(crate) fn boot(
    [board, memory]: [&str; 2],
    code: &[u32],
    contents: &[(u64, &[u8])],
    values: [u64; 2],
) -> Ended {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path.display().to_string()
    };
    let mut code: Vec<u8> = code.iter().flat_map(|word| word.to_le_bytes()).collect();
    code.extend(values.map(u64::to_le_bytes).concat());
    let loaded = |path: String, at: u64, more: &str| {
        format!("loader,file={path},addr={at:#x},force-raw=on{more}")
    };
    let [log, markers] = ["log", "markers"].map(|name| folder.path().join(name));
    let to = |name: &str, path: &Path| format!("file,id={name},path={}", path.display());
    let output = Command::new("timeout")
        .args(["60", QEMU, "-machine", board, "-cpu", "max", "-m", memory])
        .args([
            "-display",
            "none",
            "-monitor",
            "none",
            "-nodefaults",
            "-no-reboot",
        ])
        .args(["-chardev", &to("log", &log), "-serial", "chardev:log"])
        .args(["-chardev", &to("markers", &markers)])
        .args([
            "-semihosting-config",
            "enable=on,target=native,chardev=markers",
        ])
        .args(["-device", &loaded(image().display().to_string(), IMAGE, "")])
        .args(contents.iter().flat_map(|(at, bytes)| {
            let path = file(&format!("{at:x}"), bytes);
            ["-device".to_owned(), loaded(path, *at, "")]
        }))
        .args(["-device", &loaded(file("code", &code), CODE, ",cpu-num=0")])
        .output()
        .unwrap();
    Ended {
        status: output.status.code(),
        log: String::from_utf8_lossy(&fs::read(log).unwrap()).into_owned(),
        what: String::from_utf8_lossy(&output.stderr).into_owned(),
        markers: fs::read(markers).unwrap(),
    }
}

#[test]
fn a_tree_that_cannot_be_is_refused_with_a_reason() {
    if !is_here(QEMU) {
        return;
    }
    let changed = |change: fn(&mut Vec<u8>)| {
        let mut tree = good();
        change(&mut tree);
        tree
    };
    for (tree, at, outcome, words) in [
        (good(), TREE, Outcome::Ok, "256 MiB"),
        (good(), 0, Outcome::Machine, "device tree"),
        // Devices, the image itself, and what is not mapped.
        (good(), 0x900_0000, Outcome::Machine, "device tree"),
        (good(), IMAGE, Outcome::Machine, "device tree"),
        (good(), u64::MAX - 7, Outcome::Machine, "device tree"),
        (good(), 1 << 40, Outcome::Machine, "device tree"),
        (vec![0; 4096], TREE, Outcome::Machine, "device tree"),
        // Cut: the structure ends before its end, or the whole claims more than may be read.
        (
            changed(|tree| tree[4..8].copy_from_slice(&[0, 0, 8, 0])),
            TREE,
            Outcome::Machine,
            "device tree",
        ),
        (
            changed(|tree| tree[4..8].copy_from_slice(&[0xff; 4])),
            TREE,
            Outcome::Machine,
            "device tree",
        ),
        (
            changed(|tree| tree[36..40].copy_from_slice(&[0, 0, 1, 0])),
            TREE,
            Outcome::Machine,
            "device tree",
        ),
        // A node within a node within a node.
        (
            changed(|tree| {
                tree[56..]
                    .chunks_exact_mut(8)
                    .for_each(|chunk| chunk.copy_from_slice(&[0, 0, 0, 1, b'a', 0, 0, 0]))
            }),
            TREE,
            Outcome::Machine,
            "device tree",
        ),
        (
            changed(|tree| memory(tree, MEMORY, 0)),
            TREE,
            Outcome::Machine,
            "no usable memory",
        ),
        // What no processor reaches is left out, and the rest of this claim is no memory either.
        (
            changed(|tree| memory(tree, 1 << 62, 1 << 63)),
            TREE,
            Outcome::Machine,
            "memory",
        ),
    ] {
        let (seen, log) = boot_at(&tree, at);
        assert_eq!(seen, outcome, "{at:#x} {words}\n{log}");
        assert!(log.contains(words), "{at:#x} {words}\n{log}");
    }
}

/// A CPU whose id has bits that no processor has is not started, nor does it keep others from it.
#[test]
fn a_cpu_that_cannot_be_is_not_started() {
    if !is_here(QEMU) {
        return;
    }
    let mut tree = good();
    // The one CPU's id becomes another one's.
    let at = property(&tree, b"cpu@0\0", b"reg\0");
    assert_eq!(
        tree[at..at + 4],
        [0; 4],
        "the value is that of another property"
    );
    tree[at..at + 4].copy_from_slice(&[0xff, 0, 0, 7]);
    let (outcome, log) = boot_at(&tree, TREE);
    assert_eq!(outcome, Outcome::Ok, "{log}");
    assert!(log.contains("CPU with id 0xff000007 not started"), "{log}");
    assert!(log.contains("CPUs: 1 of 2 run"), "{log}");
}

/// Registers that a tree puts into the image, or where only memory can be: nothing is read or
/// written there. Without its serial port the image works, and only its status tells.
#[test]
fn registers_where_none_can_be_are_refused() {
    if !is_here(QEMU) {
        return;
    }
    // Of the image its code and what it writes, then mapped as memory, with nothing there.
    let image_end = IMAGE + fs::metadata(image()).unwrap().len();
    let nothing = MEMORY + (1 << 30);
    for at in [IMAGE, image_end & !0xfff, nothing, nothing - 0x800] {
        without_log("virt", at, 0x1000, Outcome::Ok);
    }
    for at in [IMAGE, nothing, 1 << 33, MEMORY - 0x100] {
        let mut tree = good();
        let arguments = place(&tree, b"console=ttyAMA0\0");
        tree[arguments..][..15].copy_from_slice(b"balloon        ");
        // The last that is looked at, whose reason is reported.
        region(&mut tree, b"virtio_mmio@a003e00\0", at, 0x200);
        let (outcome, log) = boot_at(&tree, TREE);
        assert_eq!(outcome, Outcome::Machine, "{at:#x}\n{log}");
        let words = format!("the device's registers, 512 bytes at {at:#x}, are where memory is");
        assert!(log.contains(&words), "{at:#x}\n{log}");
    }
}

/// A loader at EL2 left its own settings: the virtual counter is ahead, registers of EL1 mean those
/// of EL2. The time of entry is that of the counter which is read later.
#[test]
fn a_loader_at_el2_may_leave_its_settings() {
    if !is_here(QEMU) {
        return;
    }
    // mov x2, 2^40; msr cntvoff_el2, x2; mov x2, E2H and RW; msr hcr_el2, x2; isb.
    let settings = [
        0xd2c0_2002,
        0xd51c_e062,
        0xd2c0_0082,
        0xf2b0_0002,
        0xd51c_1102,
        0xd503_3fdf,
    ];
    for count in [0, 2, 6] {
        let code = [&settings[..count], &JUMP[..]].concat();
        let (outcome, log) = boot_on("virt,virtualization=on", &code, &good(), TREE);
        assert_eq!(outcome, Outcome::Ok, "{count}\n{log}");
        let milestones = Events::read(b"", log.as_bytes()).list;
        let ticks = milestones.iter().filter_map(|event| match event {
            Event::Milestone { ticks, .. } => Some(*ticks),
            _ => None,
        });
        let ticks: Vec<u64> = ticks.collect();
        // Less than the counter was ahead.
        let is_real = ticks.len() > 3 && ticks.is_sorted() && ticks.iter().all(|at| at >> 40 == 0);
        assert!(is_real, "{count} {ticks:?}\n{log}");
    }
}

/// Boots with its serial port elsewhere: the log is empty, and the end is clear.
fn without_log(board: &str, at: u64, bytes: u64, outcome: Outcome) -> Vec<u8> {
    let mut tree = good();
    region(&mut tree, b"\0\0\0\x01pl011@9000000\0", at, bytes);
    let ended = start(board, &JUMP, &tree, TREE);
    let expected = (Some(outcome.exit_status()), "");
    let what = format!("{at:#x} {} {:x?}", ended.what, ended.markers);
    assert_eq!((ended.status, ended.log.as_str()), expected, "{what}");
    ended.markers
}

/// A port that is too short, not aligned, never ready, or a fault: the run ends as if there were none, or by that one fault.
#[test]
fn a_serial_port_that_takes_nothing_does_not_keep_the_run() {
    if !is_here(QEMU) {
        return;
    }
    // A function that is not there reads as ones in the configuration space of PCI.
    let ones = 0x3f00_0000 + (31 << 15);
    for (board, at, bytes) in [
        ("virt", 0x900_0000, 0x10),
        ("virt", 0x900_0002, 0x1000),
        ("virt,highmem=off", ones, 0x1000),
    ] {
        without_log(board, at, bytes, Outcome::Ok);
    }
    let markers = without_log("virt", 0xb00_0000, 0x1000, Outcome::Fault);
    let faults = markers.iter().filter(|byte| **byte == marker::FAULT);
    assert_eq!(faults.count(), 1, "{markers:x?}");
}

/// At EL1 code may run on another stack pointer, or not where it may be written.
#[test]
fn a_loader_at_el1_may_leave_its_settings() {
    if !is_here(QEMU) {
        return;
    }
    // mrs x2, sctlr_el1; orr x2, x2, WXN; msr sctlr_el1, x2; isb.
    let never_both = [0xd538_1002, 0xb26d_0042, 0xd518_1002, 0xd503_3fdf];
    // msr spsel, 0.
    let of_el0 = [0xd500_40bf];
    for settings in [&never_both[..], &of_el0] {
        let code = [settings, &JUMP[..]].concat();
        let (outcome, log) = boot_on("virt", &code, &good(), TREE);
        assert_eq!(outcome, Outcome::Ok, "{settings:x?}\n{log}");
    }
}

/// The image itself left EL2: a call to there is answered, no CPU waits for it.
#[test]
fn firmware_that_is_not_there_refuses_calls() {
    if !is_here(QEMU) {
        return;
    }
    let mut tree = good();
    place(&tree, b"hvc\0");
    let at = property(&tree, b"cpu@0\0", b"reg\0");
    tree[at + 3] = 7;
    let (outcome, log) = boot_on("virt,virtualization=on", &JUMP, &tree, TREE);
    assert_eq!(outcome, Outcome::Ok, "{log}");
    let refused = "CPU with id 0x7 not started: PSCI refuses with -1";
    assert!(log.contains(refused), "{log}");
}
