//! What several rules look for.

pub(super) use super::super::case::Case;
pub(super) use super::super::message::Entry;
pub(super) use super::super::numbers::{memory_line, number_after, number_before, size};
pub(super) use super::super::rule::{Cost, Hit, Rule};
pub(super) use crate::log::{DeferredRow, E820Kind, E820Row, clock_start};

/// A stall with one of `functions` in its trace: seen in the line that names it.
pub(super) fn stall(case: &Case<'_>, functions: &[&str]) -> Option<Hit> {
    let names = |entry: &Entry<'_>| functions.iter().any(|function| entry.has(function));
    let stalls = case.stalls();
    let stalls: Vec<Vec<Entry<'_>>> = stalls.filter(|stall| stall.iter().any(names)).collect();
    let first = stalls.first()?;
    let entry = *first.iter().find(|entry| names(entry))?;
    let heads: Vec<&Entry<'_>> = stalls.iter().filter_map(|stall| stall.first()).collect();
    let stuck = heads
        .iter()
        .filter_map(|head| number_after(head.text, "stuck for"));
    let seconds = stuck.max().unwrap_or(0);
    let head = heads.first()?;
    let hit = Hit::at(entry, format!("\"{}\"", head.text));
    Some(if seconds > 0 {
        hit.costs(Cost::Measured(seconds.saturating_mul(1_000_000_000)))
    } else {
        hit
    })
}

/// The longest span of at least `least_ns` that begins or ends with a message that has one of `keys`.
pub(super) fn wait(case: &Case<'_>, keys: &[&str], least_ns: u64) -> Vec<Hit> {
    let has = |entry: &Entry<'_>| keys.iter().any(|key| entry.has(key));
    let waits = case.slow(least_ns);
    let waits = waits.filter(|(from, entry, _)| has(from) || has(entry));
    let longest = waits.max_by_key(|wait| wait.2);
    let hit = longest.map(|(from, entry, ns)| Hit::span(from, entry, ns));
    hit.into_iter().collect()
}

impl Case<'_> {
    /// Pages of a node, by its ranges; of the only node, by all memory.
    pub(super) fn pages_of(&self, node: u32) -> Option<u64> {
        let rows = self.log.node_ranges.iter().filter(|row| row.node == node);
        let bytes = rows
            .filter_map(|row| row.span.range())
            .map(|range| range.bytes());
        let bytes = bytes.fold(0, u64::saturating_add);
        let alone = self.log.deferred.len() == 1;
        let all = self.memory_bytes.filter(|_| alone && bytes == 0);
        Some(all.unwrap_or(bytes) / 4096)
    }

    /// The line of the row of memory that starts at `start`.
    pub(super) fn row_at(&self, start: u64) -> Option<usize> {
        let nodes = self.log.node_ranges.iter().map(|row| (row.span, row.line));
        let srat = self.log.srat_memory.iter().map(|row| (row.span, row.line));
        let map = self.log.e820.iter().map(|row| (row.span, row.line));
        let mut rows = nodes.chain(srat).chain(map);
        rows.find(|(span, _)| span.start == start)
            .map(|(_, line)| line)
    }
}
