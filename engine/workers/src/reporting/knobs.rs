//! What can be changed while it reports: [`Knob`], and a moment's values: [`Knobs`].

use crate::addr::Order;
use crate::background::knobs::{self, Moment, Row, least_order};

/// A knob of reporting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Knob {
    /// 1: free memory is reported; 0: it is not. A failure of the device sets it to 0.
    Enabled,
    /// The least order of the blocks that are reported: a huge frame or more, since of pages nothing
    /// is known.
    Order,
    /// Most blocks of a report; no more than the device takes at once.
    BatchBlocks,
    /// From the end of a pass to the beginning of the next one.
    DelayMs,
    /// A pass reports one part in so many of what is free as huge frames; 0: all of it.
    BudgetOneIn,
    /// Words looked at in a step, at most.
    StepWords,
    /// 1: the device promises that reported memory reads as zero when it comes back.
    ReadsZero,
}

impl knobs::Knob for Knob {
    const ALL: &'static [Self] = &[
        Self::Enabled,
        Self::Order,
        Self::BatchBlocks,
        Self::DelayMs,
        Self::BudgetOneIn,
        Self::StepWords,
        Self::ReadsZero,
    ];

    fn row(self) -> Row {
        match self {
            Self::Enabled => Row::new("enabled", 0, 0, 1).help("1: report free memory; 0: keep it"),
            Self::Order => least_order("order").help("least order of a block that is reported"),
            Self::BatchBlocks => Row::new(
                "batch_blocks",
                super::MOST_RANGES as u64,
                1,
                super::MOST_RANGES as u64,
            )
            .help("most blocks of a report"),
            Self::DelayMs => Row::new("delay_ms", 2000, 1, 3_600_000).help("between two passes"),
            Self::BudgetOneIn => Row::new("budget_one_in", 16, 0, u64::MAX)
                .help("a pass reports one part in so many; 0: all"),
            Self::StepWords => {
                Row::new("step_words", 4096, 1, u64::MAX).help("most words looked at in a step")
            }
            Self::ReadsZero => Row::new("reads_zero", 0, 0, 1).help("1: the device promises zeros"),
        }
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
        <Self as Moment>::defaults()
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

impl Moment for Knobs {
    type Knob = Knob;

    fn of(get: impl Fn(Knob) -> u64) -> Self {
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
}

/// The knobs that others may change.
pub(super) type Settings = knobs::Settings<Knobs, { <Knob as knobs::Knob>::ALL.len() }>;

#[cfg(all(test, not(firstlight_loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_budget_is_a_part_of_what_is_free_or_all_of_it() {
        let knobs = Knobs::defaults();
        assert_eq!(knobs.budget_bytes(16 << 30), 1 << 30);
        assert_eq!(knobs.budget_bytes(0), Order::HUGE.bytes());
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
            (Knob::Order, u64::from(Order::HUGE.get()) - 1),
            (Knob::Order, Order::GIANT.get().into()),
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
