//! Zeroing beforehand beside zeroing on allocation, on real memory: [`run`], the work of
//! `firstlight bench zero`.
//!
//! | file | contents |
//! |---|---|
//! | `ground` | real memory as the frames of a machine |
//! | `allocate` | requests for zeroed blocks, with a stock and without |
//! | `worker` | how fast a worker zeroes, beside the stores by themselves |
//! | `neighbour`, `beside` | work in the caches, and how much slower it is beside a worker |
//! | `record` | the document |

mod allocate;
mod beside;
mod ground;
mod neighbour;
mod record;
mod worker;

pub use record::{Record, Row, SCHEMA, Stores};

use firstlight_host::meminfo::available_bytes;
use firstlight_host::threads::allowed_cpus;
use ground::{Ground, Kernel, best, through};
use std::error::Error;

/// Memory that stays available to others.
const LEFT_BYTES: u64 = 512 << 20;

/// Measures with `memory_bytes` of real memory, and neighbours that read `working_sets` of so many
/// bytes; `progress` is called with each step.
///
/// # Errors
/// Less memory than that, threads that cannot be had.
pub fn run(
    memory_bytes: u64,
    working_sets: &[usize],
    progress: &mut dyn FnMut(&str),
) -> Result<Record, Box<dyn Error>> {
    if let Some(available) = available_bytes()
        && available < memory_bytes.saturating_add(LEFT_BYTES)
    {
        return Err(format!(
            "{} MiB of memory are available; expected {} MiB, of which {} stay free: \
             a smaller --memory needs less",
            available >> 20,
            memory_bytes.saturating_add(LEFT_BYTES) >> 20,
            LEFT_BYTES >> 20,
        )
        .into());
    }
    let cpus = allowed_cpus()?;
    progress("memory");
    let mut ground = Ground::new(memory_bytes)?;
    let past = ground.mapped(best());
    let through = ground.mapped(through());
    let kernel = Kernel(past);
    let mut rows = {
        let frames = ground.frames(&kernel)?;
        allocate::allocate(&frames, &past, progress)?
    };
    progress("a worker");
    rows.extend(worker::worker(&mut ground)?);
    let frames = ground.frames(&kernel)?;
    let memories = [(Stores::NonTemporal, past), (Stores::Temporal, through)];
    let neighbours = beside::neighbours(working_sets, &frames, memories, &cpus, progress)?;
    rows.extend(neighbours);
    Ok(Record {
        schema: SCHEMA,
        rows,
    })
}
