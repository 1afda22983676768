//! The engine's writer for this machine's processor: [`best`].

use firstlight::memmap::Writer;

/// The widest stores past the caches that this CPU and its kernel have.
///
/// ```
/// let mut memory = vec![0u64; 100];
/// firstlight_bench::sweep::writer::best().fill(&mut memory, &[7; 8]);
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
