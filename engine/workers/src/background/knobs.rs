//! Knobs that are changed while others read them: [`Knob`], what each accepts ([`Row`]), `Settings`.
//!
//! *A value is checked before it is stored, so every reader finds one that is allowed.* Several
//! knobs are read one after the other: what depends on two of them must do with any pair.
#![deny(unsafe_code)]

use core::fmt;
use core::marker::PhantomData;

use crate::addr::Order;
use crate::sync::{AtomicU64, Ordering};

/// The knobs of one kind of work, an enum.
///
/// ```
/// use firstlight_workers::background::knobs::Knob as _;
/// use firstlight_workers::zeroing::Knob;
/// assert_eq!(Knob::named("delay_ms"), Some(Knob::DelayMs));
/// assert_eq!(Knob::named("delay"), None);
/// assert_eq!(Knob::DelayMs.row().default, 1000);
/// ```
pub trait Knob: Copy + PartialEq + fmt::Debug + 'static {
    /// All of them.
    const ALL: &'static [Self];

    /// Its name, its default and what it accepts.
    fn row(self) -> Row;

    /// The knob of this name.
    fn named(name: &str) -> Option<Self> {
        let mut all = Self::ALL.iter().copied();
        all.find(|knob| knob.row().name == name)
    }
}

/// What a knob is: its name, and which values it accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The name, with its unit.
    pub name: &'static str,
    /// What it does, in a line.
    pub help: &'static str,
    /// The value until it is changed.
    pub default: u64,
    /// The least it accepts.
    pub least: u64,
    /// The most.
    pub most: u64,
    /// Only powers of two.
    pub power_of_two: bool,
}

/// A value that a knob does not accept; nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnobError {
    /// The knob.
    pub knob: Row,
    /// The value.
    pub value: u64,
}

impl fmt::Display for KnobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { knob, value } = self;
        let kind = if knob.power_of_two {
            "a power of two"
        } else {
            "a number"
        };
        write!(
            f,
            "{} can't be {value}: expected {kind} from {}",
            knob.name, knob.least
        )?;
        match knob.most {
            u64::MAX => f.write_str(" on"),
            most => write!(f, " to {most}"),
        }
    }
}

impl core::error::Error for KnobError {}

impl Row {
    /// A number from `least` to `most`.
    pub(crate) const fn new(name: &'static str, default: u64, least: u64, most: u64) -> Self {
        Self {
            name,
            help: "",
            default,
            least,
            most,
            power_of_two: false,
        }
    }

    /// With a description.
    pub(crate) const fn help(mut self, help: &'static str) -> Self {
        self.help = help;
        self
    }

    /// Of powers of two only.
    pub(crate) const fn power_of_two(mut self) -> Self {
        self.power_of_two = true;
        self
    }

    /// # Errors
    /// [`KnobError`]: `value` is not one of those it accepts.
    pub fn check(&self, value: u64) -> Result<(), KnobError> {
        let in_range = (self.least..=self.most).contains(&value);
        if in_range && (!self.power_of_two || value.is_power_of_two()) {
            Ok(())
        } else {
            Err(KnobError { knob: *self, value })
        }
    }
}

/// The least order of blocks, a huge frame or more and less than a giant frame: of pages nothing is known.
pub(crate) fn least_order(name: &'static str) -> Row {
    let [huge, giant] = [Order::HUGE, Order::GIANT].map(|order| u64::from(order.get()));
    Row::new(name, huge, huge, giant - 1)
}

/// The values of all knobs of one kind at a moment.
pub(crate) trait Moment: Sized {
    type Knob: Knob;

    /// With the value of each knob.
    fn of(get: impl Fn(Self::Knob) -> u64) -> Self;

    /// Until they are changed.
    fn defaults() -> Self {
        Self::of(|knob| knob.row().default)
    }
}

/// Knobs that others may change: `N` is how many there are.
#[derive(Debug)]
pub(crate) struct Settings<M, const N: usize> {
    /// In the order of [`Knob::ALL`].
    values: [AtomicU64; N],
    kind: PhantomData<fn() -> M>,
}

impl<M: Moment, const N: usize> Settings<M, N> {
    /// All with their defaults.
    pub(crate) fn new() -> Self {
        const { assert!(N == M::Knob::ALL.len()) };
        let default = |at: usize| M::Knob::ALL[at].row().default;
        Self {
            values: core::array::from_fn(|at| AtomicU64::new(default(at))),
            kind: PhantomData,
        }
    }

    /// Where the value of a knob is.
    fn value(&self, knob: M::Knob) -> &AtomicU64 {
        let before = M::Knob::ALL.iter().take_while(|one| **one != knob);
        &self.values[before.count()]
    }

    /// Changes a knob.
    pub(crate) fn set(&self, knob: M::Knob, value: u64) -> Result<(), KnobError> {
        knob.row().check(value)?;
        self.value(knob).store(value, Ordering::Relaxed);
        Ok(())
    }

    /// All values.
    pub(crate) fn get(&self) -> M {
        M::of(|knob| self.value(knob).load(Ordering::Relaxed))
    }
}

#[cfg(all(test, not(firstlight_loom)))]
mod tests {
    extern crate std;

    use super::*;
    use std::string::ToString;

    #[derive(Clone, Copy, Debug, PartialEq)]
    pub(crate) enum Two {
        Order,
        BatchBytes,
    }

    impl Knob for Two {
        const ALL: &'static [Self] = &[Self::Order, Self::BatchBytes];

        fn row(self) -> Row {
            match self {
                Self::Order => Row::new("order", 9, 4, 18),
                Self::BatchBytes => Row::new("batch_bytes", 1 << 21, 4096, u64::MAX).power_of_two(),
            }
        }
    }

    impl Moment for (u64, u64) {
        type Knob = Two;

        fn of(get: impl Fn(Two) -> u64) -> Self {
            (get(Two::Order), get(Two::BatchBytes))
        }
    }

    #[test]
    fn a_value_that_is_refused_changes_nothing() {
        let settings = Settings::<(u64, u64), 2>::new();
        assert_eq!(settings.get(), <(u64, u64)>::defaults());
        for (knob, value, text) in [
            (
                Two::Order,
                3,
                "order can't be 3: expected a number from 4 to 18",
            ),
            (
                Two::Order,
                19,
                "order can't be 19: expected a number from 4 to 18",
            ),
            (
                Two::BatchBytes,
                12_288,
                "batch_bytes can't be 12288: expected a power of two from 4096 on",
            ),
            (
                Two::BatchBytes,
                0,
                "batch_bytes can't be 0: expected a power of two from 4096 on",
            ),
        ] {
            let error = settings.set(knob, value).unwrap_err();
            assert_eq!(error.to_string(), text);
            assert_eq!(settings.get(), (9, 1 << 21));
        }
        settings.set(Two::Order, 4).unwrap();
        settings.set(Two::BatchBytes, 1 << 63).unwrap();
        assert_eq!(settings.get(), (4, 1 << 63));
    }

    #[test]
    fn every_knob_accepts_its_default_and_is_found_by_its_name() {
        fn check<K: Knob>() {
            for (at, knob) in K::ALL.iter().enumerate() {
                let row = knob.row();
                assert_eq!(row.check(row.default), Ok(()), "{knob:?}");
                // Also: no two have one name, and none is listed twice.
                assert_eq!(K::named(row.name), Some(*knob));
                assert!(!K::ALL[..at].contains(knob), "{knob:?}");
                assert!(!row.help.is_empty(), "{knob:?}");
            }
            assert_eq!(K::named("no_such_knob"), None);
        }
        check::<crate::zeroing::Knob>();
        check::<crate::reporting::Knob>();
    }
}
