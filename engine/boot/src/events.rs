//! A log of named events from the first instruction on: [`Events`].
//!
//! A kernel that measures its own start needs a place to write before it has
//! memory, in a unit that needs no calibrated clock. So events lie in
//! caller-provided storage and are stamped in ticks, from the first
//! instruction on; [`crate::clock::Frequency`] turns them into nanoseconds
//! later. Names are static, one writer writes, nothing is formatted.
//!
//! Full storage loses no event in silence: the first stay, the rest are counted
//! ([`Events::lost`]).
#![deny(unsafe_code)]

use crate::store::Store;

/// Something with a name and a time, in ticks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A step that took a while.
    Phase {
        /// What was done.
        name: &'static str,
        /// When it began.
        start_ticks: u64,
        /// When it was done; not before it began.
        end_ticks: u64,
    },
    /// A moment that was reached.
    Milestone {
        /// What was reached.
        name: &'static str,
        /// When.
        ticks: u64,
    },
}

impl Event {
    /// The content of unused storage.
    pub const EMPTY: Self = Self::Milestone { name: "", ticks: 0 };
}

/// Phases and milestones in the order they ended, in caller-provided storage.
///
/// Each phase begins where the one before ended, unless [`Events::begin`] was
/// called: so no time between two steps goes missing.
///
/// ```
/// use firstlight_boot::clock::Frequency;
/// use firstlight_boot::events::{Event, Events};
///
/// let mut slots = [Event::EMPTY; 3];
/// let mut events = Events::new(&mut slots, 1_000);
/// events.milestone("entry", 1_000);
/// events.end("memory map", 4_000);
/// events.end("topology", 4_500);
/// events.end("layout", 5_000);
///
/// // Later the frequency is known.
/// let tsc = Frequency::new(2_000_000_000).ok_or("zero")?;
/// let Event::Phase { name, start_ticks, end_ticks } = events.list()[2] else { panic!() };
/// assert_eq!((name, tsc.ns(end_ticks - start_ticks)), ("topology", 250));
/// assert_eq!(events.lost(), 1); // three slots were one too few
/// # Ok::<(), &str>(())
/// ```
#[derive(Debug)]
pub struct Events<'s> {
    list: Store<'s, Event>,
    since_ticks: u64,
    lost: u64,
}

impl<'s> Events<'s> {
    /// No events yet; the first phase begins at `start_ticks`.
    pub fn new(slots: &'s mut [Event], start_ticks: u64) -> Self {
        Self {
            list: Store::new(slots),
            since_ticks: start_ticks,
            lost: 0,
        }
    }

    /// The next phase begins at `now` and not where the last one ended: what
    /// was between belongs to no step.
    pub fn begin(&mut self, now: u64) {
        self.since_ticks = now;
    }

    /// Ends the phase `name` at `now`. A stamp before its begin, from a CPU
    /// whose counter is behind, ends it where it began.
    pub fn end(&mut self, name: &'static str, now: u64) {
        let start_ticks = self.since_ticks;
        let end_ticks = now.max(start_ticks);
        self.since_ticks = end_ticks;
        self.write(Event::Phase {
            name,
            start_ticks,
            end_ticks,
        });
    }

    /// Records that `name` was reached at `now`; phases are not affected.
    pub fn milestone(&mut self, name: &'static str, now: u64) {
        self.write(Event::Milestone { name, ticks: now });
    }

    /// All events so far.
    pub fn list(&self) -> &[Event] {
        &self.list
    }

    /// Events there was no slot for: provide so many slots more.
    pub const fn lost(&self) -> u64 {
        self.lost
    }

    fn write(&mut self, event: Event) {
        if self.list.push(event).is_err() {
            self.lost = self.lost.saturating_add(1);
        }
    }
}

#[cfg(all(test, not(firstlight_loom)))]
mod tests {
    use super::*;

    const fn phase(name: &'static str, start_ticks: u64, end_ticks: u64) -> Event {
        Event::Phase {
            name,
            start_ticks,
            end_ticks,
        }
    }

    #[test]
    fn phases_join_and_milestones_do_not_part_them() {
        let mut slots = [Event::EMPTY; 8];
        let mut events = Events::new(&mut slots, 10);
        events.end("a", 25);
        events.milestone("there", 30);
        events.end("b", 40);
        events.begin(100);
        events.end("c", 101);
        events.end("d", 101);
        let expected = [
            phase("a", 10, 25),
            Event::Milestone {
                name: "there",
                ticks: 30,
            },
            phase("b", 25, 40),
            phase("c", 100, 101),
            phase("d", 101, 101),
        ];
        assert_eq!(events.list(), expected);
        assert_eq!(events.lost(), 0);
    }

    #[test]
    fn what_does_not_fit_is_counted_and_time_goes_on() {
        let mut slots = [Event::EMPTY; 1];
        let mut events = Events::new(&mut slots, 0);
        events.end("first", 1);
        events.end("second", 2);
        events.milestone("third", 3);
        assert_eq!(events.list(), [phase("first", 0, 1)]);
        assert_eq!(events.lost(), 2);

        let mut none = Events::new(&mut [], 0);
        none.milestone("nowhere", 1);
        assert!(none.list().is_empty());
        assert_eq!(none.lost(), 1);
    }

    #[test]
    fn a_stamp_from_the_past_ends_a_phase_where_it_began() {
        let mut slots = [Event::EMPTY; 4];
        let mut events = Events::new(&mut slots, 50);
        events.end("behind", 20);
        events.end("after", 60);
        assert_eq!(
            events.list(),
            [phase("behind", 50, 50), phase("after", 50, 60)]
        );
    }
}
