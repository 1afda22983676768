//! [`Calibration`]: ticks counted beside a [`Reference`] of known rate.

use super::frequency::{ClockError, Frequency, rounded};
use crate::firmware::acpi::{PM_TIMER_HZ, PmTimer};

/// Whether a counter counts up or down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// To its largest number, then zero.
    Up,
    /// To zero, then its largest number.
    Down,
}

/// A counter of known rate and width; what it counts from does not matter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reference {
    frequency: Frequency,
    bits: u32,
    direction: Direction,
}

impl Reference {
    /// Channel 0 of the PC's interval timer: 16 bits at 1,193,182 Hz, counting
    /// down. It must run with a reload value of 0 (65,536) in mode 2: mode 3
    /// counts by two.
    pub const PIT: Self = Self {
        frequency: known(1_193_182),
        bits: 16,
        direction: Direction::Down,
    };

    /// A counter of `bits` bits, 2 to 32; `None` for other widths.
    pub const fn new(frequency: Frequency, bits: u32, direction: Direction) -> Option<Self> {
        if bits < 2 || bits > 32 {
            return None;
        }
        Some(Self {
            frequency,
            bits,
            direction,
        })
    }

    /// ACPI's power management timer.
    pub const fn pm_timer(timer: PmTimer) -> Self {
        Self {
            frequency: known(PM_TIMER_HZ),
            bits: if timer.bits == 32 { 32 } else { 24 },
            direction: Direction::Up,
        }
    }

    /// Counts from one reading to a later one, modulo the counter's range.
    /// Bits above the counter's are ignored.
    const fn counts(self, from: u32, to: u32) -> u32 {
        let counts = match self.direction {
            Direction::Up => to.wrapping_sub(from),
            Direction::Down => from.wrapping_sub(to),
        };
        counts & (u32::MAX >> (32 - self.bits))
    }
}

/// The frequency of a counter in this file, none of which is zero.
const fn known(hz: u64) -> Frequency {
    match Frequency::new(hz) {
        Some(frequency) => frequency,
        None => panic!("a known rate is not zero"),
    }
}

/// Both counters at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    /// The counter whose frequency is measured.
    pub ticks: u64,
    /// The reference.
    pub counter: u32,
}

impl Sample {
    /// Reads `ticks`, `counter`, `ticks` up to `tries` times (at least once)
    /// and keeps the reading that took the fewest ticks, with the moment in its
    /// middle: a virtual machine may be stopped between any two instructions.
    pub fn tightest(
        tries: u32,
        mut ticks: impl FnMut() -> u64,
        mut counter: impl FnMut() -> u32,
    ) -> Self {
        let mut read = || {
            let before = ticks();
            let counter = counter();
            let took = ticks().saturating_sub(before);
            let ticks = before.saturating_add(took / 2);
            (took, Self { ticks, counter })
        };
        let mut best = read();
        for _ in 1..tries {
            let next = read();
            if next.0 < best.0 {
                best = next;
            }
        }
        best.1
    }
}

/// Ticks and counts of a reference since the first sample.
///
/// Samples follow each other closer than half the reference's range: 27 ms for
/// the PIT, 2.3 s for a power management timer of 24 bits. The longer between
/// the first and the last, the more exact the frequency.
///
/// A virtual machine that is stopped between two samples for the whole range or
/// longer (55 ms for the PIT) loses counts undetected: where that
/// may be, measure more than once and compare.
///
/// ```
/// use firstlight_boot::clock::{Calibration, ClockError, Reference, Sample};
/// use firstlight_boot::firmware::acpi::PmTimer;
///
/// let reference = Reference::pm_timer(PmTimer { port: 0x608, bits: 24 });
/// // The timer wraps between the two samples.
/// let mut calibration = Calibration::new(reference, Sample { ticks: 70_000, counter: 0xff_f000 });
/// calibration.add(Sample { ticks: 24_070_000, counter: 0x7bd3 })?;
/// assert_eq!(calibration.elapsed_ns(), 9_999_874);
/// assert_eq!(calibration.frequency()?.hz(), 2_400_030_172);
/// # Ok::<(), ClockError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Calibration {
    reference: Reference,
    first_ticks: u64,
    last: Sample,
    counts: u64,
}

impl Calibration {
    /// Begins at `first`.
    pub const fn new(reference: Reference, first: Sample) -> Self {
        Self {
            reference,
            first_ticks: first.ticks,
            last: first,
            counts: 0,
        }
    }

    /// Takes the next sample.
    ///
    /// # Errors
    /// [`ClockError::TicksWentBack`] or [`ClockError::ReferenceJumped`]; the
    /// sample is not taken then, and what it would have shown is in doubt:
    /// better begin again.
    pub const fn add(&mut self, sample: Sample) -> Result<(), ClockError> {
        let last = self.last;
        if sample.ticks < last.ticks {
            return Err(ClockError::TicksWentBack {
                from: last.ticks,
                to: sample.ticks,
            });
        }
        let counts = self.reference.counts(last.counter, sample.counter);
        if counts >> (self.reference.bits - 1) != 0 {
            return Err(ClockError::ReferenceJumped {
                from: last.counter,
                to: sample.counter,
                bits: self.reference.bits,
            });
        }
        self.counts = self.counts.saturating_add(counts as u64);
        self.last = sample;
        Ok(())
    }

    /// Time between the first and the last sample, by the reference: sample
    /// until it is long enough.
    pub fn elapsed_ns(&self) -> u64 {
        self.reference.frequency.ns(self.counts)
    }

    /// The frequency of the ticks, to the nearest hertz.
    ///
    /// # Errors
    /// [`ClockError::NoProgress`] or [`ClockError::Implausible`].
    pub fn frequency(&self) -> Result<Frequency, ClockError> {
        let (ticks, counts) = (self.last.ticks - self.first_ticks, self.counts);
        if ticks == 0 || counts == 0 {
            return Err(ClockError::NoProgress { ticks, counts });
        }
        let product = u128::from(ticks) * u128::from(self.reference.frequency.hz());
        let hz = rounded(product, counts.into()).unwrap_or_default();
        Frequency::plausible(hz)
    }
}

#[cfg(test)]
#[cfg(not(firstlight_loom))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn pm_timer(bits: u32) -> Reference {
        Reference::pm_timer(PmTimer { port: 8, bits })
    }

    const fn sample(ticks: u64, counter: u32) -> Sample {
        Sample { ticks, counter }
    }

    /// Both counters of a made-up machine, `ns` after it started.
    fn at(ns: u64, hz: u64, offset: u32, reference: Reference) -> Sample {
        let ticks = u128::from(ns) * u128::from(hz) / 1_000_000_000;
        let counts = u128::from(ns) * u128::from(reference.frequency.hz()) / 1_000_000_000;
        let range = 1u128 << reference.bits;
        let counts = match reference.direction {
            Direction::Up => (u128::from(offset) + counts) % range,
            Direction::Down => (range * 1_000_000 + u128::from(offset) - counts) % range,
        };
        sample(
            u64::try_from(ticks).unwrap(),
            u32::try_from(counts).unwrap(),
        )
    }

    proptest! {
        #[test]
        fn finds_the_frequency_across_any_number_of_wraps(
            hz in 1_000_000..=20_000_000_000u64,
            offset in any::<u32>(),
            steps_us in prop::collection::vec(1..25_000u64, 40..80),
            which in 0..3usize,
        ) {
            let reference = [Reference::PIT, pm_timer(24), pm_timer(32)][which];
            let mut ns = 1_000;
            let mut calibration = Calibration::new(reference, at(ns, hz, offset, reference));
            for step in steps_us {
                ns += step * 1000;
                calibration.add(at(ns, hz, offset, reference)).unwrap();
            }
            // Each end is cut to a whole count and a whole tick.
            let counts = calibration.counts;
            let slack = 2 * (hz + reference.frequency.hz()) / counts + 2;
            match calibration.frequency() {
                Ok(found) => prop_assert!(found.hz().abs_diff(hz) <= slack, "{hz} became {found}"),
                Err(ClockError::Implausible { hz: found }) => prop_assert!(found.abs_diff(hz) <= slack),
                Err(other) => prop_assert!(false, "{other}"),
            }
            prop_assert!(calibration.elapsed_ns().abs_diff(ns - 1_000) <= 2_000);
        }

        #[test]
        fn never_panics_and_never_says_what_cannot_be(
            bits in 2..=32u32,
            down in any::<bool>(),
            hz in 1..=u64::MAX,
            samples in prop::collection::vec(any::<(u64, u32)>(), 1..9),
        ) {
            let direction = if down { Direction::Down } else { Direction::Up };
            let reference = Reference::new(Frequency::new(hz).unwrap(), bits, direction).unwrap();
            let mut calibration = Calibration::new(reference, sample(samples[0].0, samples[0].1));
            for &(ticks, counter) in &samples[1..] {
                let before = calibration.elapsed_ns();
                let taken = calibration.add(sample(ticks, counter)).is_ok();
                prop_assert!(taken || calibration.elapsed_ns() == before);
            }
            if let Ok(found) = calibration.frequency() {
                prop_assert!((1_000_000..=20_000_000_000).contains(&found.hz()));
            }
        }
    }

    #[test]
    fn the_pit_counts_down_through_zero() {
        let mut calibration = Calibration::new(Reference::PIT, sample(0, 10));
        calibration.add(sample(1_000_000, 0xfffa)).unwrap();
        // 16 counts of 1,193,182 Hz for a million ticks are far too fast.
        let hz = 1_193_182 * 1_000_000 / 16;
        assert_eq!(calibration.frequency(), Err(ClockError::Implausible { hz }));
        assert_eq!(calibration.elapsed_ns(), 13_409);
        calibration
            .add(sample(20_000_000, 0xfffa - 11_916))
            .unwrap();
        assert_eq!(calibration.frequency().unwrap().hz(), 1_999_969_829);
    }

    #[test]
    fn nonsense_is_refused() {
        let start = Calibration::new(pm_timer(24), sample(1000, 50));
        let progress = |ticks, counts| Err(ClockError::NoProgress { ticks, counts });
        assert_eq!(start.frequency(), progress(0, 0));
        let mut still = start;
        still.add(sample(9000, 50)).unwrap();
        assert_eq!(still.frequency(), progress(8000, 0));
        let mut stuck = start;
        stuck.add(sample(1000, 60)).unwrap();
        assert_eq!(stuck.frequency(), progress(0, 10));
        let mut slow = start;
        slow.add(sample(1001, 60)).unwrap();
        assert_eq!(
            slow.frequency(),
            Err(ClockError::Implausible { hz: 357_955 })
        );

        let mut back = start;
        let (from, to) = (1000, 999);
        assert_eq!(
            back.add(sample(999, 60)),
            Err(ClockError::TicksWentBack { from, to })
        );
        // The timer was read one too low.
        let jump = back.add(sample(2000, 49));
        let (from, to, bits) = (50, 49, 24);
        assert_eq!(jump, Err(ClockError::ReferenceJumped { from, to, bits }));
        // Nothing of the refused samples is left.
        assert_eq!(back.frequency(), progress(0, 0));
    }

    #[test]
    fn less_than_half_the_range_is_taken() {
        for (bits, half) in [(16, 1 << 15), (24, 1 << 23), (32, 1u32 << 31)] {
            let reference = Reference::new(known(1000), bits, Direction::Up).unwrap();
            let start = Calibration::new(reference, sample(0, 7));
            assert_eq!(start.clone().add(sample(1, 7 + half - 1)), Ok(()));
            assert!(
                start
                    .clone()
                    .add(sample(1, 7u32.wrapping_add(half)))
                    .is_err()
            );
        }
        assert_eq!(Reference::new(known(1000), 33, Direction::Up), None);
        assert_eq!(Reference::new(known(1000), 1, Direction::Up), None);
    }

    #[test]
    fn bits_above_a_timer_of_24_are_not_looked_at() {
        let mut calibration = Calibration::new(pm_timer(24), sample(0, 0xab00_0000));
        calibration.add(sample(3_579_545, 0x1200_0001)).unwrap();
        assert_eq!(calibration.counts, 1);
    }

    #[test]
    fn the_tightest_reading_is_kept() {
        let mut clock = [100u64, 900, 1000, 1010, 2000, 2400].into_iter();
        let mut timer = [1, 2, 3].into_iter();
        let read = Sample::tightest(3, || clock.next().unwrap(), || timer.next().unwrap());
        assert_eq!(read, sample(1005, 2));
        let once = Sample::tightest(0, || 5, || 6);
        assert_eq!(once, sample(5, 6));
    }
}
