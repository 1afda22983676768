//! The committed counts: a line a path, `name count`; `#` begins a comment.

use std::error::Error;
use std::fmt;
use std::fs;
use std::path::Path;

/// A count this much above the committed one fails, this much below is reported.
const TOLERANCE_PERCENT: u64 = 2;

/// A new count beside the committed one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Within the tolerance.
    Same,
    /// Less: worth committing.
    Fell,
    /// More: fails.
    Rose,
    /// Not committed yet: fails.
    New,
    /// Committed, but there is no such path: fails.
    Gone,
}

impl Verdict {
    pub(crate) fn is_sound(self) -> bool {
        matches!(self, Self::Same | Self::Fell)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Same => "as expected",
            Self::Fell => "fell: commit it (make counts UPDATE=1)",
            Self::Rose => "ROSE",
            Self::New => "NEW: not committed",
            Self::Gone => "GONE: only committed",
        })
    }
}

/// The committed counts.
#[derive(Debug, Default)]
pub(crate) struct Expected(Vec<(String, u64)>);

impl Expected {
    /// Reads `file`; no file is no counts.
    pub(crate) fn read(file: &Path) -> Result<Self, Box<dyn Error>> {
        match fs::read_to_string(file) {
            Ok(text) => Self::parse(&text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(format!("{}: {error}", file.display()).into()),
        }
    }

    fn parse(text: &str) -> Result<Self, Box<dyn Error>> {
        let lines = text.lines().enumerate();
        let counts = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let counts = counts.map(|(number, line)| {
            let (name, count) = line
                .split_once(' ')
                .and_then(|(name, count)| Some((name, count.trim().parse().ok()?)))
                .ok_or_else(|| format!("committed counts, line {}: no 'name count'", number + 1))?;
            Ok((name.to_owned(), count))
        });
        counts.collect::<Result<_, Box<dyn Error>>>().map(Self)
    }

    pub(crate) fn of(&self, name: &str) -> Option<u64> {
        self.0
            .iter()
            .find(|(known, _)| known == name)
            .map(|&(_, count)| count)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    pub(crate) fn judge(&self, name: &str, count: u64) -> Verdict {
        match self.of(name) {
            None => Verdict::New,
            Some(before) if count * 100 > before * (100 + TOLERANCE_PERCENT) => Verdict::Rose,
            Some(before) if count * 100 < before * (100 - TOLERANCE_PERCENT) => Verdict::Fell,
            Some(_) => Verdict::Same,
        }
    }
}

/// A path that does twice the work of another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Doubled {
    pub(crate) name: &'static str,
    pub(crate) half: &'static str,
    pub(crate) most_percent: u64,
}

impl Doubled {
    /// What is wrong with these counts, if anything is.
    pub(crate) fn complaint(&self, of: impl Fn(&str) -> Option<u64>) -> Option<String> {
        let Self {
            name,
            half,
            most_percent,
        } = self;
        let (Some(count), Some(of_half)) = (of(name), of(half)) else {
            return Some(format!("{name} and {half}: not both are counted"));
        };
        (count * 100 > of_half * most_percent).then(|| {
            format!("{name}: {count} instructions, more than {most_percent} % of the {of_half} of {half}")
        })
    }
}

/// Writes `file` anew.
pub(crate) fn write(file: &Path, counts: &[(&str, u64)]) -> Result<(), Box<dyn Error>> {
    let mut text = String::from(
        "# Instructions of the engine's paths, counted by valgrind (make counts).\n\
         # 2 % more fails; written by: make counts UPDATE=1\n",
    );
    for (name, count) in counts {
        text += &format!("{name} {count}\n");
    }
    Ok(fs::write(file, text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn judges_by_two_percent() {
        let expected = Expected::parse("# comment\n\nbuild 1000\n").unwrap();
        assert_eq!(expected.judge("build", 1020), Verdict::Same);
        assert_eq!(expected.judge("build", 1021), Verdict::Rose);
        assert_eq!(expected.judge("build", 979), Verdict::Fell);
        assert_eq!(expected.judge("other", 1), Verdict::New);
        assert!(!Verdict::Gone.is_sound());
        assert!(Expected::parse("build\n").is_err());
        assert!(Expected::parse("build many\n").is_err());
    }

    #[test]
    fn twice_the_work_costs_about_twice() {
        let doubled = Doubled {
            name: "two",
            half: "one",
            most_percent: 230,
        };
        let complaint = |text: &str| {
            let expected = Expected::parse(text).unwrap();
            doubled.complaint(|name| expected.of(name))
        };
        assert_eq!(complaint("one 100\ntwo 230\n"), None);
        assert!(complaint("one 100\ntwo 231\n").is_some());
        assert!(complaint("two 230\n").is_some());
    }

    #[test]
    fn committed_counts_are_linear() {
        let expected = Expected::parse(include_str!("../../../counts.txt")).unwrap();
        for doubled in crate::paths::DOUBLED {
            assert_eq!(doubled.complaint(|name| expected.of(name)), None);
        }
    }
}
