//! One page that needs nothing else: no script, no font, no picture from anywhere.

use std::fmt::Write;
use std::path::{Path, PathBuf, absolute};

use super::chart::{Piece, Series, bars, curves, dots, short};
use super::escape::escaped;
use super::style::{COLOURS, CSS};
use super::{Report, Setup};
use crate::compare::TOTAL;
use crate::run::Span;
use crate::sweep::{self, SweptPart};
use firstlight_figures::text::plural;

/// Set-ups that are drawn; tables have all.
const MOST_DRAWN: usize = 24;
/// Runs of a set-up that are drawn.
const MOST_RUNS: usize = 500;

impl Report {
    /// The page.
    #[must_use]
    pub fn html(&self) -> String {
        let mut page = String::from(
            "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\
             <meta name=\"viewport\" content=\"width=device-width\"><title>",
        );
        page.push_str(&escaped(&self.title));
        page.push_str("</title><style>");
        page.push_str(CSS);
        page.push_str("</style></head><body>");
        let _ = write!(
            page,
            "<h1>{}</h1><p class=\"faint\">{} runs of {} set-ups. Milliseconds, from power-on where the host's clock tells, else from where the kernel's own clock begins; on the instruction clock one is a million instructions.</p>",
            escaped(&self.title),
            self.runs(),
            self.setups.len()
        );
        if self.setups.iter().any(|setup| setup.emulated) {
            page.push_str("<p class=\"bad\">Set-ups named emulated ran on an emulator: their times compare with each other, not with a machine's.</p>");
        }
        if !self.words.is_empty() {
            let _ = write!(
                page,
                "<p>All with the words <code>{}</code></p>",
                escaped(&self.words)
            );
        }
        let colours = self.colours();
        self.summary(&mut page);
        self.differences(&mut page);
        self.missing(&mut page);
        self.time_lines(&mut page, &colours);
        self.sizes(&mut page, &colours);
        self.threads(&mut page);
        self.distribution(&mut page);
        self.gaps(&mut page);
        self.steps(&mut page);
        self.findings(&mut page);
        page.push_str("</body></html>\n");
        page
    }

    /// Names of phases in their order; each has the colour of its place.
    fn colours(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for phase in self.setups.iter().flat_map(|setup| &setup.phases) {
            if !names.contains(&&*phase.name) {
                names.push(&phase.name);
            }
        }
        names
    }

    fn summary(&self, page: &mut String) {
        page.push_str("<h2 id=\"summary\">Summary</h2><div class=\"scroll\"><table><tr><th>Set-up</th><th>Clock</th><th>Runs</th><th>Median</th><th>MAD</th><th>Least</th><th>Most</th><th class=\"l\">Longest phase</th><th>Findings</th></tr>");
        for setup in &self.setups {
            let _ = write!(
                page,
                "<tr><td>{}</td><td>{}</td><td>{}</td>",
                escaped(&setup.name),
                escaped(&setup.clock),
                setup.files.len()
            );
            match &setup.total {
                Some(total) => {
                    for ns in [
                        total.median_ns,
                        total.mad_ns,
                        float(total.min_ns),
                        float(total.max_ns),
                    ] {
                        let _ = write!(page, "<td>{:.3}</td>", ns / 1e6);
                    }
                }
                None => page.push_str("<td></td><td></td><td></td><td></td>"),
            }
            let longest = setup
                .phases
                .iter()
                .max_by(|a, b| a.took.median_ns.total_cmp(&b.took.median_ns));
            let longest = longest.map_or(String::new(), |phase| {
                format!("{} {:.3}", escaped(&phase.name), phase.took.median_ns / 1e6)
            });
            let class = if setup.findings.is_empty() {
                "good"
            } else {
                "bad"
            };
            let _ = write!(
                page,
                "<td class=\"l\">{longest}</td><td class=\"{class}\">{}</td></tr>",
                setup.findings.len()
            );
        }
        page.push_str("</table></div>");
    }

    /// Where there are two set-ups by one clock, what the second takes more.
    fn differences(&self, page: &mut String) {
        let [a, b] = self.setups.as_slice() else {
            return;
        };
        if a.clock != b.clock {
            return;
        }
        let _ = write!(
            page,
            "<h2 id=\"differences\">Differences</h2><p class=\"faint\">A: {}<br>B: {}</p><div class=\"scroll\"><table><tr><th>Figure</th><th>A</th><th>B</th><th>B - A</th><th>change</th></tr>",
            escaped(&a.name),
            escaped(&b.name)
        );
        for (name, [a, b]) in differences(a, b) {
            let class = if b > a { "bad" } else { "good" };
            let change = if a > 0.0 {
                format!("{:+.1} %", (b / a - 1.0) * 100.0)
            } else {
                String::new()
            };
            let _ = write!(
                page,
                "<tr><td>{}</td><td>{a:.3}</td><td>{b:.3}</td><td class=\"{class}\">{:+.3}</td><td>{change}</td></tr>",
                escaped(name),
                b - a
            );
        }
        page.push_str("</table></div>");
    }

    /// Words that lead to the log of a record, or to the record.
    fn link(&self, file: &str, words: &str) -> String {
        let beside = Path::new(file).with_extension("log");
        let path = if beside.is_file() {
            beside
        } else {
            file.into()
        };
        let path = relative(&path, self.folder.as_deref());
        format!("<a href=\"{}\">{}</a>", escaped(&path), escaped(words))
    }

    /// Boots that failed, and files that hold no record.
    fn missing(&self, page: &mut String) {
        if self.failed.is_empty() && self.left_out.is_empty() {
            return;
        }
        page.push_str("<h2 id=\"missing\">Not in these figures</h2>");
        let failed = self
            .failed
            .iter()
            .map(|boot| (&boot.file, format!("failed: {}", boot.message)));
        let left_out = self
            .left_out
            .iter()
            .map(|file| (&file.file, format!("left out: {}", file.why)));
        for (file, why) in failed.chain(left_out) {
            let _ = write!(
                page,
                "<p class=\"bad\"><code>{}</code> {}</p>",
                escaped(file),
                escaped(&why)
            );
        }
    }

    fn time_lines(&self, page: &mut String, colours: &[&str]) {
        let drawn = || self.setups.iter().filter(|setup| !setup.middle.is_empty());
        if drawn().next().is_none() {
            return;
        }
        page.push_str("<h2 id=\"time-lines\">Time lines</h2><p class=\"faint\">The run in the middle of each set-up.</p>");
        legend(page, colours.iter().copied().enumerate());
        // Instructions and seconds have no common scale.
        for clock in ["wall", "instructions"] {
            let of_clock = drawn().filter(|setup| setup.clock == clock);
            let rows: Vec<(&str, Vec<Piece<'_>>)> = of_clock
                .take(MOST_DRAWN)
                .map(|setup| (setup.name.as_str(), pieces(setup, colours)))
                .collect();
            if !rows.is_empty() {
                let _ = write!(page, "<h3>{clock} clock</h3>");
                page.push_str(&bars(&rows));
                self.more(page, rows.len());
            }
        }
    }

    fn more(&self, page: &mut String, drawn: usize) {
        if self.setups.len() > drawn && drawn == MOST_DRAWN {
            let _ = write!(
                page,
                "<p class=\"faint\">The first {drawn} of {} set-ups; the tables have all.</p>",
                self.setups.len()
            );
        }
    }

    fn sizes(&self, page: &mut String, colours: &[&str]) {
        if self.fits.is_empty() {
            return;
        }
        page.push_str("<h2 id=\"sizes\">Phases over memory</h2>");
        let mut families: Vec<(&str, &str)> = Vec::new();
        for fit in &self.fits {
            let family = (&*fit.family, &*fit.clock);
            if !families.contains(&family) {
                families.push(family);
            }
        }
        for family in families {
            let fits = || {
                self.fits
                    .iter()
                    .filter(|fit| (&*fit.family, &*fit.clock) == family)
            };
            let series: Vec<Series<'_>> = fits()
                .map(|fit| Series {
                    name: &fit.phase,
                    colour: colours
                        .iter()
                        .position(|name| *name == fit.phase)
                        .unwrap_or(0)
                        % COLOURS,
                    points: fit.points.clone(),
                    fit: Some((fit.base_ms, fit.ms_per_gib)),
                })
                .collect();
            let _ = write!(
                page,
                "<h3>{}, {}</h3>",
                escaped(family.0),
                escaped(family.1)
            );
            legend(page, series.iter().map(|one| (one.colour, one.name)));
            page.push_str(&curves(&series, " GiB", None));
            page.push_str("<div class=\"scroll\"><table><tr><th>Phase</th><th>ms a GiB</th><th>ms without memory</th><th>r²</th><th>sizes</th></tr>");
            for fit in fits() {
                let _ = write!(
                    page,
                    "<tr><td>{}</td><td>{}</td><td>{}</td><td>{:.3}</td><td>{}</td></tr>",
                    escaped(&fit.phase),
                    short(fit.ms_per_gib),
                    short(fit.base_ms),
                    fit.r2,
                    fit.points.len()
                );
            }
            page.push_str("</table></div>");
        }
    }

    fn threads(&self, page: &mut String) {
        if self.sweeps.is_empty() && self.cpus.is_empty() {
            return;
        }
        page.push_str("<h2 id=\"threads\">Threads</h2>");
        for cpus in &self.cpus {
            let table = cpus.table(self.beside.as_ref());
            let _ = write!(
                page,
                "<div class=\"scroll\"><pre>{}</pre></div>",
                escaped(&table)
            );
        }
        for sweep in &self.sweeps {
            for part in [SweptPart::Deferred, SweptPart::Whole] {
                curve(page, sweep, part);
            }
        }
    }

    fn distribution(&self, page: &mut String) {
        let several = self.setups.iter().filter(|setup| setup.runs.len() > 1);
        let rows: Vec<(&str, Vec<f64>)> = several
            .take(MOST_DRAWN)
            .map(|setup| {
                let totals = setup.runs.iter().filter_map(crate::run::Run::total_ns);
                (
                    setup.name.as_str(),
                    totals.take(MOST_RUNS).map(|ns| float(ns) / 1e6).collect(),
                )
            })
            .collect();
        if rows.is_empty() {
            return;
        }
        page.push_str("<h2 id=\"distribution\">Distribution of runs</h2>");
        page.push_str(&dots(&rows));
    }

    fn gaps(&self, page: &mut String) {
        if self.setups.iter().all(|setup| setup.gaps.is_empty()) {
            return;
        }
        page.push_str("<h2 id=\"gaps\">Gaps</h2><p class=\"faint\">The longest spans between two lines of the log.</p>");
        for setup in self
            .setups
            .iter()
            .filter(|setup| !setup.gaps.is_empty())
            .take(MOST_DRAWN)
        {
            let _ = write!(
                page,
                "<h3>{}</h3><div class=\"scroll\"><table><tr><th>Phase</th><th>ms</th><th class=\"l\">Between</th></tr>",
                self.link(&setup.middle_file, &setup.name)
            );
            for gap in setup.gaps.iter().take(5) {
                let start = |text: &str| escaped(&text.chars().take(120).collect::<String>());
                let _ = write!(
                    page,
                    "<tr><td>{}</td><td>{:.3}</td><td class=\"l\"><code>{}<br>{}</code></td></tr>",
                    escaped(gap.phase.as_deref().unwrap_or_default()),
                    float(gap.ns) / 1e6,
                    start(&gap.before.text),
                    start(&gap.after.text)
                );
            }
            page.push_str("</table></div>");
        }
    }

    /// Initcalls and services by name, where logs have them.
    fn steps(&self, page: &mut String) {
        const MOST: usize = 10;
        let named = |setup: &&Setup| !(setup.initcalls.is_empty() && setup.services.is_empty());
        if !self.setups.iter().any(|setup| named(&setup)) {
            return;
        }
        page.push_str("<h2 id=\"steps\">Initcalls and services</h2><p class=\"faint\">The slowest that the log of the run in the middle names.</p>");
        for setup in self.setups.iter().filter(named).take(MOST_DRAWN) {
            let _ = write!(
                page,
                "<h3>{}</h3><div class=\"scroll\"><table><tr><th>Kind</th><th>ms</th><th class=\"l\">Name</th></tr>",
                self.link(&setup.middle_file, &setup.name)
            );
            for (kind, steps) in [("initcall", &setup.initcalls), ("service", &setup.services)] {
                for step in steps.iter().take(MOST) {
                    let _ = write!(
                        page,
                        "<tr><td>{kind}</td><td>{:.3}</td><td class=\"l\"><code>{}</code></td></tr>",
                        float(step.ns) / 1e6,
                        escaped(&step.name)
                    );
                }
            }
            page.push_str("</table></div>");
        }
    }

    fn findings(&self, page: &mut String) {
        page.push_str("<h2 id=\"findings\">Findings</h2>");
        if self.setups.iter().all(|setup| setup.findings.is_empty()) {
            page.push_str("<p class=\"good\">The doctor found nothing.</p>");
        }
        for setup in &self.setups {
            for found in &setup.findings {
                let finding = &found.finding;
                let cost = finding.cost_ms.map_or(String::new(), |ms| {
                    format!(", {} ms, {}", short(ms), finding.cost)
                });
                let _ = write!(
                    page,
                    "<div class=\"card\"><p><b>{}</b>{cost} <span class=\"faint\">{} of {}, {}</span></p><p><code>{}</code></p><p>{}</p><p>{}</p></div>",
                    escaped(finding.id),
                    found.runs,
                    plural(setup.files.len() as u64, "run"),
                    self.link(&found.file, &setup.name),
                    escaped(finding.evidence.trim()),
                    escaped(&finding.why),
                    escaped(finding.cure)
                );
            }
        }
    }
}

/// Every figure of both, the whole boot first, then by what B takes more or less.
fn differences<'s>(a: &'s Setup, b: &'s Setup) -> Vec<(&'s str, [f64; 2])> {
    let took = |setup: &'s Setup, name: &str| {
        let phase = setup.phases.iter().find(|phase| phase.name == name);
        phase.map_or(0.0, |phase| phase.took.median_ns / 1e6)
    };
    let mut names: Vec<&str> = Vec::new();
    for phase in a.phases.iter().chain(&b.phases) {
        if !names.contains(&&*phase.name) {
            names.push(&phase.name);
        }
    }
    let phases = names
        .into_iter()
        .map(|name| (name, [took(a, name), took(b, name)]));
    let mut rows: Vec<(&str, [f64; 2])> = phases.collect();
    let far = |row: &(&str, [f64; 2])| (row.1[1] - row.1[0]).abs();
    rows.sort_by(|one, other| far(other).total_cmp(&far(one)));
    let total = |setup: &Setup| setup.total.as_ref().map(|total| total.median_ns / 1e6);
    if let (Some(a), Some(b)) = (total(a), total(b)) {
        rows.insert(0, (TOTAL, [a, b]));
    }
    rows
}

/// The phases of the run in the middle, from its start on.
fn pieces<'n>(setup: &Setup, colours: &[&'n str]) -> Vec<Piece<'n>> {
    let start = setup.middle.iter().map(|span| span.start_ns).min();
    let ms = |ns: u64| float(ns - start.unwrap_or(0)) / 1e6;
    let piece = |span: &Span| {
        let place = colours.iter().position(|name| *name == span.name)?;
        let name = colours.get(place)?;
        let end = span.end_ns.max(span.start_ns);
        Some((*name, place % COLOURS, ms(span.start_ns), ms(end)))
    };
    setup.middle.iter().filter_map(piece).collect()
}

/// A path as a page in `folder` reaches it, as a reference that names no scheme.
fn relative(path: &Path, folder: Option<&Path>) -> String {
    let whole = |path: &Path| absolute(path).unwrap_or_else(|_| path.to_owned());
    let (path, folder) = (whole(path), folder.map(whole));
    let steps = folder.iter().flat_map(|folder| folder.ancestors().zip(0..));
    let near = steps.filter_map(|(above, up)| {
        let rest = path.strip_prefix(above).ok()?;
        let climb = std::iter::repeat_n("..", up).collect::<PathBuf>();
        Some(Path::new(".").join(climb).join(rest))
    });
    let reached = near.into_iter().next().unwrap_or(path);
    let mut text = String::new();
    for byte in reached.as_os_str().as_encoded_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' | b'~' => text.push(char::from(*byte)),
            byte if byte.is_ascii_alphanumeric() => text.push(char::from(*byte)),
            byte => {
                let _ = write!(text, "%{byte:02X}");
            }
        }
    }
    text
}

/// Names and their colours.
fn legend<'n>(page: &mut String, names: impl Iterator<Item = (usize, &'n str)>) {
    page.push_str("<div class=\"legend\">");
    for (place, name) in names {
        let _ = write!(
            page,
            "<span style=\"--c:var(--c{})\">{}</span>",
            place % COLOURS,
            escaped(name)
        );
    }
    page.push_str("</div>");
}

/// Milliseconds over threads, one series a node and size of descriptors.
fn curve(page: &mut String, sweep: &sweep::Record, part: SweptPart) {
    let mut names: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
    for row in sweep.rows.iter().filter(|row| row.part == part) {
        let node = row
            .node
            .map_or("all nodes".into(), |node| format!("node {node}"));
        let name = format!("{node}, {} bytes", row.descriptor_bytes);
        let point = (f64::from(row.threads), row.ms.median);
        match names.iter_mut().find(|series| series.0 == name) {
            Some(series) => series.1.push(point),
            None => names.push((name, vec![point])),
        }
    }
    if names.is_empty() {
        return;
    }
    let knee = sweep
        .knee_threads
        .map(f64::from)
        .filter(|_| part == SweptPart::Deferred);
    let series: Vec<Series<'_>> = names
        .iter()
        .enumerate()
        .map(|(colour, (name, points))| Series {
            name,
            colour: colour % COLOURS,
            points: points.clone(),
            fit: None,
        })
        .collect();
    let title = if part == SweptPart::Deferred {
        "Deferred part"
    } else {
        "Whole"
    };
    let _ = write!(page, "<h3>{title}, {} clock</h3>", escaped(&sweep.clock));
    legend(page, series.iter().map(|one| (one.colour, one.name)));
    page.push_str(&curves(&series, " threads", knee));
}

#[expect(clippy::cast_precision_loss, reason = "figures to draw")]
fn float(ns: u64) -> f64 {
    ns as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_reaches_logs_from_where_it_lies() {
        let reach = |path: &str, folder: &str| relative(Path::new(path), Some(Path::new(folder)));
        assert_eq!(reach("/a/runs/b.log", "/a"), "./runs/b.log");
        assert_eq!(reach("/a/runs/b.log", "/a/out/x"), "./../../runs/b.log");
        assert_eq!(reach("/a/50 %\"#.log", "/a"), "./50%20%25%22%23.log");
        assert_eq!(relative(Path::new("/a/b"), None), "/a/b");
    }
}
