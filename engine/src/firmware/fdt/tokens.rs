//! The structure block as a stream of [`Token`]s.

use super::error::FdtError;
use crate::firmware::bytes::{index, u32_be, until_nul};

/// One step of the structure.
#[derive(Clone, Copy, Debug)]
pub(super) enum Token<'a> {
    /// A node begins; its name has no NUL.
    Begin { name: &'a [u8] },
    /// A node ends.
    End,
    /// A property of the node begun last; its name's offset is inside the
    /// strings block.
    Property { name: u32, value: &'a [u8] },
    /// The tree ends.
    Finish,
}

#[derive(Clone, Debug)]
pub(super) struct Tokens<'a> {
    structure: &'a [u8],
    strings: &'a [u8],
    offset: usize,
}

impl<'a> Tokens<'a> {
    pub(super) const fn new(structure: &'a [u8], strings: &'a [u8], offset: usize) -> Self {
        Self {
            structure,
            strings,
            offset,
        }
    }

    /// Where the next token is.
    pub(super) const fn offset(&self) -> usize {
        self.offset
    }

    /// Whether the name at `offset` of the strings block is `name`. Reads no
    /// more bytes than `name` has, so that a hostile block of one endless
    /// string costs nothing.
    pub(super) fn names(&self, offset: u32, name: &str) -> bool {
        let found = self.strings.get(index(offset.into())..).unwrap_or_default();
        found
            .strip_prefix(name.as_bytes())
            .is_some_and(|rest| rest.first() == Some(&0))
    }

    fn token(&mut self) -> Result<Option<Token<'a>>, FdtError> {
        let offset = self.offset;
        let ended = FdtError::Ended { offset };
        let seen = u32_be(self.structure, offset).ok_or(ended)?;
        let body = offset + 4;
        let rest = self.structure.get(body..).unwrap_or_default();
        let (token, bytes) = match seen {
            1 => {
                let name = until_nul(rest).ok_or(ended)?;
                (Token::Begin { name }, name.len() + 1)
            }
            2 => (Token::End, 0),
            3 => {
                let length = index(u32_be(rest, 0).ok_or(ended)?.into());
                let name = u32_be(rest, 4).ok_or(ended)?;
                let value = rest
                    .get(8..)
                    .and_then(|rest| rest.get(..length))
                    .ok_or(ended)?;
                if index(name.into()) >= self.strings.len() {
                    return Err(FdtError::PropertyName { offset, seen: name });
                }
                (Token::Property { name, value }, 8 + length)
            }
            4 => {
                self.offset = body;
                return Ok(None);
            }
            9 => (Token::Finish, 0),
            _ => return Err(FdtError::BadToken { offset, seen }),
        };
        self.offset = body.saturating_add(bytes.next_multiple_of(4));
        Ok(Some(token))
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Result<Token<'a>, FdtError>;

    /// Stops being useful after an error or [`Token::Finish`]: callers stop.
    fn next(&mut self) -> Option<Self::Item> {
        while self.offset < self.structure.len() {
            match self.token() {
                Ok(None) => {}
                Ok(Some(token)) => return Some(Ok(token)),
                Err(error) => return Some(Err(error)),
            }
        }
        None
    }
}
