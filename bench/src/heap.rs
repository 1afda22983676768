//! The heap of this process: [`in_use_bytes`].

/// Bytes of the heap that are in use, as the C library counts them: all live
/// allocations with their overhead. `None` where the library does not count.
///
/// ```
/// use firstlight_bench::heap::in_use_bytes;
/// if let Some(before) = in_use_bytes() {
///     let kept = vec![1u8; 100_000];
///     assert!(in_use_bytes().unwrap() >= before + kept.len() as u64);
/// }
/// ```
#[must_use]
pub fn in_use_bytes() -> Option<u64> {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: mallinfo takes no arguments and only reads the heap's own books.
        let info = unsafe { libc::mallinfo() };
        // The fields are ints that wrap: read without a sign they last to 4 GiB.
        let bytes = |field: libc::c_int| u64::from(field.cast_unsigned());
        Some(bytes(info.uordblks) + bytes(info.hblkhd))
    }
    #[cfg(not(target_env = "gnu"))]
    None
}
