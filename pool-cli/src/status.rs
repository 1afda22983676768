//! `firstlight pool status`: what the daemon holds, once or again and again.

use crate::Program;
use crate::daemon::Daemon;
use crate::failure::Failure;
use crate::output::{Document, FAINT, HEADING, NOTE, Output};
use crate::text::{self, bytes, count, microseconds, plural};
use clap::Args;
use firstlight_pool::protocol::{
    Counters, GrantId, GrantRow, Label, LeaseId, LeaseRow, PoolRow, QuotaRow, Status,
};
use std::fmt::Write;
use std::thread;
use std::time::Duration;

/// Show what the daemon holds: clean, being filled, allocated, and to whom
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    #[command(flatten)]
    daemon: Daemon,
    /// Show it again every SECONDS, until interrupted
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1",
          value_parser = clap::value_parser!(u32).range(1..=86_400))]
    watch: Option<u32>,
}

const EXAMPLES: &str = "\
Examples:
  firstlight pool status             a table
  firstlight pool status --watch     the same, every second
  firstlight pool status --json      for programs

Exit codes: see firstlight --help";

/// Leases, quotas, and grants, a person is shown.
const MOST_ROWS: usize = 20;

/// Runs the subcommand.
pub(crate) fn run(options: &Options, program: Program, output: &mut Output) -> Result<(), Failure> {
    loop {
        // A daemon closes connections that are idle.
        let status = options.daemon.connect()?.status().map_err(Failure::from)?;
        let document = Document {
            schema: "firstlight.pool-status/3",
            value: &status,
        };
        output.print::<_, Failure>(&document, |document| report(program, document.value))?;
        let Some(seconds) = options.watch else {
            return Ok(());
        };
        thread::sleep(Duration::from_secs(seconds.into()));
    }
}

fn report(program: Program, status: &Status) -> String {
    let mut page = String::new();
    // A daemon's figures are its own: no sum of them may overflow.
    let sum = |of: fn(&PoolRow) -> u64| status.pools.iter().map(of).fold(0, u64::saturating_add);
    let _ = writeln!(
        page,
        "{HEADING}{}: {} clean, {} allocated, up {}{HEADING:#}",
        program.name(),
        bytes(sum(|pool| pool.clean_bytes)),
        bytes(sum(|pool| pool.allocated_bytes)),
        duration(status.uptime_ms),
    );
    if status.draining {
        let _ = writeln!(page, "  {NOTE}note:{NOTE:#} draining: no more is allocated");
    }
    for pool in &status.pools {
        if let Some(trouble) = &pool.trouble {
            let name = format!("{} pages, {}", pool.page, place(pool.node));
            let _ = writeln!(page, "  {NOTE}note:{NOTE:#} {name}: {}", printable(trouble));
        }
    }
    pools(&mut page, &status.pools);
    topping_up(&mut page, status);
    quotas(&mut page, &status.quotas);
    grants(&mut page, &status.grants);
    leases(&mut page, &status.leases);
    counters(&mut page, status);
    page
}

/// A column of the table of pools, and whether a row has something to say in it.
type Column = (&'static str, fn(&PoolRow) -> String, fn(&PoolRow) -> bool);

fn pools(page: &mut String, pools: &[PoolRow]) {
    let always = |_: &PoolRow| true;
    let all: [Column; 13] = [
        ("pages", |pool| pool.page.to_string(), always),
        ("node", |pool| node(pool.node), always),
        ("slab", |pool| bytes(pool.size_class_bytes), always),
        ("wanted", |pool| count(pool.wanted_slabs.into()), always),
        ("clean", |pool| count(pool.clean_slabs.into()), always),
        ("filling", |pool| count(pool.filling_slabs.into()), always),
        (
            "allocated",
            |pool| count(pool.allocated_slabs.into()),
            always,
        ),
        (
            "unknown",
            |pool| count(pool.unknown_slabs.into()),
            |pool| pool.unknown_slabs > 0,
        ),
        ("clean bytes", |pool| bytes(pool.clean_bytes), always),
        (
            "dirty bytes",
            |pool| bytes(pool.dirty_bytes),
            |pool| pool.dirty_bytes > 0,
        ),
        (
            "allocated bytes",
            |pool| bytes(pool.allocated_bytes),
            always,
        ),
        (
            "holes",
            |pool| bytes(pool.hole_bytes),
            |pool| pool.hole_bytes > 0,
        ),
        (
            "refilled",
            |pool| bytes(pool.refilled_bytes),
            |pool| pool.refilled_bytes > 0,
        ),
    ];
    // Most pools never have any of some: a page of such columns is hard to read.
    let shown = all.iter().filter(|(.., says)| pools.iter().any(says));
    let shown: Vec<&Column> = shown.collect();
    let names: Vec<&str> = shown.iter().map(|(name, ..)| *name).collect();
    let row = |pool| shown.iter().map(|(_, cell, _)| cell(pool)).collect();
    text::titled_table(page, "Pools", &names, pools.iter().map(row));
}

fn topping_up(page: &mut String, status: &Status) {
    let slabs = status.gauges.topping_up_slabs;
    if slabs > 0 {
        let _ = writeln!(
            page,
            "  {} of the allocated being topped up: a client waits, and has no lease yet",
            count(slabs.into())
        );
    }
}

fn quotas(page: &mut String, quotas: &[QuotaRow]) {
    if quotas.is_empty() {
        return;
    }
    let (shown, hidden) = text::fold(quotas, MOST_ROWS);
    let rows = shown.iter().map(|row| {
        vec![
            format!("{} {}", row.of, printable(&row.name)),
            row.most_bytes.map_or("-".into(), bytes),
            bytes(row.charged_bytes),
            bytes(row.held_bytes),
            bytes(row.owed_bytes),
        ]
    });
    let columns = ["quota of", "may hold", "charged", "held", "owed"];
    text::titled_table(page, "Quotas", &columns, rows);
    more(page, hidden);
}

fn grants(page: &mut String, grants: &[GrantRow]) {
    if grants.is_empty() {
        return;
    }
    let (shown, hidden) = text::fold(grants, MOST_ROWS);
    let rows = shown.iter().map(|row| {
        vec![
            row.grant.to_string(),
            bytes(row.size_class_bytes),
            row.page.to_string(),
            node(row.node),
            count(row.uses.into()),
            count(row.held_slabs.into()),
            count(row.charged_slabs.into()),
            row.label.as_ref().map_or("-".into(), Label::to_string),
        ]
    });
    let columns = [
        "grant", "slab", "pages", "node", "uses", "held", "charged", "label",
    ];
    text::titled_table(page, "Grants", &columns, rows);
    more(page, hidden);
}

/// Rows that a person is not shown.
fn more(page: &mut String, hidden: usize) {
    if hidden > 0 {
        let _ = writeln!(page, "  {FAINT}... and {hidden} more (--json){FAINT:#}");
    }
}

fn leases(page: &mut String, leases: &[LeaseRow]) {
    let (shown, hidden) = text::fold(leases, MOST_ROWS);
    let by_grants = shown.iter().any(|lease| lease.grant.is_some());
    let rows = shown.iter().map(|lease| {
        let mut row = vec![
            lease.lease.as_ref().map_or("-".into(), LeaseId::to_string),
            bytes(lease.bytes),
            lease.page.to_string(),
            node(lease.node),
            lease.pid.to_string(),
            lease.uid.to_string(),
            duration(lease.age_ms),
            lease.label.as_ref().map_or("-".into(), Label::to_string),
        ];
        let grant = || lease.grant.as_ref().map_or("-".into(), GrantId::to_string);
        row.extend(by_grants.then(grant));
        row
    });
    let mut columns = vec![
        "lease",
        "size",
        "pages",
        "node",
        "taken by pid",
        "uid",
        "age",
        "label",
    ];
    columns.extend(by_grants.then_some("by grant"));
    text::titled_table(page, "Leases", &columns, rows);
    more(page, hidden);
}

fn counters(page: &mut String, status: &Status) {
    let seen = &status.counters;
    let _ = writeln!(page, "\n{HEADING}Since the daemon started{HEADING:#}");
    let _ = writeln!(
        page,
        "  {} allocated ({} after a top-up), {} ended; {}",
        plural(seen.takes, "lease"),
        count(seen.top_ups),
        count(seen.returns),
        refused(seen),
    );
    if let Some(times) = &seen.take_times {
        let [p50, p99, max] = [times.p50_ns, times.p99_ns, times.max_ns].map(microseconds);
        let _ = match times.count {
            1 => writeln!(page, "  allocating it took the daemon {max} us"),
            // Of fewer than a hundred the p99 is the slowest.
            2..100 => writeln!(
                page,
                "  allocating one took the daemon {p50} us (p50), {max} us (slowest)"
            ),
            _ => writeln!(
                page,
                "  allocating one took the daemon {p50} us (p50), {p99} us (p99), {max} us (slowest)"
            ),
        };
    }
    // A slab counts when it is done: before the first there is nothing to say.
    if seen.zeroed_bytes > 0 {
        let _ = writeln!(
            page,
            "  {} zeroed in {}, slabs being filled not counted",
            bytes(seen.zeroed_bytes),
            duration(seen.zeroing_ns / 1_000_000),
        );
    }
}

/// How many requests for memory got none, by cause.
fn refused(seen: &Counters) -> String {
    let misses = &seen.misses;
    let causes = [
        (misses.empty, "with no slab ready"),
        (misses.no_class, "of a size that is not kept"),
        (misses.top_up, "not topped up in time"),
        (seen.denied, "over a quota or not allowed"),
        (misses.draining, "while draining"),
        (seen.turned_away, "connections that were too many"),
    ];
    let causes = causes.iter().filter(|(requests, _)| *requests > 0);
    let causes: Vec<String> = causes
        .map(|(requests, why)| format!("{} {why}", count(*requests)))
        .collect();
    if causes.is_empty() {
        return "none refused".into();
    }
    format!("refused: {}", causes.join(", "))
}

fn node(node: Option<u32>) -> String {
    node.map_or("any".into(), |node| node.to_string())
}

fn place(node: Option<u32>) -> String {
    node.map_or("any node".into(), |node| format!("node {node}"))
}

/// Words of the daemon without what would move the cursor.
fn printable(text: &str) -> String {
    let plain = |character: char| {
        if character.is_control() {
            ' '
        } else {
            character
        }
    };
    text.chars().map(plain).collect()
}

/// `850 ms`, `12.3 s`, `4 min 5 s`, `3 h 7 min`.
pub(crate) fn duration(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0 => format!("{ms} ms"),
        1..60 => format!("{seconds}.{} s", ms % 1000 / 100),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", count(seconds / 3600), seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_keep_two_units_at_most() {
        let table = [
            (0, "0 ms"),
            (999, "999 ms"),
            (12_345, "12.3 s"),
            (59_999, "59.9 s"),
            (245_000, "4 min 5 s"),
            (11_220_000, "3 h 7 min"),
        ];
        for (ms, text) in table {
            assert_eq!(duration(ms), text);
        }
    }

    #[test]
    fn words_of_the_daemon_move_no_cursor() {
        assert_eq!(printable("a\x1b[2Jb\n"), "a [2Jb ");
    }
}
