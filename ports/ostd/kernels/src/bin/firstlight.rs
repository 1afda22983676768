//! A kernel on our allocator.
#![no_std]
#![no_main]

use firstlight_ostd::{Firstlight, frames, is_allocated, with_cpu};
use firstlight_ostd_kernels::{Subject, run};

#[ostd::global_frame_allocator]
static FRAMES: Firstlight = Firstlight;

static SUBJECT: Subject = Subject {
    allocator: &FRAMES,
    is_allocated,
    drain: || with_cpu(|cpu| cpu.drain()).expect("freed twice"),
    recount: || {
        frames()
            .validate()
            .map_err(|_| "validate() found a violation")?;
        Ok(frames().statistics().free_frames)
    },
    is_ours: true,
};

#[ostd::main]
fn main() {
    run(&SUBJECT)
}
