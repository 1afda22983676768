//! The drawing: the share of starts that are hit, and memory idle, over the stock. SVG without a script.

use super::record::Record;
use crate::text::bytes;
use std::fmt::Write;

/// Where the axes are, of 720 by 360.
const BOX: [f64; 4] = [60.0, 640.0, 50.0, 310.0];

/// Draws it.
pub(super) fn drawn(record: &Record) -> String {
    let [left, right, top, bottom] = BOX;
    let rows = &record.stocks;
    let most_slabs = rows.last().map_or(1, |row| row.slabs.max(1));
    let most_idle = rows
        .iter()
        .map(|row| row.idle_bytes)
        .max()
        .unwrap_or(1)
        .max(1);
    let x = |slabs: u32| left + f64::from(slabs) / f64::from(most_slabs) * (right - left);
    let y = |share: f64| bottom - share * (bottom - top);
    let mut svg = String::from(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 720 360\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <style>:root{color-scheme:light dark}text{fill:CanvasText}.a{stroke:GrayText;opacity:.5}\
         polyline{fill:none;stroke-width:2}</style>\n",
    );
    let mut text = |x: f64, y: f64, anchor: &str, words: &str| {
        let _ = writeln!(
            svg,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>"
        );
    };
    let size = bytes(record.slab_bytes);
    text(
        left,
        20.0,
        "start",
        &format!("Slabs of {size} kept on each node; goal {}", record.goal),
    );
    text(left, 40.0, "start", "hits (line)");
    text(right, 40.0, "end", "memory idle (dashes)");
    text(right, 350.0, "end", "slabs");
    for part in 0..=4_u32 {
        let share = f64::from(part) / 4.0;
        text(
            left - 6.0,
            y(share) + 4.0,
            "end",
            &format!("{} %", part * 25),
        );
        text(
            right + 6.0,
            y(share) + 4.0,
            "start",
            &bytes(most_idle / 4 * u64::from(part)),
        );
        let slabs = u64::from(most_slabs) * u64::from(part) / 4;
        let slabs = u32::try_from(slabs).unwrap_or(most_slabs);
        text(x(slabs), bottom + 18.0, "middle", &slabs.to_string());
    }
    if let Some(slabs) = record.smallest_slabs {
        text(x(slabs), top - 4.0, "middle", &slabs.to_string());
    }
    let mut line = |[x1, x2, y1, y2]: [f64; 4]| {
        let _ = writeln!(
            svg,
            "<line class=\"a\" x1=\"{x1:.1}\" x2=\"{x2:.1}\" y1=\"{y1:.1}\" y2=\"{y2:.1}\"/>"
        );
    };
    for part in 0..=4_u32 {
        let at = y(f64::from(part) / 4.0);
        line([left, right, at, at]);
    }
    if let Some(slabs) = record.smallest_slabs {
        line([x(slabs), x(slabs), top, bottom]);
    }
    let hits = rows
        .iter()
        .map(|row| (x(row.slabs), y(row.hits as f64 / row.starts.max(1) as f64)));
    let idle = rows
        .iter()
        .map(|row| (x(row.slabs), y(row.idle_bytes as f64 / most_idle as f64)));
    for (style, points) in [
        ("stroke=\"#2a78d6\"", hits.collect::<Vec<_>>()),
        (
            "stroke=\"#d6752a\" stroke-dasharray=\"5 4\"",
            idle.collect(),
        ),
    ] {
        let points = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}"));
        let points = points.collect::<Vec<_>>().join(" ");
        let _ = writeln!(svg, "<polyline {style} points=\"{points}\"/>");
    }
    svg + "</svg>\n"
}
