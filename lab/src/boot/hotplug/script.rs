//! What happens to the DIMMs of a guest, and when: [`Script`].
//!
//! ```text
//! # a DIMM of 1 GiB after 100 ms, one for node 1, and the first one away again
//! at 100 add 1G
//! at 200 add 512M node 1
//! at 900 remove dimm1
//! ```
//!
//! Times are milliseconds since the guest serves hotplug. DIMMs are named by the order they are
//! added in: `dimm1`, `dimm2` and so on.

use std::str::FromStr;
use std::time::Duration;

use firstlight_figures::size;

/// Most lines that do something.
pub const MOST_STEPS: usize = 4096;
/// Longest time, a day.
const MOST_MS: u64 = 86_400_000;

/// What happens, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    steps: Vec<Step>,
}

/// One line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// When, since the guest serves hotplug.
    pub at: Duration,
    /// What.
    pub action: Action,
}

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A DIMM comes.
    Add {
        /// Its number, from 1.
        dimm: u32,
        /// Its size.
        bytes: u64,
        /// Its node; the last one without.
        node: Option<u32>,
    },
    /// A DIMM is to go.
    Remove {
        /// Its number.
        dimm: u32,
    },
}

/// A script that can't be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{why}", line_of(*.line))]
pub struct ScriptError {
    /// The line, from 1; 0 where it is none.
    pub line: usize,
    /// What is wrong with it.
    pub why: Misstep,
}

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misstep {
    /// It does not begin with `at MS`.
    #[error("{0:?}: expected \"at MS\" first, milliseconds up to {MOST_MS}")]
    NoTime(String),
    /// Not `add` or `remove`.
    #[error("{0:?}: expected \"add SIZE [node N]\" or \"remove ID\" after the time")]
    NoAction(String),
    /// No size, or none that a DIMM can have.
    #[error("{0:?}: expected a size from 4K on, such as 1G")]
    BadSize(String),
    /// Not `node N`.
    #[error("{0:?}: expected \"node N\", a number")]
    BadNode(String),
    /// No DIMM of this name was added before.
    #[error("{0:?}: expected a DIMM that was added before, dimm1 for the first")]
    NoDimm(String),
    /// More than a line has.
    #[error("{0:?}: expected the end of the line")]
    Surplus(String),
    /// It is before the line above.
    #[error("its time is before that of the line above")]
    Backwards,
    /// There are too many.
    #[error("expected at most {MOST_STEPS} lines")]
    TooMany,
    /// Nothing happens.
    #[error("the script has no line that does something")]
    Empty,
}

/// Where there is a line, its number in front of what is wrong with it.
fn line_of(line: usize) -> String {
    match line {
        0 => String::new(),
        line => format!("line {line}: "),
    }
}

impl Script {
    /// Its lines.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// DIMMs that are added, all in all.
    #[must_use]
    pub fn dimms(&self) -> u32 {
        let dimm = |step: &Step| match step.action {
            Action::Add { dimm, .. } => dimm,
            Action::Remove { .. } => 0,
        };
        self.steps.iter().map(dimm).max().unwrap_or(0)
    }

    /// Bytes that are added, all in all.
    #[must_use]
    pub fn added_bytes(&self) -> u64 {
        let bytes = |step: &Step| match step.action {
            Action::Add { bytes, .. } => bytes,
            Action::Remove { .. } => 0,
        };
        self.steps.iter().map(bytes).fold(0, u64::saturating_add)
    }
}

impl FromStr for Script {
    type Err = ScriptError;

    /// ```
    /// use firstlight_lab::boot::hotplug::Script;
    /// let script: Script = "at 5 add 1G\nat 9 remove dimm1".parse()?;
    /// assert_eq!((script.dimms(), script.added_bytes()), (1, 1 << 30));
    /// let error = "at 5 add 1G\nat 9 remove dimm2".parse::<Script>().unwrap_err();
    /// assert!(error.to_string().starts_with("line 2: \"dimm2\""));
    /// # Ok::<(), firstlight_lab::boot::hotplug::ScriptError>(())
    /// ```
    fn from_str(text: &str) -> Result<Self, ScriptError> {
        let mut script = Self::default();
        let mut dimms = 0;
        for (line, text) in (1..).zip(text.lines()) {
            let text = text.split('#').next().unwrap_or_default();
            let words: Vec<&str> = text.split_whitespace().collect();
            if words.is_empty() {
                continue;
            }
            let step = step(&words, &mut dimms).map_err(|why| ScriptError { line, why })?;
            let why = match script.steps.last() {
                Some(last) if step.at < last.at => Some(Misstep::Backwards),
                _ if script.steps.len() >= MOST_STEPS => Some(Misstep::TooMany),
                _ => None,
            };
            if let Some(why) = why {
                return Err(ScriptError { line, why });
            }
            script.steps.push(step);
        }
        if script.steps.is_empty() {
            let why = Misstep::Empty;
            return Err(ScriptError { line: 0, why });
        }
        Ok(script)
    }
}

/// One line; `dimms` are added before it.
fn step(words: &[&str], dimms: &mut u32) -> Result<Step, Misstep> {
    let all = || words.join(" ");
    let (Some(&"at"), Some(time)) = (words.first(), words.get(1)) else {
        return Err(Misstep::NoTime(all()));
    };
    let at = size::decimal(time).filter(|ms| *ms <= MOST_MS);
    let at = at.ok_or_else(|| Misstep::NoTime(all()))?;
    let surplus = |from: usize| match words.get(from) {
        Some(word) => Err(Misstep::Surplus((*word).to_owned())),
        None => Ok(()),
    };
    let action = match (words.get(2), words.get(3)) {
        (Some(&"add"), Some(size)) => {
            let bytes = size::parse(size).ok().filter(|bytes| *bytes >= 4096);
            let bytes = bytes.ok_or_else(|| Misstep::BadSize((*size).to_owned()))?;
            let node = match (words.get(4), words.get(5)) {
                (None, _) => None,
                (Some(&"node"), Some(number)) => {
                    let node = size::decimal(number).and_then(|node| u32::try_from(node).ok());
                    Some(node.ok_or_else(|| Misstep::BadNode((*number).to_owned()))?)
                }
                (Some(word), _) => return Err(Misstep::BadNode((*word).to_owned())),
            };
            surplus(6)?;
            *dimms += 1;
            let dimm = *dimms;
            Action::Add { dimm, bytes, node }
        }
        (Some(&"remove"), Some(name)) => {
            let number = name.strip_prefix("dimm").and_then(size::decimal);
            let dimm = number.and_then(|number| u32::try_from(number).ok());
            let dimm = dimm.filter(|dimm| (1..=*dimms).contains(dimm));
            let dimm = dimm.ok_or_else(|| Misstep::NoDimm((*name).to_owned()))?;
            surplus(4)?;
            Action::Remove { dimm }
        }
        _ => return Err(Misstep::NoAction(all())),
    };
    Ok(Step {
        at: Duration::from_millis(at),
        action,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_and_the_rest_is_passed() {
        let text = "\n# two come\nat 1 add 1G # here\n  at 1 add 128M node 3\nat 20 remove dimm2\n";
        let script: Script = text.parse().unwrap();
        let add = |dimm, bytes, node| Action::Add { dimm, bytes, node };
        let steps = [
            (1, add(1, 1 << 30, None)),
            (1, add(2, 128 << 20, Some(3))),
            (20, Action::Remove { dimm: 2 }),
        ];
        let seen: Vec<_> = script
            .steps()
            .iter()
            .map(|step| (step.at.as_millis(), step.action))
            .collect();
        assert_eq!(seen, steps);
        assert_eq!(
            (script.dimms(), script.added_bytes()),
            (2, (1 << 30) + (128 << 20))
        );
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let owned = String::from;
        for (text, line, why) in [
            ("", 0, Misstep::Empty),
            ("# nothing\n\n", 0, Misstep::Empty),
            ("add 1G", 1, Misstep::NoTime(owned("add 1G"))),
            ("at", 1, Misstep::NoTime(owned("at"))),
            ("at -1 add 1G", 1, Misstep::NoTime(owned("at -1 add 1G"))),
            (
                "at 99999999999 add 1G",
                1,
                Misstep::NoTime(owned("at 99999999999 add 1G")),
            ),
            ("at 1", 1, Misstep::NoAction(owned("at 1"))),
            ("at 1 add", 1, Misstep::NoAction(owned("at 1 add"))),
            ("at 1 pull 1G", 1, Misstep::NoAction(owned("at 1 pull 1G"))),
            ("\nat 1 add lots", 2, Misstep::BadSize(owned("lots"))),
            ("at 1 add 0", 1, Misstep::BadSize(owned("0"))),
            ("at 1 add 1G node", 1, Misstep::BadNode(owned("node"))),
            ("at 1 add 1G on 1", 1, Misstep::BadNode(owned("on"))),
            ("at 1 add 1G node x", 1, Misstep::BadNode(owned("x"))),
            ("at 1 add 1G node 1 2", 1, Misstep::Surplus(owned("2"))),
            ("at 1 remove dimm1", 1, Misstep::NoDimm(owned("dimm1"))),
            (
                "at 1 add 1G\nat 2 remove dimm0",
                2,
                Misstep::NoDimm(owned("dimm0")),
            ),
            ("at 1 add 1G\nat 2 remove 1", 2, Misstep::NoDimm(owned("1"))),
            (
                "at 1 add 1G\nat 2 remove dimm1 now",
                2,
                Misstep::Surplus(owned("now")),
            ),
            ("at 2 add 1G\nat 1 add 1G", 2, Misstep::Backwards),
        ] {
            let error = text.parse::<Script>().unwrap_err();
            assert_eq!(error, ScriptError { line, why }, "{text:?}");
            let starts = format!("line {line}: ");
            assert_eq!(error.to_string().starts_with(&starts), line > 0, "{error}");
        }
        let many = "at 1 add 4K\n".repeat(MOST_STEPS + 1);
        let error = many.parse::<Script>().unwrap_err();
        assert_eq!((error.line, error.why), (MOST_STEPS + 1, Misstep::TooMany));
    }
}
