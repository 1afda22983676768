//! What is said: to whoever reads the log, each sentence once.

use std::collections::BTreeMap;

/// Says each sentence about something once, until there is another one about it.
pub struct Speaker<'s> {
    say: &'s mut dyn FnMut(&str),
    last: BTreeMap<&'static str, String>,
}

impl std::fmt::Debug for Speaker<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Speaker")
            .field("last", &self.last)
            .finish_non_exhaustive()
    }
}

impl<'s> Speaker<'s> {
    /// One that has said nothing yet.
    pub fn new(say: &'s mut dyn FnMut(&str)) -> Self {
        Self {
            say,
            last: BTreeMap::new(),
        }
    }

    /// Says something, in any case.
    pub fn tell(&mut self, text: &str) {
        (self.say)(text);
    }

    /// Says what is wrong with something: whether it was not said before.
    pub fn trouble(&mut self, of: &'static str, text: &str) -> bool {
        let is_new = self.last.get(of).map(String::as_str) != Some(text);
        if is_new {
            (self.say)(text);
            self.last.insert(of, text.into());
        }
        is_new
    }

    /// Nothing is wrong with it any more: whether something was.
    pub fn settle(&mut self, of: &'static str) -> bool {
        self.last.remove(of).is_some()
    }
}
