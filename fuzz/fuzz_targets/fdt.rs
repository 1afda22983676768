//! The flattened device tree: what passes the check can be walked to the end,
//! and everything found lies inside the tree.
#![no_main]

use firstlight::firmware::fdt::{Fdt, MAX_DEPTH};
use firstlight_fuzz::check_map;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(fdt) = Fdt::parse(data) else { return };
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
