//! What a boot owes to the host it ran on: [`Host`].

use super::phase::Word;
use serde::Serialize;
use std::fs;
use std::path::Path;

/// Host and virtual machine monitor, or the host at the console of a real machine. Nothing here is the same from run to run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Host {
    /// Its name; in a job of Slurm the node's.
    pub name: String,
    /// The console on which it heard a real machine, that is, no guest of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub console: Option<String>,
    /// What ran the guest's instructions: `kvm`, `tcg` or `real machine`.
    pub accelerator: Word,
    /// Why that one.
    pub accelerator_reason: String,
    /// What QEMU calls itself, if it said.
    pub qemu_version: Option<String>,
    /// The command to repeat the boot by hand; it prints the guest's log.
    pub command: Vec<String>,
    /// Boots until this one, it included.
    pub attempts: u64,
    /// Why there was more than one.
    pub retried_because: Option<String>,
    /// What decides how fast its processors run.
    pub power: Power,
    /// QEMU's exit status; `None` if a signal ended it.
    pub exit_status: Option<i32>,
    /// From the start of QEMU to its end.
    pub wall_ns: u64,
    /// From the start of QEMU to the first byte of the guest's log, firmware's included.
    pub first_output_ns: Option<u64>,
    /// From the start of QEMU, or from zero of the record's times, until the host had each line of `log`, in their
    /// order.
    pub lines_ns: Vec<u64>,
    /// From the start of QEMU to where the clock of a Linux begins, by its first line with
    /// a time: firmware, loader and what the kernel does before its clock runs. `None` on
    /// the instruction clock, whose seconds are not the host's.
    pub before_clock_ns: Option<u64>,
    /// Bytes the guest wrote to port 0x80 and when the host saw them.
    pub markers: Vec<Marker>,
}

/// What decides how fast a host's processors run; `None` where the system does not say, as
/// in most virtual machines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Power {
    /// Driver of processor frequencies.
    pub cpufreq_driver: Option<String>,
    /// The governor that chooses them.
    pub governor: Option<String>,
    /// Whether they may go beyond the nominal one.
    pub turbo: Option<bool>,
    /// Driver of idle states.
    pub idle_driver: Option<String>,
}

impl Power {
    /// What this host says, below `/sys/devices/system/cpu`.
    #[must_use]
    pub fn of_host() -> Self {
        Self::below(Path::new("/sys/devices/system/cpu"))
    }

    /// What the files of this folder say, laid out as in `/sys/devices/system/cpu`.
    #[must_use]
    pub fn below(cpu: &Path) -> Self {
        let word = |path: &str| {
            let text = fs::read_to_string(cpu.join(path)).ok()?;
            let text = text.trim();
            (!text.is_empty() && text != "none").then(|| text.chars().take(64).collect())
        };
        let flag = |path: &str, on: &str| word(path).map(|text: String| text == on);
        Self {
            cpufreq_driver: word("cpu0/cpufreq/scaling_driver"),
            governor: word("cpu0/cpufreq/scaling_governor"),
            turbo: flag("intel_pstate/no_turbo", "0").or(flag("cpufreq/boost", "1")),
            idle_driver: word("cpuidle/current_driver"),
        }
    }
}

/// A byte on port 0x80.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Marker {
    /// The byte.
    pub code: u8,
    /// What our image means by it.
    pub name: Option<&'static str>,
    /// From the start of QEMU until the host saw it.
    pub wall_ns: u64,
}

impl Marker {
    /// What our image means by a byte on port 0x80.
    ///
    /// ```
    /// use firstlight_lab::record::Marker;
    /// assert_eq!(Marker::name_of(0x25), Some("all allocatable"));
    /// assert_eq!(Marker::name_of(0xff), None);
    /// ```
    #[must_use]
    pub fn name_of(code: u8) -> Option<&'static str> {
        Some(match code {
            0x10 => "entry",
            0x11 => "long mode",
            0x20 => "memory map",
            0x21 => "memory mapped",
            0x22 => "topology",
            0x23 => "layout",
            0x24 => "frame allocator",
            0x25 => "all allocatable",
            0x30 => "clock known",
            0x31 => "CPUs started",
            0x40 => "mode begins",
            0x41 => "mode ends",
            0x50 => "memory written",
            0x51 => "memory freed",
            0x52 => "free memory reported",
            0xf0 => "fault",
            0xf1 => "panic",
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_says_what_it_has() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Power::below(folder.path()), Power::default());
        for (path, text) in [
            ("cpu0/cpufreq/scaling_driver", "intel_pstate\n"),
            ("cpu0/cpufreq/scaling_governor", "performance\n"),
            ("intel_pstate/no_turbo", "1\n"),
            ("cpuidle/current_driver", "none\n"),
        ] {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let power = Power::below(folder.path());
        assert_eq!(power.governor.as_deref(), Some("performance"));
        assert_eq!((power.turbo, power.idle_driver), (Some(false), None));
        fs::remove_file(folder.path().join("intel_pstate/no_turbo")).unwrap();
        fs::create_dir_all(folder.path().join("cpufreq")).unwrap();
        fs::write(folder.path().join("cpufreq/boost"), "1").unwrap();
        assert_eq!(Power::below(folder.path()).turbo, Some(true));
    }
}
