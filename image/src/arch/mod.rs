//! What knows the processor. Another architecture is a folder beside
//! [`x86_64`] that offers the same names; the rest of the image uses no others:
//!
//! | name | what it is |
//! |---|---|
//! | `Handover` | what the loader and the first instructions left: start info, entry stamp |
//! | `ticks` | the counter that starts with the machine |
//! | `marker` | one byte that the host can see at once |
//! | `exit` | leaves the machine with an outcome |
//! | `halt`, `relax` | wait for an interrupt; spin politely |
//! | `protect`, `DirectMap` | page tables: the image's own protection, all of memory |
//! | `traps` | what faults do |
//! | `clock` | how many ticks a second has |
//! | `serial` | the ports for the log and the events |
//! | `cpus` | starting the others, and giving them work |
//! | `writer` | the fastest way to fill memory |

mod x86_64;

pub(crate) use x86_64::*;
