//! `firstlight matrix`: kernels times shapes times command lines times clocks, in turns; the
//! cells and the folder are the [lab's](firstlight_lab::matrix). On many hosts: [`slurm`].

mod make;
mod options;
mod slurm;

use crate::boot::Boots;
use crate::failure::Failure;
use crate::output::{FAINT, HEADING, NOTE, Output};
use crate::report::Page;
use crate::text::plural;
use firstlight_lab::boot::Processor;
use firstlight_lab::export::{self, Format};
use firstlight_lab::matrix::{Cell, Failed, Impossible, Matrix, Run, Store, initrd};
use firstlight_lab::records;
use firstlight_lab::report::Report;
use make::{bar, boot, stored, to_make};
pub(crate) use options::Options;
use options::{INITRD, Place};
use serde::Serialize;
use std::path::Path;

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Document {
    schema: &'static str,
    folder: String,
    cells: Vec<State>,
    impossible: Vec<Impossible>,
    failed: Vec<Failed>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct State {
    name: String,
    done: usize,
    failed: usize,
    missing: usize,
}

/// Runs the subcommand.
pub(crate) fn run(options: &Options, output: &mut Output) -> Result<(), Failure> {
    let name = options.matrix.display().to_string();
    let text = firstlight_lab::file::read(&options.matrix)?;
    let text =
        String::from_utf8(text).map_err(|_| Failure::Usage(format!("{name} is no UTF-8")))?;
    // A task has a copy that the lab wrote.
    let matrix: Result<Matrix, String> = match options.task {
        Some(_) => serde_json::from_str(&text).map_err(|error| error.to_string()),
        None => toml::from_str(&text).map_err(|error| error.to_string()),
    };
    let matrix = matrix.map_err(|error| Failure::Usage(format!("{name}: {error}")))?;
    let (mut cells, impossible) = matrix
        .cells(options.base())
        .map_err(|why| Failure::Usage(format!("{name}: {why}")))?;
    if !options.dry_run {
        give_image(&mut cells, options)?;
    }
    if let Some(task) = &options.task {
        return slurm::task(options, cells, task);
    }
    let store = Store::open(&options.output).map_err(stored)?;
    if !options.dry_run {
        store.define(&cells).map_err(stored)?;
        give_initrd(&mut cells, &store)?;
        match options.on {
            Place::Here => boot_all(&cells, &store, options.retry)?,
            Place::Slurm => slurm::boot_all(options, matrix, &cells, &store)?,
        }
    }
    let states: Vec<State> = cells.iter().map(|cell| state(cell, &store)).collect();
    let failed = cells.iter().flat_map(|cell| {
        let store = &store;
        (0..cell.runs).filter_map(move |run| store.failure(&cell.name, run))
    });
    let document = Document {
        schema: "firstlight.matrix/1",
        folder: options.output.display().to_string(),
        failed: failed.collect(),
        cells: states,
        impossible,
    };
    output.print::<_, Failure>(&document, |document| report(document, &options.output))?;
    match document.failed.len() {
        0 => Ok(()),
        count => Err(Failure::Guests(format!(
            "{} failed; their reasons are in the folder, --retry makes them again",
            plural(count as u64, "boot")
        ))),
    }
}

/// Finds our image, once, where a cell wants it.
fn give_image(cells: &mut [Cell], options: &Options) -> Result<(), Failure> {
    if !cells.iter().any(|cell| cell.request.kernel.is_none()) {
        return Ok(());
    }
    let image = match &options.image {
        Some(image) => image.clone(),
        None => Boots::silent()?.image(Processor::X86_64)?,
    };
    for cell in cells.iter_mut() {
        if cell.request.kernel.is_none() {
            cell.request.image = Some(image.clone());
        }
    }
    Ok(())
}

/// Builds the initial file system, once, where a cell wants it.
fn give_initrd(cells: &mut [Cell], store: &Store) -> Result<(), Failure> {
    if !cells.iter().any(|cell| cell.needs_initrd) {
        return Ok(());
    }
    let path = store.file(INITRD, &initrd::build()).map_err(stored)?;
    for cell in cells.iter_mut().filter(|cell| cell.needs_initrd) {
        cell.request.initrd = Some(path.clone());
    }
    Ok(())
}

fn boot_all(cells: &[Cell], store: &Store, retry: bool) -> Result<(), Failure> {
    let order = to_make(cells, store, retry);
    let bar = bar(order.len());
    let boots = Boots::silent()?;
    for (at, run) in order {
        let Some(cell) = cells.get(at) else { continue };
        bar.set_message(cell.name.clone());
        boot(&boots, cell, run, store)?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(())
}

fn state(cell: &Cell, store: &Store) -> State {
    let count = |state| {
        (0..cell.runs)
            .filter(|run| store.run(&cell.name, *run) == state)
            .count()
    };
    State {
        name: cell.name.clone(),
        done: count(Run::Done),
        failed: count(Run::Failed),
        missing: count(Run::Missing),
    }
}

fn report(document: &Document, folder: &Path) -> String {
    let mut page = Page::default();
    page.styled(HEADING, &format!("firstlight matrix: {}", document.folder));
    for cell in &document.cells {
        let more = match (cell.failed, cell.missing) {
            (0, 0) => String::new(),
            (failed, missing) => format!(", {failed} failed, {missing} to come"),
        };
        page.line(format!("  {}: {} done{more}", cell.name, cell.done));
    }
    for cell in &document.impossible {
        page.line(format!("  {FAINT}{}: {}{FAINT:#}", cell.name, cell.why));
    }
    for failed in &document.failed {
        page.line(format!(
            "  {NOTE}{}:{NOTE:#} {}",
            failed.cell, failed.message
        ));
    }
    let report = records::read(folder).map(|folder| Report::of(folder, Vec::new()));
    let table = report
        .ok()
        .and_then(|report| export::report(&report, Format::Table).ok());
    if let Some(table) = table {
        page.line("");
        page.text.push_str(&table);
    }
    page.text
}
