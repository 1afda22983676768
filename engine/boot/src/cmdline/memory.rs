//! `mem=` and `memmap=`: what the command line changes of the firmware's map.
//!
//! | word | meaning |
//! |---|---|
//! | `mem=N`, `memmap=N` | usable memory from N up is removed |
//! | `memmap=exactmap` | the map is emptied; what follows builds it anew |
//! | `memmap=N@S` | N bytes from S are usable |
//! | `memmap=N#S` | ... are ACPI data |
//! | `memmap=N$S` | ... are reserved |
//! | `memmap=N!S` | ... are persistent memory (type 12) |
//! | `memmap=N%S-old+new` | ... change type; without `old` they are added, without `new` removed |
//!
//! Changes act in the order they are written, comma lists included. What `@`
//! adds does not free what firmware lists more restrictively: the map resolves
//! that as it resolves firmware's own overlaps.

use core::fmt;

use crate::addr::{PHYS_END, PhysRange};
use crate::map::{Correction, MapEntry, MapError, MemoryKind, MemoryMap};

use super::{BadWord, CommandLine, Fault, Word, Words, parse_number, parse_size};

/// One change of the memory map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemoryChange {
    /// Usable memory from byte `bytes` up is removed.
    Limit {
        /// First byte removed.
        bytes: u64,
    },
    /// Everything is removed.
    Exact,
    /// An entry is added, as if firmware had it.
    Add {
        /// The entry.
        entry: MapEntry,
    },
    /// What is there becomes another kind.
    Retype {
        /// First byte.
        start: u64,
        /// Length in bytes.
        bytes: u64,
        /// Only what is this kind.
        from: MemoryKind,
        /// What it becomes.
        to: MemoryKind,
    },
    /// What is there is removed.
    Remove {
        /// First byte.
        start: u64,
        /// Length in bytes.
        bytes: u64,
        /// Only what is this kind; `None` is everything.
        only: Option<MemoryKind>,
    },
}

impl MemoryChange {
    /// Acts on `map`.
    ///
    /// # Errors
    /// [`MapError`] when the map has no slot for another boundary.
    pub fn apply(
        self,
        map: &mut MemoryMap<'_>,
        report: &mut dyn FnMut(Correction),
    ) -> Result<(), MapError> {
        match self {
            Self::Limit { bytes } => {
                let above = clip(bytes, u64::MAX);
                map.remove(above, Some(MemoryKind::Usable), report)?;
                map.remove(above, Some(MemoryKind::Unaccepted), report)?;
            }
            Self::Exact => {
                map.remove(clip(0, u64::MAX), None, report)?;
            }
            Self::Add { entry } => {
                map.add(entry, report)?;
            }
            Self::Retype {
                start,
                bytes,
                from,
                to,
            } => {
                map.set(clip(start, bytes), Some(from), to, report)?;
            }
            Self::Remove { start, bytes, only } => {
                map.remove(clip(start, bytes), only, report)?;
            }
        }
        Ok(())
    }
}

/// `bytes` bytes from `start`, as far as physical addresses reach.
fn clip(start: u64, bytes: u64) -> PhysRange {
    let end = start.saturating_add(bytes).min(PHYS_END);
    PhysRange::new(start.min(end), end).unwrap_or_default()
}

/// A report on the command line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CommandNotice<'a> {
    /// A word without meaning.
    Word(BadWord<'a>),
    /// A word's range was corrected.
    Map(Correction),
}

impl fmt::Display for CommandNotice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Word(bad) => bad.fmt(f),
            Self::Map(correction) => correction.fmt(f),
        }
    }
}

impl<'a> CommandLine<'a> {
    /// The changes of the memory map, in the order they act.
    pub const fn memory_changes(&self) -> MemoryChanges<'a> {
        MemoryChanges {
            words: self.words(),
            word: None,
            list: None,
            late: None,
        }
    }

    /// Makes all changes to `map`; how many there were.
    ///
    /// ```
    /// use firstlight_boot::cmdline::CommandLine;
    /// use firstlight_frames::map::{MapEntry, MemoryKind, MemoryMap, Region, ScratchEntry};
    ///
    /// let entries = [MapEntry::new(0, 8 << 30, MemoryKind::Usable)];
    /// let (mut scratch, mut regions) = ([ScratchEntry::default(); 1], [Region::default(); 8]);
    /// let mut map = MemoryMap::build(entries.into_iter(), &mut scratch, &mut regions, &mut |_| {})?;
    /// let line = CommandLine::new(b"mem=6G memmap=1G$2G,1G!4G");
    /// assert_eq!(line.change_map(&mut map, &mut |notice| panic!("{notice}"))?, 3);
    /// assert_eq!(map.usable_bytes(), 4 << 30);
    /// # Ok::<(), firstlight_frames::map::MapError>(())
    /// ```
    ///
    /// # Errors
    /// [`MapError`] when the map has no slot for another boundary; the changes before are made.
    pub fn change_map(
        &self,
        map: &mut MemoryMap<'_>,
        report: &mut dyn FnMut(CommandNotice<'a>),
    ) -> Result<usize, MapError> {
        let mut made = 0;
        for change in self.memory_changes() {
            match change {
                Ok(change) => {
                    change.apply(map, &mut |correction| {
                        report(CommandNotice::Map(correction))
                    })?;
                    made += 1;
                }
                Err(bad) => report(CommandNotice::Word(bad)),
            }
        }
        Ok(made)
    }
}

/// See [`CommandLine::memory_changes`].
#[derive(Clone, Debug)]
pub struct MemoryChanges<'a> {
    words: Words<'a>,
    /// The word whose list is being read.
    word: Option<Word<'a>>,
    /// What is left of that list.
    list: Option<&'a [u8]>,
    /// A fault to report after the change it does not prevent.
    late: Option<BadWord<'a>>,
}

impl<'a> Iterator for MemoryChanges<'a> {
    type Item = Result<MemoryChange, BadWord<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(bad) = self.late.take() {
            return Some(Err(bad));
        }
        loop {
            if let Some((word, list)) = self.word.zip(self.list.take()) {
                let (item, rest) = match list.iter().position(|&byte| byte == b',') {
                    Some(at) => (list.get(..at).unwrap_or(list), list.get(at + 1..)),
                    None => (list, None),
                };
                self.list = rest;
                return Some(self.tell(word, memmap(item)));
            }
            let word = self.words.next()?;
            if word.is("memmap") {
                match word.value {
                    Some(list) => (self.word, self.list) = (Some(word), Some(list)),
                    None => {
                        return Some(Err(BadWord {
                            word: word.text,
                            fault: Fault::NoValue,
                        }));
                    }
                }
            } else if word.is("mem") {
                return Some(self.tell(word, mem(word.value)));
            }
        }
    }
}

impl<'a> MemoryChanges<'a> {
    fn tell(
        &mut self,
        word: Word<'a>,
        read: Result<(MemoryChange, bool), Fault>,
    ) -> Result<MemoryChange, BadWord<'a>> {
        let bad = |fault| BadWord {
            word: word.text,
            fault,
        };
        let (change, trailing) = read.map_err(bad)?;
        self.late = trailing.then_some(bad(Fault::Trailing));
        Ok(change)
    }
}

/// Reads the value of `mem=`; also whether bytes follow that mean nothing.
fn mem(value: Option<&[u8]>) -> Result<(MemoryChange, bool), Fault> {
    let (bytes, rest) = parse_size(value.ok_or(Fault::NoValue)?).map_err(Fault::Number)?;
    limit(bytes, rest)
}

fn limit(bytes: u64, rest: &[u8]) -> Result<(MemoryChange, bool), Fault> {
    if bytes == 0 {
        return Err(Fault::Zero);
    }
    Ok((MemoryChange::Limit { bytes }, !rest.is_empty()))
}

/// Reads one item of a `memmap=` list; also whether bytes follow that mean nothing.
fn memmap(item: &[u8]) -> Result<(MemoryChange, bool), Fault> {
    if let Some(rest) = item.strip_prefix(b"exactmap") {
        return Ok((MemoryChange::Exact, !rest.is_empty()));
    }
    let (bytes, rest) = parse_size(item).map_err(Fault::Number)?;
    let (sign, rest) = match rest.split_first() {
        Some((sign, rest)) if b"@#$!%".contains(sign) => (*sign, rest),
        _ => return limit(bytes, rest),
    };
    let (start, rest) = parse_size(rest).map_err(Fault::Number)?;
    let kind = match sign {
        b'@' => MemoryKind::Usable,
        b'#' => MemoryKind::AcpiReclaimable,
        b'$' => MemoryKind::Reserved,
        b'!' => MemoryKind::Persistent,
        _ => return retype(start, bytes, rest).map(|change| (change, false)),
    };
    Ok((
        MemoryChange::Add {
            entry: MapEntry::new(start, bytes, kind),
        },
        !rest.is_empty(),
    ))
}

/// Reads the `-old+new` after `N%S`.
fn retype(start: u64, bytes: u64, rest: &[u8]) -> Result<MemoryChange, Fault> {
    let (from, rest) = type_after(b'-', rest)?;
    let (to, rest) = type_after(b'+', rest)?;
    if !rest.is_empty() {
        return Err(Fault::Form);
    }
    Ok(match (from, to) {
        (Some(from), Some(to)) => MemoryChange::Retype {
            start,
            bytes,
            from,
            to,
        },
        (None, Some(to)) => MemoryChange::Add {
            entry: MapEntry::new(start, bytes, to),
        },
        (only, None) => MemoryChange::Remove { start, bytes, only },
    })
}

/// An e820 type number after `sign`, if there is one; 0 counts as none.
fn type_after(sign: u8, text: &[u8]) -> Result<(Option<MemoryKind>, &[u8]), Fault> {
    let Some((_, digits)) = text.split_first().filter(|(first, _)| **first == sign) else {
        return Ok((None, text));
    };
    let (number, rest) = parse_number(digits).map_err(Fault::Number)?;
    Ok(((number != 0).then(|| e820_kind(number)), rest))
}

/// What an e820 type number means; an unknown one is reserved.
fn e820_kind(number: u64) -> MemoryKind {
    match number {
        1 => MemoryKind::Usable,
        3 => MemoryKind::AcpiReclaimable,
        4 => MemoryKind::AcpiNvs,
        5 => MemoryKind::Unusable,
        7 | 12 => MemoryKind::Persistent,
        0xefff_ffff => MemoryKind::SoftReserved,
        _ => MemoryKind::Reserved,
    }
}
