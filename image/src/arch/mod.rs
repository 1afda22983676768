//! Everything that depends on the processor. Another architecture is a folder beside
//! [`x86_64`] with the same names; the rest of the image uses no others:
//!
//! | name | meaning |
//! |---|---|
//! | `Handover` | values of the loader and the first instructions: start info, time of entry |
//! | `ticks` | the counter that starts with the machine |
//! | `marker` | one byte that the host can see at once |
//! | `exit` | leaves the machine with an outcome |
//! | `halt`, `relax` | wait for an interrupt; spin politely |
//! | `protect`, `DirectMap` | page tables: the image's own protection, all of memory |
//! | `traps` | handlers of faults |
//! | `clock` | the frequency of ticks |
//! | `serial` | the ports for the log and the events |
//! | `device` | registers of devices; the configuration space of PCI |
//! | `hotplug` | slots of DIMMs; the power button |
//! | `cpus` | starting the others and running work on them |
//! | `restart` | the image entered once more, without firmware |
//! | `writer` | the fastest way to fill memory |

mod x86_64;

pub(crate) use x86_64::*;
