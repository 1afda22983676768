//! What Linux describes before its other CPUs run, on every recorded boot: the
//! ranges of the early part hold as many frames of each node.

use crate::common;

use std::alloc::{Layout as Bytes, alloc, dealloc};
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

use firstlight::addr::PhysRange;
use firstlight::memmap::{Descriptor, Memmap, MemmapPolicy, Part, SectionPlace};
use firstlight::platform::Platform;
use firstlight_lab::linux::{Flavour, LayoutInput, with_layout};

/// 8 bytes a frame; nothing of it is written here.
struct Eight(#[expect(dead_code, reason = "never read")] AtomicU64);
// SAFETY: an atomic integer.
unsafe impl Descriptor for Eight {
    fn template(_: SectionPlace) -> Self {
        Self(AtomicU64::new(0))
    }
}

/// Memory of this process, given back at the end.
#[derive(Default)]
struct Hosted(Mutex<Vec<(usize, Bytes)>>);

// SAFETY: memory of its own for every range, freed with the platform.
unsafe impl Platform for Hosted {
    fn map(&self, range: PhysRange) -> Option<NonNull<u8>> {
        let bytes = Bytes::from_size_align(usize::try_from(range.bytes()).ok()?, 4096).ok()?;
        // SAFETY: the engine never asks for nothing.
        let start = NonNull::new(unsafe { alloc(bytes) })?;
        self.0
            .lock()
            .unwrap()
            .push((start.as_ptr().expose_provenance(), bytes));
        Some(start)
    }
}

impl Drop for Hosted {
    fn drop(&mut self) {
        for (start, bytes) in self.0.get_mut().unwrap() {
            // SAFETY: allocated in `map` with the same layout.
            unsafe { dealloc(std::ptr::with_exposed_provenance_mut(*start), *bytes) };
        }
    }
}

#[test]
fn model_the_early_part_of_every_recorded_boot() {
    let mut deferred_boots = 0;
    for boot in common::golden() {
        let log = firstlight_lab::log::read(&common::log(&boot.name));
        let input = LayoutInput::from_log(&log);
        let flavour = match boot.kernel.as_str() {
            "6.1" => Flavour::Linux6_1,
            _ => Flavour::Linux6_12,
        };
        let early: BTreeMap<String, u64> = with_layout(&input, flavour, |mut prepared| {
            let hosted = Hosted::default();
            let layout = &mut prepared.layout;
            let memmap = Memmap::<Eight>::reserve(layout, &hosted, MemmapPolicy::default());
            let memmap = memmap.unwrap_or_else(|error| panic!("{}: {error}", boot.name));
            let mut frames = BTreeMap::new();
            for range in memmap.ranges(Part::Early).filter(|range| !range.is_empty()) {
                let node = memmap.place(range.start()).unwrap().node;
                *frames.entry(node.0.to_string()).or_default() += range.count();
            }
            frames
        })
        .unwrap();
        let recorded = boot.expect["model_eager_pages"].as_object().unwrap();
        let recorded = recorded
            .iter()
            .map(|(node, pages)| (node.clone(), pages.as_u64().unwrap()));
        assert_eq!(early, recorded.collect(), "{}", boot.name);
        let deferred = boot.expect["deferred_nodes"].as_array().unwrap();
        deferred_boots += usize::from(!deferred.is_empty());
    }
    assert!(deferred_boots > 0);
}
