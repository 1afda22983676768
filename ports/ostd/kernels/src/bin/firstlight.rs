//! A kernel on our allocator.
#![no_std]
#![no_main]

use core::mem::{ManuallyDrop, MaybeUninit};
use firstlight_ostd::Firstlight;

use firstlight_frames::addr::{FrameRange, PhysAddr, PhysRange};
use firstlight_frames::frames::{Frames, PerCpu};
use firstlight_ostd_kernels::{Subject, run};
use ostd::arch::read_tsc;
use ostd::early_println;
use ostd::mm::io::util::HasVmReaderWriter;
use ostd::mm::{FrameAllocOptions, PAGE_SIZE};

#[ostd::global_frame_allocator]
static FRAMES: Firstlight = Firstlight;

static SUBJECT: Subject = Subject {
    allocator: &FRAMES,
    is_allocated: |addr| {
        FRAMES
            .frames()
            .is_allocated(PhysAddr::new(addr as u64).frame())
            == Some(true)
    },
    drain: || {
        FRAMES
            .with(|cpu| cpu.drain())
            .expect("no call within a call")
            .expect("no frame is freed twice")
    },
    recount: || {
        let frames = FRAMES.frames();
        let valid = frames.validate();
        valid.map_err(|_| "validate() found a violation")?;
        Ok(frames.statistics().free_frames)
    },
    measure_more: measure_build,
    is_ours: true,
};

#[ostd::main]
fn main() {
    run(&SUBJECT)
}

/// Instructions to build an allocator of 512 GiB, and to add all of it but the first MiB.
fn measure_build() {
    const SPAN: FrameRange = FrameRange::new(0, 512 << 18).unwrap();
    const BYTES: usize = Frames::bytes_for(SPAN, 8).unwrap() as usize;
    let segment = FrameAllocOptions::new()
        .zeroed(false)
        .alloc_segment(BYTES.div_ceil(PAGE_SIZE));
    let segment = ManuallyDrop::new(segment.expect("memory for tables"));
    let start = segment.writer().cursor().cast::<MaybeUninit<u8>>();
    // SAFETY: the segment is as long, ours alone, and never dropped.
    let tables = unsafe { core::slice::from_raw_parts_mut(start, BYTES) };
    let before = read_tsc();
    let frames = Frames::over(SPAN, tables).expect("tables are large enough");
    let built = read_tsc();
    let range = PhysRange::new(1 << 20, 512 << 30).expect("ascending");
    frames.add(range).expect("nothing was added yet");
    let added = read_tsc();
    early_println!("measured build-512-GiB {}", built - before);
    early_println!("measured add-512-GiB {}", added - built);
}
