//! Descriptors written by workers while CPUs touch memory.

use crate::kit::{self, GIB, HUGE_FRAMES, Machine, range};
use crate::memmap_machine::hook::Kernel;
use crate::memmap_machine::{Eight, Sixteen, Threads, machine, platform, reserve};
use firstlight::addr::{Frame, FrameRange, Order, PAGE_BYTES};
use firstlight::frames::{Frames, Request};
use firstlight::layout::{SECTION_FRAMES, ZoneSegment};
use firstlight::memmap::{Descriptor, Mode, PageDescriptor, Part, SectionPlace};
use firstlight::node::NodeId;
use firstlight::parallel::{Alone, Chunking, Job, JobError, WorkRange, Worker};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

#[test]
#[cfg_attr(miri, ignore = "writes too much")]
fn touches_and_workers_make_each_section_ready_once() {
    for round in 0..6 {
        let mut layout = machine().layout();
        let memmap = reserve::<Sixteen>(&mut layout);
        let all: Vec<ZoneSegment> = layout.segments().collect();
        let chunking = [Chunking::Padata, Chunking::Stealing][round % 2];
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let (memmap, all) = (&memmap, &all);
                scope.spawn(move || {
                    for at in 0..2000 {
                        let extent = all[(at + thread) % all.len()];
                        let step = u64::try_from(at * 7919 * (thread + 1)).unwrap();
                        let step = step % extent.frames.count();
                        let frame = Frame::new(extent.frames.start().get() + step);
                        let descriptor = memmap.of(frame).unwrap();
                        assert!(descriptor.0.load(Ordering::Relaxed) >> 63 == 1);
                        descriptor.1.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            let mut ranges: Vec<_> = (0..memmap.ranges_needed())
                .map(|_| WorkRange::new(NodeId(0), FrameRange::EMPTY))
                .collect();
            let mut workers = [0, 1].map(|node| Worker::new(NodeId(node)));
            let job = Job::sections(chunking);
            memmap
                .describe_with(Part::Whole, &job, &mut ranges, &mut workers, &Threads)
                .unwrap();
        });
        let progress = memmap.progress();
        assert_eq!(
            progress.touched_sections + progress.worked_sections,
            progress.sections
        );
        assert_eq!(progress.ready_sections, progress.sections);
        assert_eq!(progress.written_bytes, 16 * layout.present_frames());
        // Nothing was written over what the touches left: 2 x 2000 of them.
        let mut marks = 0;
        for extent in &all {
            for number in extent.frames.start().get()..extent.frames.end().get() {
                let descriptor = memmap.of(Frame::new(number)).unwrap();
                let first = !descriptor.0.load(Ordering::Relaxed);
                marks += descriptor.1.load(Ordering::Relaxed) - first;
            }
        }
        assert_eq!(marks, 4000);
    }
}

#[test]
#[cfg_attr(miri, ignore = "allocates every frame")]
fn early_grows_by_whole_sections_while_cpus_allocate() {
    let mut layout = machine().layout();
    let kernel = Box::leak(Box::new(Kernel(reserve::<PageDescriptor>(&mut layout))));
    let memmap = &kernel.0;
    let mode = Mode::Early;
    memmap.describe(mode.before_boot().unwrap());
    let early = memmap.progress().worked_sections;
    assert!(early < memmap.progress().sections);
    let frames = Frames::build(layout, platform(false)).unwrap();
    let frames = kit::with_cpus(frames.with_hooks(kernel), 2);
    let order = Order::new(4).unwrap();
    let taken: u64 = std::thread::scope(|scope| {
        let threads = [0, 1].map(|node| {
            let frames = &frames;
            scope.spawn(move || {
                let mut cpu = frames.cpu(node.into(), NodeId(node)).unwrap();
                let mut taken = 0;
                while let Ok(frame) = cpu.allocate(Request::new(order)) {
                    let page = memmap.peek(frame).unwrap();
                    assert_eq!(page.references.fetch_add(1, Ordering::Relaxed), 0);
                    assert_eq!(memmap.place(frame), Some(page.place()));
                    taken += 1;
                }
                taken
            })
        });
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    let progress = memmap.progress();
    assert_eq!(progress.worked_sections, early);
    // Whatever holds a free block was grown into; sections wholly reserved were not.
    assert_eq!(progress.touched_sections + early, progress.ready_sections);
    assert!(taken * order.frames() > frames.layout().present_frames() * 9 / 10);
    assert!(progress.ready_sections * 10 > progress.sections * 9);
}

/// Whose first content cannot be made the first two times.
#[derive(Debug)]
struct Stumbling(AtomicU64);
static STUMBLES: AtomicU32 = AtomicU32::new(0);
// SAFETY: an atomic integer.
unsafe impl Descriptor for Stumbling {
    fn template(place: SectionPlace) -> Self {
        if STUMBLES.fetch_add(1, Ordering::Relaxed) < 2 {
            panic!("a writer panics for this test");
        }
        Self(AtomicU64::new(place.section))
    }
}

#[test]
#[cfg_attr(miri, ignore = "writes too much")]
fn the_section_of_a_worker_that_panics_is_written_by_the_caller() {
    let mut layout = Machine::new(&[(0, range(4 * GIB, 5 * GIB))]).layout();
    let memmap = reserve::<Stumbling>(&mut layout);
    let mut ranges = [WorkRange::new(NodeId(0), FrameRange::EMPTY)];
    let mut workers = [0, 0].map(|node| Worker::new(NodeId(node)));
    let job = Job::sections(Chunking::Stealing);
    let report = memmap
        .describe_with(Part::Whole, &job, &mut ranges, &mut workers, &Threads)
        .unwrap();
    assert_eq!(report.redone_chunks, 2);
    assert_eq!(memmap.progress().ready_sections, 8);
    for number in 4 * GIB / PAGE_BYTES..5 * GIB / PAGE_BYTES {
        let descriptor = memmap.peek(Frame::new(number)).unwrap();
        assert_eq!(
            descriptor.0.load(Ordering::Relaxed),
            number / SECTION_FRAMES
        );
    }
}

#[test]
fn refused_jobs_write_nothing() {
    let mut layout = machine().layout();
    let memmap = reserve::<Eight>(&mut layout);
    let needed = memmap.ranges_needed();
    let mut ranges: Vec<_> = (0..needed)
        .map(|_| WorkRange::new(NodeId(0), FrameRange::EMPTY))
        .collect();
    let mut workers = [Worker::new(NodeId(0))];
    let job = Job::sections(Chunking::Padata);
    let refused = |job: &Job, ranges: &mut [WorkRange], workers: &mut [Worker]| {
        memmap
            .describe_with(Part::Whole, job, ranges, workers, &Alone)
            .unwrap_err()
    };
    assert_eq!(
        refused(&job, &mut ranges[1..], &mut workers),
        JobError::TooFewRanges {
            provided: needed - 1,
            needed
        }
    );
    assert_eq!(refused(&job, &mut ranges, &mut []), JobError::NoThreads);
    let cut = Job {
        align_frames: HUGE_FRAMES,
        ..job
    };
    let error = refused(&cut, &mut ranges, &mut workers);
    assert_eq!(
        error,
        JobError::NotSections {
            frames: HUGE_FRAMES
        }
    );
    assert_eq!(memmap.progress().ready_sections, 0);
}
