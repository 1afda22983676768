//! A step of the demo and how it is shown: [`Step`].

use crate::output::{FAINT, HEADING, NOTE};
use serde::Serialize;

/// One step.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Step {
    pub(super) name: &'static str,
    /// What came of it.
    pub(super) lines: Vec<String>,
    /// Why it could not be taken.
    pub(super) left_out: Option<String>,
    /// What repeats it.
    pub(super) commands: Vec<String>,
}

/// Columns of what is shown.
const COLUMNS: usize = 60;

impl Step {
    /// For a person, as the step of this number.
    pub(super) fn text(&self, number: usize) -> String {
        let mut text = format!("\n{HEADING}{number}  {}{HEADING:#}\n", self.name);
        for line in &self.lines {
            text.push_str(&format!("   {line}\n"));
        }
        if let Some(why) = &self.left_out {
            let lines = wrapped(&format!("left out: {why}"), COLUMNS - 3);
            for line in lines {
                text.push_str(&format!("   {NOTE}{line}{NOTE:#}\n"));
            }
        }
        for command in &self.commands {
            text.push_str(&format!("   {FAINT}$ {command}{FAINT:#}\n"));
        }
        text
    }
}

/// Lines of at most so many columns, but for longer words.
fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_are_wrapped_between_words() {
        assert_eq!(wrapped("a bb ccc", 4), ["a bb", "ccc"]);
        assert_eq!(wrapped("longer than", 4), ["longer", "than"]);
        assert_eq!(wrapped("", 4), [""; 0]);
    }
}
