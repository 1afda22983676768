//! `firstlight demo`: what this program does, in four steps that need nothing.
//!
//! [`steps`] has the steps, a [`Step`] each; each says which command repeats it, and one that cannot be taken says why and the
//! next follows. Logs are part of the program, so it needs no checkout and no network. [`browser`] opens the page.

mod browser;
mod step;
mod steps;

use crate::boot::Boots;
use crate::failure::Failure;
use crate::output::{FAINT, HEADING, Output};
use clap::Args;
use firstlight_host::clock::Clock;
use serde::Serialize;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use step::Step;

/// Show in a minute what this program does: four steps, without root
///
/// This machine's memory map, a virtual machine beside a Linux's log, two boots and what one of
/// them loses, and all of it as a page. Each step says the command that repeats it.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// The folder that gets logs, record and page, instead of a new one for temporary files
    #[arg(long, short, value_name = "FOLDER")]
    output: Option<PathBuf>,
    /// Do not open the page in a browser
    #[arg(long)]
    no_browser: bool,
}

const EXAMPLES: &str = "\
Examples:
  firstlight demo
  firstlight demo -o demo --no-browser
  firstlight demo --json | jq .steps

Exit codes: see firstlight --help";

/// What was shown.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Record {
    schema: &'static str,
    /// Where the files are.
    folder: Option<PathBuf>,
    steps: Vec<Step>,
}

/// Runs the subcommand.
pub(crate) fn run(options: &Options, clock: Clock, output: &mut Output) -> Result<(), Failure> {
    let boots = if output.is_json() {
        Boots::silent()?
    } else {
        Boots::new(false)?
    };
    let folder = folder(options.output.as_deref());
    let mut record = Record {
        schema: "firstlight.demo/1",
        folder: folder.as_ref().ok().cloned(),
        steps: Vec::new(),
    };
    let say = |output: &mut Output, text: String| -> Result<(), Failure> {
        if output.is_json() {
            return Ok(());
        }
        output.print(&(), |()| text)
    };
    say(
        output,
        format!("{HEADING}firstlight demo{HEADING:#}: four steps; this machine is not changed\n"),
    )?;
    let shown = folder.as_deref().map_err(Clone::clone);
    let opens = !options.no_browser && !output.is_json();
    for number in 1..=4 {
        let step = match number {
            1 => steps::this_machine(clock),
            2 => steps::beside_linux(&boots, shown.as_deref().ok()).map_err(Failure::Boot)?,
            3 => steps::two_logs(shown.as_deref().ok()),
            _ => steps::page(shown.clone(), opens),
        };
        say(output, step.text(number))?;
        record.steps.push(step);
    }
    if output.is_json() {
        return output.print(&record, |_| String::new());
    }
    say(
        output,
        format!("\n{FAINT}Where to go on: firstlight{FAINT:#}\n"),
    )
}

/// The folder for the files, with the logs in it; or why there is none, and what to do.
fn folder(named: Option<&Path>) -> Result<PathBuf, String> {
    let failed = |at: &Path, error: &io::Error| {
        let at = at.display();
        format!("cannot write to {at}: {error}; --output names another folder")
    };
    let folder = match named {
        Some(named) => fs::create_dir_all(named).map(|()| named.to_owned()),
        None => tempfile::Builder::new()
            .prefix("firstlight-demo-")
            .tempdir()
            .map(tempfile::TempDir::keep),
    };
    let temporary = std::env::temp_dir();
    let folder = folder.map_err(|error| failed(named.unwrap_or(&temporary), &error))?;
    for log in steps::LOGS {
        let path = folder.join(log.name);
        fs::write(&path, log.text).map_err(|error| failed(&path, &error))?;
    }
    Ok(folder)
}
