//! Streaming stores of x86-64: whole lines, 16 bytes a store.

use core::arch::x86_64::{__m128i, _mm_setzero_si128, _mm_sfence, _mm_stream_si128};

/// A cache line: four stores that the processor sends off as one.
#[repr(C, align(64))]
struct Line([u8; 64]);

/// Zeroes the slice: whole lines past the caches, the ends as usual.
pub(super) fn zero(bytes: &mut [u8]) {
    // SAFETY: a line is bytes, and any bytes are a line.
    let (head, lines, tail) = unsafe { bytes.align_to_mut::<Line>() };
    head.fill(0);
    for line in lines.iter_mut() {
        let to = line.0.as_mut_ptr().cast::<__m128i>();
        // SAFETY: SSE2 is part of x86-64; the four stores lie in the line, which
        // is aligned for them.
        unsafe {
            let zero = _mm_setzero_si128();
            _mm_stream_si128(to, zero);
            _mm_stream_si128(to.add(1), zero);
            _mm_stream_si128(to.add(2), zero);
            _mm_stream_si128(to.add(3), zero);
        }
    }
    if !lines.is_empty() {
        // Streaming stores are ordered with nothing: a reader of `bytes` after
        // this call, on any CPU, must see the zeros.
        // SAFETY: SSE is part of x86-64.
        unsafe { _mm_sfence() };
    }
    tail.fill(0);
}
