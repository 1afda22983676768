//! The image's own words on the command line: [`Words`].
//!
//! Words of the engine (`mem=`, `memmap=`, `kernelcore=`, `movablecore=`,
//! `movable_node`) are left to the engine; a word nobody knows is told, and
//! the boot goes on.

use firstlight::clock::Frequency;
use firstlight::cmdline::{CommandLine, Word, parse_number};

/// What to do once memory is up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// Report and leave.
    #[default]
    BringUp,
    /// Allocate, write, check and free on every CPU.
    SelfTest,
    /// Time the allocator.
    BenchAlloc,
}

/// Something to go wrong on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Test {
    /// Write where that is not allowed.
    PageFault,
    /// Do so while the page fault handler cannot be reached.
    DoubleFault,
    /// Panic.
    Panic,
    /// Behave as if the loader had brought no memory map.
    NoMap,
    /// Start the last CPU long after the others.
    LateCpu,
    /// Do nothing for ever.
    Hang,
    /// Write nonsense to both serial ports.
    Rubbish,
}

impl Test {
    const NAMES: [(&'static [u8], Self); 7] = [
        (b"page-fault", Self::PageFault),
        (b"double-fault", Self::DoubleFault),
        (b"panic", Self::Panic),
        (b"no-map", Self::NoMap),
        (b"late-cpu", Self::LateCpu),
        (b"hang", Self::Hang),
        (b"rubbish", Self::Rubbish),
    ];
}

/// The image's words.
///
/// ```
/// use firstlight::cmdline::CommandLine;
/// use firstlight_image::words::{Mode, Words};
/// let line = CommandLine::new(b"selftest mem=4G colour=blue");
/// let mut unknown = 0;
/// let words = Words::read(line, &mut |word| {
///     assert_eq!(word.name, b"colour");
///     unknown += 1;
/// });
/// assert_eq!((words.mode, unknown), (Mode::SelfTest, 1));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Words {
    /// What to do.
    pub mode: Mode,
    /// What is to go wrong.
    pub test: Option<Test>,
    /// How fast the ticks come, where somebody knows.
    pub frequency: Option<Frequency>,
}

/// Words the engine reads.
const ENGINE: [&str; 5] = ["mem", "memmap", "kernelcore", "movablecore", "movable_node"];

impl Words {
    /// Reads `line`; `unknown` hears of words, or values of them, that mean nothing.
    pub fn read(line: CommandLine<'_>, unknown: &mut dyn FnMut(Word<'_>)) -> Self {
        let mut words = Self::default();
        for word in line.words() {
            let known = words.take(&word) || ENGINE.iter().any(|name| word.is(name));
            if !known {
                unknown(word);
            }
        }
        words
    }

    /// Takes one word, if it is one of ours and makes sense.
    fn take(&mut self, word: &Word<'_>) -> bool {
        match (word.name, word.value) {
            (b"selftest", None) => self.mode = Mode::SelfTest,
            (b"bench", Some(b"alloc")) => self.mode = Mode::BenchAlloc,
            (b"tsc_hz", Some(value)) => {
                let hz = parse_number(value).ok().filter(|(_, rest)| rest.is_empty());
                let told = hz.and_then(|(hz, _)| Frequency::plausible(hz).ok());
                self.frequency = self.frequency.or(told);
                return told.is_some();
            }
            (b"test", Some(value)) => {
                let test = Test::NAMES.iter().find(|(name, _)| *name == value);
                self.test = self.test.or(test.map(|(_, test)| *test));
                return test.is_some();
            }
            _ => return false,
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;
    use std::string::String;
    use std::vec::Vec;

    fn read(line: &str) -> (Words, Vec<String>) {
        let mut unknown = Vec::new();
        let words = Words::read(CommandLine::new(line.as_bytes()), &mut |word| {
            unknown.push(String::from_utf8_lossy(word.name).into_owned());
        });
        (words, unknown)
    }

    #[test]
    fn every_word_is_known() {
        let (words, unknown) =
            read("bench=alloc test=late-cpu tsc_hz=1000000000 mem=1G movable_node");
        assert_eq!(words.mode, Mode::BenchAlloc);
        assert_eq!(words.test, Some(Test::LateCpu));
        assert_eq!(words.frequency, Frequency::new(1_000_000_000));
        assert_eq!(unknown, [""; 0]);
        for (name, test) in Test::NAMES {
            let line = std::format!("test={}", String::from_utf8_lossy(name));
            assert_eq!(read(&line).0.test, Some(test));
        }
    }

    #[test]
    fn nonsense_is_told_and_changes_nothing() {
        let (words, unknown) =
            read("selftest=yes bench=disk test=all test tsc_hz=1 tsc_hz=12x quiet");
        assert_eq!(words, Words::default());
        assert_eq!(
            unknown,
            [
                "selftest", "bench", "test", "test", "tsc_hz", "tsc_hz", "quiet"
            ]
        );
    }
}
