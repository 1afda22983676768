//! The figures of `docs/measurements*.md` and of the README, from records in `testdata/measurements`.
//!
//! ```text
//! measurements [NAME...]   measure these, or all; write their records, the pages, the README
//! measurements none        write pages and README from the records there are
//! ```
//!
//! - [`plan`]: what is measured, by which commands;
//! - [`record`]: what the commands printed, on which host, when, at which commit;
//! - [`document`]: the parts of the pages that records fill;
//! - [`picture`], [`readme`]: what the README shows of them;
//! - [`allocator`], [`balloon`], [`guests`], [`zeros`]: tables of the commands that print JSON.
//!
//! `make measurements` calls it; a test here fails where pages and records differ.

mod allocator;
mod balloon;
mod document;
mod guests;
mod picture;
mod plan;
mod readme;
mod record;
mod zeros;

use std::error::Error;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use plan::{NEEDS_ROOT, PLANS};
use record::Record;

/// Measures nothing.
const NONE: &str = "none";

/// The repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn run(arguments: &[String]) -> Result<(), Box<dyn Error>> {
    let root = root();
    let known = |name: &str| name == NONE || PLANS.iter().any(|plan| plan.name == name);
    if let Some(unknown) = arguments.iter().find(|name| !known(name)) {
        let names: Vec<&str> = PLANS.iter().map(|plan| plan.name).collect();
        let names = names.join(", ");
        return Err(
            format!("no measurement {unknown:?}; expected {NONE}, or some of {names}").into(),
        );
    }
    for plan in PLANS {
        if arguments.is_empty() && plan.name == NEEDS_ROOT && !is_root() {
            eprintln!("measurements: {NEEDS_ROOT} is left out: it needs root");
        } else if arguments.is_empty() || arguments.iter().any(|name| name == plan.name) {
            Record::measure(plan, &root)?.write(&root)?;
        }
    }
    document::write(&root)
}

fn is_root() -> bool {
    // A process's folder is its user's.
    fs::metadata("/proc/self").is_ok_and(|folder| folder.uid() == 0)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("measurements: {error}");
            ExitCode::FAILURE
        }
    }
}
