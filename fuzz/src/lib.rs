//! What the fuzz targets share: a memory map built from any entries, and the
//! checks it must pass; and table headers made right, so that a fuzzer's bytes
//! get past them.

use firstlight::addr::{PHYS_END, PhysAddr};
use firstlight::map::{
    Correction, MapEntry, MapError, MemoryKind, MemoryMap, Region, ScratchEntry,
};

/// Entries whose borders are compared with the model; the rest only take part.
const COMPARED: usize = 48;

/// Builds a map from `entries` and checks it against the plain rule: at every
/// border, the most restrictive kind of the entries that cover it.
pub fn check_map(entries: &[MapEntry]) {
    let mut scratch = vec![ScratchEntry::default(); entries.len()];
    let mut regions = vec![Region::default(); 5 * entries.len()];
    let mut cuts = Vec::new();
    let mut corrections = 0usize;
    let mut report = |correction: Correction| {
        corrections += 1;
        assert!((correction.entry() as usize) < entries.len());
        if let Correction::PartialPage { range, kind, .. } = correction {
            assert!(kind.is_memory() && !range.is_empty());
            cuts.push(range);
        }
    };
    let all = entries.iter().copied();
    let map = MemoryMap::build(all.clone(), &mut scratch, &mut regions, &mut report)
        .expect("five regions an entry are enough");
    map.validate().expect("a map keeps its promises");
    assert!(corrections <= 16 * entries.len());

    let borders = entries.iter().take(COMPARED);
    let borders = borders.flat_map(|entry| [entry.start, entry.last().unwrap_or(0)]);
    for at in borders {
        let covering = entries
            .iter()
            .filter(|entry| entry.start <= at && entry.last().is_some_and(|last| at <= last));
        let expected = covering
            .map(|entry| entry.kind)
            .max()
            .filter(|_| at < PHYS_END);
        let seen = map.find(PhysAddr::new(at)).map(|region| region.kind);
        let cut = cuts.iter().any(|cut| cut.contains(PhysAddr::new(at)));
        assert!(
            seen == expected || cut && seen == Some(MemoryKind::Reserved),
            "{at:#x}: {seen:?}, expected {expected:?}"
        );
    }

    let needed = map.regions().len();
    if let Some(less) = needed.checked_sub(1) {
        let error = MemoryMap::build(all, &mut scratch, &mut regions[..less], &mut |_| {})
            .expect_err("one region less is too few");
        assert!(matches!(error, MapError::Regions(full) if full.needed == needed));
    }
}

/// `data` with the name and the length of an ACPI table in its header.
pub fn with_header(signature: &[u8; 4], data: &[u8]) -> Vec<u8> {
    let mut table = data.to_vec();
    if table.len() >= 36 {
        table[..4].copy_from_slice(signature);
        let length = u32::try_from(table.len()).expect("fuzz inputs are small");
        table[4..8].copy_from_slice(&length.to_le_bytes());
    }
    table
}

/// What a walk over `kind, length, ...` entries must find: the kind, offset and
/// length of each whole one, and whether something is wrong at the end.
pub fn walk(table: &[u8], mut offset: usize) -> (Vec<(u8, usize, u8)>, bool) {
    let mut found = Vec::new();
    while offset < table.len() {
        let rest = &table[offset..];
        if rest.len() < 2 || rest[1] < 2 || usize::from(rest[1]) > rest.len() {
            return (found, true);
        }
        found.push((rest[0], offset, rest[1]));
        offset += usize::from(rest[1]);
    }
    (found, false)
}
