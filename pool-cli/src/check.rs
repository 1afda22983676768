//! `firstlight pool check`: a configuration, before a daemon runs on it.

use crate::failure::Failure;
use crate::output::{Document, Output};
use crate::text::{bytes, plural};
use clap::Args;
use firstlight_pool::config::Config;
use firstlight_pool::server::{self, Checked};
use std::fmt::Write;
use std::path::PathBuf;

/// Check a configuration: each word of it, and whether this machine has what it names
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    /// The file
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

const EXAMPLES: &str = "\
Examples:
  firstlight pool check --config /etc/firstlight/pool.toml && systemctl reload firstlight-pool

Exit codes: see firstlight --help";

/// Runs the subcommand.
pub(crate) fn run(options: &Options, output: &mut Output) -> Result<(), Failure> {
    let config = Config::read(&options.config).map_err(Failure::config)?;
    let checked = server::check(&config).map_err(Failure::served)?;
    let document = Document {
        schema: "firstlight.pool-check/1",
        value: &checked,
    };
    output.print(&document, |document| {
        let Checked {
            classes,
            slabs,
            bytes: all_bytes,
            notes,
        } = document.value;
        let mut page = format!(
            "{}: {}, {} of {} in all\n",
            options.config.display(),
            plural((*classes).into(), "pool"),
            plural(*slabs, "slab"),
            bytes(*all_bytes)
        );
        for note in notes {
            let _ = writeln!(page, "  note: {note}");
        }
        page
    })
}
