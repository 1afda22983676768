//! Memory that is taken away, by threads that its clients can make wait.
//!
//! A process that has a slab's file can hold its lock for as long as it likes, and the thread that empties it waits; one
//! that closes it waits for all that was mounted, and set on the file. So
//! there are many threads, and a user's slabs have no more of them than they leave free: where one user has half of
//! all waiting, another has half of the rest. A free thread goes to the user that has fewest.

use super::workers::Ticket;
use crate::fill::Job;
use crate::lease::Whose;
use crate::store::slab::Slab;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Threads at most.
const MOST_THREADS: usize = 256;

/// What is done to a slab that is back.
#[derive(Debug)]
pub(super) enum End {
    /// Its memory is taken away.
    Empty(Job<Ticket>),
    /// No process reaches it any more: it is closed.
    Close(Slab),
}

/// A user's jobs.
#[derive(Debug)]
struct Own<J> {
    waiting: VecDeque<J>,
    /// Threads that work at some.
    at_work: usize,
}

/// The jobs of all users.
#[derive(Debug)]
struct Queues<J> {
    of: BTreeMap<Whose, Own<J>>,
    /// Threads that take jobs from here, or will.
    threads: usize,
}

impl<J> Queues<J> {
    /// The user whose job is next.
    fn turn(&self) -> Option<Whose> {
        let busy: usize = self.of.values().map(|own| own.at_work).sum();
        let waiting = self.of.iter().filter(|(_, own)| !own.waiting.is_empty());
        let (whose, own) = waiting.min_by_key(|(_, own)| own.at_work)?;
        (own.at_work < MOST_THREADS - busy).then_some(*whose)
    }

    /// A job more; whether a thread more is to take it.
    fn push(&mut self, whose: Whose, job: J) -> bool {
        let own = self.of.entry(whose).or_insert_with(|| Own {
            waiting: VecDeque::new(),
            at_work: 0,
        });
        own.waiting.push_back(job);
        let begins = self.threads < MOST_THREADS && self.turn().is_some();
        self.threads += usize::from(begins);
        begins
    }

    /// The next job of a thread that is done with one of `last`'s. Without any the thread ends.
    fn next(&mut self, last: Option<Whose>) -> Option<(Whose, J)> {
        if let Some(last) = last
            && let Some(own) = self.of.get_mut(&last)
        {
            own.at_work -= 1;
            if own.at_work == 0 && own.waiting.is_empty() {
                self.of.remove(&last);
            }
        }
        let next = self.turn().and_then(|whose| {
            let own = self.of.get_mut(&whose)?;
            own.at_work += 1;
            Some((whose, own.waiting.pop_front()?))
        });
        self.threads -= usize::from(next.is_none());
        next
    }
}

/// What all its threads share.
#[derive(Debug, Clone)]
pub(super) struct Emptying(Arc<Mutex<Queues<End>>>);

impl Emptying {
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(Queues {
            of: BTreeMap::new(),
            threads: 0,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Queues<End>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A job more; what a thread more is to work through, if one more is to.
    pub(super) fn push(&self, whose: Whose, job: End) -> Option<Jobs> {
        let begins = self.lock().push(whose, job);
        begins.then(|| Jobs {
            of: self.clone(),
            last: None,
        })
    }
}

/// The jobs of one thread.
#[derive(Debug)]
pub(super) struct Jobs {
    of: Emptying,
    last: Option<Whose>,
}

impl Iterator for Jobs {
    type Item = End;

    fn next(&mut self) -> Option<End> {
        let next = self.of.lock().next(self.last.take());
        let (whose, job) = next?;
        self.last = Some(whose);
        Some(job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// As many threads as there are to be, each with a job that does not end.
    fn hold(queues: &mut Queues<u32>, whose: Whose, jobs: u32) -> usize {
        let begun = (0..jobs).filter(|job| queues.push(whose, *job)).count();
        (0..begun).filter(|_| queues.next(None).is_some()).count()
    }

    #[test]
    fn a_user_has_no_more_threads_than_it_leaves() {
        let mut queues = Queues {
            of: BTreeMap::new(),
            threads: 0,
        };
        let [first, second, third] = [1, 2, 3].map(Whose::User);
        assert_eq!(hold(&mut queues, first, 1000), 128);
        assert_eq!(hold(&mut queues, second, 1000), 64);
        assert_eq!(hold(&mut queues, third, 2), 2);
        assert_eq!(queues.threads, 128 + 64 + 2);
        // What of the second's comes to its end leaves a thread to it only once there are as many others.
        assert_eq!(queues.next(Some(second)), None);
        assert_eq!(queues.next(Some(third)).map(|next| next.0), Some(second));
        assert_eq!(queues.threads, 128 + 64 + 1);
    }

    proptest! {
        /// Every job has its turn once those that are being done come to their end.
        #[test]
        fn no_job_is_forgotten(steps in proptest::collection::vec((0u32..4, any::<bool>()), 1..600)) {
            let mut queues = Queues { of: BTreeMap::new(), threads: 0 };
            let (mut at_work, mut pushed, mut done) = (Vec::new(), 0, 0);
            for (user, pushes) in steps {
                if pushes {
                    pushed += 1;
                    if queues.push(Whose::User(user), pushed) {
                        at_work.extend(queues.next(None).map(|next| next.0));
                    }
                } else if !at_work.is_empty() {
                    let last = at_work.remove(user as usize % at_work.len());
                    done += 1;
                    at_work.extend(queues.next(Some(last)).map(|next| next.0));
                }
                prop_assert_eq!(at_work.len(), queues.threads);
                prop_assert!(at_work.len() <= MOST_THREADS);
            }
            while let Some(last) = at_work.pop() {
                done += 1;
                at_work.extend(queues.next(Some(last)).map(|next| next.0));
            }
            prop_assert_eq!((done, queues.threads, queues.of.len()), (pushed, 0, 0));
        }
    }
}
