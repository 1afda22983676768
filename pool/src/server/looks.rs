//! The thread that looks at what clients can still reach after their leases, so that the serving
//! thread never does.
//!
//! Whether another process has a file is asked of the kernel with a lock that any process can hold for
//! as long as it likes: reading `/proc/locks` does, for all locks that there are. So a look may take its
//! time, one is under way at most, and a tick of the daemon tells what was seen last. That may be a while
//! ago: a file that no other process had, none has got since.

use super::pool::Pool;
use crate::machine::{Reach, Seen};
use crate::os::{background, memory_file};
use crate::store::slab::SlabId;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::thread;
use std::time::Duration;

/// Files to look at.
type Files = Vec<(SlabId, Arc<OwnedFd>)>;

/// The serving thread's side.
#[derive(Debug)]
pub(super) struct Looks {
    requests: Sender<Files>,
    seen: Receiver<Vec<Reach>>,
    is_under_way: bool,
}

impl Looks {
    pub(super) fn new() -> io::Result<Self> {
        Self::with(reach)
    }

    /// With another way to look.
    pub(super) fn with(
        look: impl Fn(SlabId, &OwnedFd) -> Reach + Send + 'static,
    ) -> io::Result<Self> {
        let (requests, files) = mpsc::channel::<Files>();
        let (tell, seen) = mpsc::channel();
        thread::Builder::new().name("look".into()).spawn(move || {
            // The thread that started this one may have more weight.
            let _ = background::run_nicely(0);
            for files in files {
                let reaches = files.into_iter().map(|(slab, file)| look(slab, &file));
                if tell.send(reaches.collect()).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self {
            requests,
            seen,
            is_under_way: false,
        })
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.is_under_way
    }

    /// Has these looked at, while nothing else is.
    pub(super) fn begin(&mut self, files: Files) {
        if !self.is_under_way && !files.is_empty() {
            self.is_under_way = self.requests.send(files).is_ok();
        }
    }

    /// What the last look saw, once.
    pub(super) fn seen(&mut self) -> Vec<Reach> {
        let seen = self.seen.try_recv();
        self.is_under_way &= matches!(seen, Err(TryRecvError::Empty));
        seen.unwrap_or_default()
    }

    /// What the last look saw, once; one that is under way is waited for, `most` at most.
    pub(super) fn wait(&mut self, most: Duration) -> Vec<Reach> {
        if !self.is_under_way {
            return Vec::new();
        }
        let seen = self.seen.recv_timeout(most);
        self.is_under_way = seen.is_err();
        seen.unwrap_or_default()
    }
}

/// What a client can do with a slab. In this order: what no other process has stays as it is.
fn reach(slab: SlabId, file: &OwnedFd) -> Reach {
    // A slab of which the kernel says nothing counts as held.
    let is_alone = memory_file::has_no_other_holder(file).unwrap_or(false);
    let holds_bytes = memory_file::held_bytes(file).is_ok_and(|bytes| bytes > 0);
    Reach {
        slab,
        is_alone,
        // Behind its end too, where its length does not show them.
        holds_pages: holds_bytes || memory_file::length(file).is_ok_and(|bytes| bytes > 0),
        used_bytes: 0,
    }
}

impl Pool {
    /// Has revoked slabs looked at, if that is not under way.
    pub(super) fn look(&mut self) {
        if self.looks.is_under_way() {
            return;
        }
        let file = |slab| Some((slab, self.files.get(slab).ok()?.file()));
        let files = self.machine.revoked().filter_map(file).collect();
        self.looks.begin(files);
    }

    /// What is seen of the machine now, and was of revoked slabs.
    pub(super) fn see(&self, mut revoked: Vec<Reach>) -> Seen {
        for reach in &mut revoked {
            // After it was seen who has it: what none has is not pinned any further.
            reach.used_bytes = self.files.used_bytes(reach.slab);
        }
        Seen {
            is_paused: self.workers.is_paused(),
            revoked,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_look_at_a_time_and_what_it_saw_is_told_once() {
        let (answer, answers) = mpsc::channel::<()>();
        let mut looks = Looks::with(move |slab, file| {
            answers.recv().unwrap();
            reach(slab, file)
        })
        .unwrap();
        let first = memory_file::unnamed(c"test", None).unwrap();
        let ours = Arc::new(memory_file::own_opening(&first).unwrap());
        let theirs = memory_file::reopen(&*ours).unwrap();
        let look = |looks: &mut Looks, number| {
            looks.begin(vec![(SlabId(number), Arc::clone(&ours))]);
        };
        looks.begin(Vec::new());
        assert!(!looks.is_under_way(), "there is nothing to look at");
        look(&mut looks, 1);
        look(&mut looks, 2);
        assert!(looks.seen().is_empty() && looks.wait(Duration::ZERO).is_empty());
        assert!(looks.is_under_way());
        answer.send(()).unwrap();
        let seen = |looks: &mut Looks| {
            let seen = looks.wait(Duration::MAX);
            assert!(!looks.is_under_way() && looks.seen().is_empty());
            let seen = seen.into_iter();
            seen.map(|one| (one.slab.0, one.is_alone, one.holds_pages))
                .collect::<Vec<_>>()
        };
        assert_eq!(seen(&mut looks), [(1, false, false)]);
        memory_file::set_length(&*ours, 4096).unwrap();
        look(&mut looks, 3);
        answer.send(()).unwrap();
        assert_eq!(seen(&mut looks), [(3, false, true)]);
        memory_file::set_length(&*ours, 0).unwrap();
        drop(theirs);
        look(&mut looks, 4);
        answer.send(()).unwrap();
        assert_eq!(seen(&mut looks), [(4, true, false)]);
    }
}
