//! How descriptors are written: [`Writer`].
//!
//! A section's descriptors are one 64-byte line repeated, so writing them is a
//! fill. What it costs is the memory bus: ordinary stores read every line
//! before they write it and push everything else out of the caches, stores
//! past the caches ("non-temporal") do neither. A kernel chooses once, by what
//! its CPUs can do, and hands the choice in; without one, [`Writer::plain`]
//! is right everywhere.
//!
//! [`x86_64`] holds the loops that need that processor. They are assembly,
//! because a kernel is built without vector registers for the compiler.

#[cfg(target_arch = "x86_64")]
pub mod x86_64;

mod best;

use core::fmt;

/// Bytes in the line a fill repeats.
pub const LINE_BYTES: usize = 64;
/// The line: what each 64 bytes of memory, on a border of 64 bytes, are filled with.
pub type Line = [u64; LINE_BYTES / 8];

/// A loop that fills: `(first, words, line)`; see [`Writer::new`].
pub type Fill = unsafe fn(*mut u64, usize, &Line);

/// A way to fill memory with a line.
///
/// ```
/// use firstlight_memmap::memmap::Writer;
/// let mut memory = [0u64; 20];
/// Writer::plain().fill(&mut memory, &[1; 8]);
/// assert_eq!(memory, [1; 20]);
/// ```
#[derive(Clone, Copy)]
pub struct Writer {
    name: &'static str,
    fill: Fill,
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Writer({})", self.name)
    }
}

impl Writer {
    /// Another writer.
    ///
    /// # Safety
    /// `fill(first, words, line)` must, for any `first` on a border of 8 bytes
    /// and memory there for `words` words, write to the word at each address
    /// `a` the element `a / 8 % 8` of the line, write nothing else, read
    /// nothing of it, and return only when no store the caller does afterwards
    /// can be seen before these. It must run on every CPU it is used on.
    pub const unsafe fn new(name: &'static str, fill: Fill) -> Self {
        Self { name, fill }
    }

    /// Ordinary stores, for any processor.
    pub const fn plain() -> Self {
        Self {
            name: "plain",
            fill: fill_plain,
        }
    }

    /// What it is called in reports.
    pub const fn name(self) -> &'static str {
        self.name
    }

    /// Fills `memory`: the word at address `a` gets element `a / 8 % 8` of `line`.
    pub fn fill(self, memory: &mut [u64], line: &Line) {
        // SAFETY: a slice of words is writable and on a border of 8 bytes.
        unsafe { (self.fill)(memory.as_mut_ptr(), memory.len(), line) }
    }

    /// Fills memory that need not be initialised, as [`Self::fill`].
    ///
    /// # Safety
    /// `first` is on a border of 8 bytes and writable for `words` words, which
    /// no other code uses meanwhile.
    pub unsafe fn fill_raw(self, first: *mut u64, words: usize, line: &Line) {
        // SAFETY: what the caller promised.
        unsafe { (self.fill)(first, words, line) }
    }
}

/// The element of a line that belongs at `address`.
fn place(address: *const u64) -> usize {
    address.addr() / 8 % (LINE_BYTES / 8)
}

/// Fills word by word; see [`Writer::new`].
unsafe fn fill_plain(first: *mut u64, words: usize, line: &Line) {
    let mut turned = *line;
    turned.rotate_left(place(first));
    let lines = words / turned.len();
    for at in 0..lines {
        // SAFETY: line `at` lies inside the caller's words; a line of
        // words needs a word's alignment only.
        unsafe { first.add(at * turned.len()).cast::<Line>().write(turned) };
    }
    for (at, word) in (lines * turned.len()..words).zip(turned) {
        // SAFETY: as above.
        unsafe { first.add(at).write(word) };
    }
}

#[cfg(all(test, not(firstlight_loom)))]
mod tests {
    extern crate std;

    use super::*;
    use std::vec::Vec;

    const LINE: Line = [11, 22, 33, 44, 55, 66, 77, 88];
    const GUARD: u64 = 0xdead_beef;

    /// Every writer this CPU can run.
    fn writers() -> Vec<Writer> {
        #[cfg_attr(
            any(miri, not(target_arch = "x86_64")),
            expect(unused_mut, reason = "no others here")
        )]
        let mut writers = Vec::from([Writer::plain(), Writer::default()]);
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            writers.push(x86_64::words());
            if std::is_x86_feature_detected!("avx2") {
                // SAFETY: just detected.
                writers.push(unsafe { x86_64::avx2() });
            }
            if std::is_x86_feature_detected!("avx512f") {
                // SAFETY: just detected.
                writers.push(unsafe { x86_64::avx512() });
            }
        }
        writers
    }

    #[test]
    fn every_writer_writes_what_the_rule_says_and_no_more() {
        // Miri is slow: few places, lengths around a line.
        let (most, step) = if cfg!(miri) { (24, 5) } else { (300, 1) };
        let mut memory = std::vec![GUARD; most + 40];
        for writer in writers() {
            for from in (0..17).step_by(step) {
                let words = (0..70).step_by(step);
                for words in words.chain([127, 128, 129, most]) {
                    if words > most {
                        continue;
                    }
                    memory.fill(GUARD);
                    writer.fill(&mut memory[from..from + words], &LINE);
                    for (at, &word) in memory.iter().enumerate() {
                        let inside = (from..from + words).contains(&at);
                        let wanted = if inside {
                            LINE[place(&raw const memory[at])]
                        } else {
                            GUARD
                        };
                        assert_eq!(word, wanted, "{writer:?} {from}+{words} at {at}");
                    }
                }
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "megabytes are too slow there")]
    fn megabytes_come_out_the_same() {
        let mut one = std::vec![0u64; (1 << 18) + 13];
        let mut other = one.clone();
        Writer::plain().fill(&mut one, &[7; 8]);
        for writer in writers() {
            other.fill(0);
            writer.fill(&mut other, &[7; 8]);
            assert!(one == other, "{writer:?}");
        }
    }
}
