//! Whether this machine has what a configuration names.

use super::{ServeError, places, warnings};
use crate::config::{Config, Size};
use crate::lease::quota::Rules;
use crate::machine::Spec;
use crate::os::{hugepages, memory_file};
use crate::protocol::PageSize;
use crate::store::{StoreError, available};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

/// What a configuration asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Checked {
    /// Pools.
    pub classes: u32,
    /// Slabs of all pools.
    pub slabs: u64,
    /// Bytes of all slabs.
    pub bytes: u64,
    /// What keeps it from being had in full at the moment, and what an operator should know.
    pub notes: Vec<String>,
}

/// Looks groups, nodes and page sizes up, counts what is set aside, and looks at the daemon's folders.
///
/// # Errors
/// What this machine does not have.
pub fn check(config: &Config) -> Result<Checked, ServeError> {
    let mut checked = machine(config)?;
    checked.notes.extend(places::notes(config));
    Ok(checked)
}

/// As [`check`], without the folders, which a daemon that runs has already.
pub(super) fn machine(config: &Config) -> Result<Checked, ServeError> {
    let owner = rustix::process::geteuid().as_raw();
    Rules::new(config, owner).map_err(ServeError::Config)?;
    let specs: Vec<Spec> = config.class.iter().map(Spec::from).collect();
    let mut needed: BTreeMap<(PageSize, Option<u32>), u64> = BTreeMap::new();
    for (class, spec) in config.class.iter().zip(&specs) {
        available(&spec.key).map_err(|error| {
            let text = error.to_string();
            ServeError::Config(match &class.node {
                Some(node) if matches!(error, StoreError::NoSuchNode(_)) => {
                    config.wrong(node, &text)
                }
                _ => config.wrong(&class.size, &text),
            })
        })?;
        let bytes = needed.entry((spec.key.page, spec.key.node)).or_default();
        *bytes = bytes.saturating_add(spec.wanted_bytes());
    }
    let notes = needed.iter().filter_map(|((page, node), bytes)| {
        let sys = Path::new(hugepages::SYS);
        let counts = hugepages::counts(sys, page.bytes(), *node).ok().flatten()?;
        let short = counts.total_pages.saturating_mul(page.bytes()) < *bytes;
        (short && *page != PageSize::Transparent).then(|| {
            let place = node.map_or(String::new(), |node| format!(" on node {node}"));
            format!(
                "pools of {page} pages{place} keep {}, and {} such pages are set aside: \
                 `echo {} > {}` has as many, beside others that use some it takes more",
                Size::new(*bytes),
                counts.total_pages,
                bytes.div_ceil(page.bytes()),
                hugepages::setting(sys, page.bytes(), *node).display()
            )
        })
    });
    Ok(Checked {
        classes: u32::try_from(specs.len()).unwrap_or(u32::MAX),
        slabs: specs.iter().map(|spec| u64::from(spec.wanted)).sum(),
        bytes: needed
            .values()
            .fold(0, |all, bytes| all.saturating_add(*bytes)),
        notes: notes
            .chain(warnings::of(Path::new("/"), config, &specs, |page| {
                memory_file::tells_holders(Some(page.bytes()))
            }))
            .collect(),
    })
}
