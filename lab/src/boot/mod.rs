//! Boots a machine under QEMU and tells what came of it: [`run`] makes a
//! [`Record`](crate::record::Record) of a [`Request`].
//!
//! | file | concept |
//! |---|---|
//! | `machine`, `check` | what is asked for: [`Machine`], and what is refused of it |
//! | `command` | QEMU's arguments, [`Launch`] |
//! | `accelerator`, `probe` | KVM or TCG, and the guest that tries |
//! | `guest`, `heard`, `spawn` | QEMU as a process that never stays behind, and what was heard of it |
//! | `ask` | other programs, that do not stay behind either |
//! | `balloon` | QEMU's memory while a guest uses its balloon |
//! | [`hotplug`] | DIMMs that come and go by a script |
//! | `qmp` | QEMU's machine protocol, as much of it as is needed |
//! | `watch` | who looks on meanwhile, [`Watch`] |
//! | `image` | where our image is, and its UEFI loader |
//! | `uefi`, `result` | a machine whose firmware is UEFI; what its run left on the stick |
//! | `events`, `moments`, `tell`, `verdict` | what our image says, as a record, and whether it went well |
//! | `restart` | what the image says once it restarted itself |
//! | [`linux_end`] | whether a Linux went well, from its log |
//! | `request`, `run`, `compose` | one boot from request to record |
//! | `error` | [`BootError`], [`Refusal`] |

mod accelerator;
mod ask;
mod balloon;
mod beside;
mod check;
mod command;
mod compose;
mod error;
pub mod events;
mod guest;
mod heard;
pub mod hotplug;
mod image;
pub mod linux_end;
mod machine;
mod moments;
mod probe;
mod qmp;
mod request;
mod restart;
mod result;
mod run;
mod spawn;
mod tell;
mod uefi;
mod verdict;
mod watch;

pub use accelerator::{Choice, Wish};
pub(crate) use ask::ask;
pub use command::{Launch, Ports, shell_words};
pub(crate) use compose::host_name;
pub use error::{BootError, Fault, Misdeed, Refusal};
pub use heard::How;
pub(crate) use linux_end::{HALTED, PANIC, says_goodbye};
pub use machine::{
    Accelerator, Board, Clock, Firmware, MOST_CPUS, MOST_NODES, Machine, Processor, Slots, System,
};
pub use request::Request;
pub use result::{ResultError, record_of_result};
pub use run::{find_image, find_loader, interrupted, run};
pub use tell::tell;
pub use uefi::Uefi;
pub use watch::{Unwatched, Watch};
