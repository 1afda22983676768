//! A sweep in a virtual machine: our image writes and checks the descriptors.
//! [`GuestSweep`] is what is asked for, as words on the image's command line;
//! [`of_boot`] makes the [`Record`] of what the image measured.

use super::{Milliseconds, Record, Row, SweptPart, Where};
use crate::record;
use firstlight_wire::{DESCRIPTOR_BYTES, MOST_THREADS};
use std::fmt;

/// What is to be measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestSweep {
    /// Threads a node; none: 1 and its doubles up to a node's CPUs.
    pub threads: Vec<u32>,
    /// Rounds.
    pub runs: u32,
    /// Bytes of a descriptor.
    pub descriptor_bytes: u32,
}

/// A sweep that the image does not make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SweepRefusal {
    /// Nobody would write.
    NoThreads,
    /// More numbers of threads than it takes.
    ManyThreads(usize),
    /// Nothing would be measured.
    NoRuns,
    /// A size it does not have.
    Size(u32),
}

impl fmt::Display for SweepRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoThreads => write!(f, "a sweep of 0 threads; expected at least 1"),
            Self::ManyThreads(count) => write!(
                f,
                "{count} numbers of threads; expected at most {MOST_THREADS} in a guest"
            ),
            Self::NoRuns => write!(f, "a sweep of 0 runs; expected at least 1"),
            Self::Size(bytes) => write!(
                f,
                "descriptors of {bytes} bytes, expected one of {DESCRIPTOR_BYTES:?} in a guest"
            ),
        }
    }
}

impl std::error::Error for SweepRefusal {}

impl GuestSweep {
    /// The words for the image's command line.
    ///
    /// # Errors
    /// [`SweepRefusal`], which says what would do.
    ///
    /// ```
    /// use firstlight_lab::sweep::guest::{GuestSweep, SweepRefusal};
    /// let mut sweep = GuestSweep { threads: vec![1, 2], runs: 3, descriptor_bytes: 64 };
    /// assert_eq!(sweep.words().unwrap(), "sweep runs=3 descriptor_bytes=64 threads=1,2");
    /// sweep.threads.push(0);
    /// assert_eq!(sweep.words(), Err(SweepRefusal::NoThreads));
    /// ```
    pub fn words(&self) -> Result<String, SweepRefusal> {
        if self.threads.contains(&0) {
            return Err(SweepRefusal::NoThreads);
        }
        if self.threads.len() > MOST_THREADS {
            return Err(SweepRefusal::ManyThreads(self.threads.len()));
        }
        if self.runs == 0 {
            return Err(SweepRefusal::NoRuns);
        }
        if !DESCRIPTOR_BYTES.contains(&self.descriptor_bytes) {
            return Err(SweepRefusal::Size(self.descriptor_bytes));
        }
        let mut words = format!(
            "sweep runs={} descriptor_bytes={}",
            self.runs, self.descriptor_bytes
        );
        if !self.threads.is_empty() {
            let list: Vec<String> = self.threads.iter().map(u32::to_string).collect();
            words.push_str(" threads=");
            words.push_str(&list.join(","));
        }
        Ok(words)
    }
}

/// Why a boot is no sweep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoSweep {
    /// It measured nothing.
    Nothing,
    /// A measurement that cannot be one, and why.
    Nonsense(String),
    /// Ticks of which nobody knows how long they are.
    NoTime,
}

impl fmt::Display for NoSweep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => write!(
                f,
                "the image measured no descriptors; expected one that knows the word sweep"
            ),
            Self::Nonsense(why) => write!(f, "the image told of a measurement {why}"),
            Self::NoTime => write!(
                f,
                "the image did not find out how fast its clock is; --clock instructions needs no clock"
            ),
        }
    }
}

impl std::error::Error for NoSweep {}

/// Makes the record of a boot that swept: rounds of the same node, part and number
/// of threads become one row.
///
/// # Errors
/// [`NoSweep`].
pub fn of_boot(boot: &record::Record) -> Result<Record, NoSweep> {
    let mut series: Vec<(&record::Swept, Vec<u64>)> = Vec::new();
    for swept in &boot.sweep {
        let ns = swept.duration_ns.ok_or(NoSweep::NoTime)?;
        match series.iter_mut().find(|(first, _)| alike(first, swept)) {
            Some((_, rounds)) => rounds.push(ns),
            None => series.push((swept, vec![ns])),
        }
    }
    let rows: Result<Vec<Row>, NoSweep> = series
        .iter()
        .map(|(swept, rounds)| row(boot, swept, rounds))
        .collect();
    let rows = rows?;
    if rows.is_empty() {
        return Err(NoSweep::Nothing);
    }
    Ok(Record::new(boot.clock, rows))
}

/// The same but for how long it took.
fn alike(one: &record::Swept, other: &record::Swept) -> bool {
    let nothing = |swept: &record::Swept| record::Swept {
        duration_ns: None,
        ..swept.clone()
    };
    nothing(one) == nothing(other)
}

fn row(boot: &record::Record, swept: &record::Swept, rounds: &[u64]) -> Result<Row, NoSweep> {
    let nonsense = |why: String| NoSweep::Nonsense(why);
    let part = match &*swept.part {
        "deferred" => SweptPart::Deferred,
        "whole" => SweptPart::Whole,
        other => return Err(nonsense(format!("of a part {other:?} that nobody knows"))),
    };
    let small = |number: u64, what: &str| {
        u32::try_from(number).map_err(|_| nonsense(format!("with {number} {what}")))
    };
    let with_memory = boot.nodes.iter().filter(|node| node.present_frames > 0);
    let nodes = match swept.node {
        Some(_) => 1,
        None => with_memory.count().max(1) as u64,
    };
    let threads = small(swept.threads.saturating_mul(nodes), "threads")?;
    // A node without CPUs of its own is written by those of others.
    let cpus = match swept.cpus {
        0 => boot.machine.cpus.unwrap_or(1).max(1),
        cpus => cpus,
    };
    let ms = Milliseconds::of(rounds).ok_or(NoSweep::Nothing)?;
    let fastest = rounds.iter().copied().min();
    let counted = boot.clock == "instructions" && swept.pages > 0;
    #[expect(clippy::cast_precision_loss, reason = "a ratio to print")]
    let a_page = |instructions: u64| instructions as f64 / swept.pages as f64;
    Ok(Row {
        place: Where::Guest,
        node: swept.node,
        part,
        descriptor_bytes: small(swept.descriptor_bytes, "bytes a descriptor")?,
        threads,
        percent_of_cpus: f64::from(threads) / f64::from(small(cpus, "CPUs")?) * 100.0,
        pages: swept.pages,
        bytes_written: swept.bytes_written,
        ms,
        speedup_percent: 0.0,
        instructions_per_page: fastest.filter(|_| counted).map(a_page),
        fraction_of_best_memset: None,
        best_memset: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn swept(node: Option<u16>, part: &str, threads: u64, duration_ns: u64) -> record::Swept {
        record::Swept {
            node,
            part: part.into(),
            chunking: "padata".into(),
            descriptor_bytes: 64,
            threads,
            cpus: 4,
            pages: 1000,
            bytes_written: 64_000,
            duration_ns: Some(duration_ns),
        }
    }

    fn boot(clock: &'static str, sweep: Vec<record::Swept>) -> record::Record {
        let mut boot = record::Record::new("boot", clock);
        let node = |node| record::Node {
            node,
            domain: None,
            cpus: Some(2),
            start_frame: 0,
            end_frame: 10,
            present_frames: 10 * u64::from(node < 2),
            distances: Vec::new(),
        };
        boot.nodes = (0..3).map(node).collect();
        boot.machine.cpus = Some(4);
        boot.sweep = sweep;
        boot
    }

    #[test]
    fn rounds_become_rows() {
        let rounds = vec![
            swept(Some(0), "deferred", 1, 4000),
            swept(Some(0), "deferred", 1, 3000),
            swept(Some(0), "deferred", 2, 2000),
            swept(None, "whole", 2, 8000),
        ];
        let record = of_boot(&boot("instructions", rounds.clone())).unwrap();
        assert_eq!((&*record.clock, record.rows.len()), ("instructions", 3));
        let row = &record.rows[0];
        assert_eq!((row.place, row.threads), (Where::Guest, 1));
        assert_eq!((row.ms.median, row.ms.min), (0.0035, 0.003));
        assert_eq!(row.instructions_per_page, Some(3.0));
        assert_eq!(row.percent_of_cpus, 25.0);
        // Two nodes have memory, and each has two threads.
        assert_eq!(record.rows[2].threads, 4);
        assert_eq!(record.rows[2].percent_of_cpus, 100.0);
        let table = record.table();
        assert!(table.contains("in a guest") && table.contains("a page, whole"));
        assert!(table.contains("take turns") && !table.contains("best fill"));

        let record = of_boot(&boot("wall", rounds)).unwrap();
        assert_eq!(record.rows[0].instructions_per_page, None);
        let table = record.table();
        assert!(
            table.contains("GB/s") && !table.contains("best fill"),
            "{table}"
        );
    }

    #[test]
    fn a_node_without_cpus_is_measured_by_all() {
        let mut lonely = swept(Some(1), "whole", 2, 9);
        lonely.cpus = 0;
        let record = of_boot(&boot("wall", vec![lonely])).unwrap();
        assert_eq!(record.rows[0].percent_of_cpus, 50.0);
    }

    #[test]
    fn what_is_no_sweep_is_refused() {
        let refused = |sweep| of_boot(&boot("wall", sweep)).unwrap_err();
        assert_eq!(refused(Vec::new()), NoSweep::Nothing);
        let mut timeless = swept(None, "whole", 1, 1);
        timeless.duration_ns = None;
        assert_eq!(refused(vec![timeless]), NoSweep::NoTime);
        let strange = refused(vec![swept(None, "half", 1, 1)]);
        assert!(strange.to_string().contains("\"half\""), "{strange}");
        let many = refused(vec![swept(None, "whole", u64::MAX, 1)]);
        assert!(many.to_string().contains("threads"), "{many}");
    }

    #[test]
    fn the_image_is_asked_for_what_it_knows_only() {
        let asked = |threads: Vec<u32>, runs, descriptor_bytes| {
            let sweep = GuestSweep {
                threads,
                runs,
                descriptor_bytes,
            };
            sweep.words()
        };
        let words = "sweep runs=1 descriptor_bytes=8";
        assert_eq!(asked(vec![], 1, 8), Ok(words.into()));
        assert_eq!(asked(vec![], 0, 8), Err(SweepRefusal::NoRuns));
        assert_eq!(asked(vec![], 1, 32), Err(SweepRefusal::Size(32)));
        let many = asked(vec![1; 17], 1, 8);
        assert_eq!(many, Err(SweepRefusal::ManyThreads(17)));
    }
}
