//! The record as tables.

use crate::output::{FAINT, HEADING};
use crate::text::{self, bytes, head};
use firstlight_bench::zero::{Record, Row, Stores};
use std::fmt::Write;

/// What the published launch estimate touches.
const LAUNCH_BYTES: f64 = 300e6;
const GIB: f64 = (1u64 << 30) as f64;

/// Figures of one order, without stock and with.
struct Pair {
    order: u8,
    ns: [Option<[f64; 3]>; 2],
}

/// The whole page.
pub(super) fn page(record: &Record) -> String {
    let mut page = format!("{HEADING}firstlight bench zero{HEADING:#}\n");
    let pairs = pairs(&record.rows);
    if !pairs.is_empty() {
        allocate(&mut page, &pairs);
    }
    for row in &record.rows {
        if let Row::Worker {
            bytes_per_second,
            fraction_of_best,
        } = row
        {
            #[expect(clippy::cast_precision_loss, reason = "a rate to print")]
            let rate = *bytes_per_second as f64 / 1e9;
            let _ = writeln!(
                page,
                "\n{HEADING}worker{HEADING:#}  {rate:.1} GB/s on one CPU, {fraction_of_best:.2} of the fastest stores past the caches"
            );
        }
    }
    stores(&mut page, &record.rows);
    neighbour(&mut page, &record.rows);
    page
}

fn stores(page: &mut String, rows: &[Row]) {
    let mut lines = vec![head([
        "stores",
        "GB/s",
        "of the fastest",
        "past the caches",
    ])];
    for row in rows {
        if let Row::Stores {
            name,
            past_caches,
            bytes_per_second,
            fraction_of_best,
        } = row
        {
            #[expect(clippy::cast_precision_loss, reason = "a rate to print")]
            let rate = *bytes_per_second as f64 / 1e9;
            lines.push(vec![
                name.clone(),
                format!("{rate:.1}"),
                format!("{fraction_of_best:.2}"),
                if *past_caches { "yes" } else { "no" }.to_owned(),
            ]);
        }
    }
    if lines.len() > 1 {
        print(page, &lines);
    }
}

fn pairs(rows: &[Row]) -> Vec<Pair> {
    let mut pairs: Vec<Pair> = Vec::new();
    for row in rows {
        let Row::Allocate { order, stock, ns } = row else {
            continue;
        };
        let figures = Some([ns.median, ns.min, ns.max]);
        if pairs.last().is_none_or(|pair| pair.order != *order) {
            pairs.push(Pair {
                order: *order,
                ns: [None; 2],
            });
        }
        if let Some(pair) = pairs.last_mut() {
            pair.ns[usize::from(*stock)] = figures;
        }
    }
    pairs
}

fn allocate(page: &mut String, pairs: &[Pair]) {
    let head = [
        "zeroed blocks",
        "on the spot",
        "from stock",
        "times faster",
        "ms a GiB",
        "from stock",
    ];
    let mut lines = vec![head.map(String::from).to_vec()];
    for Pair { order, ns } in pairs {
        let block_bytes = 4096u64 << order;
        #[expect(clippy::cast_precision_loss, reason = "at most 1 GiB")]
        let blocks = GIB / block_bytes as f64;
        let [on_the_spot, stock] = ns;
        let median = |of: &Option<[f64; 3]>| of.map(|[median, ..]| median);
        let figure = |of: &Option<[f64; 3]>| {
            of.map_or("-".into(), |[median, min, max]| {
                format!("{} ({} .. {})", time(median), time(min), time(max))
            })
        };
        let a_gib = |of: &Option<[f64; 3]>| {
            median(of).map_or("-".into(), |ns| format!("{:.3}", ns * blocks / 1e6))
        };
        let times = median(on_the_spot).zip(median(stock));
        lines.push(vec![
            bytes(block_bytes),
            figure(on_the_spot),
            figure(stock),
            times.map_or("-".into(), |(slow, fast)| format!("{:.0}", slow / fast)),
            a_gib(on_the_spot),
            a_gib(stock),
        ]);
    }
    print(page, &lines);
    for Pair { order, ns } in pairs {
        let block_bytes = 4096u64 << order;
        if block_bytes > 2 << 20 {
            continue;
        }
        #[expect(clippy::cast_precision_loss, reason = "at most 2 MiB")]
        let blocks = (LAUNCH_BYTES / block_bytes as f64).ceil();
        if let [Some([slow, ..]), Some([fast, ..])] = ns {
            let _ = writeln!(
                page,
                "  300 MB first touched: {:.2} -> {:.2} ms  {FAINT}in blocks of {}{FAINT:#}",
                slow * blocks / 1e6,
                fast * blocks / 1e6,
                bytes(block_bytes),
            );
        }
    }
}

fn neighbour(page: &mut String, rows: &[Row]) {
    let mut lines = vec![head([
        "neighbour",
        "worker",
        "past the caches",
        "through them",
    ])];
    let mut keys: Vec<(u64, bool)> = Vec::new();
    for row in rows {
        if let Row::Neighbour {
            working_set_bytes,
            same_cpu,
            ..
        } = row
            && !keys.contains(&(*working_set_bytes, *same_cpu))
        {
            keys.push((*working_set_bytes, *same_cpu));
        }
    }
    for (key, same) in &keys {
        let figure = |wanted: Stores| {
            let found = rows.iter().find_map(|row| match row {
                Row::Neighbour {
                    working_set_bytes,
                    same_cpu,
                    stores,
                    slowdown_percent,
                } if (working_set_bytes, same_cpu, *stores) == (key, same, wanted) => {
                    Some(*slowdown_percent)
                }
                _ => None,
            });
            found.map_or("-".into(), |percent| format!("{percent:+.1} %"))
        };
        lines.push(vec![
            bytes(*key),
            if *same { "same CPU" } else { "other CPU" }.to_owned(),
            figure(Stores::NonTemporal),
            figure(Stores::Temporal),
        ]);
    }
    if !keys.is_empty() {
        print(page, &lines);
        let _ = writeln!(
            page,
            "  {FAINT}time of a pass over the working set, beside alone{FAINT:#}"
        );
    }
}

/// Under a heading line.
fn print(page: &mut String, lines: &[Vec<String>]) {
    page.push('\n');
    for (at, line) in text::table("<>", lines).iter().enumerate() {
        let _ = match at {
            0 => writeln!(page, "{HEADING}{line}{HEADING:#}"),
            _ => writeln!(page, "{line}"),
        };
    }
}

/// `41 ns`, `22.1 us`, `12.50 ms`.
fn time(ns: f64) -> String {
    match ns {
        ns if ns < 1e3 => format!("{ns:.0} ns"),
        ns if ns < 1e6 => format!("{:.1} us", ns / 1e3),
        ns => format!("{:.2} ms", ns / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use firstlight_bench::alloc::Spread;

    #[test]
    fn a_page_has_every_figure() {
        let spread = |median| Spread {
            median,
            min: median,
            max: 2.0 * median,
        };
        let row = |order, stock, ns| Row::Allocate {
            order,
            stock,
            ns: spread(ns),
        };
        let slow = |stores, slowdown_percent| Row::Neighbour {
            working_set_bytes: 256 << 10,
            same_cpu: true,
            stores,
            slowdown_percent,
        };
        let record = Record {
            schema: "",
            rows: vec![
                row(9, false, 25_000.0),
                row(9, true, 50.0),
                row(18, false, 12.5e6),
                Row::Worker {
                    bytes_per_second: 84_000_000_000,
                    fraction_of_best: 0.95,
                },
                Row::Stores {
                    name: "clzero".into(),
                    past_caches: true,
                    bytes_per_second: 88_000_000_000,
                    fraction_of_best: 1.0,
                },
                slow(Stores::NonTemporal, 1.0),
                slow(Stores::Temporal, 240.0),
            ],
        };
        let page = page(&record);
        for part in [
            "25.0 us (25.0 us .. 50.0 us)",
            "50 ns (50 ns .. 100 ns)",
            " 500 ",
            "12.800",
            "300 MB first touched: 3.60 -> 0.01 ms",
            "12.50 ms (12.50 ms .. 25.00 ms)",
            "84.0 GB/s on one CPU, 0.95 of",
            "88.0",
            "1.00              yes",
            "+1.0 %",
            "+240.0 %",
        ] {
            assert!(page.contains(part), "{part} is not in\n{page}");
        }
    }
}
