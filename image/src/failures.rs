//! Failures on purpose: the words `test=`, each where on the way up it has to come.

use core::fmt;
use core::sync::atomic::{AtomicUsize, Ordering};

use firstlight_image::words::Test;

use crate::arch::{halt, provoke, relax};
use crate::console;
use crate::processors::Processors;

/// What is no code.
static DATA: AtomicUsize = AtomicUsize::new(0);

/// On the first CPU, before others start.
pub(crate) fn before_others(test: Option<Test>) {
    match test {
        Some(Test::Panic) => panic!("requested by the command line"),
        Some(Test::PanicTwice) => panic!("{Unspeakable}"),
        Some(Test::Hang) => halt(),
        Some(Test::WriteCode) => {
            let code = before_others as *const () as *mut u8;
            // SAFETY: none; the fault is intended. The handler does not return.
            unsafe { code.write_volatile(0) }
        }
        Some(Test::RunData) => {
            // SAFETY: none; as above.
            let data: extern "C" fn() = unsafe { core::mem::transmute(DATA.as_ptr()) };
            data();
        }
        Some(
            fault @ (Test::PageFault
            | Test::DoubleFault
            | Test::EarlyTouch
            | Test::StalePage
            | Test::PendingTimer),
        ) => provoke(fault),
        _ => {}
    }
}

/// On all CPUs, before anything is reported.
pub(crate) fn before_report(test: Option<Test>, processors: &mut Processors) {
    if test != Some(Test::PanicAll) {
        return;
    }
    let all = processors.started();
    let here = AtomicUsize::new(0);
    processors.run_all(&|_| {
        here.fetch_add(1, Ordering::Relaxed);
        while here.load(Ordering::Relaxed) < all {
            relax();
        }
        panic!("requested by the command line, on all CPUs");
    });
}

/// Once all of the way up is reported.
pub(crate) fn after_report(test: Option<Test>, processors: &mut Processors) {
    let last = processors.nodes().last().map_or(0, |(number, _)| number);
    match test {
        Some(Test::Rubbish) => console::rubbish(),
        Some(Test::DoubleFaultOther) => {
            processors.run_all(&|cpu| {
                if cpu == last {
                    provoke(Test::DoubleFault);
                }
            });
        }
        Some(Test::FaultInterrupted) => {
            // The first CPU faults, the last one interrupts its report.
            processors.run_all(&|cpu| {
                if last > 0 && [0, last].contains(&cpu) {
                    provoke(Test::FaultInterrupted);
                }
            });
        }
        Some(Test::PanicOther) => {
            processors.run_all(&|cpu| {
                assert!(cpu != last, "requested by the command line, on CPU {cpu}");
            });
        }
        _ => {}
    }
}

/// The message of a panic that panics.
struct Unspeakable;

impl fmt::Display for Unspeakable {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("requested by the command line, in a panic")
    }
}
