//! `firstlight matrix --on slurm`: [`boot_all`] submits what is missing and waits for it,
//! [`task`] is what each task runs on its node.

use super::make::{bar, boot, stored, to_make};
use super::options::{INITRD, Options};
use crate::boot::Boots;
use crate::failure::Failure;
use firstlight_lab::matrix::slurm::{Gather, Job, Slurm, SlurmError};
use firstlight_lab::matrix::{Cell, Matrix, Run, Store};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

/// Where copies of the matrix and what tasks print are kept.
const FOLDER: &str = "slurm";
/// Between two looks at the queue.
const PAUSE: Duration = Duration::from_secs(2);
/// Looks in a row that the controller may miss, as while it restarts.
const MOST_MISSED: u32 = 30;

/// Submits an array job for each cell with missing runs and waits until all have a result.
/// Runs that an earlier lab submitted are waited for, too.
pub(super) fn boot_all(
    options: &Options,
    matrix: Matrix,
    cells: &[Cell],
    store: &Store,
) -> Result<(), Failure> {
    store.subfolder(FOLDER).map_err(stored)?;
    let boots = Boots::silent()?;
    let mut slurm = Slurm::new(&options.output, options.sbatch.clone())
        .map_err(|error| Failure::unreadable(&options.output, &error))?;
    let image = cells.iter().find_map(|cell| cell.request.image.as_deref());
    let command = command(options, matrix, image, store)?;

    let mut gather = Gather::default();
    let mut jobs = BTreeSet::new();
    for task in slurm.tasks().map_err(failed)? {
        let known = cells
            .iter()
            .any(|cell| cell.name == task.cell && task.run < cell.runs);
        if known && !task.is_over() && store.run(&task.cell, task.run) != Run::Done {
            store.forget_failure(&task.cell, task.run);
            jobs.insert(task.job.clone());
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
        let submitted = slurm.submit(cell, &runs, &command).map_err(failed)?;
        for (run, job) in submitted {
            jobs.insert(job.clone());
            gather.add(&cell.name, run, job);
        }
    }
    if !jobs.is_empty() {
        let jobs: Vec<String> = jobs.iter().map(Job::to_string).collect();
        anstream::eprintln!("jobs of Slurm, for scancel: {}", jobs.join(", "));
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

/// What a task runs, but for its cell and run. Its matrix is a copy: what is submitted stays
/// what it is when the file changes.
fn command(
    options: &Options,
    matrix: Matrix,
    image: Option<&Path>,
    store: &Store,
) -> Result<Vec<String>, Failure> {
    let whole = |path: &Path| {
        let path = std::path::absolute(path).map_err(|error| Failure::unreadable(path, &error))?;
        path.into_os_string()
            .into_string()
            .map_err(|path| Failure::Usage(format!("{path:?} is no UTF-8")))
    };
    let matrix = matrix.absolute(options.base())?;
    let text = serde_json::to_vec_pretty(&matrix)
        .map_err(|error| Failure::Usage(format!("{}: {error}", options.matrix.display())))?;
    let copy = store.file_of_its_own(&format!("{FOLDER}/matrix"), &text);
    let copy = copy.map_err(stored)?;
    let program = std::env::current_exe()?;
    let mut command = vec![whole(&program)?, "matrix".into(), whole(&copy)?];
    command.extend(["--output".into(), whole(&options.output)?]);
    if let Some(image) = image {
        command.extend(["--image".into(), whole(image)?]);
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
    if store.run(&cell.name, run) == Run::Done {
        return Ok(());
    }
    match store.check(&cell) {
        Ok(()) => boot(&Boots::silent()?, &cell, run, &store),
        Err(changed) => store
            .fail(&cell.name, run, &changed.to_string(), &[])
            .map_err(stored),
    }
}
