//! What processors share.
//!
//! | file | contents |
//! |---|---|
//! | `paging` | page tables as a radix tree: protection of the image, a map of all memory |
//! | `direct` | physical memory as slices and pointers |
//! | `cpus` | every CPU's area, starting, mailboxes |
//! | `handover` | from the first instructions to Rust |
//! | `registers` | devices' registers in memory |
//! | `stale` | a test of page faults that are repeated |
//! | `starter` | starting CPUs where firmware does it |
//! | `services`, `frame_buffer` | what UEFI leaves: variables, the reset, a screen |
//! | `semihosting`, `fault_stack` | processors without ports: markers; a CPU's stack for faults |
//! | `absent` | what other boards have |

#![expect(
    clippy::cast_possible_truncation,
    reason = "usize has 64 bits on these processors"
)]

#[cfg(not(target_arch = "x86_64"))]
pub(crate) mod absent;
pub(crate) mod cpus;
pub(crate) mod direct;
#[cfg(not(target_arch = "x86_64"))]
pub(crate) mod fault_stack;
#[cfg(uefi)]
pub(crate) mod frame_buffer;
pub(crate) mod handover;
pub(crate) mod paging;
pub(crate) mod registers;
#[cfg(not(target_arch = "x86_64"))]
pub(crate) mod semihosting;
#[cfg(uefi)]
pub(crate) mod services;
#[cfg(not(target_arch = "x86_64"))]
pub(in crate::arch) mod stale;
#[cfg(not(target_arch = "x86_64"))]
pub(crate) mod starter;

/// A reference to `place`, a static.
///
/// # Safety
/// There is no other use of it while the reference is in use.
pub(crate) unsafe fn sole<T>(place: *mut T) -> &'static mut T {
    // SAFETY: a static is never freed; the rest is the caller's promise.
    unsafe { &mut *place }
}
