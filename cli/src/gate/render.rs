//! A verdict, for a person.

use crate::output::{FAINT, GOOD, HEADING, NOTE};
use crate::report::Page;
use crate::text::{Align, bytes, milliseconds, plural};
use firstlight_lab::gate::{Group, Judged, State, Verdict};

pub(super) fn report(verdict: &Verdict, full: bool) -> String {
    let mut page = Page::default();
    let what = if verdict.itself {
        " A against itself"
    } else {
        ""
    };
    page.styled(
        HEADING,
        &format!("firstlight gate:{what} {}", verdict.verdict),
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
    if verdict.verdict == "unclear" {
        page.line(format!(
            "  {NOTE}note:{NOTE:#} on this clock at least {} a side are needed",
            plural(method.least_runs as u64, "run")
        ));
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
    let name = group.memory_bytes.map_or("figures".into(), bytes);
    let [a, b] = group.runs;
    page.section(&name, &format!("milliseconds; {a} and {b} runs"));
    let shown = group
        .rows
        .iter()
        .filter(|row| full || row.state != State::Same);
    let mut lines = vec![
        ["", "", "A", "B", "change", "p", ""]
            .map(String::from)
            .to_vec(),
    ];
    lines.extend(shown.map(line));
    if lines.len() == 1 {
        let rows = plural(group.rows.len() as u64, "figure");
        page.line(format!("  {GOOD}{rows}, none has moved{GOOD:#}"));
        return;
    }
    let columns = [
        Align::Left,
        Align::Left,
        Align::Right,
        Align::Right,
        Align::Right,
        Align::Right,
        Align::Left,
    ];
    page.table(&columns, &lines);
    let hidden = group.rows.len() + 1 - lines.len();
    if hidden > 0 {
        page.line(format!(
            "  {FAINT}... and {hidden} that have not moved (--full){FAINT:#}"
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
    let state = match row.state {
        State::Same => "",
        State::Regressed => "slower",
        State::Improved => "faster",
        State::Unconfirmed => "unconfirmed",
    };
    let kind = format!("{:?}", row.kind).to_lowercase();
    vec![
        kind,
        row.name.clone(),
        ms(row.a_ns),
        ms(row.b_ns),
        row.ratio.map_or("new".into(), percent),
        row.p.map_or(String::new(), |p| format!("{p:.4}")),
        state.to_owned(),
    ]
}
