//! `firstlight published`: what others published, in their own form; the data are the
//! [lab's](firstlight_lab::published).

use crate::failure::Failure;
use crate::output::Output;
use clap::Args;
use clap::builder::PossibleValuesParser;
use firstlight_lab::published::{TABLES, table, text};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// Print published measurements in their own form, with their sources
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// Which table; else all
    #[arg(value_parser = PossibleValuesParser::new(TABLES.map(|table| table.0)))]
    name: Option<String>,
}

const EXAMPLES: &str = "\
Examples:
  firstlight published
  firstlight published sparc-32t
  firstlight published --json | jq '.tables[\"pre-zeroing\"].rows'

Exit codes: see firstlight --help";

#[derive(Serialize)]
struct Document {
    schema: &'static str,
    tables: BTreeMap<&'static str, Value>,
}

/// Runs the subcommand.
pub(crate) fn run(options: &Options, output: &mut Output) -> Result<(), Failure> {
    let wanted = |name: &str| options.name.as_deref().is_none_or(|wanted| wanted == name);
    let names = TABLES
        .iter()
        .map(|table| table.0)
        .filter(|name| wanted(name));
    let document = Document {
        schema: "firstlight.published/1",
        tables: names
            .filter_map(|name| Some((name, table(name)?)))
            .collect(),
    };
    output.print(&document, |document| {
        let texts = document.tables.keys().filter_map(|name| text(name));
        texts.collect::<Vec<_>>().join("\n")
    })
}
