//! The cost of the allocator's own tables: [`Metadata`].

/// The cost of the allocator's own tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// Bytes taken for tables, from early memory or the memory provided.
    pub reserved_bytes: u64,
    /// Bytes of them written at start: lists, and the first tables of each segment that a call
    /// reached; levels opened later are not counted.
    pub written_bytes: u64,
}
