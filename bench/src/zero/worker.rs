//! How fast a worker zeroes, beside the fastest stores past the caches: [`worker`].

use super::allocate::fill;
use super::ground::{Ground, Kernel, best, forget};
use super::record::Row;
use crate::sweep::{fills, writer};
use firstlight::addr::PAGE_BYTES;
use firstlight::frames::Frames;
use firstlight_host::clock::thread_cpu_ns;
use std::error::Error;

/// Rounds, all ways in turns.
const ROUNDS: usize = 9;
/// Filled at once, as by a worker.
const BATCH_BYTES: usize = 2 << 20;

/// The row: the worker with the widest stores of this CPU.
pub(super) fn worker(ground: &mut Ground) -> Result<Row, Box<dyn Error>> {
    let kernel = Kernel(ground.mapped(best()));
    let (mut ours, mut fastest) = (0.0f64, 0.0f64);
    for _ in 0..ROUNDS {
        ours = ours.max(filled(&ground.frames(&kernel)?, &kernel)?);
        fastest = fastest.max(reference(ground));
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "bytes a second of this machine"
    )]
    let bytes_per_second = ours as u64;
    Ok(Row::Worker {
        bytes_per_second,
        fraction_of_best: (ours / fastest * 1000.0).round() / 1000.0,
    })
}

/// The rate at which a worker zeroes all there is.
fn filled(frames: &Frames<'_>, kernel: &Kernel) -> Result<f64, Box<dyn Error>> {
    forget(frames)?;
    let bytes = frames.statistics().free_frames * PAGE_BYTES;
    let begin_ns = thread_cpu_ns();
    fill(frames, &kernel.0)?;
    Ok(rate(bytes, begin_ns))
}

/// The rate of the fastest way past the caches there is.
fn reference(ground: &mut Ground) -> f64 {
    let words = ground.words();
    let bytes = 8 * words.len() as u64;
    let mut fastest = 0.0f64;
    for writer in writer::all()
        .into_iter()
        .filter(|one| one.name() != "plain")
    {
        let begin_ns = thread_cpu_ns();
        for batch in words.chunks_mut(BATCH_BYTES / 8) {
            writer.fill(batch, &[0; 8]);
        }
        fastest = fastest.max(rate(bytes, begin_ns));
    }
    for fill in fills::all()
        .into_iter()
        .filter(|one| one.name.starts_with("non-temporal"))
    {
        let begin_ns = thread_cpu_ns();
        for batch in words.chunks_mut(BATCH_BYTES / 8) {
            // SAFETY: any words are bytes.
            fill.fill(unsafe { batch.align_to_mut::<u8>().1 });
        }
        fastest = fastest.max(rate(bytes, begin_ns));
    }
    fastest
}

/// Bytes a second of this thread's CPU time since `begin_ns`.
fn rate(bytes: u64, begin_ns: u64) -> f64 {
    let ns = thread_cpu_ns().saturating_sub(begin_ns).max(1);
    #[expect(clippy::cast_precision_loss, reason = "a rate to print")]
    let (bytes, ns) = (bytes as f64, ns as f64);
    bytes / ns * 1e9
}
