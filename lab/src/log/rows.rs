//! The pieces rows are made of: numbers and address ranges, read from the left.

use firstlight::addr::{PHYS_END, PhysRange};

use super::problem::Bad;

/// Addresses as logs print them: the last byte is inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// First byte.
    pub start: u64,
    /// Last byte.
    pub last: u64,
}

impl Span {
    /// The span as a half-open range; `None` when it reaches 2^64.
    ///
    /// ```
    /// use firstlight_lab::log::Span;
    /// let range = Span { start: 0x1000, last: 0x1fff }.range().unwrap();
    /// assert_eq!(range.bytes(), 0x1000);
    /// ```
    pub fn range(self) -> Option<PhysRange> {
        PhysRange::new(self.start, self.last.checked_add(1)?)
    }

    /// Whether it reaches beyond what any x86-64 machine can address (4 PiB).
    pub fn is_absurd(self) -> bool {
        self.last >= PHYS_END
    }
}

/// The rest of a line, read from the left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scan<'a> {
    pub(super) rest: &'a str,
}

impl<'a> Scan<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { rest: text }
    }

    /// Skips white space, then takes `literal` if it comes next.
    pub(super) fn eat(&mut self, literal: &str) -> bool {
        // Most lines are told apart by their first letter.
        let text = match self.rest.as_bytes().first() {
            Some(b'!'..=b'~') => self.rest,
            _ => self.rest.trim_start(),
        };
        if text.as_bytes().first() != literal.as_bytes().first() {
            return false;
        }
        match text.strip_prefix(literal) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// Takes `literal`, which must come next.
    pub(super) fn expect(&mut self, literal: &'static str) -> Result<(), Bad> {
        if self.eat(literal) {
            Ok(())
        } else {
            Err(Bad::Expected(literal))
        }
    }

    /// What is left, without white space around it.
    pub(super) fn remainder(&self) -> &'a str {
        self.rest.trim()
    }

    /// The next word: up to white space or one of `:,`.
    pub(super) fn word(&mut self) -> &'a str {
        let text = self.rest.trim_start();
        let end = text.find(|c: char| c.is_whitespace() || c == ':' || c == ',');
        let (word, rest) = text.split_at(end.unwrap_or(text.len()));
        self.rest = rest;
        word
    }

    fn digits(&mut self, radix: u32) -> Result<&'a str, Bad> {
        let text = self.rest.trim_start();
        let end = text
            .find(|c: char| !c.is_digit(radix))
            .unwrap_or(text.len());
        let (digits, rest) = text.split_at(end);
        if digits.is_empty() {
            return Err(Bad::Expected("a number"));
        }
        self.rest = rest;
        Ok(digits)
    }

    fn value(digits: &str, radix: u32) -> Result<u64, Bad> {
        let large = |_| Bad::TooLarge {
            digits: digits.to_owned(),
            bits: 64,
        };
        u64::from_str_radix(digits, radix).map_err(large)
    }

    /// A decimal number.
    pub(super) fn decimal(&mut self) -> Result<u64, Bad> {
        Self::value(self.digits(10)?, 10)
    }

    /// A small decimal number, such as that of a node.
    pub(super) fn small(&mut self) -> Result<u32, Bad> {
        let digits = self.digits(10)?;
        let large = |_| Bad::TooLarge {
            digits: digits.to_owned(),
            bits: 32,
        };
        digits.parse().map_err(large)
    }

    /// A hexadecimal number, with or without `0x`.
    pub(super) fn hex(&mut self) -> Result<u64, Bad> {
        self.eat("0x");
        Self::value(self.digits(16)?, 16)
    }

    /// A number that is hexadecimal if it says so.
    pub(super) fn number(&mut self) -> Result<u64, Bad> {
        if self.eat("0x") {
            Self::value(self.digits(16)?, 16)
        } else {
            self.decimal()
        }
    }

    /// `[mem 0x1000-0x1fff]` or `[0x1000-0x1fff]`.
    pub(super) fn bracketed(&mut self) -> Result<Span, Bad> {
        self.expect("[")?;
        self.eat("mem");
        let span = self.inclusive()?;
        self.expect("]")?;
        Ok(span)
    }

    /// `0x1000-0x1fff`, the last byte inside.
    pub(super) fn inclusive(&mut self) -> Result<Span, Bad> {
        let start = self.hex()?;
        self.expect("-")?;
        let last = self.hex()?;
        if last < start {
            Err(Bad::Backwards { start, last })
        } else {
            Ok(Span { start, last })
        }
    }

    /// `1000 - 2000`, as before Linux 3.5: the end is the first byte after.
    pub(super) fn exclusive(&mut self) -> Result<Span, Bad> {
        let start = self.hex()?;
        self.expect("-")?;
        let end = self.hex()?;
        match end.checked_sub(1) {
            Some(last) if last >= start => Ok(Span { start, last }),
            _ => Err(Bad::Backwards { start, last: end }),
        }
    }

    /// `0x10 -> 0x1000` in page frames, as before Linux 3.5.
    pub(super) fn frames(&mut self) -> Result<Span, Bad> {
        let start = self.hex()?;
        self.expect("->")?;
        let end = self.hex()?;
        let bytes = |pfn: u64| {
            let large = || Bad::TooLarge {
                digits: format!("page frame {pfn:#x}"),
                bits: 52,
            };
            pfn.checked_mul(4096).ok_or_else(large)
        };
        let (first, after) = (bytes(start)?, bytes(end)?);
        match after.checked_sub(1) {
            Some(last) if last >= first => Ok(Span { start: first, last }),
            _ => Err(Bad::Backwards {
                start: first,
                last: after,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_every_age() {
        let span = Span {
            start: 0x1000,
            last: 0x1fff,
        };
        assert_eq!(Scan::new("[mem 0x1000-0x1fff] rest").bracketed(), Ok(span));
        assert_eq!(
            Scan::new("[0x0000000000001000-0x0000000000001fff]").bracketed(),
            Ok(span)
        );
        assert_eq!(
            Scan::new("0000000000001000 - 0000000000002000 (usable)").exclusive(),
            Ok(span)
        );
        assert_eq!(Scan::new("0x00000001 -> 0x00000002").frames(), Ok(span));
    }

    #[test]
    fn what_cannot_be_a_range_is_named() {
        let text = "[mem 0x10000000000000000-0x1]";
        assert!(matches!(
            Scan::new(text).bracketed(),
            Err(Bad::TooLarge { bits: 64, .. })
        ));
        let text = "[mem 0x2000-0x1fff]";
        let backwards = Bad::Backwards {
            start: 0x2000,
            last: 0x1fff,
        };
        assert_eq!(Scan::new(text).bracketed(), Err(backwards));
        assert!(matches!(
            Scan::new("[mem 0x2000-0x1f").bracketed(),
            Err(Bad::Backwards { .. })
        ));
        assert_eq!(
            Scan::new("[mem 0x2000-0x2fff").bracketed(),
            Err(Bad::Expected("]"))
        );
        assert_eq!(
            Scan::new("4 - 4").exclusive(),
            Err(Bad::Backwards { start: 4, last: 4 })
        );
        assert!(
            Span {
                start: 0,
                last: u64::MAX
            }
            .range()
            .is_none()
        );
    }
}
