//! The sizes of a page, a huge frame and a giant frame, in one place: all others follow from these.
//!
//! The page is a feature's, the huge frame is 2 MiB with pages of 4 KiB and 32 MiB with larger ones:
//!
//! | feature | page | huge frame | giant frame | on arm64 |
//! |---|---|---|---|---|
//! | none | 4 KiB | 2 MiB, order 9 | 1 GiB, order 18 | a block each |
//! | `page-16k` | 16 KiB | 32 MiB, order 11 | 1 GiB, order 16 | a block, and 32 blocks in a row that are marked as one |
//! | `page-64k` | 64 KiB | 32 MiB, order 9 | 16 GiB, order 18 | a sixteenth of a block, and 32 blocks in a row |
//!
//! A block of 512 MiB, which arm64 maps at once with pages of 64 KiB, is a request of order 13, sixteen huge frames. As
//! the huge frame it would be too large for all that is done with one at a time: a CPU cuts its pages from one of its
//! own, one is zeroed before it is requested, and one is kept for content that can, or cannot, be moved.

/// log2 of the bytes in a page frame: 12, or 14 or 16 with the feature `page-16k` or `page-64k`.
pub const PAGE_SHIFT: u32 = if cfg!(feature = "page-64k") {
    16
} else if cfg!(feature = "page-16k") {
    14
} else {
    12
};

/// Order of a huge frame.
pub const HUGE_ORDER: u8 = if PAGE_SHIFT == 14 { 11 } else { 9 };

/// Order of a giant frame, the largest block.
pub const GIANT_ORDER: u8 = if PAGE_SHIFT == 14 { 16 } else { 18 };
