//! What can be changed while the workers run: [`Knob`], and a moment's values: [`Knobs`].

use crate::addr::{Order, PAGE_BYTES};
use crate::background::knobs::{self, Moment, Row, least_order};

/// A stock as large as memory: everything that is free is zeroed.
pub const ALL_BYTES: u64 = u64::MAX;

/// A knob of the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Knob {
    /// 1: the worker zeroes; 0: it only sleeps.
    Enabled,
    /// The least order of the blocks it zeroes: a huge frame or more, since of pages nothing is
    /// known.
    MinOrder,
    /// So much free memory of unknown content wakes it.
    WakeBytes,
    /// Zeroed at once, in one step: so much is hidden from allocation while it is. A giant frame is
    /// zeroed in parts.
    BatchBytes,
    /// Between two looks at the node while there is nothing to do; the longest back-off.
    DelayMs,
    /// Most bytes a second, all workers together; 0: no limit.
    BytesPerSecond,
    /// A stock of known-zero memory that is kept without demand, for each node.
    LowBytes,
    /// The largest stock, whatever the demand.
    HighBytes,
    /// As many refills and flushes of CPUs' caches a millisecond are busy: it backs off.
    /// 0: it never does.
    BusyPerMs,
}

impl knobs::Knob for Knob {
    const ALL: &'static [Self] = &[
        Self::Enabled,
        Self::MinOrder,
        Self::WakeBytes,
        Self::BatchBytes,
        Self::DelayMs,
        Self::BytesPerSecond,
        Self::LowBytes,
        Self::HighBytes,
        Self::BusyPerMs,
    ];

    fn row(self) -> Row {
        match self {
            Self::Enabled => Row::new("enabled", 0, 0, 1).help("1: zero free memory; 0: leave it"),
            Self::MinOrder => {
                least_order("min_order").help("least order of a block that is zeroed")
            }
            Self::WakeBytes => Row::new("wake_bytes", 64 << 20, PAGE_BYTES, u64::MAX)
                .help("free memory of unknown content that wakes"),
            Self::BatchBytes => Row::new(
                "batch_bytes",
                Order::HUGE.bytes(),
                PAGE_BYTES,
                Order::GIANT.bytes() / 2,
            )
            .power_of_two()
            .help("bytes zeroed at once"),
            Self::DelayMs => {
                Row::new("delay_ms", 1000, 1, 3_600_000).help("between two looks; longest back-off")
            }
            Self::BytesPerSecond => Row::new("bytes_per_second", 0, 0, u64::MAX)
                .help("most bytes a second; 0: no limit"),
            Self::LowBytes => {
                Row::new("low_bytes", 64 << 20, 0, u64::MAX).help("stock of a node without demand")
            }
            Self::HighBytes => {
                Row::new("high_bytes", 1 << 30, 0, u64::MAX).help("largest stock of a node")
            }
            Self::BusyPerMs => Row::new("busy_per_ms", 100, 0, u64::MAX)
                .help("refills a millisecond that are busy; 0: never"),
        }
    }
}

/// The values of a moment; see [`Knob`]. Each is one that the knob accepts, and
/// `low_bytes` may be above `high_bytes`: the lower one counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "a field a knob")]
pub struct Knobs {
    pub enabled: bool,
    pub min_order: Order,
    pub wake_bytes: u64,
    pub batch_bytes: u64,
    pub delay_ms: u64,
    pub bytes_per_second: u64,
    pub low_bytes: u64,
    pub high_bytes: u64,
    pub busy_per_ms: u64,
}

impl Knobs {
    /// Until they are changed.
    pub fn defaults() -> Self {
        <Self as Moment>::defaults()
    }

    /// Nanoseconds between two looks.
    pub(super) fn delay_ns(&self) -> u64 {
        self.delay_ms.saturating_mul(1_000_000)
    }
}

impl Moment for Knobs {
    type Knob = Knob;

    fn of(get: impl Fn(Knob) -> u64) -> Self {
        let order = u8::try_from(get(Knob::MinOrder)).ok().and_then(Order::new);
        Self {
            enabled: get(Knob::Enabled) != 0,
            min_order: order.unwrap_or(Order::HUGE),
            wake_bytes: get(Knob::WakeBytes),
            batch_bytes: get(Knob::BatchBytes),
            delay_ms: get(Knob::DelayMs),
            bytes_per_second: get(Knob::BytesPerSecond),
            low_bytes: get(Knob::LowBytes),
            high_bytes: get(Knob::HighBytes),
            busy_per_ms: get(Knob::BusyPerMs),
        }
    }
}

/// The knobs that workers share.
pub(super) type Settings = knobs::Settings<Knobs, { <Knob as knobs::Knob>::ALL.len() }>;

#[cfg(all(test, not(firstlight_loom)))]
mod tests {
    use super::*;
    use crate::background::knobs::Knob as _;

    #[test]
    fn defaults_are_those_of_the_table() {
        let knobs = Settings::new().get();
        assert_eq!(knobs, Knobs::defaults());
        assert_eq!((knobs.enabled, knobs.min_order), (false, Order::HUGE));
        assert_eq!(
            (knobs.wake_bytes, knobs.batch_bytes),
            (64 << 20, Order::HUGE.bytes())
        );
    }

    #[test]
    fn what_is_out_of_range_is_refused() {
        let settings = Settings::new();
        for (knob, value) in [
            (Knob::Enabled, 2),
            (Knob::MinOrder, u64::from(Order::HUGE.get()) - 1),
            (Knob::MinOrder, Order::GIANT.get().into()),
            (Knob::WakeBytes, 0),
            (Knob::BatchBytes, PAGE_BYTES / 2),
            (Knob::BatchBytes, 3 << 20),
            (Knob::BatchBytes, Order::GIANT.bytes()),
            (Knob::DelayMs, 0),
            (Knob::DelayMs, 3_600_001),
        ] {
            let error = settings.set(knob, value).unwrap_err();
            assert_eq!((error.knob, error.value), (knob.row(), value));
        }
        assert_eq!(settings.get(), Knobs::defaults());
        for (knob, value) in [
            (Knob::Enabled, 1),
            (Knob::MinOrder, 12),
            (Knob::LowBytes, ALL_BYTES),
        ] {
            settings.set(knob, value).unwrap();
        }
        let knobs = settings.get();
        assert!(knobs.enabled && knobs.min_order.get() == 12 && knobs.low_bytes == ALL_BYTES);
    }
}
