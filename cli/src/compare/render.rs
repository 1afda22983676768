//! A comparison, for a person.

use crate::output::{HEADING, NOTE};
use crate::report::Page;
use crate::text::{bytes, count, head, milliseconds, plural};
use firstlight_lab::compare::{Comparison, Kind, Row, Side, Spread};

pub(super) fn report(comparison: &Comparison) -> String {
    let mut page = Page::default();
    page.styled(HEADING, "firstlight compare");
    for (name, side) in ["A", "B"].into_iter().zip(&comparison.sides) {
        heading(&mut page, name, side);
    }
    for note in &comparison.notes {
        page.line(format!("  {NOTE}note:{NOTE:#} {note}"));
    }
    let counted = comparison.clock == "instructions";
    let unit = if counted {
        "instructions"
    } else {
        "milliseconds, median ± MAD (least .. most)"
    };
    for (kind, name) in [
        (Kind::Total, "Whole boot"),
        (Kind::Descriptors, "Descriptors"),
        (Kind::Milestone, "Milestones"),
        (Kind::Phase, "Phases"),
        (Kind::Initcall, "Initcalls"),
        (Kind::Service, "Services"),
        (Kind::Gap, "Gaps"),
    ] {
        let rows = comparison.rows.iter().filter(|row| row.kind == kind);
        let rows: Vec<&Row> = rows.collect();
        if rows.is_empty() {
            continue;
        }
        let aside = match kind {
            Kind::Total | Kind::Milestone => {
                format!("{unit}; from {}", comparison.counted_from)
            }
            _ => unit.to_owned(),
        };
        page.section(name, &aside);
        section(&mut page, comparison, &rows, counted);
    }
    page.text
}

fn heading(page: &mut Page, name: &str, side: &Side) {
    let system = match &*side.system {
        "image" => "our image",
        "linux" => "Linux",
        other => other,
    };
    let release = side.release.as_deref().unwrap_or("of no known version");
    let mut about = vec![format!("{system} {release}")];
    if let Some(machine) = &side.machine {
        about.push(bytes(machine.memory_bytes));
        about.push(plural(machine.nodes, "node"));
        let cpus = plural(machine.cpus, "CPU");
        about.push(format!("{cpus} on {}", machine.board));
    }
    if let Some(accelerator) = &side.accelerator {
        about.push(accelerator.clone());
    }
    about.push(plural(side.runs as u64, "run"));
    page.line(format!("  {name}  {}", about.join(", ")));
    if !side.command_line.is_empty() {
        page.line(format!("     words: {}", side.command_line));
    }
    for step in &side.does {
        page.line(format!("     {step}"));
    }
}

fn section(page: &mut Page, comparison: &Comparison, rows: &[&Row], counted: bool) {
    let mut lines = vec![head(["", "A", "B", "B / A"])];
    for row in rows {
        lines.push(vec![
            row.name.clone(),
            figure(row.a.as_ref(), counted),
            figure(row.b.as_ref(), counted),
            row.ratio.map_or(String::new(), ratio),
        ]);
        if row.kind == Kind::Descriptors && row.name == "all of it" {
            let [a, b] = &comparison.sides;
            let unit = if counted { "" } else { ", nanoseconds" };
            lines.push(vec![
                format!("all of it, each page of memory{unit}"),
                each_page(row.a.as_ref(), a),
                each_page(row.b.as_ref(), b),
                String::new(),
            ]);
        }
    }
    page.table("<>>>", &lines);
}

/// `12.345 ± 0.100 (12.200 .. 13.000)`, or the one figure there is.
fn figure(spread: Option<&Spread>, counted: bool) -> String {
    let Some(spread) = spread else {
        return "-".into();
    };
    let unit = |ns: u64| if counted { count(ns) } else { milliseconds(ns) };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "figures to print, none of them negative"
    )]
    let whole = |ns: f64| unit(ns.round() as u64);
    let median = whole(spread.median_ns);
    if spread.runs < 2 {
        return median;
    }
    format!(
        "{median} ± {} ({} .. {})",
        whole(spread.mad_ns),
        unit(spread.min_ns),
        unit(spread.max_ns)
    )
}

fn each_page(spread: Option<&Spread>, side: &Side) -> String {
    match (spread, side.pages) {
        (Some(spread), Some(pages)) if pages > 0 => {
            #[expect(clippy::cast_precision_loss, reason = "a figure to print")]
            let each = spread.median_ns / pages as f64;
            format!("{each:.2}")
        }
        _ => "-".into(),
    }
}

/// `1.03 x`, `4,320 x`.
fn ratio(ratio: f64) -> String {
    if ratio >= 100.0 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a figure to print, above zero"
        )]
        let whole = ratio.round() as u64;
        format!("{} x", count(whole))
    } else if ratio >= 0.01 {
        format!("{ratio:.2} x")
    } else {
        format!("{ratio:.5} x")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_their_spread_or_stand_alone() {
        let spread = Spread::of(&[1_000_000, 3_000_000, 2_000_000]);
        let text = figure(spread.as_ref(), false);
        assert_eq!(text, "2.000 ± 1.000 (1.000 .. 3.000)");
        let once = Spread::of(&[1_234_567]);
        assert_eq!(figure(once.as_ref(), true), "1,234,567");
        assert_eq!(figure(None, true), "-");
        assert_eq!(ratio(4320.4), "4,320 x");
        assert_eq!(ratio(1.0), "1.00 x");
        assert_eq!(ratio(0.000_12), "0.00012 x");
    }
}
