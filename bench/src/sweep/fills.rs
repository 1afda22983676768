//! The fills that descriptors are compared with: the ways in which this machine can fill
//! memory, none of them the engine's.

use std::fmt;

/// A way to fill bytes.
#[derive(Clone, Copy)]
pub struct Fill {
    /// Its name in reports.
    pub name: &'static str,
    fill: unsafe fn(*mut u8, usize, u8),
}

impl fmt::Debug for Fill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// The byte that is filled in; any would do.
const BYTE: u8 = 0x5a;

impl Fill {
    /// Fills `memory`.
    pub fn fill(self, memory: &mut [u8]) {
        self.fill_with(memory, BYTE);
    }

    /// Fills `memory` with zeros, which some processors write faster than anything else.
    pub fn zero(self, memory: &mut [u8]) {
        self.fill_with(memory, 0);
    }

    fn fill_with(self, memory: &mut [u8], byte: u8) {
        // SAFETY: a slice is writable; instructions that the CPU lacks are not in `all`.
        unsafe { (self.fill)(memory.as_mut_ptr(), memory.len(), byte) }
    }
}

/// All that this CPU can run.
///
/// ```
/// for way in firstlight_bench::sweep::fills::all() {
///     let mut memory = vec![0u8; 1000];
///     way.fill(&mut memory[3..990]);
///     assert!(memory[3..990].iter().all(|byte| *byte == 0x5a), "{way:?}");
///     assert_eq!((memory[2], memory[990]), (0, 0));
///     way.zero(&mut memory[3..990]);
///     assert_eq!(memory, [0; 1000], "{way:?}");
/// }
/// ```
#[must_use]
pub fn all() -> Vec<Fill> {
    let memset = Fill {
        name: "memset",
        fill: memset,
    };
    #[cfg(target_arch = "x86_64")]
    return x86_64::beside(memset);
    #[cfg(not(target_arch = "x86_64"))]
    vec![memset]
}

/// The C library's.
unsafe fn memset(first: *mut u8, bytes: usize, byte: u8) {
    // SAFETY: as the caller promised.
    unsafe { libc::memset(first.cast(), byte.into(), bytes) };
}

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use super::{Fill, memset};
    use std::arch::asm;
    use std::arch::x86_64::{__m256i, _mm256_set1_epi8, _mm256_stream_si256};

    /// `first`, and what this processor has.
    pub(super) fn beside(first: Fill) -> Vec<Fill> {
        let mut fills = vec![first];
        let mut add = |name, fill| fills.push(Fill { name, fill });
        add("rep stosb", rep_stosb);
        if std::is_x86_feature_detected!("avx2") {
            add("non-temporal AVX2", avx2);
        }
        if std::is_x86_feature_detected!("avx512f") {
            add("non-temporal AVX-512", avx512);
        }
        fills
    }

    unsafe fn rep_stosb(first: *mut u8, bytes: usize, byte: u8) {
        // SAFETY: writes `bytes` bytes from `first` on; the direction flag is clear by the ABI.
        unsafe {
            asm!(
                "rep stosb",
                inout("rdi") first => _,
                inout("rcx") bytes => _,
                in("al") byte,
                options(nostack, preserves_flags),
            );
        }
    }

    /// The aligned middle, from byte `.0` and `.1` units long; the ends go by memset.
    unsafe fn middle(first: *mut u8, bytes: usize, unit: usize, byte: u8) -> (*mut u8, usize) {
        let head = first.align_offset(unit).min(bytes);
        let units = (bytes - head) / unit;
        let tail = bytes - head - units * unit;
        // SAFETY: both ends lie inside the caller's memory.
        unsafe {
            memset(first, head, byte);
            memset(first.add(bytes - tail), tail, byte);
            (first.add(head), units)
        }
    }

    unsafe fn avx2(first: *mut u8, bytes: usize, byte: u8) {
        #[target_feature(enable = "avx2")]
        unsafe fn stream(first: *mut __m256i, units: usize, byte: u8) {
            #[expect(clippy::cast_possible_wrap, reason = "a byte's bits")]
            let value = _mm256_set1_epi8(byte as i8);
            for at in 0..units {
                // SAFETY: unit `at` lies inside and is aligned.
                unsafe { _mm256_stream_si256(first.add(at), value) };
            }
            // SAFETY: orders stores, nothing else; every x86-64 has it. Not the intrinsic,
            // which is unsafe in older compilers only.
            unsafe { core::arch::asm!("sfence", options(nostack, preserves_flags)) }
        }
        // SAFETY: as the caller promised; in the list only where AVX2 was detected.
        unsafe {
            let (first, units) = middle(first, bytes, size_of::<__m256i>(), byte);
            stream(first.cast(), units, byte);
        }
    }

    /// In assembly: the oldest compiler promised has no intrinsics for it.
    unsafe fn avx512(first: *mut u8, bytes: usize, byte: u8) {
        const UNIT_BYTES: usize = 64;
        // SAFETY: as the caller promised; in the list only where AVX-512F was
        // detected; writes `units` units from an aligned `first` on.
        unsafe {
            let (first, units) = middle(first, bytes, UNIT_BYTES, byte);
            if units == 0 {
                return;
            }
            asm!(
                "vpbroadcastq zmm16, {value}",
                "2:",
                "vmovntdq [{at}], zmm16",
                "add {at}, 64",
                "dec {left}",
                "jnz 2b",
                "sfence",
                at = inout(reg) first => _,
                left = inout(reg) units => _,
                value = in(reg) u64::from_ne_bytes([byte; 8]),
                out("xmm16") _,
                options(nostack),
            );
        }
    }
}
