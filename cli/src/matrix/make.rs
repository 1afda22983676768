//! Runs that are to be made, each made and kept: here and on a node of Slurm.

use crate::boot::Boots;
use crate::failure::Failure;
use firstlight_lab::boot::BootError;
use firstlight_lab::matrix::{Cell, Run, Store, StoreError, order};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The runs that are to be made, in order.
pub(super) fn to_make(cells: &[Cell], store: &Store, retry: bool) -> Vec<(usize, usize)> {
    let wanted =
        |(at, run): &(usize, usize)| match cells.get(*at).map(|cell| store.run(&cell.name, *run)) {
            Some(Run::Missing) => true,
            Some(Run::Failed) => retry,
            _ => false,
        };
    order(cells).into_iter().filter(wanted).collect()
}

pub(super) fn bar(length: usize) -> ProgressBar {
    let bar =
        ProgressBar::with_draw_target(Some(length as u64), ProgressDrawTarget::stderr_with_hz(4));
    if let Ok(style) = ProgressStyle::with_template("{pos} of {len} {bar:30} {eta} to go  {msg}") {
        bar.set_style(style);
    }
    bar
}

/// Makes a run and keeps what came of it.
pub(super) fn boot(boots: &Boots, cell: &Cell, run: usize, store: &Store) -> Result<(), Failure> {
    match boots.run(&cell.request) {
        Ok(record) => store.keep(&cell.name, run, &record).map_err(stored),
        // Nothing is wrong with the guest.
        Err(stopped @ Failure::Boot(BootError::Interrupted(_))) => Err(stopped),
        Err(failure) => store
            .fail(&cell.name, run, &failure.to_string(), failure.guest_log())
            .map_err(stored),
    }
}

/// Why a folder cannot be used, and the exit code for it.
pub(super) fn stored(error: StoreError) -> Failure {
    match error {
        StoreError::Busy(_) | StoreError::Changed(..) => Failure::Usage(error.to_string()),
        StoreError::Io(..) => Failure::Io(error.to_string()),
    }
}
