//! Guests that cannot be started: the memory of a confidential guest is encrypted or not yet
//! accepted, and the PVH entry, without paging, can be executed in none of them.

use core::fmt;

/// A kind of confidential guest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Confidential {
    /// AMD's, encrypted by the processor (SEV, SEV-ES, SEV-SNP).
    Sev,
    /// Intel's trust domain (TDX).
    Tdx,
}

impl fmt::Display for Confidential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sev => "SEV",
            Self::Tdx => "TDX",
        })
    }
}

/// Answers of the processor.
#[derive(Clone, Copy, Debug, Default)]
pub struct Processor {
    /// Highest leaf of CPUID.
    pub highest_leaf: u32,
    /// `ebx`, `edx` and `ecx` of leaf 0x21, where there is one.
    pub tdx_name: [u32; 3],
    /// Highest extended leaf of CPUID.
    pub highest_extended_leaf: u32,
    /// `eax` of leaf 0x8000001f, where there is one.
    pub encryption: u32,
}

impl Processor {
    /// Whether register 0xc0010131 exists, which says what encryption is active.
    #[must_use]
    pub const fn has_sev_status(&self) -> bool {
        self.highest_extended_leaf >= 0x8000_001f && self.encryption & 1 << 1 != 0
    }
}

/// What kind of guest this is, if it is a confidential one; `sev_status` reads the register.
#[must_use]
pub fn kind(processor: &Processor, sev_status: impl FnOnce() -> u64) -> Option<Confidential> {
    let name = processor.tdx_name.map(u32::to_le_bytes);
    if processor.highest_leaf >= 0x21 && name.as_flattened() == b"IntelTDX    " {
        return Some(Confidential::Tdx);
    }
    // The leaf also shows on the host, where encryption is not active.
    (processor.has_sev_status() && sev_status() & 7 != 0).then_some(Confidential::Sev)
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTEL_TDX: [u32; 3] = [0x6574_6e49, 0x5844_546c, 0x2020_2020];

    #[test]
    fn guests_are_told_from_hosts() {
        let host = Processor {
            highest_leaf: 0x20,
            tdx_name: INTEL_TDX,
            highest_extended_leaf: 0x8000_001f,
            encryption: 3,
        };
        let tdx = Processor {
            highest_leaf: 0x21,
            ..host
        };
        assert_eq!(kind(&host, || 0), None);
        for active in [1, 2, 4, 7] {
            assert_eq!(kind(&host, || active), Some(Confidential::Sev));
        }
        assert_eq!(kind(&tdx, || 0), Some(Confidential::Tdx));
        let no_register = || -> u64 { panic!("reading it is a fault here") };
        let old = Processor {
            highest_extended_leaf: 0x8000_001e,
            ..host
        };
        let no_sev = Processor {
            encryption: 1,
            ..host
        };
        for processor in [old, no_sev, Processor::default()] {
            assert_eq!(kind(&processor, no_register), None);
        }
    }
}
