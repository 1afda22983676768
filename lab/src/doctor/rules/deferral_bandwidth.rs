//! Deferred initialisation that memory limits, not CPUs.

use super::deferral_slow::is_check;
use super::shared::{Case, Cost, Hit, Rule};

pub(super) const RULE: Rule = Rule {
    id: "deferral-bandwidth",
    why: "all CPUs of a node write descriptors, and a page still takes twice as long as on published machines and more: memory is the limit (64 bytes are written for a page), more threads do not help",
    cure: "equip all memory channels alike and leave the memory clock at its full rate; memory behind a slower link (CXL, persistent memory) is better onlined after the boot than initialised in it",
    fixed_in: None,
    keys: &["Hypervisor detected", "heap free:on", "BIOS-e820", "x86/"],
    find,
};

/// With fewer CPUs a node, they are the limit.
const LEAST_CPUS: u32 = 8;
/// Of published machines: the work of one thread, and what memory takes whatever their number.
const THREAD_NS: f64 = 14.2;
const MEMORY_NS: f64 = 1.8;
/// More than this is no question of bandwidth.
const MOST_NS: f64 = 100.0;
/// From here on it is felt.
const LEAST_MS: u64 = 500;

fn find(case: &Case<'_>) -> Vec<Hit> {
    let cpus = case.log.cpus;
    let nodes = cpus.nodes.unwrap_or(1).max(1);
    let threads = cpus.brought_up.unwrap_or(0) / nodes;
    let threaded = case.version().is_some_and(|version| version >= (5, 8));
    // Elsewhere a kernel of the same age may use one thread a node.
    let threaded = threaded && case.any_of(&["BIOS-e820", "x86/"]).is_some();
    // A guest also waits for its host, and a check of each page is not memory's time.
    let other = case.emulated
        || case
            .any_of(&["Hypervisor detected", "heap free:on"])
            .is_some()
        || case.words().any(is_check);
    if other || !threaded || threads < LEAST_CPUS {
        return Vec::new();
    }
    let expected_ns = THREAD_NS / f64::from(threads) + MEMORY_NS;
    let rows = case.log.deferred.iter();
    let rates = rows.filter(|row| row.milliseconds >= LEAST_MS).map(|row| {
        let pages = row.pages.or_else(|| case.pages_of(row.node));
        let pages = pages.filter(|pages| *pages > 0)?;
        #[expect(clippy::cast_precision_loss, reason = "a rate to compare")]
        let each_ns = row.milliseconds as f64 * 1e6 / pages as f64;
        Some((each_ns, row))
    });
    let Some(rates) = rates.collect::<Option<Vec<_>>>() else {
        return Vec::new();
    };
    // Where only some nodes are slow, the reason is another.
    let bound = |(each_ns, _): &(f64, _)| (2.0 * expected_ns..MOST_NS).contains(each_ns);
    if !rates.iter().all(bound) {
        return Vec::new();
    }
    let Some((each_ns, row)) = rates.into_iter().max_by_key(|(_, row)| row.milliseconds) else {
        return Vec::new();
    };
    let detail = format!(
        "node {} takes {each_ns:.1} ns a page with {threads} CPUs, {:.1} GB/s of descriptors; published machines take {expected_ns:.1} ns",
        row.node,
        64.0 / each_ns
    );
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a part of the milliseconds"
    )]
    let lost_ns = (row.milliseconds as f64 * 1e6 * (1.0 - expected_ns / each_ns)) as u64;
    let entry = case.entry_at(row.line);
    let hit = entry.map(|entry| Hit::at(entry, detail).costs(Cost::Estimated(lost_ns)));
    hit.into_iter().collect()
}
