//! The structure block as a stream of [`Token`]s.

use super::error::FdtError;
use crate::firmware::bytes::{index, until_nul};

/// One step of the structure.
#[derive(Clone, Copy, Debug)]
pub(super) enum Token<'a> {
    /// A node begins; its name has no NUL.
    Begin { name: &'a [u8] },
    /// A node ends.
    End,
    /// A property of the node begun last.
    Property {
        /// The strings block from its name on; at least one byte.
        name: &'a [u8],
        value: &'a [u8],
    },
    /// The tree ends.
    Finish,
}

/// Whether the strings at a property's `name` begin with `wanted` and its NUL. Reads no more
/// bytes than `wanted` has, so that a hostile block of one endless string costs nothing.
#[inline]
pub(super) fn is(name: &[u8], wanted: &str) -> bool {
    name.strip_prefix(wanted.as_bytes())
        .is_some_and(|rest| rest.first() == Some(&0))
}

#[derive(Clone, Debug)]
pub(super) struct Tokens<'a> {
    rest: &'a [u8],
    strings: &'a [u8],
    /// Bytes of the whole structure.
    bytes: usize,
}

impl<'a> Tokens<'a> {
    /// Tokens of `structure` from `offset` on; none, if it ends before.
    pub(super) const fn new(structure: &'a [u8], strings: &'a [u8], offset: usize) -> Self {
        let rest = match structure.split_at_checked(offset) {
            Some((_, rest)) => rest,
            None => &[],
        };
        Self {
            rest,
            strings,
            bytes: structure.len(),
        }
    }

    /// Where the next token is, or a no-op before it.
    pub(super) const fn offset(&self) -> usize {
        self.bytes - self.rest.len()
    }

    /// The next token and where it is.
    // A call in the loop of each walk costs a tenth of it on riscv64; elsewhere the compiler knows.
    #[cfg_attr(target_arch = "riscv64", inline(always))]
    #[cfg_attr(not(target_arch = "riscv64"), inline)]
    pub(super) fn step(&mut self) -> Result<(usize, Token<'a>), FdtError> {
        loop {
            let offset = self.offset();
            let ended = FdtError::Ended { offset };
            let (word, body) = self.rest.split_first_chunk().ok_or(ended)?;
            let (token, rest) = match u32::from_be_bytes(*word) {
                1 => {
                    let name = until_nul(body).ok_or(ended)?;
                    (Token::Begin { name }, skip(body, name.len() + 1))
                }
                2 => (Token::End, body),
                3 => {
                    let (length, body) = body.split_first_chunk().ok_or(ended)?;
                    let (name, body) = body.split_first_chunk().ok_or(ended)?;
                    let length = index(u32::from_be_bytes(*length).into());
                    let value = body.get(..length).ok_or(ended)?;
                    let seen = u32::from_be_bytes(*name);
                    let name = self.strings.get(index(seen.into())..);
                    let name = name
                        .filter(|name| !name.is_empty())
                        .ok_or(FdtError::PropertyName { offset, seen })?;
                    (Token::Property { name, value }, skip(body, length))
                }
                4 => {
                    self.rest = body;
                    continue;
                }
                9 => (Token::Finish, body),
                seen => return Err(FdtError::BadToken { offset, seen }),
            };
            self.rest = rest;
            return Ok((offset, token));
        }
    }
}

/// What is left after `bytes`, which fit, and the padding behind them.
fn skip(body: &[u8], bytes: usize) -> &[u8] {
    body.get(bytes.next_multiple_of(4)..).unwrap_or_default()
}
