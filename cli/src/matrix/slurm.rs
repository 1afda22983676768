//! `firstlight matrix --on slurm`: [`boot_all`] submits what is missing and waits for it,
//! [`task`] is what each task runs on its node.

use super::{INITRD, Options, bar, boot, stored, to_make};
use crate::boot::Boots;
use crate::failure::Failure;
use firstlight_lab::matrix::slurm::{Gather, Slurm, SlurmError};
use firstlight_lab::matrix::{Cell, Run, Store};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Between two looks at the queue.
const PAUSE: Duration = Duration::from_secs(2);
/// Looks in a row that the controller may miss, as while it restarts.
const MOST_MISSED: u32 = 30;

/// Submits an array job for each cell with missing runs and waits until all have a result.
/// Runs that an earlier lab submitted are waited for, too.
pub(super) fn boot_all(options: &Options, cells: &[Cell], store: &Store) -> Result<(), Failure> {
    let boots = Boots::silent()?;
    store.subfolder("slurm").map_err(stored)?;
    let slurm = Slurm::new(&options.output, options.sbatch.clone())
        .map_err(|error| Failure::unreadable(&options.output, &error))?;
    let image = match &options.image {
        Some(image) => Some(image.clone()),
        None if cells.iter().any(|cell| cell.request.kernel.is_none()) => Some(boots.image()?),
        None => None,
    };
    let command = command(options, image)?;

    let mut gather = Gather::default();
    for task in slurm.tasks().map_err(failed)? {
        let known = cells
            .iter()
            .any(|cell| cell.name == task.cell && task.run < cell.runs);
        if known && !task.is_over() && store.run(&task.cell, task.run) != Run::Done {
            gather.add(&task.cell, task.run, task.job);
        }
    }
    let to_make = to_make(cells, store, options.retry);
    for (at, cell) in cells.iter().enumerate() {
        let mut runs: Vec<usize> = to_make
            .iter()
            .filter(|(of, run)| *of == at && !gather.has(&cell.name, *run))
            .map(|(_, run)| *run)
            .collect();
        runs.sort_unstable();
        if runs.is_empty() {
            continue;
        }
        for run in &runs {
            store.forget_failure(&cell.name, *run);
        }
        let job = slurm.submit(cell, &runs, &command).map_err(failed)?;
        for run in runs {
            gather.add(&cell.name, run, job);
        }
    }
    wait(&mut gather, &slurm, store, &boots)
}

fn wait(gather: &mut Gather, slurm: &Slurm, store: &Store, boots: &Boots) -> Result<(), Failure> {
    let all = gather.len();
    let bar = bar(all);
    let mut missed = 0;
    while !gather.is_empty() {
        match slurm.tasks() {
            Ok(tasks) => {
                missed = 0;
                gather.look(&tasks, store).map_err(stored)?;
                bar.set_position((all - gather.len()) as u64);
                bar.set_message(gather.words(&tasks));
            }
            Err(_) if missed < MOST_MISSED => missed += 1,
            Err(error) => return Err(failed(error)),
        }
        if !gather.is_empty() {
            boots.wait(PAUSE)?;
        }
    }
    bar.finish_and_clear();
    Ok(())
}

/// What a task runs, but for its cell and run.
fn command(options: &Options, image: Option<PathBuf>) -> Result<Vec<String>, Failure> {
    let whole = |path: &Path| {
        let path = path
            .canonicalize()
            .map_err(|error| Failure::unreadable(path, &error))?;
        path.into_os_string()
            .into_string()
            .map_err(|path| Failure::Usage(format!("{path:?} is no UTF-8")))
    };
    let program = std::env::current_exe()?;
    let mut command = vec![whole(&program)?, "matrix".into(), whole(&options.matrix)?];
    command.extend(["--output".into(), whole(&options.output)?]);
    if let Some(image) = image {
        command.extend(["--image".into(), whole(&image)?]);
    }
    Ok(command)
}

fn failed(error: SlurmError) -> Failure {
    Failure::Io(format!(
        "{error}; what was submitted goes on, the same command waits for it"
    ))
}

/// Makes one run, on a node. A boot that fails is a result as well.
pub(super) fn task(options: &Options, cells: Vec<Cell>, task: &str) -> Result<(), Failure> {
    let (name, run) = task.rsplit_once('/').unwrap_or((task, ""));
    let cell = cells.into_iter().find(|cell| cell.name == name);
    let (Some(mut cell), Ok(run)) = (cell, run.parse()) else {
        return Err(Failure::Usage(format!(
            "--task {task}: no such run in {}",
            options.matrix.display()
        )));
    };
    if cell.needs_initrd {
        cell.request.initrd = Some(options.output.join(INITRD));
    }
    let store = Store::of_a_task(&options.output);
    // It may be repeated for a node that died after its work.
    if store.run(&cell.name, run) != Run::Done {
        boot(&Boots::silent()?, &cell, run, &store)?;
    }
    Ok(())
}
