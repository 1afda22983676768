//! A layout as JSON tells it: [`LayoutAnswer`].

use std::collections::BTreeMap;

use firstlight::addr::Frame;
use serde::Serialize;

use super::blocks::{self, BlockRunAnswer, View};
use super::hash::{self, HashAnswer};
use super::pages::Pages;
use super::{Flavour, LayoutInput, Prepared};

/// A zone with memory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ZoneAnswer {
    /// Its node.
    pub node: u16,
    /// Its name as kernels print it.
    pub zone: &'static str,
    /// First frame it spans.
    pub start_pfn: u64,
    /// Frames it spans, holes included.
    pub spanned: u64,
    /// Frames of memory.
    pub present: u64,
}

/// What a kernel makes of a machine's memory. Numbers of its page frames throughout, but for
/// `movable_start`, which holds addresses in hexadecimal.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LayoutAnswer {
    /// `firstlight.layout/1`.
    pub schema: &'static str,
    /// Whose layout it is.
    pub flavour: &'static str,
    /// Bytes of a page frame.
    pub page_bytes: u64,
    /// Memory, ascending: node, first frame, end.
    pub node_ranges_pfn: Vec<(u16, u64, u64)>,
    /// First frame past usable memory.
    pub max_pfn: u64,
    /// Zones with memory, by node.
    pub zones: Vec<ZoneAnswer>,
    /// Where the Movable zone of a node starts.
    pub movable_start: BTreeMap<u16, String>,
    /// Frames without memory in sections that have some, hole by hole: node, zone, count.
    pub unavailable: Vec<(u16, &'static str, u64)>,
    /// Nodes that leave descriptors to the deferred workers.
    pub deferred_nodes: Vec<u16>,
    /// First frame each of them leaves.
    pub model_first_deferred_pfn: BTreeMap<u16, u64>,
    /// Frames each node with memory describes before.
    pub model_eager_pages: BTreeMap<u16, u64>,
    /// Large hash tables, by name.
    pub hash: BTreeMap<&'static str, HashAnswer>,
    /// Those near a power of two: Linux 6.12 sizes them by what is free at that moment, which is not
    /// known here.
    pub hash_estimated: Vec<&'static str>,
    /// Bytes of a memory block.
    pub memory_block_size: u64,
    /// Memory blocks.
    pub memory_blocks: u64,
    /// Blocks in a row that differ in their numbers only.
    pub block_runs: Vec<BlockRunAnswer>,
    /// What was corrected or ignored on the way.
    pub notices: Vec<String>,
}

impl LayoutAnswer {
    /// The answer of the machine that was prepared from `input` as `flavour` does.
    pub fn new(prepared: Prepared<'_>, input: &LayoutInput, flavour: Flavour) -> Self {
        let Prepared {
            layout, max_frame, ..
        } = &prepared;
        let pages = Pages::of(input, flavour);
        let number = |frame: Frame| pages.in_frames(frame.get());
        let tables = hash::tables(layout, input, flavour);
        let plugged = blocks::plugged(input, flavour);
        let view = View::new(&prepared, &plugged, input, flavour);
        let zones = layout.zones().iter().map(|zone| ZoneAnswer {
            node: zone.node.0,
            zone: zone.kind.name(),
            start_pfn: number(zone.span.start()),
            spanned: pages.in_frames(zone.span.count()),
            present: pages.in_frames(zone.present_frames),
        });
        let movable = layout.nodes().iter().filter_map(|node| {
            let start = node.movable_start?;
            Some((node.id.0, format!("{:#x}", start.addr().get())))
        });
        let ranges = layout.ranges().iter();
        let deferred: BTreeMap<u16, u64> = layout
            .deferrals()
            .filter_map(|plan| Some((plan.node.0, number(plan.first_deferred?))))
            .collect();
        Self {
            schema: "firstlight.layout/1",
            flavour: flavour.name(),
            node_ranges_pfn: ranges
                .map(|range| {
                    (
                        range.node.0,
                        number(range.frames.start()),
                        number(range.frames.end()),
                    )
                })
                .collect(),
            page_bytes: pages.bytes(),
            max_pfn: number(*max_frame),
            zones: zones.collect(),
            movable_start: movable.collect(),
            unavailable: layout
                .unavailable()
                .map(|hole| (hole.node.0, hole.zone.name(), pages.in_frames(hole.frames)))
                .collect(),
            deferred_nodes: deferred.keys().copied().collect(),
            model_first_deferred_pfn: deferred,
            model_eager_pages: layout
                .deferrals()
                .map(|plan| (plan.node.0, pages.in_frames(plan.eager_frames)))
                .collect(),
            hash: tables.all,
            hash_estimated: tables.estimated,
            memory_block_size: view.choice.size.bytes(),
            memory_blocks: view.count(),
            block_runs: view.runs(),
            notices: [view.notices, tables.notices].concat(),
        }
    }
}
