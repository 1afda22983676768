//! The longest spans between two lines of a log, for a person.

use super::Page;
use crate::output::FAINT;
use crate::text::{fold, milliseconds};
use firstlight_lab::record::Gap;

/// Characters of a line that are shown.
const MOST_CHARS: usize = 72;

/// The first `most` gaps, in `unit`, each with the two lines it lies between.
pub(crate) fn gaps(page: &mut Page, gaps: &[Gap], unit: &str, most: usize) {
    if gaps.is_empty() {
        return;
    }
    page.section("Gaps", &format!("{unit} between two lines of the log"));
    let (shown, hidden) = fold(gaps, most);
    for gap in shown {
        let phase = gap.phase.as_deref().unwrap_or_default();
        page.line(format!(
            "  {:>10}  line {}: {}",
            milliseconds(gap.ns),
            gap.before.line,
            start(&gap.before.text)
        ));
        page.line(format!(
            "  {:>10}  line {}: {}  {FAINT}{phase}{FAINT:#}",
            "",
            gap.after.line,
            start(&gap.after.text)
        ));
    }
    page.more(hidden);
}

fn start(text: &str) -> String {
    let plain = text.replace(|c: char| c.is_control(), " ");
    match plain.char_indices().nth(MOST_CHARS) {
        Some((end, _)) => format!("{}...", &plain[..end]),
        None => plain,
    }
}
