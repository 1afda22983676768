//! ostd's own unit tests, on our allocator.
#![no_std]
#![no_main]

extern crate osdk_test_kernel;

use firstlight_ostd_kernels as _;

use firstlight_ostd::Firstlight;

#[ostd::global_frame_allocator]
static FRAMES: Firstlight = Firstlight;

// SAFETY: the runner reads them by these names.
#[unsafe(no_mangle)]
static KTEST_TEST_WHITELIST: Option<&[&str]> = None;
// SAFETY: as above.
#[unsafe(no_mangle)]
static KTEST_CRATE_WHITELIST: Option<&[&str]> = Some(&["ostd", "firstlight-ostd-kernels"]);

#[cfg(ktest)]
#[ostd::prelude::ktest]
fn ostd_allocates_from_firstlight() {
    use firstlight_frames::frames::PerCpu;
    use ostd::mm::{FrameAllocOptions, HasPaddr};

    let frame = FrameAllocOptions::new().alloc_frame().unwrap();
    let frame = firstlight_frames::addr::PhysAddr::new(frame.paddr() as u64).frame();
    assert_eq!(
        FRAMES.frames().is_allocated(frame),
        Some(true),
        "OSDK's weak default is in use"
    );
}
