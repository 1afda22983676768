//! InfluxDB's line protocol: a point a run, tagged by its set-up.

use std::fmt::Write;

use crate::compare::TOTAL;
use crate::report::Report;

/// Nanoseconds of each phase and of the whole boot; the server gives points their time.
pub(super) fn report(report: &Report) -> String {
    let mut text = String::new();
    for setup in &report.setups {
        for run in &setup.runs {
            let names = run.phase_names().into_iter();
            let phases = names.filter_map(|name| Some((name, run.spent_ns(name)?)));
            let total = run.total_ns().map(|ns| (TOTAL, ns));
            let fields = total.into_iter().chain(phases);
            let fields = fields.map(|(name, ns)| format!("{}={ns}i", key(name)));
            let fields: Vec<String> = fields.collect();
            if fields.is_empty() {
                continue;
            }
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "firstlight_boot,clock={},run={},setup={} {}",
                key(&setup.clock),
                key(&run.file),
                key(&setup.name),
                fields.join(",")
            );
        }
    }
    text
}

/// A tag's or a field's key, or a tag's value: commas, spaces and equal signs are escaped; a
/// backslash would escape what follows it.
fn key(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            ',' | ' ' | '=' => {
                safe.push('\\');
                safe.push(c);
            }
            '\\' => safe.push('/'),
            c if c.is_control() => safe.push('_'),
            c => safe.push(c),
        }
    }
    if safe.is_empty() { "none".into() } else { safe }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_hold_no_separators() {
        assert_eq!(key("16 GiB, a=b\\"), "16\\ GiB\\,\\ a\\=b/");
        assert_eq!(key("a\nb"), "a_b");
        assert_eq!(key(""), "none");
    }
}
