//! All CPUs allocate and free blocks of any size and alignment, and so do their timer interrupts.
//! No frame may have two owners, none may get lost, and no request may be refused: there is
//! memory enough.

use alloc::format;
use alloc::string::String;
use core::alloc::Layout;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use ostd::boot::smp::register_ap_entry;
use ostd::cpu::{PinCurrentCpu, num_cpus};
use ostd::early_println;
use ostd::irq;
use ostd::mm::{FrameAllocOptions, HasPaddr, PAGE_SIZE, Segment, Split};
use ostd::task::halt_cpu;
use ostd::timer::register_callback_on_cpu;
use ostd::util::id_set::Id;
use spin::Once;

use crate::owners::Owners;
use crate::{Subject, report};

/// Requests of each CPU.
const REQUESTS: usize = 10_000;
/// Blocks a CPU holds at a time.
const HELD: usize = 32;
/// CPUs there may be.
const CPUS: usize = 16;
/// Interrupts that allocate, each CPU, before it may be done.
const INTERRUPTS: u64 = 50;

/// What was seen.
#[derive(Default)]
struct Seen {
    requests: AtomicU64,
    refused: AtomicU64,
    aligned: AtomicU64,
    misaligned: AtomicU64,
    /// Blocks with a frame that had an owner already, or lost it while held.
    shared: AtomicU64,
}

struct Run {
    subject: &'static Subject,
    owners: Owners,
    seen: Seen,
    ready: AtomicUsize,
    done: AtomicUsize,
    free_before: AtomicU64,
    /// What interrupts hold, by CPU.
    held_by_interrupts: [[AtomicUsize; 4]; CPUS],
    interrupts: [AtomicU64; CPUS],
    interrupts_allocate: AtomicBool,
}

static RUN: Once<Run> = Once::new();

/// xorshift64.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 as usize % end
    }

    /// Bytes and alignment: often small, any length, up to 4 MiB.
    fn layout(&mut self) -> Layout {
        let frames = match self.below(8) {
            0..4 => 1,
            4 => 1 + self.below(16),
            5 => 1 + self.below(64),
            6 => 1 << self.below(10),
            _ => 1 + self.below(1024),
        };
        let align = if self.below(4) == 0 {
            1 << self.below(11)
        } else {
            1
        };
        Layout::from_size_align(frames * PAGE_SIZE, align * PAGE_SIZE).expect("small")
    }
}

impl Run {
    /// Allocates, and checks what comes.
    fn allocate(&self, layout: Layout) -> Option<Range<usize>> {
        let seen = &self.seen;
        seen.requests.fetch_add(1, Ordering::Relaxed);
        let Some(start) = self.subject.allocator.alloc(layout) else {
            seen.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        if layout.align() > PAGE_SIZE {
            seen.aligned.fetch_add(1, Ordering::Relaxed);
            let is_misaligned = !start.is_multiple_of(layout.align());
            seen.misaligned
                .fetch_add(is_misaligned.into(), Ordering::Relaxed);
        }
        let range = start..start + layout.size();
        self.count_shared(!self.owners.take(range.clone()));
        Some(range)
    }

    fn count_shared(&self, is_shared: bool) {
        self.seen
            .shared
            .fetch_add(is_shared.into(), Ordering::Relaxed);
    }

    fn free(&self, range: Range<usize>) {
        self.count_shared(!self.owners.give(range.clone()));
        self.subject.allocator.dealloc(range.start, range.len());
    }

    /// Frees through ostd's own types, in two parts: it knows of no other owner either.
    fn free_by_segment(&self, range: Range<usize>, random: &mut Random) {
        self.count_shared(!self.owners.give(range.clone()));
        let frames = range.len() / PAGE_SIZE;
        let Ok(segment) = Segment::from_unused(range, |_| ()) else {
            return self.count_shared(true);
        };
        if frames > 1 {
            let (first, second) = segment.split((1 + random.below(frames - 1)) * PAGE_SIZE);
            drop(second);
            drop(first);
        }
    }

    /// One request of a timer interrupt: frees what the last but three got.
    fn interrupt(&self) {
        if !self.interrupts_allocate.load(Ordering::Acquire) {
            return;
        }
        let cpu = irq::disable_local().current_cpu().as_usize();
        let count = self.interrupts[cpu].fetch_add(1, Ordering::Relaxed) as usize;
        let slot = &self.held_by_interrupts[cpu][count % 4];
        let layout = |count: usize| {
            let frames = 1 + count / 4 % 4;
            Layout::from_size_align(frames * PAGE_SIZE, PAGE_SIZE).expect("small")
        };
        let held = slot.swap(0, Ordering::Relaxed);
        if held != 0 {
            self.free(held..held + layout(count - 4).size());
        }
        if let Some(range) = self.allocate(layout(count)) {
            slot.store(range.start, Ordering::Relaxed);
        }
    }

    /// Frees what interrupts of this CPU hold, once they allocate no more.
    fn end_interrupts(&self, cpu: usize) {
        let count = self.interrupts[cpu].load(Ordering::Relaxed) as usize;
        for last in count.saturating_sub(4)..count {
            let held = self.held_by_interrupts[cpu][last % 4].swap(0, Ordering::Relaxed);
            if held != 0 {
                self.free(held..held + (1 + last / 4 % 4) * PAGE_SIZE);
            }
        }
    }

    /// The work of one CPU.
    fn work(&self) {
        let cpu = irq::disable_local().current_cpu().as_usize();
        register_callback_on_cpu(|| RUN.wait().interrupt());
        (self.subject.drain)();
        self.meet(&self.ready, 1);
        if cpu == 0 {
            let free = (self.subject.recount)().unwrap_or(0);
            self.free_before.store(free, Ordering::Relaxed);
            self.interrupts_allocate.store(true, Ordering::Release);
        }
        self.meet(&self.ready, 2);

        let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ cpu as u64 + 1);
        let mut held: [Option<Range<usize>>; HELD] = [const { None }; HELD];
        let mut requests = 0;
        while requests < REQUESTS || self.interrupts[cpu].load(Ordering::Relaxed) < INTERRUPTS {
            let slot = &mut held[random.below(HELD)];
            match slot.take() {
                Some(range) if random.below(2) == 0 => self.free(range),
                Some(range) => self.free_by_segment(range, &mut random),
                None => {
                    *slot = self.allocate(random.layout());
                    requests += 1;
                }
            }
        }
        held.into_iter()
            .flatten()
            .for_each(|range| self.free(range));

        self.meet(&self.done, 1);
        self.interrupts_allocate.store(false, Ordering::Release);
        self.meet(&self.done, 2);
        self.end_interrupts(cpu);
        (self.subject.drain)();
        self.meet(&self.done, 3);
    }

    /// Waits until all CPUs came here.
    fn meet(&self, count: &AtomicUsize, times: usize) {
        count.fetch_add(1, Ordering::AcqRel);
        while count.load(Ordering::Acquire) < times * num_cpus() {
            core::hint::spin_loop();
        }
    }
}

/// Runs it on all CPUs; whether all is well.
pub fn run(subject: &'static Subject) -> bool {
    assert!(
        num_cpus() <= CPUS,
        "more CPUs than this kernel has space for"
    );
    RUN.call_once(|| Run {
        subject,
        owners: Owners::none(),
        seen: Seen::default(),
        ready: AtomicUsize::new(0),
        done: AtomicUsize::new(0),
        free_before: AtomicU64::new(0),
        held_by_interrupts: Default::default(),
        interrupts: Default::default(),
        interrupts_allocate: AtomicBool::new(false),
    });
    let run = RUN.wait();
    register_ap_entry(|| {
        RUN.wait().work();
        loop {
            halt_cpu();
        }
    });
    run.work();
    judge(run)
}

/// Prints what was seen; whether all is well.
fn judge(run: &Run) -> bool {
    let seen = &run.seen;
    let [requests, refused, aligned, misaligned, shared] = [
        &seen.requests,
        &seen.refused,
        &seen.aligned,
        &seen.misaligned,
        &seen.shared,
    ]
    .map(|count| count.load(Ordering::Relaxed));
    let interrupts = run.interrupts[..num_cpus()].iter();
    let interrupts = interrupts
        .map(|count| count.load(Ordering::Relaxed))
        .min()
        .unwrap_or(0);
    early_println!(
        "stressed cpus={} requests={} refused={} aligned={} misaligned={} shared={} interrupts-a-cpu={}",
        num_cpus(),
        requests,
        refused,
        aligned,
        misaligned,
        shared,
        interrupts
    );
    if !run.subject.is_ours {
        return true;
    }
    let none = |count: u64, what: &str| match count {
        0 => Ok(()),
        _ => Err(format!(
            "{count} of {requests} requests were {what}: expected none"
        )),
    };
    let before = run.free_before.load(Ordering::Relaxed);
    let recounted = match (run.subject.recount)() {
        Err(error) => Err(String::from(error)),
        Ok(free) if free == before => Ok(()),
        Ok(free) => Err(format!("{free} frames are free, but {before} were before")),
    };
    let frame = FrameAllocOptions::new().alloc_frame();
    let is_ours = frame.is_ok_and(|frame| (run.subject.is_allocated)(frame.paddr()));
    let in_use = is_ours
        .then_some(())
        .ok_or("another allocator is in use".into());
    let exhausted = exhaust(run, before);
    [
        report("ostd_allocates_from_it", in_use),
        report("no_request_is_refused", none(refused, "refused")),
        report("all_blocks_are_aligned", none(misaligned, "misaligned")),
        report(
            "no_frame_has_two_owners",
            none(shared, "of frames with two owners"),
        ),
        report("all_frames_are_back_and_recounted", recounted),
        report("all_memory_can_be_allocated", exhausted),
    ]
    .iter()
    .all(|passed| *passed)
}

/// Allocates all memory and frees it again; no other CPU calls meanwhile.
fn exhaust(run: &Run, free: u64) -> Result<(), String> {
    let mut allocated = 0;
    for frames in [512, 1] {
        let layout = Layout::from_size_align(frames * PAGE_SIZE, PAGE_SIZE).expect("small");
        while let Some(start) = run.subject.allocator.alloc(layout) {
            if !run.owners.take(start..start + layout.size()) {
                return Err(format!("{start:#x} was allocated twice"));
            }
            allocated += frames as u64;
        }
    }
    run.owners
        .take_all(|start| run.subject.allocator.dealloc(start, PAGE_SIZE));
    (run.subject.drain)();
    let after = (run.subject.recount)()?;
    if (allocated, after) != (free, free) {
        return Err(format!(
            "of {free} free frames {allocated} could be allocated, {after} are free now"
        ));
    }
    Ok(())
}
