//! What was heard of a guest, [`Heard`], and how it ended, [`How`].

use std::process::ExitStatus;
use std::time::Duration;

use super::balloon::Observed;
use super::hotplug::Driven;

/// How a guest came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// By itself.
    Exited,
    /// It was silent or took too long.
    Hung(Duration),
    /// It said too much.
    Flooded(usize),
    /// It said what was waited for.
    Until,
    /// Somebody asked to stop.
    Interrupted(i32),
}

/// What was heard of a guest.
#[derive(Debug)]
pub(super) struct Heard {
    /// How it ended.
    pub(super) how: How,
    /// QEMU's own end.
    pub(super) status: ExitStatus,
    /// All of the first port.
    pub(super) log: Vec<u8>,
    /// All of the second port.
    pub(super) events: Vec<u8>,
    /// Bytes on port 0x80, and when they came.
    pub(super) markers: Vec<(u8, Duration)>,
    /// What QEMU itself said.
    pub(super) complaints: Vec<u8>,
    /// When the first byte of the log came.
    pub(super) first_output: Option<Duration>,
    /// When the end of each line of the log came.
    pub(super) line_ends: Vec<Duration>,
    /// From the start to the end.
    pub(super) wall: Duration,
    /// What QEMU's memory was, of a machine with a balloon.
    pub(super) observed: Observed,
    /// What was done to its DIMMs.
    pub(super) driven: Driven,
}

#[cfg(test)]
impl Heard {
    /// Nothing, of a guest that ended like this with this exit status.
    pub(super) fn ended(how: How, code: i32) -> Self {
        use std::os::unix::process::ExitStatusExt;
        Self {
            how,
            status: ExitStatus::from_raw(code << 8),
            log: Vec::new(),
            events: Vec::new(),
            markers: Vec::new(),
            complaints: Vec::new(),
            first_output: None,
            line_ends: Vec::new(),
            wall: Duration::ZERO,
            observed: Default::default(),
            driven: Default::default(),
        }
    }
}
