//! Firmware calls of Arm machines: [`PsciConduit`], which a device tree or ACPI names.

/// Which instruction calls the firmware of an Arm machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PsciConduit {
    /// `hvc`, to a hypervisor.
    Hvc,
    /// `smc`, to secure firmware.
    Smc,
}
