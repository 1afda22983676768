//! The engine's writers for this machine's processor: [`best`], [`all`].

use firstlight::memmap::Writer;

/// The best that this CPU and its kernel have: the widest stores past the caches.
///
/// ```
/// let mut memory = vec![0u64; 100];
/// firstlight_host::writer::best().fill(&mut memory, &[7; 8]);
/// assert!(memory.iter().all(|word| *word == 7));
/// ```
#[must_use]
pub fn best() -> Writer {
    all().pop().unwrap_or_default()
}

/// All writers this CPU and this kernel have, widest last.
#[must_use]
pub fn all() -> Vec<Writer> {
    #[cfg_attr(
        not(target_arch = "x86_64"),
        expect(unused_mut, reason = "other processors add nothing")
    )]
    let mut writers = vec![Writer::plain()];
    #[cfg(target_arch = "x86_64")]
    {
        use firstlight::memmap::writer::x86_64;
        writers.push(x86_64::words());
        let sizes = raw_cpuid::CpuId::new().get_processor_capacity_feature_info();
        if sizes.is_some_and(|sizes| sizes.has_cl_zero()) {
            // SAFETY: detected; it needs no register that a kernel would have to keep.
            writers.push(unsafe { x86_64::clzero() });
        }
        if std::is_x86_feature_detected!("avx2") {
            // SAFETY: detected, which includes that the kernel keeps the registers.
            writers.push(unsafe { x86_64::avx2() });
        }
        if std::is_x86_feature_detected!("avx512f") {
            // SAFETY: likewise.
            writers.push(unsafe { x86_64::avx512() });
        }
    }
    writers
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Zeros are a way of their own for some.
    #[test]
    fn all_of_them_write_zeros_and_lines_where_they_are_to() {
        const GUARD: u64 = 0xdead_beef;
        let mut memory = vec![GUARD; 200];
        for writer in all() {
            for line in [[0; 8], [1, 2, 3, 4, 5, 6, 7, 8]] {
                for (from, words) in [(0, 200), (3, 90), (8, 64), (17, 5), (9, 0), (1, 199)] {
                    memory.fill(GUARD);
                    writer.fill(&mut memory[from..from + words], &line);
                    for (at, word) in memory.iter().enumerate() {
                        let place = (&raw const *word).addr() / 8 % 8;
                        let inside = (from..from + words).contains(&at);
                        let expected = if inside { line[place] } else { GUARD };
                        assert_eq!(*word, expected, "{writer:?} {from}+{words} at {at}");
                    }
                }
            }
        }
    }
}
