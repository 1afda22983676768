//! What the reports of `up` and `boot` have in common: the [`Page`] they are
//! written on, and the sections that show a machine's memory ([`memory`])
//! or where its boot stood still ([`gaps`]).

pub(crate) mod gaps;
pub(crate) mod memory;
mod page;
pub(crate) mod share;

pub(crate) use page::Page;
