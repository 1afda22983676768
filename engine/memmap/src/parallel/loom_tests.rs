//! The interleavings of two threads over the queue: every chunk once, what a
//! thread wrote is visible to the caller, the chunk of a thread that panics is found.

extern crate std;

use super::queue::Queue;
use super::*;
use crate::addr::FrameRange;
use crate::layout::SECTION_FRAMES;
use crate::node::NodeId;
use loom::cell::UnsafeCell;
use loom::thread;
use std::boxed::Box;
use std::vec::Vec;

fn sections(start: u64, end: u64) -> FrameRange {
    FrameRange::new(start * SECTION_FRAMES, end * SECTION_FRAMES).unwrap()
}

/// What was done to each section; watched by the checker.
struct Done(Vec<UnsafeCell<u32>>);

// SAFETY: each cell is only touched by the thread that took its section; loom checks that.
#[expect(unsafe_code, reason = "the watched cells are shared by contract")]
unsafe impl Sync for Done {}

impl Done {
    fn mark(&self, chunk: FrameRange) {
        for section in chunk.start().get() / SECTION_FRAMES..chunk.end().get() / SECTION_FRAMES {
            let cell = &self.0[usize::try_from(section).unwrap()];
            // SAFETY: the chunk is this thread's alone; loom would report another one.
            #[expect(unsafe_code, reason = "a watched cell")]
            cell.with_mut(|count| unsafe { *count += 1 });
        }
    }
}

/// Two workers over two ranges; the thread that takes section `panics` does so before it wrote anything.
fn both_workers(job: Job, panics: Option<u64>) {
    loom::model(move || {
        let done: &'static Done =
            Box::leak(Box::new(Done((0..3).map(|_| UnsafeCell::new(0)).collect())));
        let ranges: &'static mut [WorkRange] = Box::leak(Box::new([
            WorkRange::new(NodeId(0), sections(0, 2)),
            WorkRange::new(NodeId(1), sections(2, 3)),
        ]));
        let workers: &'static mut [Worker] =
            Box::leak(Box::new([Worker::new(NodeId(0)), Worker::new(NodeId(1))]));
        let queue: &'static Queue<'static> =
            Box::leak(Box::new(Queue::prepare(&job, ranges, workers).unwrap()));
        let threads = [0, 1].map(|index| {
            thread::spawn(move || {
                let work = |chunk: FrameRange| {
                    let first = chunk.start().get() / SECTION_FRAMES;
                    // A panic unwinds out of the queue.
                    if panics == Some(first) {
                        std::panic::resume_unwind(Box::new(()));
                    }
                    done.mark(chunk);
                };
                let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    queue.work(index, &work);
                }));
                outcome.is_err()
            })
        });
        let panicked = threads.map(|thread| thread.join().unwrap());
        let report = queue.finish(&|chunk| done.mark(chunk));
        assert_eq!(panicked.iter().any(|panicked| *panicked), panics.is_some());
        assert_eq!(report.redone_chunks, u64::from(panics.is_some()));
        assert_eq!(report.chunks, 3);
        for cell in &done.0 {
            // SAFETY: all threads are joined.
            #[expect(unsafe_code, reason = "a watched cell")]
            cell.with(|count| assert_eq!(unsafe { *count }, 1));
        }
    });
}

#[test]
fn loom_two_threads_share_one_queue() {
    both_workers(Job::sections(Chunking::Stealing), None);
}

#[test]
fn loom_a_chunk_whose_thread_panics_is_done_once() {
    both_workers(Job::sections(Chunking::Stealing), Some(1));
}
