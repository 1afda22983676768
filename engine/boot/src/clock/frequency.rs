//! [`Frequency`]: ticks to nanoseconds and back, and a hypervisor's statement of it.

use core::fmt;
use core::num::NonZeroU64;

const NS_PER_SECOND: u128 = 1_000_000_000;
/// What a processor's counter may run at; anything else is a mistake.
const PLAUSIBLE_HZ: core::ops::RangeInclusive<u64> = 1_000_000..=20_000_000_000;

/// How many times a second a counter counts; never zero.
///
/// ```
/// use firstlight_boot::clock::Frequency;
/// let tsc = Frequency::new(2_400_000_000).ok_or("zero")?;
/// assert_eq!(tsc.ns(12), 5);
/// assert_eq!(tsc.ticks(5), 12);
/// assert_eq!(tsc.ns(u64::MAX), 7_686_143_364_045_646_506); // 243 years
/// # Ok::<(), &str>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(transparent)]
pub struct Frequency(NonZeroU64);

impl Frequency {
    /// `hz` times a second; `None` for zero.
    pub const fn new(hz: u64) -> Option<Self> {
        match NonZeroU64::new(hz) {
            Some(hz) => Some(Self(hz)),
            None => None,
        }
    }

    /// So many ticks a second, refused unless a processor's counter may run at it: from 1 MHz
    /// to 20 GHz.
    ///
    /// # Errors
    /// [`ClockError::Implausible`].
    pub fn plausible(hz: u64) -> Result<Self, ClockError> {
        Self::new(hz)
            .filter(|_| PLAUSIBLE_HZ.contains(&hz))
            .ok_or(ClockError::Implausible { hz })
    }

    /// From kilohertz, as CPUID leaf 0x4000_0010 returns them in EAX.
    ///
    /// ```
    /// use firstlight_boot::clock::{ClockError, Frequency};
    /// assert_eq!(Frequency::from_khz(2_893_202)?.hz(), 2_893_202_000);
    /// assert!(Frequency::from_khz(0).is_err());
    /// # Ok::<(), ClockError>(())
    /// ```
    ///
    /// # Errors
    /// [`ClockError::Implausible`]; a hypervisor that does not know reports zero.
    pub fn from_khz(khz: u32) -> Result<Self, ClockError> {
        Self::plausible(u64::from(khz) * 1000)
    }

    /// From the scale of a paravirtual clock (kvmclock, Xen): ticks, shifted
    /// left by `shift` (right, where it is negative), times `mul` / 2^32 are
    /// nanoseconds. Rounded to whole hertz.
    ///
    /// ```
    /// use firstlight_boot::clock::{ClockError, Frequency};
    /// // Half of 2^32 for a tick shifted left by one: a nanosecond.
    /// assert_eq!(Frequency::from_pvclock(1 << 31, 1)?.hz(), 1_000_000_000);
    /// assert!(Frequency::from_pvclock(0, 0).is_err());
    /// # Ok::<(), ClockError>(())
    /// ```
    ///
    /// # Errors
    /// [`ClockError::Pvclock`] when `mul` is zero or `shift` shifts everything
    /// out; [`ClockError::Implausible`].
    pub fn from_pvclock(mul: u32, shift: i8) -> Result<Self, ClockError> {
        let bits = u32::try_from(32 - i32::from(shift)).ok();
        let second = bits
            .filter(|bits| *bits <= 64)
            .map(|bits| NS_PER_SECOND << bits);
        match second.and_then(|second| rounded(second, mul.into())) {
            Some(hz) => Self::plausible(hz),
            None => Err(ClockError::Pvclock { mul, shift }),
        }
    }

    /// Ticks a second.
    pub const fn hz(self) -> u64 {
        self.0.get()
    }

    /// Whole nanoseconds that `ticks` ticks take; `u64::MAX` when more.
    pub fn ns(self, ticks: u64) -> u64 {
        saturated(u128::from(ticks) * NS_PER_SECOND / u128::from(self.hz()))
    }

    /// Whole ticks in `ns` nanoseconds; `u64::MAX` when more.
    pub fn ticks(self, ns: u64) -> u64 {
        saturated(u128::from(ns) * u128::from(self.hz()) / NS_PER_SECOND)
    }
}

impl fmt::Display for Frequency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hz = self.hz();
        write!(f, "{}.{:06} MHz", hz / 1_000_000, hz % 1_000_000)
    }
}

fn saturated(number: u128) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// The nearest whole number, saturated; `None` over zero.
pub(super) fn rounded(number: u128, over: u128) -> Option<u64> {
    number
        .saturating_add(over / 2)
        .checked_div(over)
        .map(saturated)
}

/// Why there is no frequency.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClockError {
    /// No processor's counter runs so slow or so fast.
    Implausible {
        /// Ticks a second that were found.
        hz: u64,
    },
    /// The scale of a paravirtual clock that scales to nothing.
    Pvclock {
        /// Its factor.
        mul: u32,
        /// Its shift.
        shift: i8,
    },
    /// Between the first and the last sample one of the counters stood still.
    NoProgress {
        /// Ticks that passed.
        ticks: u64,
        /// Counts of the reference that passed.
        counts: u64,
    },
    /// A sample has fewer ticks than the one before.
    TicksWentBack {
        /// Ticks of the one before.
        from: u64,
        /// Its own.
        to: u64,
    },
    /// Half the reference's range or more lies between two samples: it went
    /// back, or the samples are so far apart that it may have wrapped.
    ReferenceJumped {
        /// The reference in the sample before.
        from: u32,
        /// In this one.
        to: u32,
        /// Bits it has.
        bits: u32,
    },
}

impl fmt::Display for ClockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Implausible { hz } => {
                let (low, high) = (PLAUSIBLE_HZ.start(), PLAUSIBLE_HZ.end());
                write!(f, "clock: {hz} ticks a second, expected {low} to {high}")
            }
            Self::Pvclock { mul, shift } => write!(
                f,
                "paravirtual clock: factor {mul} with shift {shift} is no scale, expected a factor above 0 and a shift of -32 to 32"
            ),
            Self::NoProgress { ticks, counts } => write!(
                f,
                "clock: {ticks} ticks in {counts} counts of the reference, expected both to run; sample longer"
            ),
            Self::TicksWentBack { from, to } => write!(
                f,
                "clock: ticks went from {from} back to {to}; sample on one CPU"
            ),
            Self::ReferenceJumped { from, to, bits } => write!(
                f,
                "clock: the reference of {bits} bits went from {from:#x} to {to:#x}, expected less than half its range; sample again, more often"
            ),
        }
    }
}

impl core::error::Error for ClockError {}

#[cfg(all(test, not(firstlight_loom)))]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::string::ToString;

    #[test]
    fn exact_at_the_edges() {
        let ghz = Frequency::new(1_000_000_000).unwrap();
        for ticks in [0, 1, 999_999_999, u64::MAX - 1, u64::MAX] {
            assert_eq!((ghz.ns(ticks), ghz.ticks(ticks)), (ticks, ticks));
        }
        let slow = Frequency::new(1).unwrap();
        assert_eq!(slow.ns(18_446_744_073), 18_446_744_073_000_000_000);
        assert_eq!(slow.ns(18_446_744_074), u64::MAX);
        assert_eq!((slow.ticks(999_999_999), slow.ticks(1_000_000_000)), (0, 1));
        let fast = Frequency::new(u64::MAX).unwrap();
        assert_eq!(
            (fast.ns(u64::MAX), fast.ns(u64::MAX - 1)),
            (1_000_000_000, 999_999_999)
        );
        assert_eq!(
            (fast.ticks(1_000_000_000), fast.ticks(1_000_000_001)),
            (u64::MAX, u64::MAX)
        );
        assert_eq!(Frequency::new(0), None);
        assert_eq!(
            Frequency::new(2_400_000_001).unwrap().to_string(),
            "2400.000001 MHz"
        );
    }

    proptest! {
        /// The definition: the largest whole number of nanoseconds that is not
        /// later than the tick, and the same the other way round.
        #[test]
        fn rounds_down_for_all_numbers(
            ticks in any::<u64>(),
            hz in prop_oneof![1..=u64::MAX, 1_000_000..=20_000_000_000u64],
        ) {
            let frequency = Frequency::new(hz).unwrap();
            let (hz, second) = (u128::from(hz), NS_PER_SECOND);
            for (found, from, to) in [
                (frequency.ns(ticks), hz, second),
                (frequency.ticks(ticks), second, hz),
            ] {
                let (found, exact) = (u128::from(found), u128::from(ticks) * to);
                prop_assert!(found * from <= exact);
                prop_assert!(exact < (found + 1) * from || found == u128::from(u64::MAX));
            }
        }

        /// Scale a frequency down to factor and shift as a hypervisor does, and
        /// find it again to within the precision of a 31-bit factor.
        #[test]
        fn pvclock_scales_are_read_back(hz in 1_000_000..=19_000_000_000u64) {
            let mut shift = 0i8;
            // Nanoseconds of a tick in units of 2^-32, made to fill 32 bits.
            let scale = |shift: i8| (NS_PER_SECOND << 64 >> (32 + i32::from(shift))) / u128::from(hz);
            while scale(shift) >> 32 != 0 {
                shift += 1;
            }
            while scale(shift) >> 31 == 0 {
                shift -= 1;
            }
            let mul = u32::try_from(scale(shift)).unwrap();
            let found = Frequency::from_pvclock(mul, shift).unwrap().hz();
            prop_assert!(found.abs_diff(hz) <= 1 + (hz >> 30), "{hz} became {found}");
        }
    }

    #[test]
    fn what_hypervisors_say() {
        // A tick of 2.5 GHz is 0.4 ns: half of it, by the shift, times 0.8.
        assert_eq!(
            Frequency::from_pvclock(0xcccc_cccd, -1).unwrap().hz(),
            2_500_000_000
        );
        assert_eq!(
            Frequency::from_pvclock(1 << 31, 1).unwrap().hz(),
            1_000_000_000
        );
        for (mul, shift) in [(0, 0), (0, -128), (1, -33), (u32::MAX, 33), (1, 127)] {
            let refused = Frequency::from_pvclock(mul, shift);
            assert_eq!(refused, Err(ClockError::Pvclock { mul, shift }));
        }
        for (mul, shift) in [(1, 0), (1, -32), (u32::MAX, 32)] {
            let refused = Frequency::from_pvclock(mul, shift);
            assert!(matches!(refused, Err(ClockError::Implausible { .. })));
        }
        for khz in [0, 1, 999, 20_000_001, u32::MAX] {
            let hz = u64::from(khz) * 1000;
            assert_eq!(
                Frequency::from_khz(khz),
                Err(ClockError::Implausible { hz })
            );
        }
        assert_eq!(Frequency::from_khz(1000).unwrap().hz(), 1_000_000);
        assert_eq!(
            Frequency::from_khz(20_000_000).unwrap().hz(),
            20_000_000_000
        );
    }
}
