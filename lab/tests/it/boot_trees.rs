//! Our image where QEMU's own tree of the machine was changed before the boot.
//!
//! On riscv64 firmware reads the tree before the image does; `image_tree.rs` has, for aarch64, trees
//! that no firmware lets through.

use crate::common::here;
use crate::common::tree;

use firstlight_lab::boot::{self, Board, BootError, Clock, Machine, Misdeed, Request, Unwatched};
use firstlight_lab::record::{Node, Record};
use here::is_here;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::AtomicUsize;
use tempfile::TempDir;
use tree::{property, region, word};

/// A machine that boots our image with a tree of one's own.
struct Guest {
    machine: Machine,
    image: PathBuf,
    folder: TempDir,
}

impl Guest {
    /// `None`, with a line, where the board's QEMU is not here.
    fn new(board: Board, nodes: u32, cpus: u32) -> Option<Self> {
        let processor = board.processor();
        if !is_here(&format!("qemu-system-{processor}")) {
            return None;
        }
        let machine = Machine {
            board,
            memory_mib: 256,
            nodes,
            cpus,
            clock: Clock::Instructions,
            ..Machine::default()
        };
        Some(Self {
            machine,
            image: boot::find_image(processor, &AtomicUsize::new(0), &mut Unwatched).unwrap(),
            folder: tempfile::tempdir().unwrap(),
        })
    }

    fn run(&self, option: &str, value: &str) -> Result<Record, BootError> {
        let request = Request {
            machine: self.machine.clone(),
            image: Some(self.image.clone()),
            extra: [option, value].map(String::from).to_vec(),
            ..Request::default()
        };
        boot::run(&request, &AtomicUsize::new(0), &mut Unwatched)
    }

    /// QEMU's own tree for it.
    fn tree(&self) -> Vec<u8> {
        let path = self.path();
        // QEMU ends when it has written it: no boot.
        let none = self.run("-machine", &format!("dumpdtb={}", path.display()));
        let mut tree = fs::read(&path).unwrap_or_else(|error| panic!("{error}: {none:?}"));
        // Strings come last; QEMU leaves space after them.
        let end = word(&tree, 12) + word(&tree, 32);
        tree.truncate(end as usize);
        tree[4..8].copy_from_slice(&end.to_be_bytes());
        tree
    }

    fn boot(&self, tree: &[u8]) -> Result<Record, BootError> {
        fs::write(self.path(), tree).unwrap();
        self.run("-dtb", self.path().to_str().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("tree")
    }
}

/// Makes the id of each CPU two cells, the upper one as given.
fn two_cells(tree: &mut Vec<u8>, uppers: [u32; 4]) {
    let at = property(tree, b"\0\0\0\x01cpus\0", b"#address-cells\0");
    assert_eq!(word(tree, at), 1);
    tree[at..at + 4].copy_from_slice(&[0, 0, 0, 2]);
    for (cpu, upper) in (0_u32..).zip(uppers) {
        let at = property(tree, format!("cpu@{cpu}\0").as_bytes(), b"reg\0");
        assert_eq!([word(tree, at - 8), word(tree, at)], [4, cpu]);
        tree[at - 8..at - 4].copy_from_slice(&[0, 0, 0, 8]);
        tree.splice(at..at, upper.to_be_bytes());
        // The length of all, where strings are, the length of the structure.
        for field in [4, 12, 36] {
            let longer = word(tree, field) + 4;
            tree[field..field + 4].copy_from_slice(&longer.to_be_bytes());
        }
    }
}

/// Where a CPU's id has bits from 32 on, a tree has two cells for each. QEMU has no such CPU: of one
/// whose upper cell says so, PSCI knows nothing, and no processor has bits from 40 on.
#[test]
fn cpus_with_ids_of_two_cells_start() {
    let Some(guest) = Guest::new(Board::VirtAarch64, 1, 4) else {
        return;
    };
    let made = guest.tree();
    let log = |uppers| {
        let mut tree = made.clone();
        two_cells(&mut tree, uppers);
        guest.boot(&tree).unwrap().log.join("\n")
    };
    let all = log([0; 4]);
    assert!(all.contains("CPUs: 4 of 4 run"), "{all}");
    let beyond = log([0, 0, 0x100, 0]);
    let words = "CPU with id 0x10000000002 not started: it cannot be addressed";
    assert!(beyond.contains(words), "{beyond}");
    assert!(beyond.contains("CPUs: 3 of 4 run"), "{beyond}");
    let unknown = log([0, 0, 1, 0]);
    let words = "CPU with id 0x100000002 not started: PSCI refuses with -2";
    assert!(unknown.contains(words), "{unknown}");
    assert!(unknown.contains("CPUs: 3 of 4 run"), "{unknown}");
    // It is not waited for.
    assert!(!unknown.contains("joins when it does"), "{unknown}");
}

const MEMORY: &[u8] = b"memory@80000000\0";

/// Of two nodes with 128 MiB each, the tree has other memory for the first.
#[test]
fn memory_that_cannot_be_is_left_out_after_firmware_read_it() {
    let Some(guest) = Guest::new(Board::VirtRiscv64, 2, 2) else {
        return;
    };
    let mut tree = guest.tree();
    for (start, bytes, words) in [
        (1 << 62, 1 << 63, "lies past the end of physical memory"),
        (1 << 63, u64::MAX, "run past 2^64"),
        (0x8000_0000, 0, "no bytes at 0x80000000, dropped"),
    ] {
        region(&mut tree, MEMORY, start, bytes);
        let record = guest.boot(&tree).unwrap();
        let present: Vec<u64> = record
            .nodes
            .iter()
            .map(|node| node.present_frames)
            .collect();
        assert_eq!(present, [0, 128 << 8], "{start:#x} {bytes:#x}");
        let seen = &record.corrections;
        assert!(
            seen.iter().any(|line| line.contains(words)),
            "{words}: {seen:?}"
        );
    }
    // Memory that is not there, within what the processor reaches, ends with a fault of its own.
    region(&mut tree, MEMORY, 0x8000_0000, 1 << 63);
    let error = guest.boot(&tree).unwrap_err();
    let fault = error.fault().unwrap_or_else(|| panic!("{error}"));
    let tail = fault.tail.join("\n");
    assert!(matches!(fault.misdeed, Misdeed::Faulted(_)), "{tail}");
    assert!(tail.contains("fault: CPU 0: store access fault"), "{tail}");
}

/// The ids of nodes of the first memory and of the second CPU.
#[test]
fn ids_of_nodes_that_cannot_be_are_left_out_or_refused() {
    let Some(guest) = Guest::new(Board::VirtRiscv64, 2, 2) else {
        return;
    };
    let made = guest.tree();
    let with_id = |node: &[u8], id: u32| {
        let mut tree = made.clone();
        let at = property(&tree, node, b"numa-node-id\0");
        tree[at..at + 4].copy_from_slice(&id.to_be_bytes());
        guest.boot(&tree)
    };
    let cpu: &[u8] = b"cpu@1\0";
    for (node, frames, cpus) in [
        (MEMORY, [0, 256 << 8], [1, 1]),
        (cpu, [128 << 8; 2], [2, 0]),
    ] {
        let record = with_id(node, u32::MAX).unwrap();
        let of_nodes = |figure: fn(&_) -> u64| record.nodes.iter().map(figure).collect::<Vec<_>>();
        assert_eq!(of_nodes(|node: &Node| node.present_frames), frames);
        assert_eq!(of_nodes(|node: &Node| node.cpus.unwrap()), cpus);
        let seen = &record.corrections;
        let too_large = |line: &String| line.contains("numa-node-id is too large");
        assert!(seen.iter().any(too_large), "{seen:?}");

        // One that could be, but for which the image has no space.
        let error = with_id(node, 0xffff).unwrap_err();
        assert!(matches!(error, BootError::Machine(_)), "{error}");
        let tail = error.fault().unwrap().tail.join("\n");
        assert!(tail.contains("65536 are needed"), "{tail}");
    }
}
