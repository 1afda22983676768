//! The page's drawings, as SVG: bars of time, points over sizes, curves over threads,
//! distributions. They hold no script and take their colours from the page.

use std::fmt::Write;

use super::escape::escaped;

/// Width of every drawing in its own units.
const WIDTH: f64 = 1000.0;

/// A piece of a bar: name, number of its colour, from and to in milliseconds.
pub(super) type Piece<'n> = (&'n str, usize, f64, f64);

/// Bars of time below each other, to the same scale.
pub(super) fn bars(rows: &[(&str, Vec<Piece<'_>>)]) -> String {
    const ROW: f64 = 46.0;
    let most = rows.iter().flat_map(|row| &row.1).map(|piece| piece.3);
    let most = most.fold(0.0, f64::max).max(1e-9);
    let height = ROW * rows.iter().map(|_| 1.0).sum::<f64>() + 24.0;
    let mut svg = begin(height);
    let scale = |ms: f64| ms / most * WIDTH;
    for (at, (name, pieces)) in (0_u32..).zip(rows) {
        let top = f64::from(at) * ROW;
        text(&mut svg, 0.0, top + 13.0, "start", "", name);
        for (phase, colour, from, to) in pieces {
            let (x, width) = (scale(*from), scale(to - from).max(0.2));
            let _ = write!(
                svg,
                "<rect x=\"{x:.2}\" y=\"{:.1}\" width=\"{width:.2}\" height=\"20\" fill=\"var(--c{colour})\"><title>{} {:.3} ms</title></rect>",
                top + 18.0,
                escaped(phase),
                to - from
            );
        }
    }
    axis(&mut svg, height - 6.0, most, " ms", scale);
    svg + "</svg>"
}

/// Points over an axis, one series a colour, with a line through each.
pub(super) struct Series<'n> {
    pub(super) name: &'n str,
    pub(super) colour: usize,
    pub(super) points: Vec<(f64, f64)>,
    /// Where the line leads, if it is not from point to point.
    pub(super) fit: Option<(f64, f64)>,
}

/// Series over a common axis; `knee` is marked, if there is one.
pub(super) fn curves(series: &[Series<'_>], unit: &str, knee: Option<f64>) -> String {
    const HEIGHT: f64 = 300.0;
    const LEFT: f64 = 60.0;
    let points = || series.iter().flat_map(|series| &series.points);
    let most_x = points().map(|point| point.0).fold(0.0, f64::max).max(1e-9);
    let most_y = points().map(|point| point.1).fold(0.0, f64::max).max(1e-9);
    let x = |at: f64| LEFT + at / most_x * (WIDTH - LEFT - 20.0);
    let y = |at: f64| HEIGHT - 30.0 - at / most_y * (HEIGHT - 50.0);
    let mut svg = begin(HEIGHT);
    for part in 0..=4 {
        let value = most_y * f64::from(part) / 4.0;
        let at = y(value);
        let _ = write!(
            svg,
            "<line class=\"g\" x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>"
        );
        text(&mut svg, LEFT - 6.0, at + 4.0, "end", "f", &short(value));
    }
    text(&mut svg, 0.0, 12.0, "start", "f", "ms");
    for part in 1..=4 {
        let value = most_x * f64::from(part) / 4.0;
        text(
            &mut svg,
            x(value),
            HEIGHT - 10.0,
            if part == 4 { "end" } else { "middle" },
            "f",
            &format!("{}{unit}", short(value)),
        );
    }
    if let Some(knee) = knee {
        let at = x(knee);
        let _ = write!(
            svg,
            "<line class=\"k\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"10\" y2=\"{:.1}\"/>",
            HEIGHT - 30.0
        );
        text(
            &mut svg,
            at + 5.0,
            20.0,
            "start",
            "",
            &format!("knee: {knee:.0}"),
        );
    }
    for one in series {
        let colour = format!("var(--c{})", one.colour);
        let ends: Vec<(f64, f64)> = match one.fit {
            Some((base, slope)) => vec![(0.0, base), (most_x, base + slope * most_x)],
            None => one.points.clone(),
        };
        let path: Vec<String> = ends
            .iter()
            .map(|point| format!("{:.1},{:.1}", x(point.0), y(point.1.clamp(0.0, most_y))))
            .collect();
        let _ = write!(
            svg,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" points=\"{}\"/>",
            path.join(" ")
        );
        for point in &one.points {
            let _ = write!(
                svg,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"4\" fill=\"{colour}\"><title>{} {}{unit}: {:.3} ms</title></circle>",
                x(point.0),
                y(point.1),
                escaped(one.name),
                short(point.0),
                point.1
            );
        }
    }
    svg + "</svg>"
}

/// One dot a run, set-ups below each other, to the same scale.
pub(super) fn dots(rows: &[(&str, Vec<f64>)]) -> String {
    const ROW: f64 = 44.0;
    let all = || rows.iter().flat_map(|row| &row.1).copied();
    let (least, most) = (all().fold(f64::MAX, f64::min), all().fold(0.0, f64::max));
    let span = (most - least).max(most * 0.001).max(1e-9);
    let height = ROW * rows.iter().map(|_| 1.0).sum::<f64>() + 24.0;
    let mut svg = begin(height);
    let scale = |ms: f64| 10.0 + (ms - least) / span * (WIDTH - 20.0);
    for (at, (name, runs)) in (0_u32..).zip(rows) {
        let top = f64::from(at) * ROW;
        text(&mut svg, 0.0, top + 13.0, "start", "", name);
        for (number, ms) in (0_u32..).zip(runs) {
            // A little up and down, so that runs beside each other are seen.
            let y = top + 24.0 + f64::from(number * 7 % 5) * 3.0;
            let _ = write!(
                svg,
                "<circle cx=\"{:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"var(--c0)\" fill-opacity=\".55\"><title>{ms:.3} ms</title></circle>",
                scale(*ms)
            );
        }
    }
    for part in 0..=4 {
        let value = least + span * f64::from(part) / 4.0;
        let anchor = ["start", "middle", "middle", "middle", "end"];
        let anchor = anchor.get(part as usize).copied().unwrap_or("middle");
        text(
            &mut svg,
            scale(value),
            height - 6.0,
            anchor,
            "f",
            &format!("{} ms", short(value)),
        );
    }
    svg + "</svg>"
}

fn begin(height: f64) -> String {
    format!("<svg viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\">")
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, class: &str, words: &str) {
    let words: String = words.chars().take(150).collect();
    let _ = write!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" class=\"{class}\">{}</text>",
        escaped(&words)
    );
}

fn axis(svg: &mut String, y: f64, most: f64, unit: &str, scale: impl Fn(f64) -> f64) {
    for part in 0..=4 {
        let value = most * f64::from(part) / 4.0;
        let anchor = ["start", "middle", "middle", "middle", "end"];
        let anchor = anchor.get(part as usize).copied().unwrap_or("middle");
        text(
            svg,
            scale(value),
            y,
            anchor,
            "f",
            &format!("{}{unit}", short(value)),
        );
    }
}

/// Three digits that count.
pub(super) fn short(value: f64) -> String {
    let sign = if value <= -0.0005 { "-" } else { "" };
    let text = match value.abs() {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value if value >= 1.0 => format!("{value:.2}"),
        value if value >= 0.0005 => format!("{value:.3}"),
        _ => "0".into(),
    };
    format!("{sign}{text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawings_hold_no_markup_of_their_input() {
        let evil = "<script>alert(1)</script>\"";
        let bars = bars(&[(evil, vec![(evil, 3, 0.0, 5.0), ("b", 1, 5.0, 7.5)])]);
        let series = Series {
            name: evil,
            colour: 1,
            points: vec![(1.0, 2.0), (2.0, 1.0)],
            fit: None,
        };
        let curves = curves(&[series], " GiB", Some(2.0));
        let dots = dots(&[(evil, vec![1.0, 2.0])]);
        for svg in [&bars, &curves, &dots] {
            assert!(!svg.contains("<script") && svg.ends_with("</svg>"), "{svg}");
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
        assert!(bars.contains("width=\"666.67\"") && curves.contains("knee: 2"));
    }

    #[test]
    fn nothing_at_all_can_be_drawn() {
        for svg in [bars(&[]), curves(&[], "", None), dots(&[("a", vec![])])] {
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }
}
