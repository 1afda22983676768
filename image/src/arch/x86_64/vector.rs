//! Vector registers. The compiler uses none here; the loops that fill memory do,
//! once [`enable`] has run on their CPU.

use firstlight::memmap::Writer;
use firstlight::memmap::writer::x86_64::{avx2, avx512, words};
use raw_cpuid::CpuId;
use spin::Once;
use x86_64::registers::control::{Cr4, Cr4Flags};
use x86_64::registers::xcontrol::{XCr0, XCr0Flags};

/// The processor's features, the same on all CPUs.
fn features() -> (bool, bool) {
    let cpuid = CpuId::new();
    let avx = cpuid
        .get_feature_info()
        .is_some_and(|info| info.has_xsave() && info.has_avx());
    let more = cpuid.get_extended_feature_info().filter(|_| avx);
    let has =
        |feature: fn(&raw_cpuid::ExtendedFeatures) -> bool| more.as_ref().is_some_and(feature);
    (
        has(raw_cpuid::ExtendedFeatures::has_avx2),
        has(raw_cpuid::ExtendedFeatures::has_avx512f),
    )
}

/// Switches on, on this CPU, the registers that [`writer`] needs.
pub(super) fn enable() {
    let (has_avx2, has_avx512) = features();
    if !has_avx2 {
        return;
    }
    let wide = match has_avx512 {
        true => XCr0Flags::OPMASK | XCr0Flags::ZMM_HI256 | XCr0Flags::HI16_ZMM,
        false => XCr0Flags::empty(),
    };
    // SAFETY: the processor has them, and only the loops use them: there is nothing to
    // save, and no other code depends on their being off.
    unsafe {
        Cr4::update(|flags| flags.insert(Cr4Flags::OSFXSR | Cr4Flags::OSXSAVE));
        XCr0::write(XCr0Flags::X87 | XCr0Flags::SSE | XCr0Flags::AVX | wide);
    }
}

/// The widest stores past the caches that this processor has.
pub(crate) fn writer() -> Writer {
    static CHOICE: Once<Writer> = Once::new();
    *CHOICE.call_once(choose)
}

fn choose() -> Writer {
    match features() {
        // SAFETY: the processor has it, and `enable` runs on every CPU before its first work.
        (true, true) => unsafe { avx512() },
        // SAFETY: as above.
        (true, false) => unsafe { avx2() },
        _ => words(),
    }
}
