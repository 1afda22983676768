//! The memory map against a plain model: one cell per eighth of a page.

use firstlight::addr::{PAGE_BYTES, PHYS_END, PhysAddr, PhysRange};
use firstlight::map::{
    Attributes, Correction, MapEntry, MapError, MemoryKind, MemoryMap, Region, ScratchEntry,
};
use proptest::prelude::*;

const CELL_BYTES: u64 = PAGE_BYTES / 8;
const CELLS: usize = 12 * 8;

type Cell = Option<(MemoryKind, Attributes)>;

/// What the cells of a map must be: the simple way, cell by cell.
#[derive(Clone, PartialEq, Debug)]
struct Model(Vec<Cell>);

impl Model {
    fn build(entries: &[MapEntry]) -> Self {
        let mut model = Self(vec![None; CELLS]);
        for (index, cell) in model.0.iter_mut().enumerate() {
            let at = index as u64 * CELL_BYTES;
            let covering = entries
                .iter()
                .filter(|entry| entry.start <= at && at < entry.start + entry.bytes);
            let Some(kind) = covering.clone().map(|entry| entry.kind).max() else {
                continue;
            };
            let same: Vec<_> = covering.filter(|entry| entry.kind == kind).collect();
            let more_reliable = same.iter().all(|entry| entry.attributes.more_reliable);
            let special_purpose = same.iter().any(|entry| entry.attributes.special_purpose);
            *cell = Some((
                kind,
                Attributes {
                    more_reliable,
                    special_purpose,
                },
            ));
        }
        model.cut();
        model
    }

    /// Memory that does not fill its page becomes reserved.
    fn cut(&mut self) {
        for page in self.0.chunks_mut(8) {
            if page.iter().any(|cell| *cell != page[0]) {
                for cell in page {
                    if cell.is_some_and(|(kind, _)| kind.is_memory()) {
                        *cell = Some((MemoryKind::Reserved, Attributes::NONE));
                    }
                }
            }
        }
    }

    fn of(map: &MemoryMap<'_>) -> Self {
        let mut cells = vec![None; CELLS];
        for region in map.regions() {
            let (start, end) = (region.range.start().get(), region.range.end().get());
            assert!(start % CELL_BYTES == 0 && end % CELL_BYTES == 0);
            for cell in &mut cells[(start / CELL_BYTES) as usize..(end / CELL_BYTES) as usize] {
                assert_eq!(*cell, None, "regions are disjoint");
                *cell = Some((region.kind, region.attributes));
            }
        }
        Self(cells)
    }

    fn apply(&mut self, change: Change) -> u64 {
        let mut changed = 0;
        for cell in &mut self.0[change.first..change.last] {
            let matches = cell.is_some_and(|(kind, _)| change.only.is_none_or(|only| only == kind));
            let new = match change.what {
                What::Remove if matches => None,
                What::Set if matches => cell.map(|(_, attributes)| (change.kind, attributes)),
                What::Add => Some(match *cell {
                    Some(old) if old.0 > change.kind => old,
                    Some((kind, mut both)) if kind == change.kind => {
                        both.more_reliable &= change.attributes.more_reliable;
                        both.special_purpose |= change.attributes.special_purpose;
                        (kind, both)
                    }
                    _ => (change.kind, change.attributes),
                }),
                _ => *cell,
            };
            changed += u64::from(new != *cell) * CELL_BYTES;
            *cell = new;
        }
        self.cut();
        changed
    }
}

#[derive(Clone, Copy, Debug)]
enum What {
    Remove,
    Set,
    Add,
}

#[derive(Clone, Copy, Debug)]
struct Change {
    what: What,
    first: usize,
    last: usize,
    only: Option<MemoryKind>,
    kind: MemoryKind,
    attributes: Attributes,
}

fn kinds() -> impl Strategy<Value = MemoryKind> {
    // Mostly memory, so that there is something to cut and to lose.
    prop_oneof![
        3 => Just(MemoryKind::Usable),
        1 => Just(MemoryKind::Unaccepted),
        3 => proptest::sample::select(MemoryKind::ALL.to_vec()),
    ]
}

fn attributes() -> impl Strategy<Value = Attributes> {
    (proptest::bool::weighted(0.2), proptest::bool::weighted(0.2)).prop_map(
        |(more_reliable, special_purpose)| Attributes {
            more_reliable,
            special_purpose,
        },
    )
}

fn span() -> impl Strategy<Value = (usize, usize)> {
    // Half of all borders lie on pages, as real ones do.
    let border = || prop_oneof![(0..=CELLS / 8).prop_map(|page| page * 8), 0..=CELLS];
    (border(), border()).prop_map(|(a, b)| (a.min(b), a.max(b)))
}

fn entries() -> impl Strategy<Value = Vec<MapEntry>> {
    let entry = (span(), kinds(), attributes()).prop_map(|((first, last), kind, attributes)| {
        let bytes = (last - first) as u64 * CELL_BYTES;
        MapEntry::new(first as u64 * CELL_BYTES, bytes, kind).with_attributes(attributes)
    });
    proptest::collection::vec(entry, 0..12)
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let what = prop_oneof![Just(What::Remove), Just(What::Set), Just(What::Add)];
    let change = (
        what,
        span(),
        proptest::option::of(kinds()),
        kinds(),
        attributes(),
    )
        .prop_map(|(what, (first, last), only, kind, attributes)| Change {
            what,
            first,
            last,
            only,
            kind,
            attributes,
        });
    proptest::collection::vec(change, 1..8)
}

fn build<'s>(
    entries: &[MapEntry],
    regions: &'s mut [Region],
    corrections: &mut Vec<Correction>,
) -> Result<MemoryMap<'s>, MapError> {
    let mut scratch = vec![ScratchEntry::default(); entries.len()];
    MemoryMap::build(
        entries.iter().copied(),
        &mut scratch,
        regions,
        &mut |correction| corrections.push(correction),
    )
}

fn cells_of(range: PhysRange) -> std::ops::Range<usize> {
    (range.start().get() / CELL_BYTES) as usize..(range.end().get() / CELL_BYTES) as usize
}

/// Every cell of every entry is in the map as that entry said, or a correction
/// of that entry, or of one that repeats it, says why not.
fn nothing_lost_in_silence(entries: &[MapEntry], map: &Model, corrections: &[Correction]) {
    let reported = |index: usize, cell: usize| {
        corrections.iter().any(|correction| match *correction {
            Correction::Overlap { kind, range, .. } => {
                kind == entries[index].kind && cells_of(range).contains(&cell)
            }
            Correction::PartialPage { kind, range, .. } => {
                kind == entries[index].kind && cells_of(range).contains(&cell)
            }
            _ => false,
        })
    };
    for (index, entry) in entries.iter().enumerate() {
        let first = (entry.start / CELL_BYTES) as usize;
        for cell in first..first + (entry.bytes / CELL_BYTES) as usize {
            let kept = map.0[cell].is_some_and(|(kind, _)| kind == entry.kind);
            assert!(
                map.0[cell].is_some(),
                "cell {cell} of entry {index} is a hole"
            );
            assert!(
                kept || reported(index, cell),
                "entry {index} lost cell {cell} in silence: {corrections:?}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 8 } else { 600 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn build_agrees_with_the_model(entries in entries()) {
        let mut regions = [Region::default(); 128];
        let mut corrections = Vec::new();
        let map = build(&entries, &mut regions, &mut corrections).unwrap();
        map.validate().unwrap();
        let seen = Model::of(&map);
        prop_assert_eq!(&seen, &Model::build(&entries));
        nothing_lost_in_silence(&entries, &seen, &corrections);
        for region in map.regions() {
            // The source is an entry that has the first byte.
            let source = entries[region.source as usize];
            prop_assert!((source.start..source.start + source.bytes).contains(&region.range.start().get()));
        }
        for pair in map.regions().windows(2) {
            let joinable = pair[0].kind == pair[1].kind && pair[0].attributes == pair[1].attributes;
            let keeps = matches!(pair[0].kind, MemoryKind::SoftReserved | MemoryKind::Persistent);
            prop_assert!(!joinable || keeps || pair[0].range.end() < pair[1].range.start());
        }
    }

    #[test]
    fn too_little_storage_says_how_much_is_enough(entries in entries()) {
        let mut regions = [Region::default(); 128];
        let needed = build(&entries, &mut regions, &mut Vec::new()).unwrap().regions().len();
        prop_assert!(needed <= 5 * entries.len());
        for capacity in 0..needed {
            let error = build(&entries, &mut regions[..capacity], &mut Vec::new()).unwrap_err();
            let MapError::Regions(full) = error else { panic!("{error}") };
            prop_assert_eq!((full.capacity, full.needed), (capacity, needed));
        }
        prop_assert!(build(&entries, &mut regions[..needed], &mut Vec::new()).is_ok());
    }

    #[test]
    fn changes_agree_with_the_model(entries in entries(), changes in changes(), spare in 0usize..40) {
        let mut regions = [Region::default(); 128];
        let needed = build(&entries, &mut regions, &mut Vec::new()).unwrap().regions().len();
        let mut map = build(&entries, &mut regions[..needed + spare], &mut Vec::new()).unwrap();
        let mut model = Model::build(&entries);
        for change in changes {
            let range = PhysRange::new(change.first as u64 * CELL_BYTES, change.last as u64 * CELL_BYTES).unwrap();
            let mut quiet = |_: Correction| {};
            let outcome = match change.what {
                What::Remove => map.remove(range, change.only, &mut quiet),
                What::Set => map.set(range, change.only, change.kind, &mut quiet),
                What::Add => {
                    let entry = MapEntry::new(range.start().get(), range.bytes(), change.kind);
                    map.add(entry.with_attributes(change.attributes), &mut quiet)
                }
            };
            match outcome {
                Ok(changed) => prop_assert_eq!(changed, model.apply(change)),
                // Refused: unchanged, and truly too few slots for the peak.
                Err(MapError::Regions(full)) => prop_assert!(full.needed > full.capacity),
                Err(error) => panic!("{error}"),
            }
            map.validate().unwrap();
            prop_assert_eq!(&Model::of(&map), &model);
        }
    }

    #[test]
    fn wild_entries_are_clipped_and_reported(
        raw in proptest::collection::vec((any::<u64>(), any::<u64>(), 0u32..64, 0u32..64, kinds()), 0..20)
    ) {
        let entries: Vec<MapEntry> = raw
            .iter()
            .map(|&(start, bytes, shift, less, kind)| MapEntry::new(start >> shift, bytes >> less, kind))
            .collect();
        let mut regions = [Region::default(); 128];
        let mut corrections = Vec::new();
        let map = build(&entries, &mut regions, &mut corrections).unwrap();
        map.validate().unwrap();
        // At every border: the most restrictive kind, but for what a page cut.
        for at in entries.iter().flat_map(|entry| [entry.start, entry.last().unwrap_or(0)]) {
            let covering = entries.iter().filter(|entry| entry.start <= at && entry.last().is_some_and(|last| at <= last));
            let expected = covering.map(|entry| entry.kind).max().filter(|_| at < PHYS_END);
            let seen = map.find(PhysAddr::new(at)).map(|region| region.kind);
            let cut = corrections.iter().any(|correction| {
                matches!(correction, Correction::PartialPage { range, .. } if range.contains(PhysAddr::new(at)))
            });
            prop_assert!(seen == expected || cut && seen == Some(MemoryKind::Reserved), "{at:#x}");
        }
        for (index, entry) in entries.iter().enumerate() {
            let reported = |wanted: fn(&Correction) -> bool| {
                corrections.iter().any(|correction| correction.entry() as usize == index && wanted(correction))
            };
            prop_assert_eq!(entry.bytes == 0, reported(|c| matches!(c, Correction::Empty { .. })));
            let beyond = entry.last().is_some_and(|last| last >= PHYS_END);
            prop_assert_eq!(beyond, reported(|c| matches!(c, Correction::BeyondPhysical { .. })));
        }
    }
}
