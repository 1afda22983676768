//! One finding a file, and the list of them.

mod blocks_slow;
mod blocks_small;
mod bounce_buffer;
mod bounce_short;
mod deferral_absent;
mod deferral_bandwidth;
mod deferral_blocked;
mod deferral_one_thread;
mod deferral_serial;
mod deferral_slow;
mod deferral_uneven;
mod early_stamps;
mod hash_failed;
mod hash_oversized;
mod hash_slow;
mod huge_hole;
mod hugepages_short;
mod hugepages_slow;
mod init_on_alloc;
mod init_on_free;
mod interleaved;
mod kasan;
mod lost_alignment;
mod lost_aperture;
mod lost_crashkernel;
mod lost_mtrr;
mod lost_parameter;
mod lost_unaddressable;
mod memmap_eager;
mod memoryless;
mod mtrr_inconsistent;
mod numa_tables;
mod oops;
mod page_debugging;
mod reserved_pages;
mod stalls;
mod tsc_unstable;
mod unaccepted;
mod unexplained;
mod wait_ec;
mod wait_firmware;
mod wait_root;

use std::sync::OnceLock;

use super::case::{self, Case};
use super::keys::Keys;
use super::message::Entry;
use super::numbers::{memory_line, number_after, number_before, size};
use super::rule::{Cost, Hit, Rule};
use crate::log::{DeferredRow, E820Kind, E820Row, clock_start};

/// Every rule.
pub(super) static ALL: [&Rule; 41] = [
    &blocks_small::RULE,
    &blocks_slow::RULE,
    &stalls::RULE,
    &deferral_absent::RULE,
    &memmap_eager::RULE,
    &deferral_blocked::RULE,
    &deferral_serial::RULE,
    &deferral_slow::RULE,
    &deferral_bandwidth::RULE,
    &deferral_uneven::RULE,
    &deferral_one_thread::RULE,
    &reserved_pages::RULE,
    &hash_failed::RULE,
    &hash_oversized::RULE,
    &hash_slow::RULE,
    &hugepages_short::RULE,
    &hugepages_slow::RULE,
    &init_on_free::RULE,
    &init_on_alloc::RULE,
    &page_debugging::RULE,
    &huge_hole::RULE,
    &interleaved::RULE,
    &memoryless::RULE,
    &numa_tables::RULE,
    &unaccepted::RULE,
    &bounce_buffer::RULE,
    &bounce_short::RULE,
    &early_stamps::RULE,
    &tsc_unstable::RULE,
    &lost_mtrr::RULE,
    &lost_parameter::RULE,
    &lost_crashkernel::RULE,
    &lost_alignment::RULE,
    &lost_unaddressable::RULE,
    &lost_aperture::RULE,
    &mtrr_inconsistent::RULE,
    &kasan::RULE,
    &oops::RULE,
    &wait_ec::RULE,
    &wait_firmware::RULE,
    &wait_root::RULE,
];

/// The rule for what none of them explains.
pub(super) static UNEXPLAINED: Rule = unexplained::RULE;

/// Finds the messages that some rule looks at.
pub(super) fn keys() -> &'static Keys {
    static KEYS: OnceLock<Keys> = OnceLock::new();
    KEYS.get_or_init(|| {
        let rules = ALL.iter().copied().chain([&UNEXPLAINED]);
        Keys::new(rules.flat_map(|rule| rule.keys).chain(&case::KEYS).copied())
    })
}

/// A stall with one of `functions` in its trace: seen in the line that names it.
fn stall(case: &Case<'_>, functions: &[&str]) -> Option<Hit> {
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
fn wait(case: &Case<'_>, keys: &[&str], least_ns: u64) -> Vec<Hit> {
    let has = |entry: &Entry<'_>| keys.iter().any(|key| entry.has(key));
    let waits = case.slow(least_ns);
    let waits = waits.filter(|(from, entry, _)| has(from) || has(entry));
    let longest = waits.max_by_key(|wait| wait.2);
    let hit = longest.map(|(from, entry, ns)| Hit::span(from, entry, ns));
    hit.into_iter().collect()
}

impl Case<'_> {
    /// Pages of a node, by its ranges; of the only node, by all memory.
    fn pages_of(&self, node: u32) -> Option<u64> {
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
    fn row_at(&self, start: u64) -> Option<usize> {
        let nodes = self.log.node_ranges.iter().map(|row| (row.span, row.line));
        let srat = self.log.srat_memory.iter().map(|row| (row.span, row.line));
        let map = self.log.e820.iter().map(|row| (row.span, row.line));
        let mut rows = nodes.chain(srat).chain(map);
        rows.find(|(span, _)| span.start == start)
            .map(|(_, line)| line)
    }
}
