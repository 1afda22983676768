//! A sweep over numbers of CPUs, with a Linux.

use super::options::Options;
use crate::boot::{Boots, Guest};
use crate::failure::Failure;
use firstlight_lab::boot::{BootError, Clock, Request};
use firstlight_lab::published::{self, Machine};
use firstlight_lab::sweep::linux::Record;
use std::path::Path;

/// Boots of each number of CPUs; without --runs.
const RUNS: u32 = 3;

/// Boots in turns, so that what drifts is in every row, and makes a record of it.
/// A boot that fails is in no row.
pub(super) fn sweep(options: &Options, guest: &Guest, kernel: &Path) -> Result<Record, Failure> {
    let beside = options.beside.as_deref().map(beside).transpose()?;
    let given = guest.request()?;
    let request = |cpus| {
        let mut request = Request {
            kernel: Some(kernel.to_owned()),
            ..given.clone()
        };
        request.machine.cpus = cpus;
        request
    };
    let clock = request(1).machine.clock;
    if clock == Clock::Instructions {
        let text = "the CPUs of a guest share the instruction clock: expected --clock wall";
        return Err(Failure::Usage(text.into()));
    }
    let boots = Boots::new(guest.log)?;
    let mut failed = Vec::new();
    let mut all: Vec<_> = guest.cpus.iter().map(|_| Vec::new()).collect();
    for _ in 0..options.runs.unwrap_or(RUNS) {
        for (cpus, runs) in guest.cpus.iter().zip(&mut all) {
            match boots.run(&request(*cpus)) {
                Ok(record) => runs.push(record),
                Err(Failure::Boot(BootError::Guest(fault))) => {
                    failed.push(format!("{cpus} CPUs: {fault}"));
                }
                Err(failure) => return Err(failure),
            }
        }
    }
    if let (Some(first), true) = (failed.first(), all.iter().all(Vec::is_empty)) {
        return Err(Failure::Guests(first.clone()));
    }
    Record::of(&all, failed, beside).map_err(|error| Failure::Machine(error.to_string()))
}

/// The published machine of this name.
fn beside(name: &str) -> Result<Machine, Failure> {
    published::machine(name).map_err(|why| Failure::Usage(format!("--beside {name}: {why}")))
}
