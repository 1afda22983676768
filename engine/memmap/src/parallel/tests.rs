//! Linux's figures, and every frame once whatever the machine, the threads and
//! their panics.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

extern crate std;

use super::*;
use crate::addr::{FrameRange, PAGE_BYTES};
use crate::layout::SECTION_FRAMES;
use crate::node::NodeId;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use proptest::prelude::*;
use std::sync::Mutex;
use std::vec::Vec;

const GIB: u64 = (1 << 30) / PAGE_BYTES;

fn frames(start: u64, end: u64) -> FrameRange {
    FrameRange::new(start, end).unwrap()
}

fn padata(start: u64, count: u64, cap: u32) -> Plan {
    Job::sections(Chunking::Padata).plan(frames(start, start + count), cap)
}

/// Threads of this process; one may panic.
struct Threads;

impl Workers for Threads {
    fn run(&self, workers: &[Worker], work: &(dyn Fn(usize) + Sync)) {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..workers.len())
                .map(|index| scope.spawn(move || work(index)))
                .collect();
            for thread in threads {
                let _ = thread.join();
            }
        });
    }
}

/// Threads that never start.
struct Absent;

impl Workers for Absent {
    fn run(&self, _: &[Worker], _: &(dyn Fn(usize) + Sync)) {}
}

#[test]
fn model_padata_threads_and_chunks() {
    for (gib, cap, threads, chunk_sections, chunks) in [
        (384, 52, 52, 15, 205),
        (192, 32, 32, 12, 128),
        (64, 16, 16, 8, 64),
        (1, 4, 4, 1, 8),
    ] {
        let plan = padata(0, gib * GIB, cap);
        assert_eq!(
            (
                plan.threads,
                plan.chunk_frames / SECTION_FRAMES,
                plan.chunks
            ),
            (threads, chunk_sections, chunks),
            "{gib} GiB, {cap} CPUs"
        );
    }
}

#[test]
fn model_padata_one_thread_is_a_direct_call() {
    // 128 MiB on a node of 64 CPUs; less than two sections; one CPU; none.
    for (count, cap) in [
        (SECTION_FRAMES, 64),
        (2 * SECTION_FRAMES - 1, 64),
        (384 * GIB, 1),
        (384 * GIB, 0),
    ] {
        let plan = padata(77 * SECTION_FRAMES, count, cap);
        assert_eq!((plan.threads, plan.chunks), (1, 1), "{count} frames");
        let range = frames(77 * SECTION_FRAMES, 77 * SECTION_FRAMES + count);
        assert_eq!(plan.chunk(range, 0), range);
    }
}

#[test]
fn model_padata_chunks_end_on_absolute_multiples() {
    // 64 GiB from 1 GiB and a page on: chunks of 8 sections, 1 GiB each.
    let range = frames(GIB + 1, 65 * GIB + 1);
    let plan = padata(GIB + 1, 64 * GIB, 16);
    assert_eq!((plan.chunk_frames, plan.chunks), (8 * SECTION_FRAMES, 65));
    assert_eq!(plan.chunk(range, 0), frames(GIB + 1, 2 * GIB));
    assert_eq!(plan.chunk(range, 1), frames(2 * GIB, 3 * GIB));
    assert_eq!(plan.chunk(range, 64), frames(65 * GIB, 65 * GIB + 1));
    assert!(plan.chunk(range, 65).is_empty());
}

#[test]
fn nonsense_is_refused_with_a_reason() {
    let good = Job::sections(Chunking::Padata);
    let refused = |job: Job, workers: &mut [Worker]| {
        let mut ranges = [WorkRange::new(NodeId(0), frames(0, GIB))];
        let touched = AtomicBool::new(false);
        let work = |_: FrameRange| touched.store(true, Ordering::Relaxed);
        let error = run(&job, &mut ranges, workers, &Alone, &work).unwrap_err();
        assert!(!touched.into_inner());
        error
    };
    let mut one = [Worker::new(NodeId(0))];
    assert_eq!(refused(good, &mut []), JobError::NoThreads);
    assert_eq!(
        refused(good.threads_per_node(0), &mut one),
        JobError::NoThreads
    );
    for align_frames in [0, 1, SECTION_FRAMES - 1, SECTION_FRAMES + 512] {
        let job = Job {
            align_frames,
            ..good
        };
        let frames = align_frames;
        assert_eq!(refused(job, &mut one), JobError::NotSections { frames });
    }
    for min_chunk_frames in [0, 512, 3 * SECTION_FRAMES] {
        let align_frames = 2 * SECTION_FRAMES;
        let job = Job {
            min_chunk_frames,
            align_frames,
            ..good
        };
        let error = refused(job, &mut one);
        let frames = min_chunk_frames;
        assert_eq!(
            error,
            JobError::NotAligned {
                frames,
                align_frames
            }
        );
        assert!(std::format!("{error}").contains("expected a multiple"));
    }
}

/// Runs a job and returns the chunks in the order of their addresses.
fn chunks(
    job: &Job,
    nodes: &[(u16, FrameRange)],
    cpus: &[u16],
    threads: &dyn Workers,
    hook: &(dyn Fn(FrameRange) + Sync),
) -> (Vec<FrameRange>, Report) {
    let ranges = nodes
        .iter()
        .map(|&(node, frames)| WorkRange::new(NodeId(node), frames));
    let mut ranges: Vec<_> = ranges.collect();
    let mut workers: Vec<_> = cpus.iter().map(|&node| Worker::new(NodeId(node))).collect();
    let done = Mutex::new(Vec::new());
    let work = |chunk: FrameRange| {
        hook(chunk);
        done.lock().unwrap().push(chunk);
    };
    let report = run(job, &mut ranges, &mut workers, threads, &work).unwrap();
    let mut done = done.into_inner().unwrap();
    done.sort_by_key(|chunk| chunk.start());
    (done, report)
}

fn no_hook(_: FrameRange) {}

#[test]
fn a_node_without_cpus_gets_a_worker_of_another() {
    let nodes = [(0, frames(0, 4 * GIB)), (1, frames(4 * GIB, 8 * GIB))];
    for (chunking, expected) in [
        // One piece of the node without CPUs, a section at a time of the other: 32 / (2 x 4) = 4.
        (Chunking::Padata, 8 + 1),
        (Chunking::Stealing, 64),
    ] {
        let job = Job::sections(chunking);
        let (done, report) = chunks(&job, &nodes, &[0, 0], &Threads, &no_hook);
        assert_eq!(done.len(), expected, "{chunking:?}");
        assert_eq!(report.left_chunks + report.redone_chunks, 0, "{chunking:?}");
        // The second worker would serve node 1, but the job has no thread for it.
        let (done, report) = chunks(
            &job.threads_per_node(1),
            &nodes,
            &[0, 0],
            &Threads,
            &no_hook,
        );
        assert_eq!(report.left_chunks + report.redone_chunks, 0, "{chunking:?}");
        assert_covered(&nodes, &done);
    }
}

#[test]
fn threads_keep_to_their_cap_and_their_node() {
    let nodes = [(0, frames(0, 8 * GIB)), (1, frames(8 * GIB, 16 * GIB))];
    let job = Job::sections(Chunking::Padata).threads_per_node(2);
    let mut ranges: Vec<_> = nodes
        .iter()
        .map(|&(node, frames)| WorkRange::new(NodeId(node), frames))
        .collect();
    let mut workers: Vec<_> = [0, 0, 0, 1].map(|node| Worker::new(NodeId(node))).into();
    run(&job, &mut ranges, &mut workers, &Alone, &|_| {}).unwrap();
    assert_eq!((ranges[0].plan().threads, ranges[1].plan().threads), (2, 1));
    // Run one after the other, the first does all of its node; the third is spare.
    let done: Vec<_> = workers.iter().map(Worker::chunks).collect();
    assert_eq!(done, [8, 0, 0, 1]);
}

#[test]
fn stealing_begins_once_the_own_node_has_nothing_left() {
    let nodes = [(0, frames(0, GIB)), (1, frames(GIB, 2 * GIB))];
    let job = Job::sections(Chunking::Stealing);
    for own in [0, 1] {
        // One after the other: the first does all there is.
        let mut ranges = nodes.map(|(node, frames)| WorkRange::new(NodeId(node), frames));
        let mut workers = [own, 1 - own].map(|node| Worker::new(NodeId(node)));
        let done = Mutex::new(Vec::new());
        let work = |chunk: FrameRange| done.lock().unwrap().push(chunk);
        run(&job, &mut ranges, &mut workers, &Alone, &work).unwrap();
        let done = done.into_inner().unwrap();
        let mine = |chunk: &FrameRange| nodes[usize::from(own)].1.covers(*chunk);
        assert_eq!(done.iter().take_while(|chunk| mine(chunk)).count(), 8);
        assert_eq!(done.len(), 16);
        assert_eq!([&workers[0], &workers[1]].map(Worker::chunks), [16, 0]);
    }
}

#[test]
fn the_chunk_of_a_thread_that_panics_is_done_again() {
    let nodes = [(0, frames(5, 2 * GIB)), (1, frames(2 * GIB, 4 * GIB))];
    for chunking in [Chunking::Padata, Chunking::Stealing] {
        let panics = AtomicU32::new(0);
        let panic_twice = |_: FrameRange| {
            if panics.fetch_add(1, Ordering::Relaxed) < 2 {
                panic!("a thread panics for this test");
            }
        };
        let job = Job::sections(chunking);
        let (done, report) = chunks(&job, &nodes, &[0, 0, 1], &Threads, &panic_twice);
        assert_eq!(report.redone_chunks, 2, "{chunking:?}");
        assert_eq!(done.len() as u64, report.chunks, "{chunking:?}");
        assert_covered(&nodes, &done);
    }
}

#[test]
fn threads_that_never_start_leave_the_work_to_the_caller() {
    let nodes = [(0, frames(0, GIB))];
    let job = Job::sections(Chunking::Stealing);
    let (done, report) = chunks(&job, &nodes, &[0, 0], &Absent, &no_hook);
    assert_eq!((report.left_chunks, report.threads), (8, 0));
    assert_covered(&nodes, &done);
}

/// Every frame of the nodes in exactly one chunk.
fn assert_covered(nodes: &[(u16, FrameRange)], done: &[FrameRange]) {
    let mut all = nodes.iter().map(|node| node.1).filter(|f| !f.is_empty());
    let mut left = FrameRange::EMPTY;
    for &chunk in done {
        if left.is_empty() {
            left = all.next().expect("a chunk of no range");
        }
        assert!(!chunk.is_empty());
        assert_eq!(chunk.start(), left.start());
        left = frames(chunk.end().get(), left.end().get());
    }
    assert!(left.is_empty() && all.next().is_none());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 128 }))]

    #[test]
    fn every_frame_once(
        sizes in prop::collection::vec((0..4u16, 0..200_000u64, 0..3_000_000u64), 1..6),
        cpus in prop::collection::vec(0..5u16, 1..6),
        cap in prop::option::of(1..4u32),
        sections in 1..4u64,
        stealing: bool,
    ) {
        let mut at = 0;
        let nodes: Vec<_> = sizes.iter().map(|&(node, gap, count)| {
            let start = at + gap;
            at = start + count;
            (node, frames(start, at))
        }).collect();
        let job = Job {
            min_chunk_frames: sections * SECTION_FRAMES,
            threads_per_node: cap,
            ..Job::sections(if stealing { Chunking::Stealing } else { Chunking::Padata })
        };
        let (done, report) = chunks(&job, &nodes, &cpus, &Threads, &no_hook);
        prop_assert_eq!(done.len() as u64, report.chunks);
        prop_assert_eq!(report.redone_chunks, 0);
        assert_covered(&nodes, &done);
        for chunk in done.iter().filter(|chunk| !nodes.iter().any(|node| node.1.end() == chunk.end())) {
            prop_assert!(chunk.end().get().is_multiple_of(SECTION_FRAMES));
        }
    }
}
