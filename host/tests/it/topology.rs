//! A synthetic file tree in place of `/proc` and `/sys`: the same readers, other machines.

use firstlight_host::topology::{Machine, MapSource, SourceError, map};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// Writes `content` to `path` below the tree, making folders as needed.
fn put(root: &Path, path: &str, content: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

/// Two nodes of two memory blocks each, with everything an ordinary user sees.
fn tree() -> TempDir {
    let tree = tempfile::tempdir().unwrap();
    let root = tree.path();
    put(
        root,
        "proc/meminfo",
        "MemTotal:         524288 kB\nMemFree: 1 kB\n",
    );
    put(
        root,
        "proc/iomem",
        "00000000-00000000 : System RAM\n  00000000-00000000 : Kernel code\n",
    );
    put(
        root,
        "sys/devices/system/memory/block_size_bytes",
        "8000000\n",
    );
    put(root, "sys/devices/system/cpu/online", "0-3\n");
    put(root, "sys/devices/system/node/online", "0,2\n");
    for (node, cpus, distances, blocks) in
        [(0, "0-1", "10 21", [0, 1]), (2, "2-3", "21 10", [2, 4])]
    {
        let folder = format!("sys/devices/system/node/node{node}");
        put(root, &format!("{folder}/cpulist"), &format!("{cpus}\n"));
        put(
            root,
            &format!("{folder}/distance"),
            &format!("{distances}\n"),
        );
        put(
            root,
            &format!("{folder}/meminfo"),
            &format!("Node {node} MemTotal:  262144 kB\n"),
        );
        for block in blocks {
            put(root, &format!("{folder}/memory{block}/phys_index"), "0\n");
            put(
                root,
                &format!("sys/devices/system/memory/memory{block}/state"),
                "online\n",
            );
        }
    }
    tree
}

fn put_memmap(root: &Path) {
    for (number, start, end, kind) in [
        (0, "0x0", "0x9fbff", "System RAM"),
        (10, "0x100000", "0x1fffffff", "System RAM"),
        (2, "0x9fc00", "0xfffff", "Reserved"),
    ] {
        let folder = format!("sys/firmware/memmap/{number}");
        put(root, &format!("{folder}/start"), &format!("{start}\n"));
        put(root, &format!("{folder}/end"), &format!("{end}\n"));
        put(root, &format!("{folder}/type"), &format!("{kind}\n"));
    }
}

#[test]
fn the_firmware_map_comes_first_and_keeps_its_order() {
    let tree = tree();
    put_memmap(tree.path());
    let machine = Machine::discover(tree.path()).unwrap();
    assert_eq!(machine.map_source, MapSource::Firmware);
    let starts: Vec<u64> = machine.map.iter().map(|row| row.start).collect();
    assert_eq!(starts, [0, 0x9_fc00, 0x10_0000]);
    assert_eq!(machine.notes, [""; 0]);
    assert_eq!(machine.cpus, [0, 1, 2, 3]);
    assert_eq!(machine.srat, None);
}

#[test]
fn nodes_have_gaps_in_numbers_and_in_memory() {
    let machine = Machine::discover(tree().path()).unwrap();
    assert_eq!(machine.nodes.len(), 2);
    let second = &machine.nodes[1];
    assert_eq!((second.id, second.total_bytes), (2, 256 << 20));
    assert_eq!(second.cpus, [2, 3]);
    assert_eq!(second.distances, [21, 10]);
    assert_eq!(
        second.ranges,
        [(0x1000_0000, 0x17ff_ffff), (0x2000_0000, 0x27ff_ffff)]
    );
}

#[test]
fn hidden_addresses_are_noticed_and_blocks_used_instead() {
    let tree = tree();
    assert!(matches!(
        map::iomem(tree.path()),
        Err(SourceError::Hidden { .. })
    ));
    let machine = Machine::discover(tree.path()).unwrap();
    assert_eq!(machine.map_source, MapSource::Blocks);
    assert_eq!(machine.map.len(), 2);
    assert_eq!(machine.notes.len(), 1);
    assert!(machine.notes[0].contains("hides addresses from ordinary users"));
    assert!(
        machine.notes[0].contains("run as root"),
        "{}",
        machine.notes[0]
    );
}

#[test]
fn iomem_is_read_at_every_depth() {
    let tree = tree();
    put(
        tree.path(),
        "proc/iomem",
        "00000000-00000fff : Reserved\n00001000-0009fbff : System RAM\n\
         4080000000-807fffffff : CXL Window 0\n  4080000000-807fffffff : Soft Reserved\n    \
         4080000000-807fffffff : dax0.0\nfec00000-fec003ff : IOAPIC 0\n",
    );
    let machine = Machine::discover(tree.path()).unwrap();
    assert_eq!(machine.map_source, MapSource::Iomem);
    let labels: Vec<&str> = machine.map.iter().map(|row| row.label.as_str()).collect();
    assert_eq!(labels, ["Reserved", "System RAM", "Soft Reserved"]);
    assert_eq!(machine.map[2].end_inclusive, 0x80_7fff_ffff);
}

#[test]
fn without_blocks_the_total_is_the_last_resort() {
    let tree = tree();
    fs::remove_dir_all(tree.path().join("sys/devices/system/memory")).unwrap();
    let machine = Machine::discover(tree.path()).unwrap();
    assert_eq!(machine.map_source, MapSource::Total);
    assert_eq!(machine.map[0].start, 1 << 20);
    assert_eq!(machine.map[0].end_inclusive, (513 << 20) - 1);
    assert!(machine.nodes.iter().all(|node| node.ranges.is_empty()));
}

#[test]
fn an_empty_tree_is_an_error_that_names_the_last_file_tried() {
    let tree = tempfile::tempdir().unwrap();
    let error = Machine::discover(tree.path()).unwrap_err();
    assert!(error.is_missing());
    assert!(error.to_string().contains("proc/meminfo"), "{error}");
}

#[test]
fn nonsense_is_a_typed_error_never_a_panic() {
    for nonsense in [
        "System RAM\n",
        "zz-1 : System RAM\n",
        "0-11111111111111111 : System RAM\n",
        "1000 : System RAM\n",
        "\u{0}\u{1}\n",
    ] {
        let tree = tree();
        put(tree.path(), "proc/iomem", nonsense);
        let error = map::iomem(tree.path()).unwrap_err();
        assert!(
            matches!(error, SourceError::Malformed { line: 1, .. }),
            "{nonsense:?}: {error}"
        );
    }
    let tree = tree();
    put_memmap(tree.path());
    put(tree.path(), "sys/firmware/memmap/2/end", "-1\n");
    assert!(matches!(
        map::firmware(tree.path()),
        Err(SourceError::Malformed { .. })
    ));
    for size in ["0\n", "3\n", "\n"] {
        put(
            tree.path(),
            "sys/devices/system/memory/block_size_bytes",
            size,
        );
        assert!(
            matches!(map::blocks(tree.path()), Err(SourceError::Malformed { .. })),
            "{size:?}"
        );
    }
    put(
        tree.path(),
        "sys/devices/system/memory/block_size_bytes",
        "8000000000000000\n",
    );
    assert!(matches!(
        map::blocks(tree.path()),
        Err(SourceError::Malformed { .. })
    ));
    put(
        tree.path(),
        "sys/devices/system/node/online",
        "0-4294967295\n",
    );
    let machine = Machine::discover(tree.path()).unwrap();
    assert!(machine.nodes.is_empty());
    assert!(machine.notes.iter().any(|note| note.contains("one node")));
}

#[test]
fn tables_are_read_as_they_are() {
    let tree = tree();
    put(tree.path(), "sys/firmware/acpi/tables/SRAT", "any bytes");
    let machine = Machine::discover(tree.path()).unwrap();
    assert_eq!(machine.srat.as_deref(), Some("any bytes".as_bytes()));
    assert_eq!(machine.slit, None);
}

#[test]
fn this_machine_can_be_read() {
    let machine = Machine::discover(Path::new("/")).unwrap();
    assert!(machine.map.iter().any(|row| row.label == map::SYSTEM_RAM));
    assert!(!machine.cpus.is_empty());
}
