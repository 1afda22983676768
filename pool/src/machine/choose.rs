//! Which class a client is served from: a pure decision.
//!
//! The smallest clean slab that is large enough; where there is none, the
//! largest smaller one, if the client gave time and the rest can be zeroed in it.

use super::speed::NsPerGib;
use crate::protocol::PageSize;
use crate::store::Key;
use std::time::Duration;

/// What is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Want {
    /// At least so many bytes.
    pub bytes: u64,
    /// From this node; from any when `None`.
    pub node: Option<u32>,
    /// Of this page size; of any when `None`.
    pub page: Option<PageSize>,
    /// Time that may go into zeroing what a smaller slab lacks.
    pub top_up: Duration,
    /// Only if less than half is lacking.
    pub if_faster: bool,
}

/// Which slab.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// One of the class at this place, as it is.
    Whole(usize),
    /// One of the class at this place, and it must grow to so many bytes.
    Grow(usize, u64),
}

/// A class as far as the decision needs it.
#[derive(Debug, Clone, Copy)]
pub struct Candidate {
    /// Its name.
    pub key: Key,
    /// Whether it has a clean slab.
    pub ready: bool,
    /// Whether its slabs can be made longer: those that were allocated before cannot.
    pub grows: bool,
}

/// The decision. `one_node` says that the machine has one node only, where a
/// class that is bound to none lies on it all the same.
#[must_use]
pub fn choose(
    candidates: &[Candidate],
    want: &Want,
    one_node: bool,
    speed: NsPerGib,
) -> Option<Choice> {
    let fits = |key: &Key| {
        let node = match (want.node, key.node) {
            (None, _) => true,
            (Some(0), None) => one_node,
            (wanted, here) => wanted == here,
        };
        node && want.page.is_none_or(|page| page == key.page)
    };
    let ready = || {
        let candidates = candidates.iter().enumerate();
        candidates.filter(|(_, class)| class.ready && fits(&class.key))
    };
    let whole = ready()
        .filter(|(_, class)| class.key.bytes >= want.bytes)
        .min_by_key(|(_, class)| (class.key.bytes, class.key.page));
    if let Some((index, _)) = whole {
        return Some(Choice::Whole(index));
    }
    let (index, class) = ready()
        .filter(|(_, class)| class.grows && class.key.bytes < want.bytes)
        .max_by_key(|(_, class)| (class.key.bytes, std::cmp::Reverse(class.key.page)))?;
    let bytes = want
        .bytes
        .checked_next_multiple_of(class.key.page.bytes())?;
    let missing = u128::from(bytes - class.key.bytes);
    if want.if_faster && missing * 2 >= u128::from(bytes) {
        return None;
    }
    let needed_ns = (missing * u128::from(speed)) >> 30;
    (needed_ns < want.top_up.as_nanos()).then_some(Choice::Grow(index, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const G: u64 = 1 << 30;

    fn class(page: PageSize, node: Option<u32>, bytes: u64, ready: bool) -> Candidate {
        let key = Key { page, node, bytes };
        let grows = bytes != 7 * G;
        Candidate { key, ready, grows }
    }

    fn want(bytes: u64) -> Want {
        Want {
            bytes,
            node: None,
            page: None,
            top_up: Duration::ZERO,
            if_faster: false,
        }
    }

    #[test]
    fn the_smallest_that_fits_on_the_right_node_with_the_right_pages() {
        use PageSize::{Giant, Huge, Transparent};
        let classes = [
            class(Huge, Some(0), 8 * G, true),
            class(Huge, Some(0), 4 * G, true),
            class(Giant, Some(1), 4 * G, true),
            class(Huge, Some(1), 2 * G, false),
            class(Transparent, None, 3 * G, true),
        ];
        let ask = |node, page, bytes| {
            let want = Want {
                node,
                page,
                ..want(bytes)
            };
            choose(&classes, &want, false, 0)
        };
        for (node, page, bytes, chosen) in [
            (None, None, 1, Some(4)),
            (None, None, 3 * G + 1, Some(1)),
            (None, None, 4 * G + 1, Some(0)),
            (None, None, 8 * G + 1, None),
            (Some(0), None, 1, Some(1)),
            (Some(1), None, 1, Some(2)),
            (Some(1), Some(Huge), 1, None),
            (Some(2), None, 1, None),
            (None, Some(Giant), 1, Some(2)),
            (None, Some(Huge), 4 * G, Some(1)),
        ] {
            let chosen = chosen.map(Choice::Whole);
            assert_eq!(ask(node, page, bytes), chosen, "{node:?} {page:?} {bytes}");
        }
    }

    #[test]
    fn an_unbound_class_serves_node_0_only_where_there_is_no_other() {
        let classes = [class(PageSize::Huge, None, G, true)];
        let ask = |node, one| {
            let want = Want {
                node: Some(node),
                ..want(G)
            };
            choose(&classes, &want, one, 0)
        };
        assert_eq!(ask(0, true), Some(Choice::Whole(0)));
        assert_eq!(ask(0, false), None);
        assert_eq!(ask(1, true), None);
    }

    #[test]
    fn the_largest_smaller_one_grows_if_there_is_time() {
        let classes = [
            class(PageSize::Huge, None, G, true),
            class(PageSize::Huge, None, 2 * G, true),
            class(PageSize::Huge, None, 3 * G, false),
        ];
        let ask = |bytes, ms| {
            let want = Want {
                top_up: Duration::from_millis(ms),
                ..want(bytes)
            };
            choose(&classes, &want, true, 100_000_000)
        };
        assert_eq!(ask(3 * G, 0), None);
        assert_eq!(ask(3 * G, 100), None);
        assert_eq!(ask(3 * G, 101), Some(Choice::Grow(1, 3 * G)));
        let odd = 2 * G + 1;
        assert_eq!(ask(odd, 1), Some(Choice::Grow(1, 2 * G + (2 << 20))));
        assert_eq!(ask(u64::MAX, u64::MAX), None);
        // A small part of what is wanted is no head start.
        for (bytes, chosen) in [
            (3 * G, Some(Choice::Grow(1, 3 * G))),
            (4 * G - 1, None),
            (4 * G, None),
            (8 * G, None),
        ] {
            let faster = Want {
                top_up: Duration::from_secs(100),
                if_faster: true,
                ..want(bytes)
            };
            assert_eq!(choose(&classes, &faster, true, 100_000_000), chosen);
        }
        let stiff = [class(PageSize::Huge, None, 7 * G, true)];
        let patient = Want {
            top_up: Duration::from_secs(100),
            ..want(8 * G)
        };
        assert_eq!(choose(&stiff, &patient, true, 0), None);
    }
}
