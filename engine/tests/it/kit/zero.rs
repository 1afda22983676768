//! Where data lies that is zero and not in the file: [`holds`].

// SAFETY: symbols that every linker for this system defines; only their addresses are used.
unsafe extern "C" {
    safe static __bss_start: u8;
    safe static _end: u8;
}

/// Whether it lies there.
pub(crate) fn holds<T>(at: *const T) -> bool {
    let (begin, end) = (&raw const __bss_start, &raw const _end);
    begin as usize <= at as usize && (at as usize) < end as usize
}
