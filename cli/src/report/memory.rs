//! The sections that show a machine's memory: remarks, memory map, nodes, zones.
//! Each shows at most so many rows and says how many there are besides.

use super::Page;
use crate::text::{self, bytes, count, head, plural};
use anstyle::Style;
use firstlight_lab::record::{Memory, Record, Region};

/// What was noted or corrected on the way.
pub(crate) fn remarks(page: &mut Page, word: &str, style: Style, remarks: &[String], most: usize) {
    let (shown, hidden) = text::fold(remarks, most);
    for remark in shown {
        page.line(format!("  {style}{word}:{style:#} {remark}"));
    }
    page.more(hidden);
}

/// The memory map.
pub(crate) fn regions(page: &mut Page, regions: &[Region], most: usize) {
    let memory = regions
        .iter()
        .filter(|region| region.kind == "usable")
        .count();
    page.section(
        "Memory map",
        &format!(
            "{}, {memory} of them usable",
            plural(regions.len() as u64, "region")
        ),
    );
    let (shown, hidden) = text::fold(regions, most);
    let row = |region: &Region| {
        let mut kind = region.kind.to_string();
        for (is, words) in [
            (region.more_reliable, " (more reliable)"),
            (region.special_purpose, " (special purpose)"),
        ] {
            kind.push_str(if is { words } else { "" });
        }
        // Inclusive, as firmware and kernels print it.
        let range = format!(
            "{:#014x}-{:#014x}",
            region.start,
            region.end.saturating_sub(1)
        );
        vec![range, bytes(region.end.saturating_sub(region.start)), kind]
    };
    let rows: Vec<_> = shown.iter().map(row).collect();
    page.table("<><", &rows);
    page.more(hidden);
}

/// So many frames, as bytes. A guest's log may name more than there can be.
fn frames(record: &Record, count: u64) -> String {
    bytes(count.saturating_mul(record.page_bytes()))
}

/// Nodes: CPUs, memory, distances.
pub(crate) fn nodes(page: &mut Page, record: &Record, most: usize) {
    let nodes = &record.nodes;
    page.section("Nodes", "");
    let (shown, hidden) = text::fold(nodes, most);
    let mut rows = vec![head([
        "node",
        "domain",
        "CPUs",
        "memory",
        "frames",
        "distances",
    ])];
    let counted = nodes
        .iter()
        .any(|node| node.cpus.is_some_and(|cpus| cpus > 0));
    let unknown = || "?".to_owned();
    for node in shown {
        let (near, far) = node.distances.split_at(node.distances.len().min(12));
        let mut distances: Vec<String> = near.iter().map(u8::to_string).collect();
        distances.extend((!far.is_empty()).then(|| "...".into()));
        let span = match node.present_frames {
            0 => "no memory".into(),
            _ => format!("{:#x}..{:#x}", node.start_frame, node.end_frame),
        };
        rows.push(vec![
            node.node.to_string(),
            node.domain
                .map_or_else(unknown, |domain| domain.to_string()),
            node.cpus.filter(|_| counted).map_or_else(unknown, count),
            frames(record, node.present_frames),
            span,
            distances.join(" "),
        ]);
    }
    page.table(">>>><<", &rows);
    page.more(hidden);
}

/// Zones, by node.
pub(crate) fn zones(page: &mut Page, record: &Record, most: usize) {
    let zones = &record.zones;
    page.section("Zones", "");
    let (shown, hidden) = text::fold(zones, most);
    let mut rows = vec![head(["node", "zone", "from frame", "spanned", "present"])];
    rows.extend(shown.iter().map(|zone| {
        vec![
            zone.node.to_string(),
            zone.zone.to_string(),
            format!("{:#x}", zone.start_frame),
            frames(record, zone.spanned_frames),
            frames(record, zone.present_frames),
        ]
    }));
    page.table("><>>>", &rows);
    page.more(hidden);
}

/// Frames and what they cost, as far as it was told.
pub(crate) fn metadata(page: &mut Page, memory: &Memory) {
    let mut rows = Vec::new();
    if let (Some(present), Some(managed)) = (memory.present_frames, memory.managed_frames) {
        let reserved = memory.reserved_frames.unwrap_or(0);
        let counts = [present, managed, reserved].map(count);
        let [present, managed, reserved] = counts;
        let text = format!("{present} present, {managed} to hand out, {reserved} reserved");
        rows.push(vec!["frames".into(), text]);
    }
    if let Some(written) = memory.metadata_written_bytes {
        let text = format!("{} ({} bytes)", bytes(written), count(written));
        rows.push(vec!["written".into(), text]);
    }
    if let Some(resident) = memory.metadata_resident_bytes {
        rows.push(vec!["resident".into(), bytes(resident)]);
    }
    if let Some(reserved) = memory.metadata_reserved_bytes {
        let each = per_frame(reserved, memory.present_frames.unwrap_or(0));
        let text = format!("{} of address space, {each} a frame", bytes(reserved));
        rows.push(vec!["reserved".into(), text]);
    }
    if rows.is_empty() {
        return;
    }
    page.section("Metadata", "when all memory was allocatable");
    page.table("<<", &rows);
}

/// `0.25 bytes`.
fn per_frame(bytes: u64, frames: u64) -> String {
    let hundredths = (u128::from(bytes) * 100).div_ceil(u128::from(frames.max(1)));
    format!("{}.{:02} bytes", hundredths / 100, hundredths % 100)
}
