//! Starts and stops: read from a CSV file, which may hold anything.

use firstlight_figures::size;
use std::fmt;

/// Nanoseconds of a second.
pub(super) const SECOND: u64 = 1_000_000_000;

/// The first line of a trace.
const HEADER: &str = "time,size,node,lifetime";

/// Seconds of a trace at most, and of a lifetime.
const MOST_SECONDS: u64 = 1_000_000_000;

/// A virtual machine that starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Start {
    pub(super) at_ns: u64,
    pub(super) bytes: u64,
    /// The node it starts on; it is dealt out where none is given.
    pub(super) node: Option<u32>,
    /// From when it has its memory.
    pub(super) lifetime_ns: u64,
}

/// What is wrong with a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wrong {
    Header,
    Columns,
    Time,
    Order,
    Size,
    Node,
    Lifetime,
}

/// A line that is no start: where, what was seen, what is expected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TraceError {
    pub(super) line: usize,
    pub(super) wrong: Wrong,
    seen: String,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, expected) = match self.wrong {
            Wrong::Header => ("header", HEADER),
            Wrong::Columns => ("columns:", "4, as the header has"),
            Wrong::Time => ("time", "seconds such as 12.5, below 1,000,000,000"),
            Wrong::Order => ("time", "none before that of the line above"),
            Wrong::Size => ("size", "a size such as 512M or 8G, not 0"),
            Wrong::Node => ("node", "the number of a node, or nothing"),
            Wrong::Lifetime => ("lifetime", "seconds such as 600, below 1,000,000,000"),
        };
        let Self { line, seen, .. } = self;
        write!(f, "line {line}: {what} {seen}: expected {expected}")
    }
}

/// What a text of seconds says, in nanoseconds: digits, and a fraction of nine at most.
pub(super) fn seconds(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |text: &str| {
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        digits && !text.is_empty()
    };
    if !is_number(whole) || !is_number(fraction) || fraction.len() > 9 {
        return None;
    }
    let whole: u64 = whole.parse().ok().filter(|whole| *whole < MOST_SECONDS)?;
    let ns: u64 = format!("{fraction:0<9}").parse().ok()?;
    Some(whole * SECOND + ns)
}

/// The starts of a trace; their times rise.
pub(super) fn parse(text: &str) -> Result<Vec<Start>, TraceError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = (1..).zip(text.lines());
    let header = lines.next().map_or("", |(_, line)| line);
    if header.trim_end() != HEADER {
        return Err(wrong(1, Wrong::Header, header));
    }
    let mut starts: Vec<Start> = Vec::new();
    for (line, text) in lines.filter(|(_, line)| !line.trim_end().is_empty()) {
        let start = start(line, text.trim_end())?;
        if starts.last().is_some_and(|last| last.at_ns > start.at_ns) {
            let time = text.split(',').next().unwrap_or_default();
            return Err(wrong(line, Wrong::Order, time));
        }
        starts.push(start);
    }
    Ok(starts)
}

fn start(line: usize, text: &str) -> Result<Start, TraceError> {
    let columns: Vec<&str> = text.split(',').take(5).map(str::trim).collect();
    let [time, bytes, node, lifetime] = columns[..] else {
        let seen = text.split(',').count().to_string();
        let wrong = Wrong::Columns;
        return Err(TraceError { line, wrong, seen });
    };
    let parsed_size = size::parse(bytes).ok().filter(|bytes| *bytes > 0);
    let parsed_node = match node {
        "" => Some(None),
        node => node
            .parse()
            .ok()
            .filter(|_| !node.starts_with('+'))
            .map(Some),
    };
    Ok(Start {
        at_ns: seconds(time).ok_or_else(|| wrong(line, Wrong::Time, time))?,
        bytes: parsed_size.ok_or_else(|| wrong(line, Wrong::Size, bytes))?,
        node: parsed_node.ok_or_else(|| wrong(line, Wrong::Node, node))?,
        lifetime_ns: seconds(lifetime).ok_or_else(|| wrong(line, Wrong::Lifetime, lifetime))?,
    })
}

/// The beginning of what was seen is enough, and no control character of it is shown.
fn wrong(line: usize, wrong: Wrong, seen: &str) -> TraceError {
    let mut part: String = seen.chars().take(40).collect();
    if part.len() < seen.len() {
        part.push_str("...");
    }
    let seen = format!("{part:?}");
    TraceError { line, wrong, seen }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_read_however_its_lines_end() {
        let text = "time,size,node,lifetime\n0,2G,,600\n1.5,512M,7,0.000000001\n\n1.5, 8G , ,0\n";
        let starts = parse(text).unwrap();
        let start = |at_ns, bytes, node, lifetime_ns| Start {
            at_ns,
            bytes,
            node,
            lifetime_ns,
        };
        let expected = [
            start(0, 2 << 30, None, 600 * SECOND),
            start(SECOND * 3 / 2, 512 << 20, Some(7), 1),
            start(SECOND * 3 / 2, 8 << 30, None, 0),
        ];
        assert_eq!(starts, expected);
        for other in [
            text.replace('\n', "\r\n"),
            format!("\u{feff}{text}"),
            text.trim_end().into(),
        ] {
            assert_eq!(parse(&other).unwrap(), expected);
        }
        assert_eq!(parse("time,size,node,lifetime").unwrap(), []);
    }

    #[test]
    fn what_is_no_trace_is_said_with_its_line() {
        let many = vec!["0"; 1_000_000].join(",");
        let long = "9".repeat(1_000_000);
        for (line, column, seen) in [
            ("-1,2G,,600", Wrong::Time, "\"-1\""),
            ("NaN,2G,,600", Wrong::Time, "\"NaN\""),
            ("inf,2G,,600", Wrong::Time, "\"inf\""),
            ("1e3,2G,,600", Wrong::Time, "\"1e3\""),
            (",2G,,600", Wrong::Time, "\"\""),
            (".5,2G,,600", Wrong::Time, "\".5\""),
            ("5.,2G,,600", Wrong::Time, "\"5.\""),
            ("0.1234567890,2G,,600", Wrong::Time, "\"0.1234567890\""),
            ("1000000000,2G,,600", Wrong::Time, "\"1000000000\""),
            (&format!("{long},2G,,600"), Wrong::Time, "999...\""),
            ("1.9,2G,,600", Wrong::Order, "\"1.9\""),
            ("2,0,,600", Wrong::Size, "\"0\""),
            ("2,0G,,600", Wrong::Size, "\"0G\""),
            ("2,-8G,,600", Wrong::Size, "\"-8G\""),
            ("2,16E,,600", Wrong::Size, "\"16E\""),
            ("2,1.5G,,600", Wrong::Size, "\"1.5G\""),
            ("2,2G,-1,600", Wrong::Node, "\"-1\""),
            ("2,2G,+1,600", Wrong::Node, "\"+1\""),
            ("2,2G,4294967296,600", Wrong::Node, "\"4294967296\""),
            ("2,2G,,", Wrong::Lifetime, "\"\""),
            ("2,2G,,-600", Wrong::Lifetime, "\"-600\""),
            ("2,2G,,\u{1b}[2J", Wrong::Lifetime, "\"\\u{1b}[2J\""),
            ("2,2G,600", Wrong::Columns, "3"),
            ("\u{0}", Wrong::Columns, "1"),
            (&many, Wrong::Columns, "1000000"),
        ] {
            let text = format!("time,size,node,lifetime\n2,2G,,600\r\n{line}\n");
            let error = parse(&text).unwrap_err();
            assert_eq!((error.line, error.wrong), (3, column), "{seen}");
            let said = error.to_string();
            assert!(said.contains(seen) && said.len() < 200, "{said}");
            assert!(
                said.contains("line 3: ") && said.contains(": expected "),
                "{said}"
            );
        }
        for text in [
            "",
            "\n",
            "\u{feff}",
            "0,2G,,600\n",
            "time;size;node;lifetime\n",
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!((error.line, error.wrong), (1, Wrong::Header), "{text:?}");
        }
    }
}
