//! How much of what a guest gave back is put back for it: the rule alone,
//! without files and clocks.
//!
//! A guest with free page reporting gives memory back that it does not use, so
//! that the host has it. Were all of it put back, giving would be for nothing;
//! were none, each page would cost its guest a zeroing when it comes back to it.
//! So each guest has a *reserve*: up to a budget of pages that it gave back and
//! that are kept ready for it all the same.
//!
//! - What was given back less than a while ago is not touched: only as much as was
//!   missing at every look during that while is put back.
//! - A page of the reserve that the guest used and gave back again is put back
//!   before others: the reserve does not grow by it.
//! - Of a page of the reserve that the guest uses the host sees nothing, of a
//!   page without memory it does. So when the guest takes a part of what is
//!   missing, the same part of the reserve, the oldest pages, counts as used,
//!   and others may take their place.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The reserve of one lease.
///
/// ```
/// use firstlight_pool::lease::Reserve;
/// use std::time::{Duration, Instant};
/// let (page, while_) = (2 << 20, Duration::from_secs(10));
/// let mut reserve = Reserve::new(4 << 20, page, while_);
/// let start = Instant::now();
/// reserve.look(64 << 20, start);
/// assert_eq!(reserve.due(start), None); // just given back
/// reserve.look(64 << 20, start + while_);
/// let due = reserve.due(start + while_).unwrap();
/// assert_eq!((due.most_pages, due.new_pages), (32, 2));
/// reserve.put_back(&[7, 8]);
/// assert_eq!(reserve.missing_bytes(), 60 << 20);
/// ```
#[derive(Debug)]
pub struct Reserve {
    budget_bytes: u64,
    page_bytes: u64,
    after: Duration,
    /// When it was looked, and how many bytes were missing; the first is the
    /// last that is as old as `after`, if there is one.
    looks: VecDeque<(Instant, u64)>,
    /// Pages put back, the oldest first.
    pages: VecDeque<u64>,
    /// So many of these, the oldest, were looked at by turns that were ended early.
    looked: usize,
    /// Where to look for the next.
    next_page: u64,
    /// Nothing is to be done before then, unless more is given back.
    rests_until: Option<Instant>,
}

/// What may be put back now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    /// Pages of the reserve.
    pub reserve: Vec<u64>,
    /// So many of these, the first, were looked at before.
    pub looked: usize,
    /// Where to look for others.
    pub first_page: u64,
    /// Pages to put back at most.
    pub most_pages: u64,
    /// Of these, at most so many others.
    pub new_pages: u64,
}

impl Reserve {
    /// An empty one, of up to `budget_bytes` in pages of `page_bytes`; what is
    /// put back was missing for as long as `after`.
    #[must_use]
    pub fn new(budget_bytes: u64, page_bytes: u64, after: Duration) -> Self {
        Self {
            budget_bytes,
            page_bytes: page_bytes.max(1),
            after,
            looks: VecDeque::new(),
            pages: VecDeque::new(),
            looked: 0,
            next_page: 0,
            rests_until: None,
        }
    }

    /// So many bytes of the slab are missing now.
    pub fn look(&mut self, missing_bytes: u64, now: Instant) {
        let before = self.missing_bytes();
        match before.checked_sub(missing_bytes) {
            Some(taken) => self.count_as_used(taken, before),
            // More was given back, of the reserve too perhaps.
            None => self.rests_until = None,
        }
        self.looks.push_back((now, missing_bytes));
        let old = |at: Instant| now.saturating_duration_since(at) >= self.after;
        while self.looks.get(1).is_some_and(|(at, _)| old(*at)) {
            self.looks.pop_front();
        }
    }

    /// Of `of` missing bytes the guest took `taken` itself.
    fn count_as_used(&mut self, taken: u64, of: u64) {
        let pages = self.pages.len() as u128 * u128::from(taken);
        let used = pages.checked_div(u128::from(of)).unwrap_or(0);
        let used = usize::try_from(used).unwrap_or(usize::MAX);
        self.pages.drain(..used.min(self.pages.len()));
        self.looked = self.looked.saturating_sub(used);
    }

    /// Bytes missing now, as far as is known.
    #[must_use]
    pub fn missing_bytes(&self) -> u64 {
        self.looks.back().map_or(0, |(_, bytes)| *bytes)
    }

    /// Bytes of the reserve: put back, and not known to have been used since.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.pages.len() as u64 * self.page_bytes
    }

    /// What may be put back at this moment.
    #[must_use]
    pub fn due(&self, now: Instant) -> Option<Due> {
        let (first, _) = self.looks.front()?;
        let too_early = now.saturating_duration_since(*first) < self.after;
        let rests = self.rests_until.is_some_and(|until| now < until);
        if self.budget_bytes == 0 || too_early || rests {
            return None;
        }
        let settled_bytes = self.looks.iter().map(|(_, bytes)| *bytes).min()?;
        let most_pages = settled_bytes / self.page_bytes;
        let free_bytes = self.budget_bytes.saturating_sub(self.bytes());
        let new_pages = free_bytes / self.page_bytes;
        let some = most_pages > 0 && (new_pages > 0 || !self.pages.is_empty());
        some.then(|| Due {
            reserve: self.pages.iter().copied().collect(),
            looked: self.looked,
            first_page: self.next_page,
            most_pages,
            new_pages,
        })
    }

    /// These pages were put back.
    pub fn put_back(&mut self, pages: &[u64]) {
        let bytes = (pages.len() as u64).saturating_mul(self.page_bytes);
        for (_, missing) in &mut self.looks {
            *missing = missing.saturating_sub(bytes);
        }
        for page in pages {
            if !self.pages.contains(page) {
                self.pages.push_back(*page);
                self.next_page = page.saturating_add(1);
            }
        }
    }

    /// A turn ended. Before its end: so many of the reserve were looked at, and others up to this page; the next goes on
    /// there.
    pub fn turn_ended(&mut self, early: Option<(usize, u64)>) {
        self.looked = early.map_or(0, |(looked, _)| looked);
        self.next_page = early.map_or(self.next_page, |(_, page)| page);
    }

    /// Nothing is to be done before `until`, unless more is given back.
    pub fn rest(&mut self, until: Instant) {
        self.rests_until = Some(until);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 2 << 20;

    fn seconds(number: u64) -> Duration {
        Duration::from_secs(number)
    }

    fn pages(missing: u64) -> u64 {
        missing * PAGE
    }

    /// A reserve of `budget` pages after ten seconds in which `missing` were missing.
    fn settled(budget: u64, missing: u64) -> (Reserve, Instant) {
        let mut reserve = Reserve::new(pages(budget), PAGE, seconds(10));
        let begin = Instant::now();
        reserve.look(pages(missing), begin);
        let now = begin + seconds(10);
        reserve.look(pages(missing), now);
        (reserve, now)
    }

    #[test]
    fn only_what_was_missing_all_the_time_is_put_back() {
        let mut reserve = Reserve::new(pages(100), PAGE, seconds(10));
        let begin = Instant::now();
        for (second, missing, due) in [
            (0, 50, None),
            (4, 80, None),
            (9, 60, None),
            (10, 60, Some(50)),
            (14, 70, Some(60)),
            (15, 20, Some(20)),
            (24, 90, Some(20)),
            (25, 90, Some(20)),
            (34, 90, Some(90)),
            (40, 0, None),
        ] {
            let now = begin + seconds(second);
            reserve.look(pages(missing), now);
            let most = reserve.due(now).map(|due| due.most_pages);
            assert_eq!(most, due, "second {second}");
        }
        let none = Reserve::new(pages(100), PAGE, seconds(0));
        assert_eq!(none.due(begin), None, "never looked");
    }

    #[test]
    fn no_more_than_the_budget_and_given_back_again_counts_once() {
        let (mut reserve, now) = settled(3, 50);
        assert_eq!(reserve.due(now).unwrap().new_pages, 3);
        reserve.put_back(&[4, 5, 9]);
        let due = reserve.due(now).unwrap();
        assert_eq!((due.new_pages, due.first_page), (0, 10));
        assert_eq!(due.reserve, [4, 5, 9]);
        assert_eq!(due.most_pages, 47);
        // Page 5 was used, given back, and put back.
        reserve.look(pages(48), now + seconds(1));
        reserve.put_back(&[5]);
        assert_eq!(reserve.bytes(), pages(3));
        assert_eq!(reserve.missing_bytes(), pages(47));
    }

    #[test]
    fn a_turn_that_was_ended_early_is_gone_on_with() {
        let (mut reserve, now) = settled(4, 50);
        reserve.put_back(&[4, 5, 9]);
        let seen = |reserve: &Reserve, now| {
            let due = reserve.due(now).unwrap();
            (due.reserve, due.looked, due.first_page)
        };
        assert_eq!(seen(&reserve, now), (vec![4, 5, 9], 0, 10));
        reserve.turn_ended(Some((2, 7)));
        assert_eq!(seen(&reserve, now), (vec![4, 5, 9], 2, 7));
        // The oldest counts as used.
        reserve.look(pages(20), now);
        assert_eq!(seen(&reserve, now), (vec![5, 9], 1, 7));
        reserve.turn_ended(None);
        assert_eq!(seen(&reserve, now), (vec![5, 9], 0, 7));
    }

    #[test]
    fn as_large_a_part_of_the_reserve_counts_as_used_as_the_guest_takes_of_the_rest() {
        let (mut reserve, now) = settled(4, 44);
        reserve.put_back(&[0, 1, 2, 3]);
        // What was put back was not taken by the guest.
        reserve.look(pages(40), now + seconds(1));
        assert_eq!(reserve.bytes(), pages(4));
        reserve.look(pages(20), now + seconds(2));
        assert_eq!(reserve.bytes(), pages(2));
        let due = reserve.due(now + seconds(2)).unwrap();
        assert_eq!((due.reserve, due.new_pages), (vec![2, 3], 2));
        reserve.look(0, now + seconds(3));
        assert_eq!(reserve.bytes(), 0);
        assert_eq!(reserve.due(now + seconds(3)), None);
    }

    #[test]
    fn off_at_rest_or_with_less_than_a_page_nothing_is_due() {
        assert_eq!(settled(0, 50).0.due(Instant::now() + seconds(60)), None);
        let (mut reserve, now) = settled(3, 50);
        reserve.rest(now + seconds(5));
        assert_eq!(reserve.due(now + seconds(4)), None);
        assert!(reserve.due(now + seconds(5)).is_some());
        reserve.look(pages(50), now + seconds(4));
        assert_eq!(reserve.due(now + seconds(4)), None);
        reserve.look(pages(51), now + seconds(4));
        assert!(reserve.due(now + seconds(4)).is_some());
        reserve.look(PAGE - 1, now + seconds(6));
        assert_eq!(reserve.due(now + seconds(6)), None);
        // A budget in which no page fits.
        for (budget, is_due) in [(PAGE - 1, false), (PAGE, true)] {
            let mut reserve = Reserve::new(budget, PAGE, seconds(10));
            reserve.look(pages(50), now);
            reserve.look(pages(50), now + seconds(10));
            assert_eq!(reserve.due(now + seconds(10)).is_some(), is_due);
        }
    }
}
