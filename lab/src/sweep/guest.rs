//! A sweep in a virtual machine: our image writes and checks the descriptors where `sweep` is on its
//! command line; [`of_runs`] makes the [`Record`] of what it measured.

use super::{Milliseconds, Record, Row, SweptPart, Where};
use crate::record::Swept;
use crate::run::Run;

/// Why a boot is no sweep.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoSweep {
    /// A measurement that cannot be one, and why.
    #[error("the image told of a measurement {0}")]
    Nonsense(String),
    /// Ticks of unknown length.
    #[error(
        "the image did not find out how fast its clock is; --clock instructions needs no clock"
    )]
    NoTime,
}

/// Makes the record of boots of one set-up, if they swept: rounds of the same node, part and number
/// of threads become one row.
///
/// # Errors
/// [`NoSweep`].
pub fn of_runs(runs: &[Run]) -> Result<Option<Record>, NoSweep> {
    let mut series: Vec<(&Run, &Swept, Vec<u64>)> = Vec::new();
    for (run, swept) in runs
        .iter()
        .flat_map(|run| run.sweep.iter().map(move |one| (run, one)))
    {
        let ns = swept.duration_ns.ok_or(NoSweep::NoTime)?;
        match series.iter_mut().find(|(_, first, _)| alike(first, swept)) {
            Some((_, _, rounds)) => rounds.push(ns),
            None => series.push((run, swept, vec![ns])),
        }
    }
    let rows = series
        .iter()
        .filter_map(|(run, swept, rounds)| row(run, swept, rounds).transpose());
    let rows: Vec<Row> = rows.collect::<Result<_, _>>()?;
    let clock = runs.first().map_or("wall", |run| &run.clock);
    Ok((!rows.is_empty()).then(|| Record::new(clock, rows)))
}

/// Whether both are equal but for how long they took.
fn alike(one: &Swept, other: &Swept) -> bool {
    let nothing = |swept: &Swept| Swept {
        duration_ns: None,
        ..swept.clone()
    };
    nothing(one) == nothing(other)
}

fn row(run: &Run, swept: &Swept, rounds: &[u64]) -> Result<Option<Row>, NoSweep> {
    let nonsense = |why: String| NoSweep::Nonsense(why);
    let part = match &*swept.part {
        "deferred" => SweptPart::Deferred,
        "whole" => SweptPart::Whole,
        other => return Err(nonsense(format!("of an unknown part: {other:?}"))),
    };
    let small = |number: u64, what: &str| {
        u32::try_from(number).map_err(|_| nonsense(format!("with {number} {what}")))
    };
    let nodes = match swept.node {
        Some(_) => 1,
        None => run.nodes_with_memory().max(1),
    };
    let threads = small(swept.threads.saturating_mul(nodes), "threads")?;
    // A node without CPUs of its own is written by those of others.
    let cpus = match swept.cpus {
        0 => run.cpus().unwrap_or(1).max(1),
        cpus => cpus,
    };
    let Some(ms) = Milliseconds::of(rounds) else {
        return Ok(None);
    };
    let fastest = rounds.iter().copied().min();
    let counted = run.clock == "instructions" && swept.pages > 0;
    #[expect(clippy::cast_precision_loss, reason = "a ratio to print")]
    let a_page = |instructions: u64| instructions as f64 / swept.pages as f64;
    Ok(Some(Row {
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
    }))
}

#[cfg(test)]
mod tests {
    use super::{NoSweep, Swept, Where, of_runs};
    use crate::record::{Node, Record};
    use crate::run::Run;

    fn swept(node: Option<u16>, part: &str, threads: u64, duration_ns: u64) -> Swept {
        Swept {
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

    fn boot(clock: &'static str, sweep: Vec<Swept>) -> [Run; 1] {
        let mut boot = Record::new("boot", clock);
        let node = |node| Node {
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
        [Run::of_record(&boot).unwrap()]
    }

    #[test]
    fn rounds_become_rows() {
        let rounds = vec![
            swept(Some(0), "deferred", 1, 4000),
            swept(Some(0), "deferred", 1, 3000),
            swept(Some(0), "deferred", 2, 2000),
            swept(None, "whole", 2, 8000),
        ];
        let record = of_runs(&boot("instructions", rounds.clone()))
            .unwrap()
            .unwrap();
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

        let record = of_runs(&boot("wall", rounds)).unwrap().unwrap();
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
        let record = of_runs(&boot("wall", vec![lonely])).unwrap().unwrap();
        assert_eq!(record.rows[0].percent_of_cpus, 50.0);
    }

    #[test]
    fn what_is_no_sweep_is_refused() {
        let refused = |sweep| of_runs(&boot("wall", sweep)).unwrap_err();
        assert_eq!(of_runs(&boot("wall", Vec::new())), Ok(None));
        let mut timeless = swept(None, "whole", 1, 1);
        timeless.duration_ns = None;
        assert_eq!(refused(vec![timeless]), NoSweep::NoTime);
        let strange = refused(vec![swept(None, "half", 1, 1)]);
        assert!(strange.to_string().contains("\"half\""), "{strange}");
        let many = refused(vec![swept(None, "whole", u64::MAX, 1)]);
        assert!(many.to_string().contains("threads"), "{many}");
    }
}
