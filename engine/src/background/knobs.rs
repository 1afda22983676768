//! Knobs that are changed while others read them: [`Row`], what each accepts, `Values`.
//!
//! *A value is checked before it is stored, so every reader finds one that is allowed.* Several
//! knobs are read one after the other: what depends on two of them must do with any pair.
#![deny(unsafe_code)]

use core::fmt;

use crate::sync::{AtomicU64, Ordering};

/// A knob: its name, and which values it accepts.
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

    /// The same, described.
    pub(crate) const fn help(mut self, help: &'static str) -> Self {
        self.help = help;
        self
    }

    /// The same, powers of two only.
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

/// The values of the knobs of a table.
#[derive(Debug)]
pub(crate) struct Values<const N: usize> {
    rows: &'static [Row; N],
    values: [AtomicU64; N],
}

impl<const N: usize> Values<N> {
    /// All as in the table.
    pub(crate) fn new(rows: &'static [Row; N]) -> Self {
        Self {
            rows,
            values: rows.map(|row| AtomicU64::new(row.default)),
        }
    }

    /// The value of knob number `index`.
    pub(crate) fn get(&self, index: usize) -> u64 {
        self.values[index].load(Ordering::Relaxed)
    }

    /// Changes knob number `index`.
    pub(crate) fn set(&self, index: usize, value: u64) -> Result<(), KnobError> {
        self.rows[index].check(value)?;
        self.values[index].store(value, Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    extern crate std;

    use super::*;
    use std::string::ToString;

    static ROWS: [Row; 2] = [
        Row::new("order", 9, 4, 18),
        Row::new("batch_bytes", 1 << 21, 4096, u64::MAX).power_of_two(),
    ];

    #[test]
    fn a_value_that_is_refused_changes_nothing() {
        let values = Values::new(&ROWS);
        for (knob, value, text) in [
            (0, 3, "order can't be 3: expected a number from 4 to 18"),
            (0, 19, "order can't be 19: expected a number from 4 to 18"),
            (
                1,
                12_288,
                "batch_bytes can't be 12288: expected a power of two from 4096 on",
            ),
            (
                1,
                0,
                "batch_bytes can't be 0: expected a power of two from 4096 on",
            ),
        ] {
            let before = values.get(knob);
            let error = values.set(knob, value).unwrap_err();
            assert_eq!(error.to_string(), text);
            assert_eq!(values.get(knob), before);
        }
        values.set(0, 4).unwrap();
        values.set(1, 1 << 63).unwrap();
        assert_eq!((values.get(0), values.get(1)), (4, 1 << 63));
    }
}
