//! The same report for terminals, spreadsheets and other programs.

use std::fmt::Write;

use serde_json::{Value, json};

use super::Report;

/// A form of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// One page, [`Report::html`].
    Html,
    /// For a terminal.
    Table,
    /// One line a run and phase.
    Csv,
    /// For `chrome://tracing` and Perfetto: one process a run.
    ChromeTrace,
    /// Stacks and microseconds, for flame graphs.
    Folded,
    /// One case a run, for continuous integration.
    Junit,
    /// For a document.
    Markdown,
}

impl Report {
    /// The report in this form.
    #[must_use]
    pub fn render(&self, format: Format) -> String {
        match format {
            Format::Html => self.html(),
            Format::Table => self.table(),
            Format::Csv => self.csv(),
            Format::ChromeTrace => self.chrome_trace(),
            Format::Folded => self.folded(),
            Format::Junit => self.junit(),
            Format::Markdown => self.markdown(),
        }
    }

    fn table(&self) -> String {
        let mut text = String::new();
        for setup in &self.setups {
            let _ = writeln!(
                text,
                "{} ({} clock, runs: {})",
                setup.name,
                setup.clock,
                setup.files.len()
            );
            if let Some(total) = &setup.total {
                let _ = writeln!(
                    text,
                    "  {:<28} {:>14.3} ± {:.3} ms",
                    "all",
                    total.median_ns / 1e6,
                    total.mad_ns / 1e6
                );
            }
            for phase in &setup.phases {
                let (median, mad) = (phase.took.median_ns / 1e6, phase.took.mad_ns / 1e6);
                let _ = writeln!(text, "  {:<28} {median:>14.3} ± {mad:.3} ms", phase.name);
            }
            for finding in &setup.findings {
                let _ = writeln!(
                    text,
                    "  found: {} ({})",
                    finding.id,
                    finding.evidence.trim()
                );
            }
        }
        for fit in &self.fits {
            let _ = writeln!(
                text,
                "{} over memory: {:.4} ms a GiB, r2 {:.3} ({})",
                fit.phase, fit.ms_per_gib, fit.r2, fit.family
            );
        }
        text
    }

    fn csv(&self) -> String {
        let mut text = String::from("setup,clock,memory_bytes,run,phase,start_ns,end_ns\n");
        for setup in &self.setups {
            let memory = setup
                .memory_bytes
                .map_or(String::new(), |bytes| bytes.to_string());
            for run in &setup.runs {
                for phase in &run.phases {
                    let _ = writeln!(
                        text,
                        "{},{},{memory},{},{},{},{}",
                        cell(&setup.name),
                        cell(&setup.clock),
                        cell(&run.file),
                        cell(&phase.name),
                        phase.start_ns,
                        phase.end_ns
                    );
                }
            }
        }
        text
    }

    fn chrome_trace(&self) -> String {
        let mut events: Vec<Value> = Vec::new();
        let runs = self
            .setups
            .iter()
            .flat_map(|setup| setup.runs.iter().map(move |run| (setup, run)));
        for (process, (setup, run)) in runs.enumerate() {
            let name = format!("{}: {}", setup.name, run.file);
            events.push(
                json!({"name": "process_name", "ph": "M", "pid": process, "args": {"name": name}}),
            );
            #[expect(clippy::cast_precision_loss, reason = "the form wants microseconds")]
            let us = |ns: u64| ns as f64 / 1000.0;
            for phase in &run.phases {
                events.push(json!({
                    "name": phase.name, "cat": "phase", "ph": "X", "pid": process, "tid": 0,
                    "ts": us(phase.start_ns), "dur": us(phase.ns()),
                }));
            }
            for gap in &run.gaps {
                events.push(json!({
                    "name": gap.after.text, "cat": "gap", "ph": "X", "pid": process, "tid": 1,
                    "ts": us(gap.before.stamp_ns), "dur": us(gap.ns),
                }));
            }
        }
        let mut text = json!({"traceEvents": events, "displayTimeUnit": "ms"}).to_string();
        text.push('\n');
        text
    }

    fn folded(&self) -> String {
        let frame = |name: &str| name.replace([';', '\n'], ",");
        let mut text = String::new();
        for setup in &self.setups {
            for phase in &setup.phases {
                let us = phase.took.median_ns / 1000.0;
                let _ = writeln!(
                    text,
                    "{};{} {us:.0}",
                    frame(&setup.name),
                    frame(&phase.name)
                );
            }
        }
        text
    }

    fn junit(&self) -> String {
        let mut text = String::from(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"firstlight report\">\n",
        );
        for setup in &self.setups {
            let name = super::escape::escaped(&setup.name);
            let _ = writeln!(
                text,
                "  <testsuite name=\"{name}\" tests=\"{}\">",
                setup.files.len()
            );
            for run in &setup.runs {
                let file = super::escape::escaped(&run.file);
                #[expect(clippy::cast_precision_loss, reason = "the form wants seconds")]
                let seconds = run.total_ns().unwrap_or(0) as f64 / 1e9;
                let _ = writeln!(
                    text,
                    "    <testcase classname=\"{name}\" name=\"{file}\" time=\"{seconds:.6}\"/>"
                );
            }
            text.push_str("  </testsuite>\n");
        }
        text + "</testsuites>\n"
    }

    fn markdown(&self) -> String {
        let mut text = String::from(
            "| set-up | clock | runs | phase | median ms | MAD |\n|---|---|---|---|---|---|\n",
        );
        let safe = |name: &str| name.replace('|', "\\|").replace('\n', " ");
        for setup in &self.setups {
            let total = setup.total.iter().map(|total| ("all", total));
            let phases = setup.phases.iter().map(|phase| (&*phase.name, &phase.took));
            for (name, took) in total.chain(phases) {
                let _ = writeln!(
                    text,
                    "| {} | {} | {} | {} | {:.3} | {:.3} |",
                    safe(&setup.name),
                    setup.clock,
                    setup.files.len(),
                    safe(name),
                    took.median_ns / 1e6,
                    took.mad_ns / 1e6
                );
            }
        }
        text
    }
}

/// A cell of CSV; what a spreadsheet would take for a formula is text.
fn cell(text: &str) -> String {
    let formula = text.starts_with(['=', '+', '-', '@']);
    if formula || text.contains([',', '"', '\n', '\r']) {
        let quote = if formula { "\"'" } else { "\"" };
        format!("{quote}{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}
