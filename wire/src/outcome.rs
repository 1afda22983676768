//! How a run of the image ended: [`Outcome`].

use serde::Serialize;

/// How it ended. On QEMU the exit device turns the code `c` into exit status
/// `2 * c + 1`; none of these can be mistaken for QEMU's own 0 and 1, or for a signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "read", derive(serde::Deserialize))]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Everything that was requested was done.
    Ok,
    /// A check of the self-test failed.
    #[serde(rename = "check failed")]
    CheckFailed,
    /// The processor reported a fault.
    Fault,
    /// The image found a mistake of its own.
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

    /// The code that is written to the exit device.
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

    /// The status QEMU exits with.
    ///
    /// ```
    /// use firstlight_wire::Outcome;
    /// let statuses = Outcome::ALL.map(Outcome::exit_status);
    /// assert_eq!(statuses, [85, 87, 89, 91, 93]);
    /// ```
    #[must_use]
    pub const fn exit_status(self) -> i32 {
        2 * self.code() as i32 + 1
    }

    /// The outcome that an exit status stands for.
    ///
    /// ```
    /// use firstlight_wire::Outcome;
    /// assert_eq!(Outcome::of_exit_status(89), Some(Outcome::Fault));
    /// assert_eq!(Outcome::of_exit_status(0), None);
    /// ```
    #[must_use]
    pub fn of_exit_status(status: i32) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|outcome| outcome.exit_status() == status)
    }

    /// Its name in the event [`End`](super::Event::End).
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
