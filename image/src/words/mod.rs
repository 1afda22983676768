//! The image's own words on the command line: [`Words`].
//!
//! Words of the engine (`mem=`, `memmap=`, `kernelcore=`, `movablecore=`,
//! `movable_node`) are left to the engine. Unknown words and invalid values are
//! reported ([`Misread`]), and the boot goes on.

mod knobs;
mod regression;
mod test;
mod values;

use core::fmt;

use crate::damage::Damage;
use crate::hotplug::MOST_SLOTS;
use crate::record::Printable;
use crate::virtio::mmio::Named;
use firstlight::addr::PhysRange;
use firstlight::clock::Frequency;
use firstlight::cmdline::{CommandLine, Word, parse_number};
use firstlight::frames::OnlinePolicy;
use firstlight::{memmap, reporting, zeroing};
use firstlight_wire::MOST_THREADS;

pub use knobs::{Prefixed, Setting, setting};
pub use regression::Regression;
pub use test::Test;
pub(crate) use values::number;

use knobs::knob;
use values::{blocks, switch, threads};

/// The work once memory is up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// Report and exit.
    #[default]
    BringUp,
    /// Allocate, write, check and free on every CPU.
    SelfTest,
    /// Time the allocator.
    BenchAlloc,
    /// Time the writing of descriptors, with one CPU a node and with more.
    Sweep,
    /// Use the machine's memory balloon.
    Balloon,
    /// Hand memory over to the image once more, without firmware between.
    Restart,
    /// Serve memory hotplug until the power button is pressed.
    Hotplug,
}

/// The size of a descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DescriptorBytes {
    /// 8 bytes.
    Eight,
    /// 16 bytes.
    Sixteen,
    /// 64 bytes, the size of Linux's.
    #[default]
    SixtyFour,
}

/// The image's words.
///
/// ```
/// use firstlight::cmdline::CommandLine;
/// use firstlight_image::words::{Mode, Words};
/// let line = CommandLine::new(b"selftest mem=4G colour=blue");
/// let mut misread = Vec::new();
/// let words = Words::read(line, &mut |word| misread.push(word.to_string()));
/// assert_eq!(words.mode, Mode::SelfTest);
/// assert_eq!(misread, ["unknown word \"colour\""]);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Words {
    /// The work.
    pub mode: Mode,
    /// The failure, if there is to be one.
    pub test: Option<Test>,
    /// The frequency of ticks, if it is given.
    pub frequency: Option<Frequency>,
    /// When descriptors are written; there are none without it.
    pub descriptors: Option<memmap::Mode>,
    /// Their size.
    pub descriptor_bytes: DescriptorBytes,
    /// Threads a node for a sweep; zeros at the end are unused.
    pub threads: [u32; MOST_THREADS],
    /// Measurements of each in a sweep; at least one.
    pub runs: u32,
    /// Ticks to accept a page, if memory above 4 GiB is to behave as that of a
    /// confidential machine.
    pub accept_ticks: Option<u32>,
    /// Whether a host looks on, that inflates and deflates the balloon.
    pub watched: bool,
    /// Slots for memory hotplug.
    pub slots: u32,
    /// Of so many DIMMs that come, of the last a page stays in use until the DIMM was to go once;
    /// 0: of none.
    pub hold_one_in: u32,
    /// Whether each page of memory that comes is written and read.
    pub touch: bool,
    /// What becomes of memory that comes.
    pub online: OnlinePolicy,
    /// Whether memory blocks are listed before DIMMs come and after each change.
    pub lists_blocks: bool,
    /// Bytes that are allocated, written and freed before free memory is reported.
    pub balloon_bytes: Option<u64>,
    /// Of so many blocks that are known to be zero a page is read; 0: of none.
    pub check_one_in: u32,
    /// Whether the zeroing worker runs.
    pub zeroing: bool,
    /// Whether free memory is reported.
    pub reporting: bool,
    /// Whether memory from 4 GiB on was never written to.
    pub fresh: bool,
    /// Bytes that are allocated as zeros.
    pub zeroed_bytes: Option<u64>,
    /// The place of hand-over tables.
    pub preserve: Option<PhysRange>,
    /// Whether what is handed over has checksums.
    pub preserve_verified: bool,
    /// Bytes of guests' memory that outlive a restart.
    pub preserve_bytes: Option<u64>,
    /// Of how many bytes of it a page is written and checked; all of it without.
    pub preserve_every: Option<u64>,
    /// What goes wrong with it, if something is to.
    pub damage: Option<Damage>,
    /// Turns of CPUs a second on the instruction clock, if they are to be short.
    pub turns_hz: Option<u32>,
    /// Regressions, a bit each.
    regressions: u8,
}

/// The image's words and their valid forms.
const OURS: [(&str, &str); 32] = [
    ("selftest", "selftest without a value"),
    ("bench", "bench=alloc"),
    ("sweep", "sweep without a value"),
    (
        "descriptors",
        "descriptors=lazy, descriptors=early or descriptors=eager",
    ),
    ("descriptor_bytes", "descriptor_bytes=8, 16 or 64"),
    (
        "threads",
        "threads=LIST, up to 16 numbers from 1 on between commas",
    ),
    ("runs", "runs=N, a number from 1 on"),
    ("accept", "accept=TICKS, a number from 1 on"),
    (
        "regress",
        "regress=LIST of eager-zones, node-ranges, hash-buckets, small-blocks and one-thread",
    ),
    ("restart", "restart=warm"),
    (
        "preserve",
        "preserve=SIZE@ADDRESS, in whole pages, such as 64K@16M, and preserve=verified",
    ),
    (
        "preserve_bytes",
        "preserve_bytes=SIZE, from 2M on, such as 1G",
    ),
    (
        "preserve_every",
        "preserve_every=SIZE, from 2M on, such as 2M",
    ),
    (
        "restart_damage",
        "restart_damage=bit:N, foreign, kernel, absent, many, node, stale or guest",
    ),
    ("turns_hz", "turns_hz=HZ, a number from 1 on"),
    ("tsc_hz", "tsc_hz=HZ, a frequency that a processor can have"),
    ("balloon", "balloon, or balloon=watched"),
    ("hotplug", "hotplug, or hotplug=SLOTS, 1 to 256"),
    ("hold_one_in", "hold_one_in=N, a number"),
    ("touch", "touch without a value"),
    ("blocks", "blocks without a value"),
    (
        "memhp_default_state",
        "memhp_default_state=offline, online, online_kernel or online_movable",
    ),
    (
        "balloon_bytes",
        "balloon_bytes=SIZE, from 2M on, such as 1G",
    ),
    ("fresh", "fresh without a value"),
    ("zeroed", "zeroed=SIZE, from 2M on, such as 1G"),
    ("check_one_in", "check_one_in=N, a number"),
    ("zeroing", "zeroing=on or zeroing=off"),
    ("reporting", "reporting=on or reporting=off"),
    (
        "zeroing.",
        "zeroing.KNOB=N, a knob of the zeroing worker and a number that it accepts",
    ),
    (
        "reporting.",
        "reporting.KNOB=N, a knob of free page reporting and a number that it accepts",
    ),
    (
        Named::WORD,
        "virtio_mmio.device=SIZE@ADDRESS:INTERRUPT, below 4 GiB",
    ),
    (
        "test",
        "test=page-fault, double-fault, double-fault-other, fault-interrupted, write-code, run-data, early-touch, stale-page, panic, panic-other, panic-all, panic-twice, no-map, late-cpu, hang, rubbish, pending-timer or occupied",
    ),
];

/// A word that is ignored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Misread<'a> {
    /// As written.
    pub word: Word<'a>,
    /// Its valid forms; `None` for an unknown word.
    pub expected: Option<&'static str>,
}

impl<'a> Misread<'a> {
    fn new(word: Word<'a>) -> Self {
        let is_word = |name: &str| match name.ends_with('.') {
            true => word.name.starts_with(name.as_bytes()),
            false => word.name == name.as_bytes(),
        };
        let ours = OURS.iter().find(|(name, _)| is_word(name));
        let expected = ours.map(|(_, expected)| *expected);
        Self { word, expected }
    }
}

impl fmt::Display for Misread<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.expected {
            Some(expected) => {
                let seen = Printable(self.word.text);
                write!(f, "{seen} is ignored: expected {expected}")
            }
            None => write!(f, "unknown word \"{}\"", Printable(self.word.name)),
        }
    }
}

/// Words of the engine.
const ENGINE: [&str; 5] = ["mem", "memmap", "kernelcore", "movablecore", "movable_node"];

impl Words {
    /// Reads `line`; `misread` is called with unknown words and invalid values.
    pub fn read(line: CommandLine<'_>, misread: &mut dyn FnMut(Misread<'_>)) -> Self {
        let mut words = Self::default();
        for word in line.words() {
            let known = words.take(&word) || ENGINE.iter().any(|name| word.is(name));
            if !known {
                misread(Misread::new(word));
            }
        }
        words
    }

    /// Whether a regression is brought back.
    #[must_use]
    pub const fn regress(&self, regression: Regression) -> bool {
        self.regressions & regression.bit() != 0
    }

    /// Whether any is.
    #[must_use]
    pub const fn regresses(&self) -> bool {
        self.regressions != 0
    }

    /// Applies one word, if it is one of the image's and valid.
    fn take(&mut self, word: &Word<'_>) -> bool {
        match (word.name, word.value) {
            (b"selftest", None) => self.mode = Mode::SelfTest,
            (b"bench", Some(b"alloc")) => self.mode = Mode::BenchAlloc,
            (b"sweep", None) => self.mode = Mode::Sweep,
            (b"descriptors", Some(value)) => {
                let mode = memmap::Mode::ALL
                    .into_iter()
                    .find(|mode| mode.name().as_bytes() == value);
                self.descriptors = mode.or(self.descriptors);
                return mode.is_some();
            }
            (b"descriptor_bytes", Some(value)) => {
                self.descriptor_bytes = match value {
                    b"8" => DescriptorBytes::Eight,
                    b"16" => DescriptorBytes::Sixteen,
                    b"64" => DescriptorBytes::SixtyFour,
                    _ => return false,
                };
            }
            (b"threads", Some(value)) => match threads(value) {
                Some(threads) => self.threads = threads,
                None => return false,
            },
            (b"runs", Some(value)) => match number(value) {
                Some(runs) if runs > 0 => self.runs = runs,
                _ => return false,
            },
            (b"accept", Some(value)) => match number(value) {
                Some(ticks) if ticks > 0 => self.accept_ticks = Some(ticks),
                _ => return false,
            },
            (b"regress", Some(value)) => match Regression::bits(value) {
                Some(regressions) => self.regressions |= regressions,
                None => return false,
            },
            (b"balloon", None) => self.mode = Mode::Balloon,
            (b"balloon", Some(b"watched")) => {
                self.mode = Mode::Balloon;
                self.watched = true;
            }
            (b"hotplug", None) => {
                self.mode = Mode::Hotplug;
                self.slots = MOST_SLOTS;
            }
            (b"hotplug", Some(value)) => match number(value) {
                Some(slots) if (1..=MOST_SLOTS).contains(&slots) => {
                    self.mode = Mode::Hotplug;
                    self.slots = slots;
                }
                _ => return false,
            },
            (b"hold_one_in", Some(value)) => match number(value) {
                Some(dimms) => self.hold_one_in = dimms,
                None => return false,
            },
            (b"memhp_default_state", _) => match word.online_policy() {
                Some(Some(policy)) => self.online = policy,
                _ => return false,
            },
            (b"touch", None) => self.touch = true,
            (b"blocks", None) => self.lists_blocks = true,
            (b"balloon_bytes", Some(value)) => match blocks(value) {
                Some(bytes) => self.balloon_bytes = Some(bytes),
                None => return false,
            },
            (b"fresh", None) => self.fresh = true,
            (b"restart", Some(b"warm")) => self.mode = Mode::Restart,
            (b"preserve", Some(b"verified")) => self.preserve_verified = true,
            (b"preserve", _) => match word.preserve_place() {
                Some(Ok(place)) => self.preserve = Some(place),
                _ => return false,
            },
            (b"preserve_bytes", Some(value)) => match blocks(value) {
                Some(bytes) => self.preserve_bytes = Some(bytes),
                None => return false,
            },
            (b"preserve_every", Some(value)) => match blocks(value) {
                Some(bytes) => self.preserve_every = Some(bytes),
                None => return false,
            },
            (b"restart_damage", Some(value)) => match Damage::parse(value) {
                Some(damage) => self.damage = Some(damage),
                None => return false,
            },
            (b"check_one_in", Some(value)) => match number(value) {
                Some(blocks) => self.check_one_in = blocks,
                None => return false,
            },
            (b"zeroed", Some(value)) => match blocks(value) {
                Some(bytes) => self.zeroed_bytes = Some(bytes),
                None => return false,
            },
            (b"zeroing", Some(value)) => match switch(value) {
                Some(on) => self.zeroing = on,
                None => return false,
            },
            (b"reporting", Some(value)) => match switch(value) {
                Some(on) => self.reporting = on,
                None => return false,
            },
            (name, Some(_)) if knob(name, "zeroing.").is_some() => {
                return Setting::<zeroing::Knob>::of(word).is_some();
            }
            (name, Some(_)) if knob(name, "reporting.").is_some() => {
                return Setting::<reporting::Knob>::of(word).is_some();
            }
            (name, Some(value)) if name == Named::WORD.as_bytes() => {
                return Named::parse(value).is_some();
            }
            (b"turns_hz", Some(value)) => match number(value) {
                Some(hz) if hz > 0 => self.turns_hz = Some(hz),
                _ => return false,
            },
            (b"tsc_hz", Some(value)) => {
                let hz = parse_number(value).ok().filter(|(_, rest)| rest.is_empty());
                let given = hz.and_then(|(hz, _)| Frequency::plausible(hz).ok());
                self.frequency = self.frequency.or(given);
                return given.is_some();
            }
            (b"test", Some(value)) => {
                let test = Test::named(value);
                self.test = self.test.or(test);
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
    use std::string::{String, ToString};
    use std::vec::Vec;

    fn read(line: &str) -> (Words, Vec<String>) {
        let mut misread = Vec::new();
        let words = Words::read(CommandLine::new(line.as_bytes()), &mut |word| {
            misread.push(word.to_string());
        });
        (words, misread)
    }

    #[test]
    fn every_word_is_read() {
        let (words, unknown) =
            read("bench=alloc test=late-cpu tsc_hz=1000000000 mem=1G movable_node");
        assert_eq!(words.mode, Mode::BenchAlloc);
        assert_eq!(words.test, Some(Test::LateCpu));
        assert_eq!(words.frequency, Frequency::new(1_000_000_000));
        assert_eq!(unknown, [""; 0]);
        let (words, unknown) = read(
            "sweep threads=1,2,64 runs=3 descriptors=early descriptor_bytes=8 accept=7 turns_hz=2000",
        );
        assert_eq!((words.mode, words.runs), (Mode::Sweep, 3));
        assert_eq!((words.accept_ticks, words.turns_hz), (Some(7), Some(2000)));
        assert_eq!(words.threads[..4], [1, 2, 64, 0]);
        assert_eq!(words.descriptors, Some(memmap::Mode::Early));
        assert_eq!(words.descriptor_bytes, DescriptorBytes::Eight);
        assert_eq!(unknown, [""; 0]);
        let (words, unknown) = read(
            "balloon=watched balloon_bytes=1G fresh zeroed=2M check_one_in=3 zeroing=on reporting=on reporting.delay_ms=10 \
             zeroing.batch_bytes=4M virtio_mmio.device=512@0xfeb00000:5",
        );
        assert_eq!((words.mode, words.watched), (Mode::Balloon, true));
        assert_eq!(words.balloon_bytes, Some(1 << 30));
        assert_eq!((words.fresh, words.zeroed_bytes), (true, Some(2 << 20)));
        assert_eq!(words.check_one_in, 3);
        assert!(words.zeroing && words.reporting);
        assert_eq!(unknown, [""; 0]);
        assert!(!read("balloon").0.watched);
        assert!(!read("reporting=on reporting=off").0.reporting);
        for bytes in firstlight_wire::DESCRIPTOR_BYTES {
            assert_eq!(read(&std::format!("descriptor_bytes={bytes}")).1, [""; 0]);
        }
        let (words, unknown) = read(
            "restart=warm preserve=64K@16M preserve=verified preserve_bytes=1G preserve_every=2M restart_damage=bit:77",
        );
        assert_eq!((words.mode, unknown), (Mode::Restart, Vec::new()));
        let place = PhysRange::with_size(16 << 20, 64 << 10);
        assert_eq!(
            (words.preserve, words.preserve_bytes),
            (place, Some(1 << 30))
        );
        assert_eq!(words.preserve_every, Some(2 << 20));
        assert_eq!(words.damage, Some(Damage::Bit(77)));
        let (words, unknown) = read("regress=one-thread,eager-zones regress=small-blocks");
        assert_eq!(unknown, [""; 0]);
        let on: Vec<bool> = Regression::NAMES
            .into_iter()
            .map(|(_, regression)| words.regress(regression))
            .collect();
        assert_eq!(on, [true, false, false, true, true]);
        for (name, test) in Test::NAMES {
            let line = std::format!("test={}", String::from_utf8_lossy(name));
            assert_eq!(read(&line).0.test, Some(test));
        }
    }

    #[test]
    fn nonsense_is_reported_and_changes_nothing() {
        let line = "selftest=yes bench=disk test=all test tsc_hz=1 tsc_hz=12x descriptors=some \
                    descriptor_bytes=9 threads=1,,2 threads=0 runs=0 accept=0 sweep=1 quiet=2 regress= regress=one-thread,all \
                    turns_hz=0 restart restart=cold preserve preserve=64K@1 preserve_bytes=1M preserve_every=4K restart_damage=bit:x restart_damage=some balloon=yes balloon_bytes=1M fresh=1 zeroed=1M check_one_in=a zeroing=1 reporting reporting.order=19 \
                    zeroing.batch_bytes=5M zeroing.colour=2 virtio_mmio.device=512";
        let (words, misread) = read(line);
        assert_eq!(words, Words::default());
        assert_eq!(misread.len(), line.split_whitespace().count());
        for (word, report) in line.split_whitespace().zip(misread) {
            let name = word.split(['=', '.']).next().expect("there is always one");
            if name == "quiet" {
                assert_eq!(report, "unknown word \"quiet\"");
            } else {
                let known = std::format!("{word} is ignored: expected {name}");
                assert!(report.starts_with(&known), "{word}: {report}");
            }
        }
    }

    #[test]
    fn an_invalid_value_is_reported_as_that() {
        let (_, misread) = read("bench=aloc");
        assert_eq!(misread, ["bench=aloc is ignored: expected bench=alloc"]);
        let (_, misread) = read("bnch=alloc");
        assert_eq!(misread, ["unknown word \"bnch\""]);
        let (_, misread) = read("descriptors=\"a\u{1b}b\"");
        assert!(!misread[0].contains('\u{1b}'), "{misread:?}");
        // The expected forms are complete.
        for (name, _) in Test::NAMES {
            let (_, misread) = read("test=no");
            let name = String::from_utf8_lossy(name).into_owned();
            assert!(misread[0].contains(&name), "{name} in {misread:?}");
        }
        for (name, _) in Damage::NAMES {
            let (_, misread) = read("restart_damage=no");
            let name = String::from_utf8_lossy(name).into_owned();
            assert!(misread[0].contains(&name), "{name} in {misread:?}");
        }
        for mode in memmap::Mode::ALL {
            let (_, misread) = read("descriptors=no");
            assert!(misread[0].contains(mode.name()), "{misread:?}");
        }
    }
}
