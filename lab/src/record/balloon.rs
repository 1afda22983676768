//! The use of a guest's memory balloon: [`Balloon`].

use serde::Serialize;

/// What the guest did with it, and what the host saw.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Balloon {
    /// How the guest reaches it: `pci` or `mmio`.
    pub transport: String,
    /// Whether free memory was reported.
    pub reporting: bool,
    /// Bytes that the guest allocated, wrote and freed.
    pub freed_bytes: u64,
    /// Bytes that it reported as free since.
    pub reported_bytes: u64,
    /// Reports of up to 32 ranges.
    pub reports: u64,
    /// Passes over free memory.
    pub passes: u64,
    /// Bytes that its zeroing worker zeroed.
    pub worker_zeroed_bytes: u64,
    /// Free bytes that it knew to be zero when reporting had ended: they are not reported.
    pub stock_bytes: u64,
    /// The knobs of its worker and of its reports.
    pub knobs: Vec<Knob>,
    /// The part of `freed_bytes` that the host had back when reporting had ended.
    pub returned_percent: Option<f64>,
    /// The guest's instructions to report a GiB; on the clock "instructions" only.
    pub instructions_per_gib: Option<u64>,
    /// Most bytes in the balloon.
    pub inflated_bytes: u64,
    /// Most memory that QEMU had.
    pub host_peak_bytes: Option<u64>,
    /// What it had when the guest's reports had ended.
    pub host_after_bytes: Option<u64>,
    /// QEMU's resident memory over time, by the host's clock since QEMU was started.
    pub host_resident_bytes: Vec<Resident>,
    /// The guest's memory over time as QEMU's `query-balloon` has it.
    pub host_balloon_bytes: Vec<Resident>,
    /// The guest's figures as QEMU's `guest-stats` has them.
    pub host_statistics: Option<GuestStatistics>,
}

/// A knob of the guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Knob {
    /// Of what and its name: `reporting.order`.
    pub name: String,
    /// Its value.
    pub value: u64,
}

/// Bytes at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Resident {
    /// From the start of QEMU.
    pub at_ns: u64,
    /// How many there were.
    pub bytes: u64,
}

/// What a guest shows its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct GuestStatistics {
    /// Free memory.
    pub free_bytes: Option<u64>,
    /// All memory.
    pub total_bytes: Option<u64>,
    /// Memory that could be allocated.
    pub available_bytes: Option<u64>,
}
