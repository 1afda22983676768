//! What others published, in their own form (`predict --published`); the data are the
//! [lab's](firstlight_lab::published).

use crate::failure::Failure;
use crate::output::Output;
use firstlight_lab::published::{TABLES, table, text};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Document {
    schema: &'static str,
    tables: BTreeMap<&'static str, Value>,
}

/// Prints the table `wanted`, or all.
pub(crate) fn print(wanted: Option<&str>, output: &mut Output) -> Result<(), Failure> {
    let is_wanted = |name: &str| wanted.is_none_or(|wanted| wanted == name);
    let names = TABLES
        .iter()
        .map(|table| table.0)
        .filter(|name| is_wanted(name));
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
