//! The services of UEFI that stay after boot services: variables, which outlive a reset, and
//! the reset. They run where firmware put them, at equal virtual addresses. What a processor does before
//! is in its `runtime`.

use firstlight::addr::PhysRange;
use firstlight_wire::parts::{VENDOR, name};

use super::paging::{self, Access};
use crate::arch::{runtime, translation};

/// Non-volatile, for boot services and after them.
const ATTRIBUTES: u32 = 7;
/// Offsets in the system table and in the table of services, by the specification.
const SERVICES: u64 = 88;
const SET_VARIABLE: u64 = 88;
const RESET_SYSTEM: u64 = 104;
const COLD: u32 = 0;

type SetVariable = extern "efiapi" fn(*const u16, *const u8, u32, usize, *const u8) -> usize;
type ResetSystem = extern "efiapi" fn(u32, usize, usize, *const u8) -> !;

/// Firmware's services.
pub(crate) struct Services {
    set: SetVariable,
    reset: ResetSystem,
}

/// The word at an address, if it is mapped.
fn word(at: u64) -> Option<u64> {
    let range = PhysRange::with_size(at, 8)?;
    paging::allows(range, Access::Read).then(|| {
        // SAFETY: mapped, and never written by this image: firmware's tables are reserved.
        unsafe { (at as *const u64).read_unaligned() }
    })
}

impl Services {
    /// Makes firmware's `ranges` executable and finds its services; `None` if its tables are
    /// not where they should be, or one of the ranges is not mapped: the run ended before.
    ///
    /// # Safety
    /// `system_table` is firmware's, and the ranges were never allocated. Nothing but the end of this image runs on
    /// this CPU from now on; if others still run, in other memory.
    pub(crate) unsafe fn open(
        system_table: u64,
        ranges: impl Iterator<Item = PhysRange> + Clone,
    ) -> Option<Self> {
        let below = PhysRange::new(0, translation::limit()).unwrap_or_default();
        let is_mapped = |range: PhysRange| {
            let range = range.intersect(below);
            range.is_empty() || paging::allows(range, Access::Any)
        };
        if !ranges.clone().all(is_mapped) {
            return None;
        }
        for range in ranges {
            // SAFETY: it only allows more.
            unsafe { paging::change(range, translation::running) };
        }
        translation::flush();
        let services = word(system_table.checked_add(SERVICES)?)?;
        let set = word(services.checked_add(SET_VARIABLE)?).filter(|at| *at != 0)?;
        let reset = word(services.checked_add(RESET_SYSTEM)?).filter(|at| *at != 0)?;
        runtime::prepare();
        // SAFETY: the specification says that functions of these types are there.
        unsafe {
            Some(Self {
                set: core::mem::transmute::<u64, SetVariable>(set),
                reset: core::mem::transmute::<u64, ResetSystem>(reset),
            })
        }
    }

    /// Writes part `number` of a result; an empty one is deleted.
    ///
    /// # Errors
    /// Firmware's status.
    pub(crate) fn set(&self, number: u8, part: &[u8]) -> Result<(), usize> {
        let name = name(number);
        let status = (self.set)(
            name.as_ptr(),
            VENDOR.as_ptr(),
            ATTRIBUTES,
            part.len(),
            part.as_ptr(),
        );
        match status {
            0 => Ok(()),
            status => Err(status),
        }
    }

    /// Resets the machine.
    pub(crate) fn reset(&self) -> ! {
        (self.reset)(COLD, 0, 0, core::ptr::null())
    }
}

/// Large enough for firmware; a fault of its code is reported there as well.
#[repr(C, align(4096))]
pub(in crate::arch) struct Stack([u8; STACK_BYTES]);
pub(in crate::arch) const STACK_BYTES: usize = 64 << 10;

/// The way out has a stack of its own: other CPUs may still use theirs, and what lies on them.
pub(in crate::arch) static mut STACK: Stack = Stack([0; STACK_BYTES]);
