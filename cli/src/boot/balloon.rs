//! The table of a guest's memory balloon.

use crate::output::{FAINT, NOTE};
use crate::report::Page;
use crate::text::{bytes, count, head, milliseconds};
use firstlight_lab::record::{Balloon, Record, Resident};

/// Rows of QEMU's memory over time, where not all are shown.
const ROWS: usize = 12;

pub(super) fn balloon(page: &mut Page, record: &Record, full: bool) {
    let Some(balloon) = &record.balloon else {
        return;
    };
    page.section("Balloon", &format!("virtio over {}", balloon.transport));
    page.line(format!(
        "  the guest wrote and freed {}{}",
        bytes(balloon.freed_bytes),
        reported(balloon)
    ));
    if !balloon.knobs.is_empty() {
        let knobs = balloon.knobs.iter();
        let knobs: Vec<_> = knobs
            .map(|knob| format!("{}={}", knob.name, knob.value))
            .collect();
        for line in knobs.chunks(4) {
            page.line(format!("  {FAINT}{}{FAINT:#}", line.join(" ")));
        }
    }
    if balloon.worker_zeroed_bytes > 0 {
        page.line(format!(
            "  its worker zeroed {}; the stock of zeros was {}",
            bytes(balloon.worker_zeroed_bytes),
            bytes(balloon.stock_bytes)
        ));
    }
    if let Some(percent) = balloon.returned_percent {
        page.line(format!("  the host has {percent} % of that back"));
    }
    if let Some(instructions) = balloon.instructions_per_gib {
        let instructions = count(instructions);
        page.line(format!(
            "  {instructions} guest instructions a GiB reported"
        ));
    }
    if balloon.inflated_bytes > 0 {
        page.line(format!(
            "  then the balloon took {} and gave it back",
            bytes(balloon.inflated_bytes)
        ));
    }
    if !balloon.reporting {
        page.line(format!(
            "  {NOTE}note:{NOTE:#} without --append reporting=on freed memory stays the guest's"
        ));
    }
    let samples = &balloon.host_resident_bytes;
    if samples.is_empty() {
        return;
    }
    page.section("Memory of QEMU", "milliseconds since QEMU was started");
    let shown = if full { samples.len() } else { ROWS };
    let most = samples.iter().map(|sample| sample.bytes).max().unwrap_or(1);
    let mut rows = vec![head(["at", "resident", ""])];
    rows.extend(thinned(samples, shown).map(|sample| {
        let bar = u128::from(sample.bytes) * 40 / u128::from(most.max(1));
        vec![
            milliseconds(sample.at_ns),
            bytes(sample.bytes),
            "#".repeat(usize::try_from(bar).unwrap_or(0)),
        ]
    }));
    page.table(">><", &rows);
}

fn reported(balloon: &Balloon) -> String {
    if balloon.reports == 0 {
        return ", and reported nothing as free".into();
    }
    format!(
        ", and reported {} as free in {} reports and {} passes",
        bytes(balloon.reported_bytes),
        count(balloon.reports),
        count(balloon.passes)
    )
}

/// Of many samples so many: the first, the last, the largest, and evenly chosen ones.
fn thinned(samples: &[Resident], most: usize) -> impl Iterator<Item = &Resident> {
    let last = samples.len().saturating_sub(1);
    let peak = (0..samples.len()).max_by_key(|at| samples.get(*at).map(|sample| sample.bytes));
    let mut chosen: Vec<usize> = match most {
        _ if samples.len() <= most => (0..samples.len()).collect(),
        0 | 1 => vec![last],
        _ => (0..most).map(|part| part * last / (most - 1)).collect(),
    };
    chosen.extend(peak);
    chosen.sort_unstable();
    chosen.dedup();
    chosen.into_iter().filter_map(|at| samples.get(at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use firstlight_lab::record::Knob;

    fn samples(count: u64) -> Vec<Resident> {
        let sample = |at_ns| Resident {
            at_ns,
            bytes: if at_ns == 37 { 1 << 40 } else { at_ns << 20 },
        };
        (0..count).map(sample).collect()
    }

    #[test]
    fn the_first_the_last_and_the_largest_sample_are_shown() {
        let all = samples(100);
        let times: Vec<u64> = thinned(&all, 5).map(|sample| sample.at_ns).collect();
        assert_eq!(times, [0, 24, 37, 49, 74, 99]);
        assert_eq!(thinned(&all, 100).count(), 100);
        assert_eq!(thinned(&samples(1), 12).count(), 1);
        assert_eq!(thinned(&[], 12).count(), 0);
    }

    #[test]
    fn the_table_has_all_figures() {
        let mut record = Record::new("boot", "instructions");
        record.balloon = Some(Balloon {
            transport: "mmio".into(),
            reporting: true,
            freed_bytes: 8 << 30,
            reported_bytes: 9 << 30,
            reports: 144,
            passes: 2,
            worker_zeroed_bytes: 64 << 20,
            stock_bytes: 65 << 20,
            knobs: vec![Knob {
                name: "reporting.order".into(),
                value: 9,
            }],
            returned_percent: Some(99.5),
            instructions_per_gib: Some(12_345),
            inflated_bytes: 1 << 30,
            host_peak_bytes: Some(8 << 30),
            host_after_bytes: Some(1 << 30),
            host_resident_bytes: samples(40),
            host_balloon_bytes: Vec::new(),
            host_statistics: None,
        });
        let page = |record: &Record| {
            let mut page = Page::default();
            balloon(&mut page, record, false);
            page.text
        };
        let text = page(&record);
        for words in [
            "virtio over mmio",
            "wrote and freed 8 GiB, and reported 9 GiB as free in 144 reports and 2 passes",
            "the host has 99.5 % of that back",
            "12,345 guest instructions a GiB",
            "the balloon took 1 GiB",
            "its worker zeroed 64 MiB; the stock of zeros was 65 MiB",
            "reporting.order=9",
            "########",
        ] {
            assert!(text.contains(words), "{words:?} is missing in\n{text}");
        }
        assert!(!text.contains("note:"), "{text}");
        let balloon = record.balloon.as_mut().unwrap();
        (balloon.reporting, balloon.reports) = (false, 0);
        let text = page(&record);
        assert!(text.contains("reported nothing as free"), "{text}");
        assert!(text.contains("--append reporting=on"), "{text}");
    }
}
