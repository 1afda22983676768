//! How a run of the image ends: [`Outcome`], as an exit code and as a word.

/// How it ended. On QEMU the exit device turns the code `c` into exit status
/// `2 * c + 1`; none of these can be mistaken for QEMU's own 0 and 1, or for a signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// What was asked for was done.
    Ok,
    /// A check of the self-test failed.
    CheckFailed,
    /// The processor reported a fault.
    Fault,
    /// The image noticed a mistake of its own.
    Panic,
    /// The machine cannot be brought up: no memory map, no usable memory.
    Machine,
}

impl Outcome {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Ok,
        Self::CheckFailed,
        Self::Fault,
        Self::Panic,
        Self::Machine,
    ];

    /// What is written to the exit device.
    ///
    /// ```
    /// use firstlight_image::outcome::Outcome;
    /// let statuses = Outcome::ALL.map(|outcome| 2 * u32::from(outcome.code()) + 1);
    /// assert_eq!(statuses, [85, 87, 89, 91, 93]);
    /// ```
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Ok => 0x2a,
            Self::CheckFailed => 0x2b,
            Self::Fault => 0x2c,
            Self::Panic => 0x2d,
            Self::Machine => 0x2e,
        }
    }

    /// Its name in the `end` event.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::CheckFailed => "check failed",
            Self::Fault => "fault",
            Self::Panic => "panic",
            Self::Machine => "machine",
        }
    }
}
