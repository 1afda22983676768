//! A sweep in a virtual machine, by our image.

use super::options::Options;
use crate::boot::{Boots, Guest};
use crate::failure::Failure;
use crate::text::bytes;
use firstlight::addr::PAGE_BYTES;
use firstlight_host::meminfo::available_bytes;
use firstlight_lab::boot::{Clock, Request};
use firstlight_lab::sweep::Record;
use firstlight_lab::sweep::guest::{GuestSweep, of_boot};

/// Rounds on the wall clock without `--runs`.
const RUNS: u32 = 5;

/// Measures, and makes a record of it.
pub(super) fn sweep(options: &Options, guest: &Guest) -> Result<Record, Failure> {
    if guest.memory.is_none() {
        let text = "options of a guest need --memory; without it the sweep is this host's";
        return Err(Failure::Usage(text.into()));
    }
    guest.one_machine()?;
    let mut request = guest.request()?;
    let counted = request.machine.clock == Clock::Instructions;
    let sweep = GuestSweep {
        threads: options.threads.clone(),
        // Every round counts the same.
        runs: options.runs.unwrap_or(if counted { 1 } else { RUNS }),
        descriptor_bytes: options.descriptor_bytes,
    };
    let words = sweep
        .words()
        .map_err(|error| Failure::Usage(error.to_string()))?;
    fits(&request, options.descriptor_bytes)?;
    request.append = format!("{words} {}", request.append);
    let boot = Boots::new(guest.log)?.run(&request)?;
    of_boot(&boot).map_err(|error| Failure::Check(error.to_string()))
}

/// Whether this host has memory for the descriptors, all of which are written.
fn fits(request: &Request, descriptor_bytes: u32) -> Result<(), Failure> {
    let pages = request.machine.memory_mib.saturating_mul(1 << 20) / PAGE_BYTES;
    let needed = pages.saturating_mul(descriptor_bytes.into());
    match available_bytes() {
        Some(available) if needed > available / 10 * 8 => Err(Failure::Usage(format!(
            "{} of descriptors would be written, and this host has {} available: expected a smaller guest or smaller descriptors",
            bytes(needed),
            bytes(available)
        ))),
        _ => Ok(()),
    }
}
