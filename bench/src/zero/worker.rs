//! How fast a worker zeroes, beside all other ways to fill memory past the caches: [`worker`].
//!
//! *All ways take turns, a batch at a time, and a figure is the median of its turns*: what another
//! process gets of the CPU makes a few turns long, and what others take of the memory bus slows all
//! ways alike. So the fractions hold on a machine that has other work, too. All of them write zeros:
//! there are processors that write those twice as fast as anything else.

use super::ground::{Ground, Kernel, best, eager, forget};
use super::record::Row;
use crate::sweep::fills;
use firstlight::background::Next;
use firstlight::memmap::Writer;
use firstlight::node::NodeId;
use firstlight::zeroing::{MappedMemory, Worker};
use firstlight_figures::random::Random;
use firstlight_figures::spread::median;
use firstlight_host::clock::Clock;
use firstlight_host::reserve::Reservation;
use firstlight_host::writer;
use std::error::Error;
use std::time::Instant;

/// Turns of each way.
const TURNS: usize = 2000;
/// Filled in a turn, as by a worker.
const BATCH_BYTES: usize = 2 << 20;
/// Memory for the others, more than caches hold.
const OTHER_BYTES: usize = 64 << 20;

type Fill = dyn Fn(&mut [u8]);

/// A way to fill memory with zeros.
struct Way {
    name: &'static str,
    /// Its stores go past the caches.
    is_past: bool,
    fill: Box<Fill>,
}

/// The rows: the worker with the best stores of this CPU; the stores by themselves.
pub(super) fn worker(ground: &mut Ground) -> Result<Vec<Row>, Box<dyn Error>> {
    let kernel = Kernel(ground.mapped(best()));
    let frames = ground.frames(&kernel)?;
    let (zeroing, clock) = (eager(&frames, &kernel.0)?, Clock::start());
    let mut worker = zeroing.worker(NodeId(0));
    let (past, through): (Vec<_>, Vec<_>) = ways().into_iter().partition(|way| way.is_past);
    let mut ours = Vec::with_capacity(TURNS);
    let past = turns(past, &mut || {
        ours.push(batch_of(&mut worker, &clock, &mut || forget(&frames))?);
        Ok(())
    })?;
    // By themselves: what they leave in the caches would slow the others.
    let through = turns(through, &mut || Ok(()))?;
    let fastest = past.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    let ours = rate(&mut ours);
    let mut rows = vec![Row::Worker {
        bytes_per_second: whole(ours),
        fraction_of_best: fraction(ours, fastest),
    }];
    rows.extend(
        past.into_iter()
            .chain(through)
            .map(|(way, rate)| Row::Stores {
                name: way.name.to_owned(),
                past_caches: way.is_past,
                bytes_per_second: whole(rate),
                fraction_of_best: fraction(rate, fastest),
            }),
    );
    Ok(rows)
}

/// All ways in turns, after what is done first in each turn; their rates.
fn turns(
    ways: Vec<Way>,
    first: &mut dyn FnMut() -> Result<(), Box<dyn Error>>,
) -> Result<Vec<(Way, f64)>, Box<dyn Error>> {
    let mut memory = Reservation::huge(OTHER_BYTES)?;
    memory.as_mut_slice().fill(0xa5);
    let mut seconds = vec![Vec::with_capacity(TURNS); ways.len()];
    let mut order: Vec<usize> = (0..ways.len()).collect();
    let (mut random, mut batch) = (Random::new(1), 0);
    for _ in 0..TURNS {
        first()?;
        random.shuffle(&mut order);
        for &at in &order {
            let bytes = &mut memory.as_mut_slice()[batch..batch + BATCH_BYTES];
            let begin = Instant::now();
            (ways[at].fill)(bytes);
            seconds[at].push(begin.elapsed().as_secs_f64());
            batch = (batch + BATCH_BYTES) % OTHER_BYTES;
        }
    }
    let rates = seconds.iter_mut().map(|turns| rate(turns));
    let rates: Vec<f64> = rates.collect();
    Ok(ways.into_iter().zip(rates).collect())
}

/// Seconds until the worker has zeroed its next batch.
fn batch_of(
    worker: &mut Worker<'_, '_, MappedMemory>,
    clock: &Clock,
    forget: &mut dyn FnMut() -> Result<(), Box<dyn Error>>,
) -> Result<f64, Box<dyn Error>> {
    loop {
        let begin = Instant::now();
        loop {
            let step = worker.step(|| clock.now_ns());
            if step.zeroed_bytes == BATCH_BYTES as u64 {
                return Ok(begin.elapsed().as_secs_f64());
            }
            if step.next != Next::Now {
                break;
            }
        }
        // All is zero.
        forget()?;
    }
}

/// All ways this CPU has.
fn ways() -> Vec<Way> {
    let writers = writer::all().into_iter().map(|writer: Writer| Way {
        name: writer.name(),
        is_past: writer.name() != Writer::plain().name(),
        fill: Box::new(move |bytes| {
            // SAFETY: any bytes are words.
            writer.fill(unsafe { bytes.align_to_mut::<u64>().1 }, &[0; 8]);
        }),
    });
    let fills = fills::all().into_iter().map(|fill| Way {
        name: fill.name,
        is_past: fill.name.starts_with("non-temporal"),
        fill: Box::new(move |bytes| fill.zero(bytes)),
    });
    writers.chain(fills).collect()
}

/// Bytes a second of the median turn.
fn rate(turns: &mut [f64]) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "two MiB")]
    let bytes = BATCH_BYTES as f64;
    bytes / median(turns).unwrap_or(f64::INFINITY)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "bytes a second of this machine"
)]
fn whole(rate: f64) -> u64 {
    rate as u64
}

/// To a thousandth.
fn fraction(rate: f64, of: f64) -> f64 {
    (rate / of * 1000.0).round() / 1000.0
}
