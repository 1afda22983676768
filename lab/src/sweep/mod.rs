//! A sweep over numbers of threads: its record, and the table of it.
//!
//! The record (schema `firstlight.sweep/1`) holds a row for each number of
//! threads, part and node; the table has the form in which such sweeps are
//! published: percent of the CPUs, speed-up over the first row, milliseconds
//! with their standard deviation, for the deferred part and for the whole.
//!
//! | file | concept |
//! |---|---|
//! | `table` | the record for a person |
//! | [`guest`] | a sweep in a virtual machine: the record of what its boots measured |

pub mod guest;
mod table;

use firstlight_figures::spread::Spread;
use serde::{Deserialize, Serialize};

/// The name of the form of [`Record`].
pub const SCHEMA: &str = "firstlight.sweep/1";

/// A sweep.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Record {
    /// [`SCHEMA`].
    pub schema: String,
    /// `wall`, or `instructions`: one instruction is one nanosecond.
    pub clock: String,
    /// Fewest threads that need at most 5 % more than the fastest, in the first series of
    /// the deferred part, or of the whole where that is all there is; `None` on the
    /// instruction clock, which shows no speed-up.
    #[serde(default)]
    pub knee_threads: Option<u32>,
    /// The measurements, by node, part and number of threads.
    pub rows: Vec<Row>,
}

/// Where descriptors were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Where {
    /// On this machine, by threads of a process.
    Host,
    /// In a virtual machine, by its CPUs.
    Guest,
}

/// Which descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum SweptPart {
    /// Those left to the workers.
    Deferred,
    /// From a layout until all are written: room, early part, deferred part.
    Whole,
}

/// Milliseconds of all rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Milliseconds {
    /// The middle one, or the mean of both.
    pub median: f64,
    /// The fastest.
    pub min: f64,
    /// The slowest.
    pub max: f64,
    /// Standard deviation of the sample; 0 for one round.
    pub stdev: f64,
}

/// One measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Row {
    /// Where.
    #[serde(rename = "where")]
    pub place: Where,
    /// The node; `None`: all.
    pub node: Option<u16>,
    /// Which descriptors.
    pub part: SweptPart,
    /// Bytes of each.
    pub descriptor_bytes: u32,
    /// Threads that wrote, on all nodes together.
    pub threads: u32,
    /// They are so many hundredths of the CPUs there.
    pub percent_of_cpus: f64,
    /// Frames described.
    pub pages: u64,
    /// Bytes of descriptors.
    pub bytes_written: u64,
    /// How long it took.
    pub ms: Milliseconds,
    /// Less time than the first row of this node and part, in hundredths of
    /// that; medians.
    pub speedup_percent: f64,
    /// On the instruction clock: of the fastest round.
    #[serde(default)]
    pub instructions_per_page: Option<f64>,
    /// The fastest fill of this machine over ours, both at their fastest; on a host.
    #[serde(default)]
    pub fraction_of_best_memset: Option<f64>,
    /// Which fill that was.
    #[serde(default)]
    pub best_memset: Option<String>,
}

#[expect(clippy::cast_precision_loss, reason = "figures to print")]
fn ms_of(ns: u64) -> f64 {
    ns as f64 / 1e6
}

impl Milliseconds {
    /// Of rounds in nanoseconds; `None` if there are none.
    ///
    /// ```
    /// use firstlight_lab::sweep::Milliseconds;
    /// let ms = Milliseconds::of(&[3_000_000, 1_000_000, 2_000_000]).unwrap();
    /// assert_eq!((ms.median, ms.min, ms.max, ms.stdev), (2.0, 1.0, 3.0, 1.0));
    /// assert!(Milliseconds::of(&[]).is_none());
    /// ```
    #[must_use]
    pub fn of(rounds_ns: &[u64]) -> Option<Self> {
        let ms = Spread::of(rounds_ns.iter().copied().map(ms_of))?;
        let count = |rounds: usize| u32::try_from(rounds).map_or(f64::INFINITY, f64::from);
        let mean = rounds_ns.iter().copied().map(ms_of).sum::<f64>() / count(ms.count);
        let squares = rounds_ns.iter().map(|ns| (ms_of(*ns) - mean).powi(2));
        let others = count(ms.count - 1);
        let stdev = if others > 0.0 {
            (squares.sum::<f64>() / others).sqrt()
        } else {
            0.0
        };
        Some(Self {
            median: ms.median,
            min: ms.min,
            max: ms.max,
            stdev,
        })
    }
}

impl Record {
    /// A record of `rows`, whose speed-ups it fills in.
    #[must_use]
    pub fn new(clock: &str, mut rows: Vec<Row>) -> Self {
        let first: Vec<_> = rows
            .iter()
            .map(|row| {
                let alike = rows.iter().find(|other| other.series() == row.series());
                alike.map_or(row.ms.median, |first| first.ms.median)
            })
            .collect();
        for (row, first) in rows.iter_mut().zip(first) {
            row.speedup_percent = if first > 0.0 {
                (first - row.ms.median) / first * 100.0
            } else {
                0.0
            };
        }
        Self {
            schema: SCHEMA.into(),
            clock: clock.into(),
            knee_threads: knee(&rows).filter(|_| clock == "wall"),
            rows,
        }
    }
}

/// Fewest threads within 5 % of the fastest, in the first series of the deferred part.
fn knee(rows: &[Row]) -> Option<u32> {
    let deferred = rows.iter().find(|row| row.part == SweptPart::Deferred);
    let series = deferred.or(rows.first())?.series();
    let rows = || rows.iter().filter(|row| row.series() == series);
    let fastest = rows().map(|row| row.ms.median).min_by(f64::total_cmp)?;
    let near = rows().filter(|row| row.ms.median <= fastest * 1.05);
    near.map(|row| row.threads).min()
}

impl Row {
    /// What rows are compared within.
    fn series(&self) -> (Where, Option<u16>, SweptPart, u32) {
        (self.place, self.node, self.part, self.descriptor_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(node: Option<u16>, part: SweptPart, threads: u32, ms: f64) -> Row {
        Row {
            place: Where::Host,
            node,
            part,
            descriptor_bytes: 64,
            threads,
            percent_of_cpus: f64::from(threads) * 50.0,
            pages: 1000,
            bytes_written: 64_000,
            ms: Milliseconds {
                median: ms,
                min: ms,
                max: ms,
                stdev: 0.5,
            },
            speedup_percent: 0.0,
            instructions_per_page: None,
            fraction_of_best_memset: (part == SweptPart::Deferred).then_some(0.95),
            best_memset: None,
        }
    }

    #[test]
    fn speed_up_is_over_the_first_row_of_the_same_part_and_node() {
        let record = Record::new(
            "wall",
            vec![
                row(Some(0), SweptPart::Deferred, 1, 100.0),
                row(Some(0), SweptPart::Deferred, 2, 8.8),
                row(None, SweptPart::Whole, 1, 200.0),
                row(None, SweptPart::Whole, 2, 250.0),
            ],
        );
        let speedups = record.rows.iter().map(|row| row.speedup_percent.round());
        assert_eq!(speedups.collect::<Vec<_>>(), [0.0, 91.0, 0.0, -25.0]);
        let table = record.table();
        let lines: Vec<_> = table.lines().collect();
        assert_eq!(lines.len(), 3 + 4 + 1 + 1, "{table}");
        assert!(lines[4].starts_with("0 ") && lines[4].contains("100 % (2)"));
        assert!(lines[4].contains("91.2 %") && lines[4].contains("8.800 (0.500)"));
        assert!(lines[4].ends_with("0.95"));
        assert!(lines[6].starts_with("all") && lines[6].contains("-25.0 %"));
    }

    #[test]
    fn the_knee_is_where_more_threads_are_of_no_use() {
        let rows = [(1, 100.0), (2, 51.0), (4, 30.0), (8, 29.0), (16, 31.0)];
        let rows = rows.map(|(threads, ms)| row(Some(0), SweptPart::Deferred, threads, ms));
        let record = Record::new("wall", rows.to_vec());
        assert_eq!(record.knee_threads, Some(4));
        assert!(
            record.table().contains("knee: 4 threads"),
            "{}",
            record.table()
        );
        assert_eq!(
            Record::new("instructions", rows.to_vec()).knee_threads,
            None
        );
        assert_eq!(Record::new("wall", Vec::new()).knee_threads, None);
    }

    #[test]
    fn the_record_is_what_it_says() {
        let record = Record::new("wall", vec![row(None, SweptPart::Whole, 3, 1.0)]);
        let json = serde_json::to_value(&record).expect("numbers and strings");
        assert_eq!(json["schema"], SCHEMA);
        let row = &json["rows"][0];
        assert_eq!(
            (&row["where"], &row["part"]),
            (&"host".into(), &"whole".into())
        );
        assert!(row["node"].is_null() && row["instructions_per_page"].is_null());
        let back: Record = serde_json::from_value(json).expect("its own form");
        assert_eq!(back, record);
    }

    #[test]
    fn an_even_number_of_rounds_has_the_mean_of_two() {
        let ms = Milliseconds::of(&[4_000_000, 1_000_000]).expect("two rounds");
        assert_eq!((ms.median, ms.min, ms.max), (2.5, 1.0, 4.0));
        assert_eq!(Milliseconds::of(&[7]).map(|ms| ms.stdev), Some(0.0));
    }
}
