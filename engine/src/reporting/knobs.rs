//! What can be changed while it reports: [`Knob`], and a moment's values: [`Knobs`].

use crate::addr::Order;
use crate::background::knobs::{KnobError, Row, Values};

/// A knob of reporting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Knob {
    /// 1: free memory is reported; 0: it is not. A failure of the device sets it to 0.
    Enabled,
    /// The least order of the blocks that are reported. Below 9 a report takes the host less than
    /// a huge page, which splits the one it has.
    Order,
    /// Most blocks of a report; no more than the device takes at once.
    BatchBlocks,
    /// From the end of a pass to the beginning of the next one.
    DelayMs,
    /// A pass reports one part in so many of what is free; 0: all of it.
    BudgetOneIn,
    /// Words looked at in a step, at most.
    StepWords,
    /// 1: the device promises that reported memory reads as zero when it comes back.
    ReadsZero,
}

const COUNT: usize = 7;

/// By [`Knob`].
static ROWS: [Row; COUNT] = [
    Row::new("enabled", 0, 0, 1).help("1: report free memory; 0: keep it"),
    Row::new("order", 9, 0, 17).help("least order of a block that is reported"),
    Row::new(
        "batch_blocks",
        super::MOST_RANGES as u64,
        1,
        super::MOST_RANGES as u64,
    )
    .help("most blocks of a report"),
    Row::new("delay_ms", 2000, 1, 3_600_000).help("between two passes"),
    Row::new("budget_one_in", 16, 0, u64::MAX).help("a pass reports one part in so many; 0: all"),
    Row::new("step_words", 4096, 1, u64::MAX).help("most words looked at in a step"),
    Row::new("reads_zero", 0, 0, 1).help("1: the device promises zeros"),
];

impl Knob {
    /// All of them.
    pub const ALL: [Self; COUNT] = [
        Self::Enabled,
        Self::Order,
        Self::BatchBlocks,
        Self::DelayMs,
        Self::BudgetOneIn,
        Self::StepWords,
        Self::ReadsZero,
    ];

    /// Its name, default and what it accepts.
    pub fn row(self) -> &'static Row {
        &ROWS[self as usize]
    }

    /// The knob of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|knob| knob.row().name == name)
    }
}

/// The values of a moment; see [`Knob`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "a field a knob")]
pub struct Knobs {
    pub enabled: bool,
    pub order: Order,
    pub batch_blocks: usize,
    pub delay_ms: u64,
    pub budget_one_in: u64,
    pub step_words: u64,
    pub reads_zero: bool,
}

impl Knobs {
    /// Until they are changed.
    pub fn defaults() -> Self {
        Self::from(|knob: Knob| knob.row().default)
    }

    fn from(get: impl Fn(Knob) -> u64) -> Self {
        let order = u8::try_from(get(Knob::Order)).ok().and_then(Order::new);
        Self {
            enabled: get(Knob::Enabled) != 0,
            order: order.unwrap_or(Order::HUGE),
            batch_blocks: usize::try_from(get(Knob::BatchBlocks)).unwrap_or(1),
            delay_ms: get(Knob::DelayMs),
            budget_one_in: get(Knob::BudgetOneIn),
            step_words: get(Knob::StepWords),
            reads_zero: get(Knob::ReadsZero) != 0,
        }
    }

    /// Most bytes of a pass that begins with so many free: at least a block, so that the last of
    /// them is reported too.
    pub fn budget_bytes(&self, free_bytes: u64) -> u64 {
        match self.budget_one_in {
            0 => u64::MAX,
            part => free_bytes.div_ceil(part).max(self.order.bytes()),
        }
    }
}

/// Knobs that others may change.
#[derive(Debug)]
pub(super) struct Settings(Values<COUNT>);

impl Settings {
    pub(super) fn new() -> Self {
        Self(Values::new(&ROWS))
    }

    pub(super) fn set(&self, knob: Knob, value: u64) -> Result<(), KnobError> {
        self.0.set(knob as usize, value)
    }

    pub(super) fn get(&self) -> Knobs {
        Knobs::from(|knob| self.0.get(knob as usize))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_knob_has_its_row_and_accepts_its_default() {
        for (index, knob) in Knob::ALL.into_iter().enumerate() {
            assert_eq!(knob as usize, index);
            assert_eq!(knob.row().check(knob.row().default), Ok(()), "{knob:?}");
            assert_eq!(Knob::named(knob.row().name), Some(knob));
        }
        assert_eq!(Settings::new().get(), Knobs::defaults());
    }

    #[test]
    fn the_budget_is_a_part_of_what_is_free_or_all_of_it() {
        let knobs = Knobs::defaults();
        assert_eq!(knobs.budget_bytes(16 << 30), 1 << 30);
        assert_eq!(knobs.budget_bytes(0), 2 << 20);
        let all = Knobs {
            budget_one_in: 0,
            ..knobs
        };
        assert_eq!(all.budget_bytes(0), u64::MAX);
    }

    #[test]
    fn what_is_out_of_range_is_refused() {
        let settings = Settings::new();
        for (knob, value) in [
            (Knob::Enabled, 2),
            (Knob::Order, 18),
            (Knob::BatchBlocks, 0),
            (Knob::BatchBlocks, 33),
            (Knob::DelayMs, 0),
            (Knob::StepWords, 0),
            (Knob::ReadsZero, 3),
        ] {
            assert_eq!(settings.set(knob, value).unwrap_err().value, value);
        }
        assert_eq!(settings.get(), Knobs::defaults());
    }
}
