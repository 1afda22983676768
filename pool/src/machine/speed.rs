//! How fast memory is zeroed, as measured lately.

/// What a GiB is assumed to take before any was measured.
const ASSUMED_NS_PER_GIB: NsPerGib = 100_000_000;

/// Of so many bytes a measurement counts half.
const LATELY_BYTES: u64 = 64 << 30;

/// Nanoseconds that a GiB takes.
pub(super) type NsPerGib = u64;

/// Of slabs that only the daemon reaches: a client that holds one can make its zeroing wait, and that
/// says nothing about the others.
#[derive(Debug, Default)]
pub(super) struct Speed {
    bytes: u64,
    ns: u64,
}

impl Speed {
    /// So many bytes took so long.
    pub(super) fn measured(&mut self, bytes: u64, ns: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.ns = self.ns.saturating_add(ns);
        while self.bytes > LATELY_BYTES {
            self.bytes /= 2;
            self.ns /= 2;
        }
    }

    pub(super) fn ns_per_gib(&self) -> NsPerGib {
        let measured = (u128::from(self.ns) << 30).checked_div(u128::from(self.bytes));
        measured
            .and_then(|ns| u64::try_from(ns).ok())
            .unwrap_or(ASSUMED_NS_PER_GIB)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_measured_long_ago_counts_less_and_less() {
        let mut speed = Speed::default();
        assert_eq!(speed.ns_per_gib(), ASSUMED_NS_PER_GIB);
        speed.measured(1 << 30, 1_000);
        assert_eq!(speed.ns_per_gib(), 1_000);
        // A minute in which next to nothing was zeroed.
        speed.measured(1 << 21, 60_000_000_000);
        assert!(speed.ns_per_gib() > 10_000_000_000);
        for _ in 0..2_000 {
            speed.measured(1 << 30, 1_000);
        }
        assert!(speed.ns_per_gib() < 1_010, "{}", speed.ns_per_gib());
        speed.measured(u64::MAX, u64::MAX);
        assert!(speed.ns_per_gib() > 0);
    }
}
