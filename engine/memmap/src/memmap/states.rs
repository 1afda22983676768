//! The state of each section of a descriptor range: untouched, being written, ready.
//!
//! Two bits a section, 32 sections (4 GiB of memory) a word, so that a range of
//! terabytes costs a page to set up. The CPU that raises a section's bit writes
//! it, exactly once; others wait. A writer that panics leaves the section
//! untouched for the next.
#![deny(unsafe_code)]

use core::fmt;

use crate::sync::{AtomicU64, Ordering, pause};

/// Sections in a word.
const PER_WORD: usize = 32;
/// Being written, or ready.
const CLAIMED: u64 = 1;
/// Written. Released after the content.
const READY: u64 = 2;

/// How far the descriptors of a section are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SectionState {
    /// Not written yet.
    Untouched,
    /// A CPU is writing them.
    BeingWritten,
    /// They can be used.
    Ready,
}

impl fmt::Display for SectionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Untouched => "untouched",
            Self::BeingWritten => "being written",
            Self::Ready => "ready",
        })
    }
}

/// The states of a row of sections.
#[derive(Debug)]
pub(crate) struct States<'m> {
    words: &'m [AtomicU64],
}

/// Puts a section back to untouched unless it became ready.
struct Claim<'a> {
    word: &'a AtomicU64,
    shift: usize,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire of the next claim, which overwrites.
        self.word
            .fetch_and(!(CLAIMED << self.shift), Ordering::Release);
    }
}

impl<'m> States<'m> {
    /// Words for `sections` sections.
    pub(crate) const fn words_for(sections: u64) -> u64 {
        sections.div_ceil(PER_WORD as u64)
    }

    /// States in `words`, all zero: all untouched.
    pub(crate) fn new(words: &'m [AtomicU64]) -> Self {
        Self { words }
    }

    /// The word and the shift of a section.
    #[inline]
    fn at(&self, section: usize) -> (&'m AtomicU64, usize) {
        (
            &self.words[section / PER_WORD],
            section % PER_WORD * (64 / PER_WORD),
        )
    }

    /// Whether the section's descriptors may be read.
    #[inline]
    pub(crate) fn is_ready(&self, section: usize) -> bool {
        let (word, shift) = self.at(section);
        // Acquire: pairs with the Release in `make_ready`.
        word.load(Ordering::Acquire) >> shift & READY != 0
    }

    /// The state just now.
    pub(crate) fn get(&self, section: usize) -> SectionState {
        let (word, shift) = self.at(section);
        match word.load(Ordering::Acquire) >> shift & (CLAIMED | READY) {
            0 => SectionState::Untouched,
            CLAIMED => SectionState::BeingWritten,
            _ => SectionState::Ready,
        }
    }

    /// Returns once the section is ready. Runs `write` if this CPU is the one to
    /// make it so; whether it was.
    pub(crate) fn make_ready(&self, section: usize, write: impl FnOnce()) -> bool {
        let (word, shift) = self.at(section);
        loop {
            match self.get(section) {
                SectionState::Ready => return false,
                SectionState::BeingWritten => pause(),
                SectionState::Untouched => {
                    // Acquire: pairs with the Release of an abandoned claim.
                    let before = word.fetch_or(CLAIMED << shift, Ordering::Acquire);
                    if before >> shift & CLAIMED == 0 {
                        break;
                    }
                }
            }
        }
        let claim = Claim { word, shift };
        write();
        core::mem::forget(claim);
        word.fetch_or(READY << shift, Ordering::Release);
        true
    }

    /// Makes all sections untouched; none is being written.
    pub(crate) fn clear(&self) {
        self.words
            .iter()
            .for_each(|word| word.store(0, Ordering::Release));
    }

    /// How many sections are ready.
    pub(crate) fn count_ready(&self) -> u64 {
        // The upper bit of each pair.
        const MASK: u64 = READY * (u64::MAX / 3);
        let ready = |word: &AtomicU64| (word.load(Ordering::Relaxed) & MASK).count_ones();
        self.words.iter().map(|word| u64::from(ready(word))).sum()
    }
}

#[cfg(all(test, not(firstlight_loom)))]
mod tests {
    extern crate std;

    use super::*;
    use std::vec::Vec;

    #[test]
    fn a_section_is_written_once_and_its_neighbours_not_at_all() {
        let words: Vec<_> = (0..3).map(|_| AtomicU64::new(0)).collect();
        let states = States::new(&words);
        for section in [0, 31, 32, 95] {
            assert_eq!(states.get(section), SectionState::Untouched);
            assert!(states.make_ready(section, || {
                assert_eq!(states.get(section), SectionState::BeingWritten);
            }));
            assert!(!states.make_ready(section, || panic!("written twice")));
            assert!(states.is_ready(section));
        }
        for section in [1, 30, 33, 94] {
            assert_eq!(states.get(section), SectionState::Untouched);
        }
        assert_eq!(states.count_ready(), 4);
        assert_eq!(States::words_for(65), 3);
    }

    #[test]
    fn a_writer_that_panics_leaves_it_to_the_next() {
        let words = [AtomicU64::new(0)];
        let states = States::new(&words);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            states.make_ready(7, || panic!("a writer panics for this test"));
        }));
        assert!(panicked.is_err());
        assert_eq!(states.get(7), SectionState::Untouched);
        assert!(states.make_ready(7, || {}));
    }
}
