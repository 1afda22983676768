//! A board that a device tree describes, and nothing else.

use firstlight::addr::PhysRange;
use firstlight::early::{EarlyError, EarlyMemory};
use firstlight::firmware::fdt::FdtError;

pub(crate) use super::tree::{FIXED, Loader, Tables, tree, uart, virtio};
use crate::arch::DirectMap;

/// Why a tree cannot be read.
pub(crate) type LoaderError = FdtError;

/// There are no further tables.
pub(crate) type Root = ();

/// There are no further tables.
pub(crate) fn root(_: DirectMap, _: &Loader) -> Option<Root> {
    None
}

/// There are no further tables.
///
/// # Errors
/// None.
pub(crate) fn reserve(
    _: DirectMap,
    _: Option<&Root>,
    _: &mut EarlyMemory<'_>,
) -> Result<bool, EarlyError> {
    Ok(true)
}

/// What the tree says of CPUs and nodes.
pub(crate) fn tables(_: DirectMap, loader: &Loader, _: Option<&Root>) -> Tables {
    super::tree::tables(loader)
}

/// None: registers are mapped from the start, or when they are found.
pub(crate) fn registers(_: &Tables) -> Option<PhysRange> {
    None
}
