//! `preserve=SIZE@ADDRESS`: the place of the hand-over table; `preserve=verified`.

use crate::addr::{PAGE_BYTES, PHYS_END, PhysRange};

use super::{BadWord, CommandLine, Fault, Word, parse_size};

impl<'a> CommandLine<'a> {
    /// The place where the previous kernel leaves its [hand-over table](crate::preserve), and
    /// this one the next: `preserve=SIZE@ADDRESS`, in whole pages. The last one counts.
    ///
    /// ```
    /// use firstlight_frames::addr::PhysRange;
    /// use firstlight_boot::cmdline::CommandLine;
    /// let place = |line| CommandLine::new(line).preserve_place(&mut |bad| println!("{bad}"));
    /// assert_eq!(place(b"preserve=64K@16M"), PhysRange::with_size(16 << 20, 64 << 10));
    /// assert_eq!(place(b"preserve=64K@1"), None); // no whole pages
    /// ```
    pub fn preserve_place(&self, report: &mut dyn FnMut(BadWord<'a>)) -> Option<PhysRange> {
        let mut place = None;
        for word in self.words() {
            match word.preserve_place() {
                Some(Ok(range)) => place = Some(range),
                Some(Err(fault)) => report(BadWord {
                    word: word.text,
                    fault,
                }),
                None => {}
            }
        }
        place
    }

    /// Whether what preserved memory holds is checked by checksums: `preserve=verified`, in both kernels.
    ///
    /// ```
    /// use firstlight_boot::cmdline::CommandLine;
    /// assert!(CommandLine::new(b"preserve=64K@16M preserve=verified").preserve_verified());
    /// assert!(!CommandLine::new(b"preserve=64K@16M").preserve_verified());
    /// ```
    pub fn preserve_verified(&self) -> bool {
        self.words().any(|word| word.is_preserve_verified())
    }
}

impl Word<'_> {
    /// Whether this is `preserve=verified`.
    pub fn is_preserve_verified(&self) -> bool {
        self.is("preserve") && self.value == Some(b"verified")
    }

    /// If this is `preserve=` with a place, that, for kernels that walk the words themselves.
    ///
    /// # Errors
    /// The [`Fault`] of its value.
    pub fn preserve_place(&self) -> Option<Result<PhysRange, Fault>> {
        (self.is("preserve") && !self.is_preserve_verified())
            .then(|| self.value.ok_or(Fault::NoValue).and_then(read))
    }
}

fn read(value: &[u8]) -> Result<PhysRange, Fault> {
    let (bytes, rest) = parse_size(value).map_err(Fault::Number)?;
    let rest = rest.strip_prefix(b"@").ok_or(Fault::Place)?;
    let (start, rest) = parse_size(rest).map_err(Fault::Number)?;
    let range = PhysRange::with_size(start, bytes).ok_or(Fault::Place)?;
    let whole = start.is_multiple_of(PAGE_BYTES) && bytes.is_multiple_of(PAGE_BYTES);
    let is_place = whole && bytes > 0 && range.end().get() <= PHYS_END && rest.is_empty();
    is_place.then_some(range).ok_or(Fault::Place)
}

#[cfg(all(test, not(firstlight_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_whole_pages() {
        for (text, want) in [
            (
                &b"preserve=64K@16M"[..],
                PhysRange::with_size(16 << 20, 64 << 10),
            ),
            (
                b"preserve=0x20000@0x10000 preserve=x",
                PhysRange::with_size(64 << 10, 128 << 10),
            ),
            (
                b"preserve=verified preserve=64K@16M preserve=verified",
                PhysRange::with_size(16 << 20, 64 << 10),
            ),
            (b"preserve", None),
            (b"preserve=4K", None),
            (b"preserve=4K@", None),
            (b"preserve=0@16M", None),
            (b"preserve=5000@16M", None),
            (b"preserve=64K@16M,", None),
            (b"preserve=4K@15E", None),
            (b"preserve=15E@15E", None),
            (b"preserve=16E@4K", None),
        ] {
            let mut bad = 0;
            let place = CommandLine::new(text).preserve_place(&mut |_| bad += 1);
            let words = text.split(|byte| *byte == b' ');
            let places = words.filter(|word| *word != b"preserve=verified").count();
            let faults = places - usize::from(want.is_some());
            assert_eq!((place, bad), (want, faults), "{}", text.escape_ascii());
        }
    }
}
