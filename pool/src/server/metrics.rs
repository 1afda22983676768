//! Metrics in the text format of Prometheus: a few gauges and counters and one
//! histogram, written line by line.

use super::times::{SHOWN_NS, Times};
use crate::protocol::{Counters, PoolRow};
use std::fmt::{Display, Write};

/// What metrics are made of.
pub(super) struct Snapshot<'s> {
    pub(super) rows: &'s [PoolRow],
    pub(super) counters: &'s Counters,
    pub(super) times: &'s Times,
    pub(super) connections: usize,
    pub(super) leases: usize,
    pub(super) formers: usize,
    pub(super) former_bytes: u64,
    pub(super) pinned_bytes: u64,
    pub(super) stray_bytes: u64,
    pub(super) paused: bool,
}

/// The whole text.
pub(super) fn text(seen: &Snapshot<'_>) -> String {
    let mut out = String::new();
    pools(&mut out, seen.rows);
    let counters = seen.counters;
    let mut one = |name: &str, kind: &str, help: &str, value: &dyn Display| {
        head(&mut out, name, kind, help);
        let _ = writeln!(out, "{name} {value}");
    };
    let seconds = |ns: u64| Duration(ns);
    one(
        "firstlight_pool_takes_total",
        "counter",
        "Requests answered with memory.",
        &counters.takes,
    );
    one(
        "firstlight_pool_top_ups_total",
        "counter",
        "Of these, those that waited for some zeroing.",
        &counters.top_ups,
    );
    one(
        "firstlight_pool_starved_total",
        "counter",
        "Requests refused because nothing fitted.",
        &counters.starved,
    );
    one(
        "firstlight_pool_denied_total",
        "counter",
        "Requests refused for quota or permission.",
        &counters.denied,
    );
    one(
        "firstlight_pool_returns_total",
        "counter",
        "Leases that ended.",
        &counters.returns,
    );
    one(
        "firstlight_pool_zeroed_bytes_total",
        "counter",
        "Bytes zeroed.",
        &counters.zeroed_bytes,
    );
    one(
        "firstlight_pool_zeroing_seconds_total",
        "counter",
        "Time spent on zeroing, over all workers.",
        &seconds(counters.zeroing_ns),
    );
    one(
        "firstlight_pool_connections",
        "gauge",
        "Borrowers connected.",
        &seen.connections,
    );
    one("firstlight_pool_leases", "gauge", "Leases.", &seen.leases);
    one(
        "firstlight_pool_former_slabs",
        "gauge",
        "Slabs taken back that somebody still has open.",
        &seen.formers,
    );
    one(
        "firstlight_pool_former_bytes",
        "gauge",
        "Bytes charged for these.",
        &seen.former_bytes,
    );
    one(
        "firstlight_pool_pinned_bytes",
        "gauge",
        "Bytes of slabs taken back that did not go back to the kernel.",
        &seen.pinned_bytes,
    );
    one(
        "firstlight_pool_stray_bytes",
        "gauge",
        "Bytes in the mounts that are in no file; a page that is just being filled shows here too.",
        &seen.stray_bytes,
    );
    one(
        "firstlight_pool_paused",
        "gauge",
        "Whether filling pauses because somebody waits for memory.",
        &u8::from(seen.paused),
    );
    histogram(&mut out, seen.times);
    out
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

/// A kind of bytes or slabs of a pool: its name, its help, and where it stands.
type Column = (&'static str, &'static str, fn(&PoolRow) -> u64);

fn pools(out: &mut String, rows: &[PoolRow]) {
    let columns: [Column; 9] = [
        ("firstlight_pool_wanted_slabs", "Slabs to keep.", |row| {
            row.wanted_slabs.into()
        }),
        (
            "firstlight_pool_clean_slabs",
            "Slabs to be had now.",
            |row| row.clean_slabs.into(),
        ),
        (
            "firstlight_pool_filling_slabs",
            "Slabs being zeroed.",
            |row| row.filling_slabs.into(),
        ),
        ("firstlight_pool_lent_slabs", "Slabs lent.", |row| {
            row.lent_slabs.into()
        }),
        (
            "firstlight_pool_unknown_slabs",
            "Slabs that an earlier daemon lent and that were not found again.",
            |row| row.unknown_slabs.into(),
        ),
        (
            "firstlight_pool_clean_bytes",
            "Bytes zeroed and not lent.",
            |row| row.clean_bytes,
        ),
        (
            "firstlight_pool_dirty_bytes",
            "Bytes taken back and not yet emptied.",
            |row| row.dirty_bytes,
        ),
        ("firstlight_pool_lent_bytes", "Bytes lent.", |row| {
            row.lent_bytes
        }),
        (
            "firstlight_pool_hole_bytes",
            "Bytes of these that guests gave back and that hold no memory.",
            |row| row.hole_bytes,
        ),
    ];
    let refilled: Column = (
        "firstlight_pool_refilled_bytes_total",
        "Bytes put back where guests had given them back.",
        |row| row.refilled_bytes,
    );
    let gauges = columns.into_iter().map(|column| (column, "gauge"));
    for ((name, help, value), kind) in gauges.chain([(refilled, "counter")]) {
        head(out, name, kind, help);
        for row in rows {
            // Words and numbers only: nothing in a label needs escaping.
            let node = row.node.map_or("any".into(), |node| node.to_string());
            let _ = writeln!(
                out,
                "{name}{{page=\"{}\",node=\"{node}\",size_bytes=\"{}\"}} {}",
                row.page,
                row.size_class_bytes,
                value(row)
            );
        }
    }
}

fn histogram(out: &mut String, times: &Times) {
    let name = "firstlight_pool_take_seconds";
    head(
        out,
        name,
        "histogram",
        "How long a take took inside the daemon.",
    );
    let (counts, count, sum_ns) = times.cumulative();
    for (bound, count) in SHOWN_NS.iter().zip(counts) {
        let _ = writeln!(out, "{name}_bucket{{le=\"{}\"}} {count}", Duration(*bound));
    }
    let _ = writeln!(out, "{name}_bucket{{le=\"+Inf\"}} {count}");
    let _ = writeln!(out, "{name}_sum {}\n{name}_count {count}", Duration(sum_ns));
}

/// Nanoseconds, shown in seconds without loss.
struct Duration(u64);

impl Display for Duration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (whole, rest) = (self.0 / 1_000_000_000, self.0 % 1_000_000_000);
        if rest == 0 {
            return write!(f, "{whole}");
        }
        let digits = format!("{rest:09}");
        write!(f, "{whole}.{}", digits.trim_end_matches('0'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::PageSize;

    #[test]
    fn every_line_is_a_comment_or_a_name_and_a_number() {
        let row = PoolRow {
            page: PageSize::Huge,
            node: Some(1),
            size_class_bytes: 8 << 30,
            wanted_slabs: 4,
            clean_slabs: 3,
            filling_slabs: 1,
            lent_slabs: 0,
            unknown_slabs: 0,
            clean_bytes: 25 << 30,
            dirty_bytes: 0,
            lent_bytes: 0,
            hole_bytes: 3 << 20,
            refilled_bytes: 5 << 20,
            trouble: None,
        };
        let mut times = Times::new();
        times.record(15_000);
        times.record(60_000);
        let text = text(&Snapshot {
            rows: &[row],
            counters: &Counters {
                zeroing_ns: 1_500_000_000,
                ..Counters::default()
            },
            times: &times,
            connections: 2,
            leases: 0,
            formers: 0,
            former_bytes: 0,
            pinned_bytes: 0,
            stray_bytes: 0,
            paused: false,
        });
        for line in text.lines().filter(|line| !line.starts_with("# ")) {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(name.starts_with("firstlight_pool_"), "{line}");
            assert!(value.parse::<f64>().is_ok(), "{line}");
        }
        for line in [
            "firstlight_pool_clean_slabs{page=\"2M\",node=\"1\",size_bytes=\"8589934592\"} 3",
            "firstlight_pool_hole_bytes{page=\"2M\",node=\"1\",size_bytes=\"8589934592\"} 3145728",
            "firstlight_pool_refilled_bytes_total{page=\"2M\",node=\"1\",size_bytes=\"8589934592\"} 5242880",
            "# TYPE firstlight_pool_refilled_bytes_total counter",
            "firstlight_pool_zeroing_seconds_total 1.5",
            "firstlight_pool_take_seconds_bucket{le=\"0.00002\"} 1",
            "firstlight_pool_take_seconds_bucket{le=\"+Inf\"} 2",
            "firstlight_pool_take_seconds_sum 0.000075",
            "# TYPE firstlight_pool_take_seconds histogram",
        ] {
            assert!(text.lines().any(|seen| seen == line), "{line}\n{text}");
        }
    }
}
