//! A sweep for a person: one block a place and size, one line a node and number
//! of threads. Columns that a block has nothing for are left out.

use super::{Record, Row, SweptPart, Where};
use std::fmt::Write;

impl Record {
    /// The table.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = String::new();
        let mut seen: Vec<(Where, u32)> = Vec::new();
        for row in &self.rows {
            let block = (row.place, row.descriptor_bytes);
            if seen.contains(&block) {
                continue;
            }
            seen.push(block);
            let rows = self.rows.iter();
            let rows = rows.filter(|row| (row.place, row.descriptor_bytes) == block);
            let rows: Vec<_> = rows.collect();
            write_block(&mut text, &rows, self.clock == "instructions");
        }
        if let Some(threads) = self.knee_threads {
            let _ = writeln!(
                text,
                "knee: {threads} threads, the fewest that need at most 5 % more than the fastest"
            );
        }
        text
    }
}

/// `91.2 %  157.0 (0.0)`, in the columns of the table.
fn cell(row: Option<&Row>, is_first: bool) -> String {
    let Some(row) = row else {
        return " ".repeat(27);
    };
    let speedup = if is_first {
        String::new()
    } else {
        format!("{:.1} %", row.speedup_percent)
    };
    let time = format!("{:.3} ({:.3})", row.ms.median, row.ms.stdev);
    format!("{speedup:>8} {time:>18}")
}

/// A column behind the times: its head, and what it says of a line's two parts.
type Column = (
    &'static str,
    fn(Option<&Row>, Option<&Row>) -> Option<String>,
);

fn gigabytes(_: Option<&Row>, deferred: Option<&Row>) -> Option<String> {
    let row = deferred.filter(|row| row.ms.median > 0.0)?;
    #[expect(clippy::cast_precision_loss, reason = "figures to print")]
    let speed = row.bytes_written as f64 / row.ms.median / 1e6;
    Some(format!("{speed:.1}"))
}

fn fraction(_: Option<&Row>, deferred: Option<&Row>) -> Option<String> {
    let fraction = deferred?.fraction_of_best_memset?;
    Some(format!("{fraction:.2}"))
}

fn whole_instructions(whole: Option<&Row>, _: Option<&Row>) -> Option<String> {
    Some(format!("{:.2}", whole?.instructions_per_page?))
}

fn deferred_instructions(_: Option<&Row>, deferred: Option<&Row>) -> Option<String> {
    Some(format!("{:.2}", deferred?.instructions_per_page?))
}

const TIMED: [Column; 2] = [("GB/s deferred", gigabytes), ("of best fill", fraction)];
const COUNTED: [Column; 2] = [
    ("a page, whole", whole_instructions),
    ("deferred", deferred_instructions),
];

/// A line of the table: whose it is, and its rows with whether each is its series' first.
struct Line<'r> {
    node: Option<u16>,
    threads: u32,
    whole: (Option<&'r Row>, bool),
    deferred: (Option<&'r Row>, bool),
}

/// Nodes and numbers of threads in the order in which they come.
fn lines<'r>(rows: &[&'r Row]) -> Vec<Line<'r>> {
    let mut keys: Vec<(Option<u16>, u32)> = Vec::new();
    for row in rows {
        if !keys.contains(&(row.node, row.threads)) {
            keys.push((row.node, row.threads));
        }
    }
    let line = |(node, threads)| {
        let of = |part| {
            let mut alike = rows
                .iter()
                .copied()
                .filter(|row| row.node == node && row.part == part);
            let is_first = alike
                .clone()
                .next()
                .is_some_and(|row| row.threads == threads);
            (alike.find(|row| row.threads == threads), is_first)
        };
        Line {
            node,
            threads,
            whole: of(SweptPart::Whole),
            deferred: of(SweptPart::Deferred),
        }
    };
    keys.into_iter().map(line).collect()
}

/// One size of descriptors at one place. Writing to a string does not fail.
fn write_block(text: &mut String, rows: &[&Row], counted: bool) {
    let Some(first) = rows.first() else {
        return;
    };
    let place = match first.place {
        Where::Host => "on this host",
        Where::Guest => "in a guest",
    };
    let unit = if counted {
        "million instructions"
    } else {
        "median ms"
    };
    let _ = writeln!(
        text,
        "Descriptors of {} bytes {place}: speed-up, {unit} (stdev)\n",
        first.descriptor_bytes
    );
    let lines = lines(rows);
    let columns = if counted { &COUNTED } else { &TIMED };
    let says = |column: &&Column| {
        let mut lines = lines.iter();
        lines.any(|line| column.1(line.whole.0, line.deferred.0).is_some())
    };
    let columns: Vec<&Column> = columns.iter().filter(says).collect();
    let _ = write!(
        text,
        "{:<8} {:<16} {:>27}  {:>27}",
        "node", "CPUs (threads)", "whole", "deferred"
    );
    for (head, _) in &columns {
        let _ = write!(text, "  {head:>14}");
    }
    text.push('\n');
    for line in &lines {
        write_line(text, line, &columns);
    }
    text.push('\n');
    if counted && lines.iter().any(|line| line.threads > 1) {
        text.push_str(
            "On this clock CPUs take turns: it counts work, and more threads are not faster.\n\n",
        );
    }
}

fn write_line(text: &mut String, line: &Line<'_>, columns: &[&Column]) {
    let (whole, deferred) = (line.whole.0, line.deferred.0);
    let percent = deferred.or(whole).map_or(0.0, |row| row.percent_of_cpus);
    let name = line.node.map_or("all".into(), |node| node.to_string());
    let _ = write!(
        text,
        "{name:<8} {:<16} {}  {}",
        format!("{percent:.0} % ({})", line.threads),
        cell(whole, line.whole.1),
        cell(deferred, line.deferred.1),
    );
    for (_, column) in columns {
        let _ = write!(
            text,
            "  {:>14}",
            column(whole, deferred).unwrap_or_default()
        );
    }
    while text.ends_with(' ') {
        text.pop();
    }
    text.push('\n');
}
