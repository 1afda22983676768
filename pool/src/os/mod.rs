//! What the pool needs of Linux that the standard library does not offer.
//!
//! - [`hugepages`], [`memory_file`], [`mapping`]: huge pages, files made of
//!   them, and such files in this process' address space;
//! - [`zero`]: stores that go past the caches;
//! - [`pacing`], [`pressure`], [`background`]: work that yields to other work;
//! - [`peer`]: the process at the other end of a Unix socket; [`acl`]: users that may connect to one;
//!   [`passrights`]: those to which no descriptor can be sent; [`unread`]: what was sent over one and is not read;
//! - [`folder`]: folders that other users do not change; [`owner`]: whose files and processes are trusted;
//! - [`seccomp`]: calls of another process that wait for a decision here;
//! - [`kept`]: files of the kernel that are read and never closed; [`cgroup_memory`]: a cgroup's limits;
//! - [`threads`]: threads that are begun before they are needed;
//! - [`inherited`]: descriptors that the parent of this process left open;
//! - [`service`]: what the service manager passes in and is notified of;
//! - [`need`]: what a test needs of the machine.
//!
//! All unsafe code of the crate lies here: in [`memory_file`], [`mapping`], [`background`],
//! [`inherited`], [`passrights`], [`peer`], [`seccomp`], [`service`], [`unread`] and `zero/x86.rs`.

#![expect(
    unsafe_code,
    reason = "system calls, the memory they give, and stores that not every processor has"
)]

pub mod acl;
pub mod background;
pub mod cgroup_memory;
pub mod cpus;
pub mod folder;
pub mod hugepages;
pub mod inherited;
pub mod interrupt;
pub mod kept;
pub mod mapping;
pub mod memory_file;
pub mod need;
pub mod owner;
pub mod pacing;
pub mod passrights;
pub mod peer;
pub mod pressure;
pub mod ready;
pub mod seccomp;
pub mod service;
pub mod subids;
pub mod threads;
pub mod unread;
pub mod zero;
