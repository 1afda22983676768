//! What is said: to whoever reads the log, each sentence once, and of what an operator has to do something about in an
//! event of the node.

use crate::events::Events;
use std::collections::BTreeMap;

/// Says each sentence about something once, until there is another one about it.
pub struct Speaker<'s> {
    say: &'s mut dyn FnMut(&str),
    events: Option<Events>,
    last: BTreeMap<&'static str, Said>,
}

struct Said {
    text: String,
    has_event: bool,
}

impl std::fmt::Debug for Speaker<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Speaker")
            .field("last", &self.last.keys())
            .finish_non_exhaustive()
    }
}

impl<'s> Speaker<'s> {
    /// One that has said nothing yet.
    pub fn new(say: &'s mut dyn FnMut(&str), events: Option<Events>) -> Self {
        Self {
            say,
            events,
            last: BTreeMap::new(),
        }
    }

    /// Says something, in any case.
    pub fn tell(&mut self, text: &str) {
        (self.say)(text);
    }

    /// Says what is wrong with something.
    pub fn trouble(&mut self, of: &'static str, text: &str) {
        if self.last.get(of).is_none_or(|said| said.text != text) {
            (self.say)(text);
            let said = Said {
                text: text.into(),
                has_event: false,
            };
            self.last.insert(of, said);
        }
    }

    /// Says what is wrong, in an event of this reason too: in a later call, where there was one just before.
    pub fn warn(&mut self, reason: &'static str, text: &str) {
        self.trouble(reason, text);
        if let (Some(events), Some(said)) = (&self.events, self.last.get_mut(reason)) {
            said.has_event = said.has_event || events.warn(reason, text);
        }
    }

    /// Says what is wrong as [`Self::warn`] does, or settles it where nothing is.
    pub fn keep(&mut self, reason: &'static str, text: Option<String>) {
        match text {
            Some(text) => self.warn(reason, &text),
            None => drop(self.settle(reason)),
        }
    }

    /// Nothing is wrong with it any more: whether something was.
    pub fn settle(&mut self, of: &'static str) -> bool {
        self.last.remove(of).is_some()
    }
}
