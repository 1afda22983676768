//! A file of the pool, as the command line of a VMM has it.

/// A file for a guest node, as a command line names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backing {
    /// Its name, `/proc/self/fd/N`.
    pub path: String,
    /// What its mapping must be aligned to, where its file system does not say.
    pub align_bytes: Option<u64>,
}
