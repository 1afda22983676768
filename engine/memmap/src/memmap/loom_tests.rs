//! All interleavings of two CPUs that touch a section and a third that reads it: the first
//! writes it, once, and no CPU reads it before it is written. The content is a
//! watched cell, so a missing Acquire or Release is a reported race.

extern crate std;

use super::list::{Added, Ranges};
use super::range::DescriptorRange;
use super::states::{SectionState, States};
use super::{Descriptor, SectionPlace};
use crate::addr::{Frame, FrameRange};
use crate::layout::ZoneSegment;
use crate::node::{NodeId, ZoneKind};
use crate::sync::AtomicU64;
use loom::cell::UnsafeCell;
use loom::thread;
use std::boxed::Box;

/// Two sections of one word, and what is written for them.
struct Machine {
    states: States<'static>,
    content: [UnsafeCell<u32>; 2],
}

// SAFETY: a cell is written by the CPU that makes its section ready, and read after; loom checks that.
unsafe impl Sync for Machine {}

impl Machine {
    fn new() -> &'static Self {
        let words = Box::leak(Box::new([AtomicU64::new(0)]));
        Box::leak(Box::new(Self {
            states: States::new(words),
            content: [UnsafeCell::new(0), UnsafeCell::new(0)],
        }))
    }

    fn write(&self, section: usize) {
        // SAFETY: only the writer of the section comes here; loom would report another one.
        self.content[section].with_mut(|count| unsafe { *count += 1 });
    }

    fn read(&self, section: usize) {
        // SAFETY: only after the section is ready; loom would report a writer.
        self.content[section].with(|count| assert_eq!(unsafe { *count }, 1));
    }

    /// A CPU that touches a section.
    fn touch(&self, section: usize) -> bool {
        let wrote = self.states.make_ready(section, || self.write(section));
        self.read(section);
        wrote
    }
}

#[test]
fn loom_a_worker_and_a_first_touch_write_a_section_once() {
    loom::model(|| {
        let machine = Machine::new();
        let worker = thread::spawn(|| machine.touch(0));
        let wrote = machine.touch(0);
        assert!(wrote != worker.join().unwrap());
        assert_eq!(machine.states.get(0), SectionState::Ready);
    });
}

#[test]
fn loom_a_reader_beside_two_writers_sees_all_or_nothing() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(|| {
        let machine = Machine::new();
        let threads = [(); 2].map(|()| thread::spawn(|| machine.touch(0)));
        if machine.states.is_ready(0) {
            machine.read(0);
        }
        let wrote = threads.map(|thread| thread.join().unwrap());
        assert!(wrote[0] != wrote[1]);
    });
}

#[test]
fn loom_sections_of_one_word_do_not_disturb_each_other() {
    loom::model(|| {
        let machine = Machine::new();
        let other = thread::spawn(|| machine.touch(1));
        assert!(machine.touch(0));
        if machine.states.is_ready(1) {
            machine.read(1);
        }
        assert!(other.join().unwrap());
        assert_eq!(machine.states.count_ready(), 2);
    });
}

#[test]
fn loom_a_writer_that_panics_hands_over_what_it_wrote() {
    loom::model(|| {
        let machine = Machine::new();
        let panics = thread::spawn(|| {
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                machine.states.make_ready(0, || {
                    // SAFETY: as in `write`.
                    machine.content[0].with_mut(|count| unsafe { *count = 7 });
                    std::panic::resume_unwind(Box::new(()));
                })
            }));
            outcome.is_ok()
        });
        machine.states.make_ready(0, || {
            // SAFETY: as in `write`; what the writer that panicked left is overwritten.
            machine.content[0].with_mut(|count| unsafe { *count = 1 });
        });
        machine.read(0);
        panics.join().unwrap();
    });
}

/// A descriptor that nothing is read of.
struct Word(#[expect(dead_code, reason = "never read")] u64);
// SAFETY: 8 bytes without padding.
unsafe impl Descriptor for Word {
    fn template(_: SectionPlace) -> Self {
        Self(0)
    }
}

/// Two ranges that share frames, and what is prepared for each before it is added.
struct Later {
    ranges: Ranges<'static, Word>,
    prepared: [UnsafeCell<u32>; 2],
}

// SAFETY: a cell is written before its range is added, and read after the range was found.
unsafe impl Sync for Later {}

impl Later {
    fn add(&self, index: u8) -> bool {
        // SAFETY: only this thread has this index; loom would report another one.
        self.prepared[usize::from(index)].with_mut(|count| unsafe { *count += 1 });
        let start = u64::from(index) * 5;
        let segment = ZoneSegment {
            frames: FrameRange::new(start, start + 10).unwrap(),
            node: NodeId(u16::from(index)),
            zone: ZoneKind::Normal,
        };
        let words = Box::leak(Box::new([AtomicU64::new(0)]));
        let range = DescriptorRange::new(segment, States::new(words), Frame::new(start));
        let added = Box::leak(Box::new(Added::new(range, 0, 0)));
        self.ranges.push(added).is_ok()
    }

    fn find(&self) -> bool {
        let found = self.ranges.find(Frame::new(7));
        if let Some(range) = found {
            let index = usize::from(range.segment.node.0);
            // SAFETY: the range was found, so its cell was written before.
            self.prepared[index].with(|count| assert_eq!(unsafe { *count }, 1));
        }
        found.is_some()
    }
}

#[test]
fn loom_of_two_ranges_that_share_frames_one_is_added_and_found_whole() {
    loom::model(|| {
        let later: &'static Later = Box::leak(Box::new(Later {
            ranges: Ranges::new(&[]),
            prepared: [UnsafeCell::new(0), UnsafeCell::new(0)],
        }));
        let other = thread::spawn(move || later.add(1));
        let reader = thread::spawn(move || later.find());
        let added = later.add(0);
        reader.join().unwrap();
        assert!(added != other.join().unwrap());
        assert!(later.find());
    });
}
