//! The measurements: [`Workload`], and with order and threads a [`Task`].

use firstlight::addr::Order;
use std::fmt;
use std::str::FromStr;

/// A kind of work for an allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Workload {
    /// A block is allocated and freed at once.
    Pair,
    /// Many blocks are allocated, then freed in the same order.
    Bulk,
    /// All of memory is allocated, then freed in random order; only that is timed.
    RandomFree,
    /// One CPU allocates, another frees.
    CrossCpu,
    /// Orders 0 to 9, random lifetimes.
    Mixed,
    /// Blocks freed and allocated while hardly any are free.
    NearFull,
    /// Huge and giant frames left by long-lived blocks.
    Fragmentation,
    /// Single requests at their worst: refused, and how fast.
    Answers,
}

impl Workload {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Pair,
        Self::Bulk,
        Self::RandomFree,
        Self::CrossCpu,
        Self::Mixed,
        Self::NearFull,
        Self::Fragmentation,
        Self::Answers,
    ];

    /// Its name in records and options.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pair => "pair",
            Self::Bulk => "bulk",
            Self::RandomFree => "random-free",
            Self::CrossCpu => "cross-cpu",
            Self::Mixed => "mixed",
            Self::NearFull => "near-full",
            Self::Fragmentation => "fragmentation",
            Self::Answers => "answers",
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// An unknown name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownName {
    seen: String,
    expected: String,
}

impl UnknownName {
    pub(super) fn new<'a>(seen: &str, known: impl Iterator<Item = &'a str>) -> Self {
        Self {
            seen: seen.to_owned(),
            expected: known.collect::<Vec<_>>().join(", "),
        }
    }
}

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: expected one of {}", self.seen, self.expected)
    }
}

impl std::error::Error for UnknownName {}

impl FromStr for Workload {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        let mut all = Self::ALL.into_iter();
        all.find(|workload| workload.name() == text)
            .ok_or_else(|| UnknownName::new(text, Self::ALL.iter().map(|known| known.name())))
    }
}

/// One measurement of all contestants.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Task {
    /// The workload.
    pub workload: Workload,
    /// Order of the blocks; of `mixed` the largest.
    pub order: Order,
    /// Threads at the same time.
    pub threads: usize,
    /// Blocks of a thousand that are free; of `near-full` only.
    pub free_per_mille: u16,
}

impl Task {
    /// All of `workload`, by `threads` threads.
    #[must_use]
    pub fn of(workload: Workload, threads: usize) -> Vec<Self> {
        let task = |order, free_per_mille| Self {
            workload,
            order,
            threads,
            free_per_mille,
        };
        match workload {
            Workload::Pair | Workload::Bulk | Workload::RandomFree | Workload::CrossCpu => {
                vec![task(Order::PAGE, 0), task(Order::HUGE, 0)]
            }
            Workload::Mixed => vec![task(Order::HUGE, 0)],
            Workload::NearFull => vec![task(Order::PAGE, 10), task(Order::PAGE, 1)],
            Workload::Fragmentation | Workload::Answers => Vec::new(),
        }
    }

    /// How full memory is, in percent; of `near-full` only.
    pub(super) fn full_percent(&self) -> Option<f64> {
        let full = self.workload == Workload::NearFull;
        full.then(|| f64::from(1000 - self.free_per_mille) / 10.0)
    }
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.workload {
            Workload::Mixed => write!(f, "mixed, orders 0 to {}", self.order.get())?,
            Workload::NearFull => {
                let full = 1000 - self.free_per_mille;
                write!(f, "near-full, {}.{} %", full / 10, full % 10)?;
            }
            other => write!(f, "{other}, order {}", self.order.get())?,
        }
        let plural = if self.threads == 1 { "" } else { "s" };
        write!(f, ", {} thread{plural}", self.threads)
    }
}
