//! `test=`: what goes wrong on purpose, [`Test`].

/// A failure on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Test {
    /// Write where that is not allowed.
    PageFault,
    /// A page fault while its handler cannot be reached.
    DoubleFault,
    /// That of the last CPU at its work.
    DoubleFaultOther,
    /// The last CPU interrupts the first one while that reports a page fault; on x86-64.
    FaultInterrupted,
    /// Write to the image's own code.
    WriteCode,
    /// Execute the image's own data.
    RunData,
    /// Touch memory that has not been accepted; with `accept=` only.
    EarlyTouch,
    /// A page fault by a page that is there by now, which is repeated; on aarch64 and riscv64, with
    /// `accept=` only.
    StalePage,
    /// Panic.
    Panic,
    /// The last CPU panics at its work.
    PanicOther,
    /// All CPUs panic at the same time.
    PanicAll,
    /// The message of a panic panics.
    PanicTwice,
    /// Behave as if the loader passed no memory map.
    NoMap,
    /// Start the last CPU long after the others.
    LateCpu,
    /// Do nothing for ever.
    Hang,
    /// Write nonsense to both serial ports.
    Rubbish,
    /// Start other CPUs while an interrupt that firmware left is pending.
    PendingTimer,
    /// The UEFI loader behaves as if the image's place were taken; the image does nothing.
    Occupied,
}

impl Test {
    pub(super) const NAMES: [(&'static [u8], Self); 18] = [
        (b"page-fault", Self::PageFault),
        (b"double-fault", Self::DoubleFault),
        (b"double-fault-other", Self::DoubleFaultOther),
        (b"fault-interrupted", Self::FaultInterrupted),
        (b"write-code", Self::WriteCode),
        (b"run-data", Self::RunData),
        (b"early-touch", Self::EarlyTouch),
        (b"stale-page", Self::StalePage),
        (b"panic", Self::Panic),
        (b"panic-other", Self::PanicOther),
        (b"panic-all", Self::PanicAll),
        (b"panic-twice", Self::PanicTwice),
        (b"no-map", Self::NoMap),
        (b"late-cpu", Self::LateCpu),
        (b"hang", Self::Hang),
        (b"rubbish", Self::Rubbish),
        (b"pending-timer", Self::PendingTimer),
        (b"occupied", Self::Occupied),
    ];

    /// That of this name.
    pub(super) fn named(name: &[u8]) -> Option<Self> {
        let mut names = Self::NAMES.into_iter();
        names.find_map(|(known, test)| (known == name).then_some(test))
    }
}
