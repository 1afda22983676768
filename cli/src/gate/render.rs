//! A verdict, for a person.

use crate::output::{FAINT, HEADING, NOTE};
use crate::report::Page;
use crate::text::{bytes, head, milliseconds};
use firstlight_lab::compare::Kind;
use firstlight_lab::gate::{Group, Judged, State, Verdict};

/// Figures that are named above the tables.
const MOST_LINES: usize = 5;

pub(super) fn report(verdict: &Verdict, full: bool) -> String {
    let mut page = Page::default();
    let what = if verdict.itself {
        " A against itself"
    } else {
        ""
    };
    page.styled(
        HEADING,
        &format!("firstlight gate:{what} {}", verdict.verdict.name()),
    );
    let method = &verdict.method;
    page.line(match &*verdict.clock {
        "instructions" => format!("  instructions: exact, {} % counts", method.effect_percent),
        _ => format!(
            "  wall clock: p < {}, {} % and {} ms count, confirmed by other runs",
            method.alpha,
            method.effect_percent,
            method.least_ns / 1_000_000
        ),
    });
    if let Some(percent) = verdict.noise_floor_percent {
        page.line(format!(
            "  noise floor: figures of 1 ms and more differ by up to {percent:.2} %"
        ));
    }
    for moved in verdict.moved.iter().take(MOST_LINES) {
        page.line(format!("  {NOTE}slower:{NOTE:#} {moved}"));
    }
    for why in &verdict.unclear {
        page.line(format!("  {NOTE}unclear:{NOTE:#} {why}"));
    }
    if let Some(memory_bytes) = verdict.smallest_regressed_bytes {
        page.line(format!(
            "  the smallest machine that is slower has {}",
            bytes(memory_bytes)
        ));
    }
    for group in &verdict.groups {
        machine(&mut page, group, full);
    }
    page.text
}

fn machine(page: &mut Page, group: &Group, full: bool) {
    let [a, b] = group.runs;
    page.section(
        &group.name,
        &format!("{}; milliseconds; {a} and {b} runs", group.outcome.name()),
    );
    if group.rows.is_empty() {
        return;
    }
    let shown = group
        .rows
        .iter()
        .filter(|row| full || row.state != State::Same || row.kind == Kind::Total);
    let mut lines = vec![head(["", "", "A", "B", "change", "p", ""])];
    lines.extend(shown.map(line));
    page.table("<<>>>><", &lines);
    let hidden = group.rows.len() + 1 - lines.len();
    if hidden > 0 {
        page.line(format!(
            "  {FAINT}... and {hidden} more, of which none is known to have moved (--full){FAINT:#}"
        ));
    }
    if !group.absent.is_empty() {
        page.line(format!(
            "  {NOTE}only on one side:{NOTE:#} {}",
            group.absent.join(", ")
        ));
    }
}

fn line(row: &Judged) -> Vec<String> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "figures to print, none of them negative"
    )]
    let ms = |ns: f64| milliseconds(ns.round() as u64);
    let percent = |ratio: f64| format!("{:+.1} %", (ratio - 1.0) * 100.0);
    let explains = if row.decides { "" } else { " (explains)" };
    let state = match row.state {
        State::Same => String::new(),
        state => format!("{}{explains}", state.words()),
    };
    vec![
        row.kind.name().to_owned(),
        row.name.clone(),
        ms(row.a_ns),
        ms(row.b_ns),
        row.ratio.map_or("new".into(), percent),
        row.p.map_or(String::new(), |p| format!("{p:.4}")),
        state,
    ]
}
