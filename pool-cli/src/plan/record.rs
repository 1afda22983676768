//! What a plan says: a document, and a table for a person.

use super::node::Tally;
use super::trace::SECOND;
use super::words::Goal;
use crate::output::{GOOD, NOTE};
use crate::status::duration;
use crate::text::{bytes, count, head, plural, table};
use serde::Serialize;
use std::fmt::Write;

/// One stock.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct Stock {
    /// Slabs that each node keeps, allocated ones among them.
    pub(super) slabs: u32,
    /// Starts that were counted.
    pub(super) starts: u64,
    /// Of these, those that found a clean slab.
    pub(super) hits: u64,
    /// Of these, those on a smaller slab that was topped up.
    pub(super) topped_up: u64,
    /// What half of them wait at most.
    pub(super) wait_p50_ns: u64,
    /// What 99 of 100 wait at most.
    pub(super) wait_p99_ns: u64,
    /// Bytes a second that the daemon of a node zeroes, in the mean.
    pub(super) zeroed_bytes_per_s: u64,
    /// Bytes of a node's slabs that no virtual machine has, in the mean.
    pub(super) idle_bytes: u64,
    /// Whether the goal is met.
    pub(super) meets: bool,
}

/// How many slabs to keep.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct Record {
    pub(super) schema: &'static str,
    /// What is to be reached.
    pub(super) goal: String,
    /// Alike nodes.
    pub(super) nodes: u32,
    /// Bytes of a slab.
    pub(super) slab_bytes: u64,
    /// Nanoseconds that filling a slab takes.
    pub(super) fill_ns: u64,
    /// Slabs that a node has memory for, or that could help.
    pub(super) most_slabs: u32,
    /// Time that was counted.
    pub(super) counted_ns: u64,
    /// The smallest stock that meets the goal.
    pub(super) smallest_slabs: Option<u32>,
    /// Those that were played.
    pub(super) stocks: Vec<Stock>,
}

impl Stock {
    pub(super) fn new(
        slabs: u32,
        tally: &Tally,
        goal: Goal,
        slab_bytes: u64,
        counted_ns: u64,
        nodes: u32,
    ) -> Self {
        let starts = tally.starts();
        let meets = match goal {
            Goal::Wait(percent, most) => tally.wait(percent) <= most.0,
            Goal::Hits(percent) => tally.hits as f64 * 100.0 >= percent * starts as f64,
        };
        let node_ns = u128::from(counted_ns.max(1)) * u128::from(nodes);
        let mean = |sum: u128| u64::try_from(sum / node_ns).unwrap_or(u64::MAX);
        Self {
            slabs,
            starts,
            hits: tally.hits,
            topped_up: tally.topped_up,
            wait_p50_ns: tally.wait(50),
            wait_p99_ns: tally.wait(99),
            zeroed_bytes_per_s: mean(tally.zeroed_bytes * u128::from(SECOND)),
            idle_bytes: mean(tally.idle_slab_ns * u128::from(slab_bytes)),
            meets,
        }
    }
}

pub(super) fn report(record: &Record) -> String {
    let slab = bytes(record.slab_bytes);
    let time = |ns: u64| duration(ns / 1_000_000);
    let mut page = format!(
        "{} in {} on {}; slabs of {slab}, each filled in {}\n\n",
        plural(
            record.stocks.first().map_or(0, |stock| stock.starts),
            "start"
        ),
        time(record.counted_ns),
        plural(record.nodes.into(), "node"),
        time(record.fill_ns),
    );
    let mut rows = vec![head([
        "slabs",
        "hits",
        "topped up",
        "wait p50",
        "wait p99",
        "zeroed a second",
        "idle",
        "",
    ])];
    let share = |part: u64, all: u64| format!("{:.2} %", part as f64 * 100.0 / all.max(1) as f64);
    rows.extend(record.stocks.iter().map(|stock| {
        let is_it = record.smallest_slabs == Some(stock.slabs);
        vec![
            count(stock.slabs.into()),
            share(stock.hits, stock.starts),
            share(stock.topped_up, stock.starts),
            time(stock.wait_p50_ns),
            time(stock.wait_p99_ns),
            bytes(stock.zeroed_bytes_per_s),
            bytes(stock.idle_bytes),
            if is_it { "<-" } else { "" }.into(),
        ]
    }));
    for line in table(">>>>>>><", &rows) {
        let _ = writeln!(page, "{line}");
    }
    let _ = match record.smallest_slabs {
        Some(slabs) => writeln!(
            page,
            "\n{GOOD}{} on each node{GOOD:#}, {}: the fewest that meet {}",
            plural(slabs.into(), "slab"),
            bytes(record.slab_bytes.saturating_mul(slabs.into())),
            record.goal
        ),
        None => writeln!(page, "\n{NOTE}no stock meets {}{NOTE:#}", record.goal),
    };
    page
}
