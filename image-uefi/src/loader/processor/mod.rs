//! What depends on the processor, with the same names for each:
//!
//! | name | meaning |
//! |---|---|
//! | `Image`, `IMAGE`, `IMAGE_PATH` | the form of the image's file, and its name on the stick |
//! | `ticks` | the counter that the image goes on with |
//! | `has_hypervisor` | whether this is a virtual machine, as far as it says so |
//! | `confidential` | a guest that is refused |
//! | `written` | makes the image's code visible to the processor |
//! | `Code` | the last instructions: to the image |

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "aarch64")]
pub(super) use aarch64::*;

#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
pub(super) use x86_64::*;
