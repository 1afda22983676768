//! Fills past the caches on x86-64, in assembly strings that name their
//! registers: they build for a kernel that gives the compiler no vector
//! registers. Before the vector loops run, the kernel switches the registers on
//! (CR4.OSXSAVE, XCR0), on each CPU, and saves what interrupted code holds in
//! them.

use core::arch::asm;

use super::{LINE_BYTES, Line, Writer, fill_plain, place};

/// Bytes a turn of the unrolled loops writes.
const TURN_BYTES: usize = 4 * LINE_BYTES;

/// 8 bytes a store, from general registers: every x86-64 CPU, no preparation.
pub const fn words() -> Writer {
    // SAFETY: `fill_words` follows the rule and needs nothing but SSE2's
    // `movnti`, which every x86-64 has and which uses no vector register.
    unsafe { Writer::new("movnti", fill_words) }
}

/// Zeros a line an instruction, and what is not zeros 8 bytes a store: no vector registers and no
/// preparation.
///
/// # Safety
/// Every CPU the writer is used on has CLZERO, as AMD's have since 2017: bit 0 of EBX of CPUID leaf
/// `0x8000_0008`.
pub const unsafe fn clzero() -> Writer {
    // SAFETY: `fill_zeros` follows the rule where the caller's promise holds.
    unsafe { Writer::new("clzero", fill_zeros) }
}

/// 32 bytes a store.
///
/// # Safety
/// Every CPU the writer is used on has AVX2, and its use is switched on.
pub const unsafe fn avx2() -> Writer {
    // SAFETY: `fill_avx2` follows the rule where the caller's promise holds.
    unsafe { Writer::new("avx2", fill_avx2) }
}

/// 64 bytes a store.
///
/// # Safety
/// Every CPU the writer is used on has AVX-512F, and its use is switched on.
pub const unsafe fn avx512() -> Writer {
    // SAFETY: `fill_avx512` follows the rule where the caller's promise holds.
    unsafe { Writer::new("avx512", fill_avx512) }
}

/// Writes the ends of a fill by ordinary stores, and by `turns` what lies
/// between: whole turns of `turn_bytes` from a border of a line on.
///
/// # Safety
/// `first` and `words` as for a fill; `turns(first, turns)` fills so many turns.
#[inline]
unsafe fn around(
    first: *mut u64,
    words: usize,
    line: &Line,
    turn_bytes: usize,
    turns: impl FnOnce(*mut u64, usize),
) {
    let head = match place(first) {
        0 => 0,
        past => (line.len() - past).min(words),
    };
    let count = (words - head) * 8 / turn_bytes;
    let middle = count * turn_bytes / 8;
    // SAFETY: head, middle and tail lie one after the other in the caller's memory.
    unsafe {
        fill_plain(first, head, line);
        if count > 0 {
            turns(first.add(head), count);
        }
        fill_plain(first.add(head + middle), words - head - middle, line);
    }
}

/// See [`Writer::new`].
unsafe fn fill_words(first: *mut u64, words: usize, line: &Line) {
    let turns = |first: *mut u64, turns: usize| {
        // SAFETY: writes `turns` lines from `first` on, all the caller's, and orders
        // them before whatever is stored later; clobbers only what it names.
        unsafe {
            asm!(
                ".p2align 6",
                "2:",
                "movnti [{at}], {w0}",
                "movnti [{at} + 8], {w1}",
                "movnti [{at} + 16], {w2}",
                "movnti [{at} + 24], {w3}",
                "movnti [{at} + 32], {w4}",
                "movnti [{at} + 40], {w5}",
                "movnti [{at} + 48], {w6}",
                "movnti [{at} + 56], {w7}",
                "add {at}, 64",
                "dec {left}",
                "jnz 2b",
                "sfence",
                at = inout(reg) first => _,
                left = inout(reg) turns => _,
                w0 = in(reg) line[0],
                w1 = in(reg) line[1],
                w2 = in(reg) line[2],
                w3 = in(reg) line[3],
                w4 = in(reg) line[4],
                w5 = in(reg) line[5],
                w6 = in(reg) line[6],
                w7 = in(reg) line[7],
                options(nostack),
            );
        }
    };
    // SAFETY: as the caller promised; a turn is a line.
    unsafe { around(first, words, line, LINE_BYTES, turns) }
}

/// See [`Writer::new`]; needs CLZERO.
unsafe fn fill_zeros(first: *mut u64, words: usize, line: &Line) {
    if *line != [0; LINE_BYTES / 8] {
        // SAFETY: as the caller promised.
        return unsafe { fill_words(first, words, line) };
    }
    let turns = |first: *mut u64, turns: usize| {
        // SAFETY: as in `fill_words`, a line at the address in `rax` a turn; the CPU has CLZERO.
        unsafe {
            asm!(
                ".p2align 6",
                "2:",
                "clzero",
                "add rax, 64",
                "dec {left}",
                "jnz 2b",
                "sfence",
                left = inout(reg) turns => _,
                inout("rax") first => _,
                options(nostack),
            );
        }
    };
    // SAFETY: as the caller promised; a turn is a line.
    unsafe { around(first, words, line, LINE_BYTES, turns) }
}

/// See [`Writer::new`]; needs AVX2.
unsafe fn fill_avx2(first: *mut u64, words: usize, line: &Line) {
    let turns = |first: *mut u64, turns: usize| {
        // SAFETY: as in `fill_words`, four lines a turn; the line is read
        // through a pointer to 64 bytes; the CPU has AVX2.
        unsafe {
            asm!(
                "vmovdqu ymm0, [{line}]",
                "vmovdqu ymm1, [{line} + 32]",
                // The loop is shorter than 128 bytes, so it stays in one page.
                ".p2align 7",
                "2:",
                "vmovntdq [{at}], ymm0",
                "vmovntdq [{at} + 32], ymm1",
                "vmovntdq [{at} + 64], ymm0",
                "vmovntdq [{at} + 96], ymm1",
                "vmovntdq [{at} + 128], ymm0",
                "vmovntdq [{at} + 160], ymm1",
                "vmovntdq [{at} + 192], ymm0",
                "vmovntdq [{at} + 224], ymm1",
                "add {at}, 256",
                "dec {left}",
                "jnz 2b",
                "sfence",
                "vzeroupper",
                at = inout(reg) first => _,
                left = inout(reg) turns => _,
                line = in(reg) line.as_ptr(),
                out("xmm0") _,
                out("xmm1") _,
                out("xmm2") _,
                out("xmm3") _,
                out("xmm4") _,
                out("xmm5") _,
                out("xmm6") _,
                out("xmm7") _,
                out("xmm8") _,
                out("xmm9") _,
                out("xmm10") _,
                out("xmm11") _,
                out("xmm12") _,
                out("xmm13") _,
                out("xmm14") _,
                out("xmm15") _,
                options(nostack),
            );
        }
    };
    // SAFETY: as the caller promised.
    unsafe { around(first, words, line, TURN_BYTES, turns) }
}

/// See [`Writer::new`]; needs AVX-512F.
unsafe fn fill_avx512(first: *mut u64, words: usize, line: &Line) {
    let turns = |first: *mut u64, turns: usize| {
        // SAFETY: as in `fill_avx2`; the CPU has AVX-512F.
        unsafe {
            asm!(
                "vmovdqu64 zmm0, [{line}]",
                ".p2align 6",
                "2:",
                "vmovntdq [{at}], zmm0",
                "vmovntdq [{at} + 64], zmm0",
                "vmovntdq [{at} + 128], zmm0",
                "vmovntdq [{at} + 192], zmm0",
                "add {at}, 256",
                "dec {left}",
                "jnz 2b",
                "sfence",
                "vzeroupper",
                at = inout(reg) first => _,
                left = inout(reg) turns => _,
                line = in(reg) line.as_ptr(),
                // All whose upper halves `vzeroupper` clears.
                out("xmm0") _,
                out("xmm1") _,
                out("xmm2") _,
                out("xmm3") _,
                out("xmm4") _,
                out("xmm5") _,
                out("xmm6") _,
                out("xmm7") _,
                out("xmm8") _,
                out("xmm9") _,
                out("xmm10") _,
                out("xmm11") _,
                out("xmm12") _,
                out("xmm13") _,
                out("xmm14") _,
                out("xmm15") _,
                options(nostack),
            );
        }
    };
    // SAFETY: as the caller promised.
    unsafe { around(first, words, line, TURN_BYTES, turns) }
}
