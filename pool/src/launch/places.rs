//! Any other VMM: `{memory}` stands where it takes the name of a file.

use super::backing::Backing;
use super::error::PlanError;
use super::need::Need;
use std::ffi::{OsStr, OsString};

/// A command line with places for files.
#[derive(Debug)]
pub(super) struct PlacesPlan {
    arguments: Vec<OsString>,
    pub(super) needs: Vec<Need>,
}

/// How a place begins; a number and `}` follow, or only `}` for the first.
const BEGIN: &str = "{memory";

/// The first place in `text`: what stands before it, its number, what follows.
fn place(text: &str) -> Option<(&str, usize, &str)> {
    let mut from = 0;
    while let Some(found) = text[from..].find(BEGIN) {
        let at = from + found;
        from = at + BEGIN.len();
        let rest = &text[from..];
        let Some((number, after)) = rest.split_once('}') else {
            continue;
        };
        let number = if number.is_empty() { "0" } else { number };
        if number.bytes().all(|digit| digit.is_ascii_digit())
            && let Ok(number) = number.parse()
        {
            return Some((&text[..at], number, after));
        }
    }
    None
}

/// Numbers of all places in `argument`.
fn places(argument: &OsStr) -> Vec<usize> {
    let mut numbers = Vec::new();
    let mut text = argument.to_str().unwrap_or_default();
    while let Some((_, number, after)) = place(text) {
        numbers.push(number);
        text = after;
    }
    numbers
}

/// Whether any argument has a place.
pub(super) fn any(arguments: &[OsString]) -> bool {
    arguments
        .iter()
        .any(|argument| !places(argument).is_empty())
}

impl PlacesPlan {
    /// Plans `arguments` with `asked` memory.
    pub(super) fn new(arguments: &[OsString], asked: &[Need]) -> Result<Self, PlanError> {
        if asked.is_empty() {
            return Err(PlanError::NoSize);
        }
        let used: Vec<usize> = arguments.iter().flat_map(|one| places(one)).collect();
        let without = (0..asked.len()).find(|number| !used.contains(number));
        let beyond = used.iter().copied().find(|number| *number >= asked.len());
        if let Some(number) = beyond.or(without) {
            return Err(PlanError::Place {
                place: format!("{{memory{number}}}"),
                asked: asked.len(),
            });
        }
        Ok(Self {
            arguments: arguments.to_vec(),
            needs: asked.to_vec(),
        })
    }

    /// The arguments that use `files`, one for each need.
    pub(super) fn with_memory(&self, files: &[Backing]) -> Vec<OsString> {
        let fill = |argument: &OsString| {
            let Some(mut text) = argument.to_str() else {
                return argument.clone();
            };
            let mut filled = String::new();
            while let Some((before, number, after)) = place(text) {
                filled.push_str(before);
                if let Some(file) = files.get(number) {
                    filled.push_str(&file.path);
                }
                text = after;
            }
            filled.push_str(text);
            filled.into()
        };
        self.arguments.iter().map(fill).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: Need = Need {
        bytes: 1 << 30,
        node: None,
    };

    fn plan(arguments: &[&str], asked: &[Need]) -> Result<PlacesPlan, PlanError> {
        let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        PlacesPlan::new(&arguments, asked)
    }

    #[test]
    fn places_are_filled() {
        let files = [4, 5].map(|number| Backing {
            path: format!("/proc/self/fd/{number}"),
            align_bytes: None,
        });
        let arguments = [
            "file={memory},also={memory0}",
            "{memory1}",
            "{memoryx}{memory",
            "{}",
        ];
        let plan = plan(&arguments, &[GIB, GIB]).expect("all have their place");
        let filled = plan.with_memory(&files);
        let expected = [
            "file=/proc/self/fd/4,also=/proc/self/fd/4",
            "/proc/self/fd/5",
            "{memoryx}{memory",
            "{}",
        ];
        assert_eq!(filled, expected);
    }

    #[test]
    fn places_and_memory_go_together() {
        let error = plan(&["{memory}"], &[]).expect_err("no size");
        assert_eq!(error, PlanError::NoSize);
        for (arguments, asked, place) in [
            (&["{memory1}"][..], &[GIB][..], "{memory1}"),
            (&["{memory}"], &[GIB, GIB], "{memory1}"),
            (&["{memory99999999999999999999}"], &[GIB], "{memory0}"),
        ] {
            let error = plan(arguments, asked).expect_err(place).to_string();
            assert!(error.starts_with(place), "{error}");
        }
    }
}
