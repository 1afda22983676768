//! All interleavings of CPUs that take chunks: each chunk once, and a CPU that finds
//! none left and none in flight sees all of them online. What is online is a
//! watched cell, so a missing Acquire or Release is a reported race.

extern crate std;

use super::*;
use crate::addr::{Order, PhysRange};
use crate::layout::{Extent, ExtentKind};
use crate::node::ZoneKind;
use core::ptr::NonNull;
use loom::cell::UnsafeCell;
use loom::thread;
use std::boxed::Box;
use std::vec::Vec;

/// Unused here.
struct Nothing;

#[expect(unsafe_code, reason = "the trait is unsafe to implement")]
// SAFETY: it maps nothing.
unsafe impl Platform for Nothing {
    fn map(&self, _: PhysRange) -> Option<NonNull<u8>> {
        None
    }
}

struct Machine {
    acceptance: Acceptance<'static, Nothing>,
    /// How often each chunk came online.
    online: Vec<UnsafeCell<u32>>,
}

#[expect(unsafe_code, reason = "the watched cells are shared by contract")]
// SAFETY: a cell is written by the CPU that took its chunk and read after its flight; loom checks that.
unsafe impl Sync for Machine {}

impl Machine {
    fn new(chunks: u64) -> &'static Self {
        let frames = FrameRange::new(0, chunks * Order::HUGE.frames()).unwrap();
        let pending = Box::leak(Box::new([Pending::new(Extent {
            frames,
            node: NodeId(0),
            zone: ZoneKind::Normal,
            kind: ExtentKind::Unaccepted,
        })]));
        Box::leak(Box::new(Self {
            acceptance: Acceptance::new(&Nothing, pending, &|_| {}),
            online: (0..chunks).map(|_| UnsafeCell::new(0)).collect(),
        }))
    }

    /// A CPU that brings online what it finds, and then checks that all is there.
    fn take_all(&self) {
        while let Some((chunk, _flight)) = self.acceptance.take(|_| true) {
            let index = chunk.start().get() / Order::HUGE.frames();
            let cell = &self.online[usize::try_from(index).unwrap()];
            // SAFETY: the chunk is this thread's alone; loom would report another one.
            #[expect(unsafe_code, reason = "a watched cell")]
            cell.with_mut(|count| unsafe { *count += 1 });
        }
        if !self.acceptance.is_in_flight() {
            self.all_is_online();
        }
    }

    fn all_is_online(&self) {
        for cell in &self.online {
            // SAFETY: nothing is in flight; loom would report a write.
            #[expect(unsafe_code, reason = "a watched cell")]
            cell.with(|count| assert_eq!(unsafe { *count }, 1));
        }
    }
}

#[test]
fn loom_all_is_online_once_nothing_is_in_flight() {
    for chunks in [1, 2] {
        loom::model(move || {
            let machine = Machine::new(chunks);
            let other = thread::spawn(|| machine.take_all());
            machine.take_all();
            other.join().unwrap();
            machine.all_is_online();
        });
    }
}
