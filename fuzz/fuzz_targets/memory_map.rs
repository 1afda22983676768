//! The memory map: built from any entries and changed in any way, it stays
//! sorted, disjoint and in whole pages, and no byte changes that should not.
#![no_main]

use firstlight::addr::{PHYS_END, PhysAddr, PhysRange};
use firstlight::map::{Attributes, MapEntry, MemoryKind, MemoryMap, Region, ScratchEntry};
use firstlight_fuzz::check_map;
use libfuzzer_sys::fuzz_target;

const ENTRY_BYTES: usize = 12;

/// Addresses come as a small number and a shift, so that they meet often.
fn entry(bytes: &[u8; ENTRY_BYTES]) -> (MapEntry, u8, Option<MemoryKind>) {
    let [kind, only, what, shifts, rest @ ..] = *bytes;
    let word = |at: usize| u64::from(u32::from_le_bytes([0, 1, 2, 3].map(|byte| rest[at + byte])));
    let start = word(0) << ((shifts & 15) * 2);
    let bytes = word(4) << ((shifts >> 4) * 2);
    let bytes = if what & 0x80 == 0 {
        bytes
    } else {
        bytes | 0xffff << 48
    };
    let attributes = Attributes {
        more_reliable: kind & 0x40 != 0,
        special_purpose: kind & 0x80 != 0,
    };
    let kind = MemoryKind::ALL[usize::from(kind & 7)];
    let only = (only & 8 != 0).then_some(MemoryKind::ALL[usize::from(only & 7)]);
    (
        MapEntry::new(start, bytes, kind).with_attributes(attributes),
        what & 3,
        only,
    )
}

fuzz_target!(|data: &[u8]| {
    let Some((&split, rest)) = data.split_first() else {
        return;
    };
    let all: Vec<_> = rest
        .as_chunks::<ENTRY_BYTES>()
        .0
        .iter()
        .map(entry)
        .collect();
    let (build, changes) = all.split_at(usize::from(split).min(all.len()));
    let entries: Vec<MapEntry> = build.iter().map(|(entry, ..)| *entry).collect();
    check_map(&entries);

    let mut scratch = vec![ScratchEntry::default(); entries.len()];
    let mut regions = vec![Region::default(); 5 * entries.len() + usize::from(split >> 4)];
    let mut map = MemoryMap::build(entries.into_iter(), &mut scratch, &mut regions, &mut |_| {})
        .expect("five regions an entry are enough");
    for &(entry, what, only) in changes {
        let before = map.regions().to_vec();
        let end = entry.start.saturating_add(entry.bytes).min(PHYS_END);
        let range = PhysRange::new(entry.start.min(end), end).expect("ordered");
        let quiet = &mut |_| {};
        let outcome = match what {
            0 => map.remove(range, only, quiet),
            1 => map.set(range, only, entry.kind, quiet),
            _ => map.add(entry, quiet),
        };
        map.validate().expect("a changed map keeps its promises");
        let kind_in = |regions: &[Region], at: PhysAddr| {
            let after = regions.partition_point(|region| region.range.end() <= at);
            regions
                .get(after)
                .filter(|region| region.range.contains(at))
                .map(|region| region.kind)
        };
        let Ok(changed) = outcome else {
            assert_eq!(map.regions(), before, "an error changes nothing");
            continue;
        };
        assert!(changed <= range.bytes());
        // Outside of the range, and of the pages at its borders, nothing changed.
        let touched = range.outer_frames().addrs();
        for region in &before {
            let last = PhysAddr::new(region.range.end().get() - 1);
            for at in [region.range.start(), last] {
                if !touched.contains(at) {
                    assert_eq!(map.find(at).map(|region| region.kind), Some(region.kind));
                }
            }
        }
        // Inside, the middle is as it should be.
        let inner = range.inner_frames().addrs();
        if !inner.is_empty() {
            let at = PhysAddr::new(inner.start().get() + inner.bytes() / 2);
            let old = kind_in(&before, at);
            let expected = match (what, old) {
                (0, Some(old)) if only.is_none_or(|only| only == old) => None,
                (1, Some(old)) if only.is_none_or(|only| only == old) => Some(entry.kind),
                (0 | 1, old) => old,
                (_, old) => old.max(Some(entry.kind)),
            };
            let seen = map.find(at).map(|region| region.kind);
            // Memory next to other memory of the same kind with other
            // attributes may lose the page they share.
            let cut =
                seen == Some(MemoryKind::Reserved) && expected.is_some_and(MemoryKind::is_memory);
            assert!(
                seen == expected || cut,
                "{at}: {seen:?}, expected {expected:?}"
            );
        }
    }
});
