//! The kernel of `firstlight` on the allocator that ostd's tools provide by default.
#![no_std]
#![no_main]

use firstlight_ostd_kernels::{Subject, run};
use osdk_frame_allocator::FrameAllocator;

#[ostd::global_frame_allocator]
static FRAMES: FrameAllocator = FrameAllocator;

static SUBJECT: Subject = Subject {
    allocator: &FRAMES,
    is_allocated: |_| true,
    drain: || {},
    recount: || Ok(osdk_frame_allocator::load_total_free_size() as u64 / 4096),
    measure_more: || {},
    is_ours: false,
};

#[ostd::main]
fn main() {
    run(&SUBJECT)
}
