//! The flattened device tree: what passes the check can be walked to the end,
//! everything found lies inside the tree, and what is kept in slots is what walks find.
#![no_main]

use firstlight::firmware::fdt::{Fdt, FdtSlot, MAX_DEPTH, Node};
use firstlight_fuzz::check_map;
use libfuzzer_sys::fuzz_target;

/// All that a bring-up reads of a tree, as text.
fn read(fdt: &Fdt<'_>) -> String {
    let place = |node: Node<'_>| (node.offset(), node.reg().collect::<Vec<_>>());
    let ranges = (
        fdt.memory().collect::<Vec<_>>(),
        fdt.reserved().collect::<Vec<_>>(),
    );
    let nodes = (
        fdt.cpus().collect::<Vec<_>>(),
        fdt.distances().collect::<Vec<_>>(),
    );
    let chosen = (fdt.bootargs(), fdt.initrd(), fdt.stdout().map(place));
    let devices = (fdt.psci(), fdt.timebase_hz());
    let serial: Vec<_> = fdt.compatible("arm,pl011").map(place).collect();
    format!("{ranges:?} {nodes:?} {chosen:?} {devices:?} {serial:?}")
}

fuzz_target!(|data: &[u8]| {
    let mut slots = [FdtSlot::EMPTY; 12];
    let kept = Fdt::parse_in(data, &mut slots, &["arm,pl011"]);
    let Ok(fdt) = Fdt::parse(data) else {
        assert!(kept.is_err());
        return;
    };
    assert_eq!(kept.map(|kept| read(&kept)), Ok(read(&fdt)));
    let mut depths = Vec::new();
    let mut begins = 0;
    for node in fdt.nodes() {
        assert!(node.depth() < MAX_DEPTH);
        // Every node's parent came before it.
        assert!(node.depth() <= depths.len());
        depths.truncate(node.depth());
        depths.push(node.offset());
        assert!(node.name().len() <= data.len() && !node.name().contains(&0));
        assert_eq!(node.depth() == 0, begins == 0, "one root");
        let inside = data.as_ptr_range();
        if let Some(reg) = node.property("reg") {
            assert!(inside.start <= reg.as_ptr() && reg.as_ptr_range().end <= inside.end);
        }
        begins += 1;
    }
    assert!(begins > 0 && begins <= data.len() / 8);
    let cells = data.len() / 4;
    assert!(fdt.cpus().count() <= cells && fdt.distances().count() <= cells);
    let memory: Vec<_> = fdt.memory().collect();
    let reserved: Vec<_> = fdt.reserved().collect();
    assert!(memory.len() <= cells && reserved.len() <= cells);
    let wrong = memory.iter().filter_map(|memory| memory.err());
    let wrong: Vec<_> = wrong
        .chain(reserved.iter().filter_map(|reserved| reserved.err()))
        .collect();
    match fdt.map_entries() {
        Ok(entries) => {
            assert!(wrong.is_empty());
            let entries: Vec<_> = entries.collect();
            assert!(entries.len() >= memory.len());
            check_map(&entries);
        }
        Err(error) => assert_eq!(Some(&error), wrong.first()),
    }
});
