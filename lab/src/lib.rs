//! What machines do when they start: a record of each run (`firstlight.run/1`) keeps log, events, phases and gaps;
//! everything else is made of records.
//!
//! | module | what it decides |
//! |---|---|
//! | [`up`] | what a machine is: a log, tables, this machine; its memory comes up, real threads put it to work |
//! | [`boot`], [`matrix`] | how a machine is started under QEMU and watched; kernels x shapes x words x clocks in turns, here or as array jobs of Slurm |
//! | [`console`] | boots of real machines: which lines of a console are one, and when each came |
//! | [`stick`] | what is on a stick that UEFI starts, and the result that comes back on it |
//! | [`log`], [`gaps`], [`boot_log`] | what a log of any dialect says; the spans between its lines; a log as a record |
//! | [`mod@file`], [`notices`] | logs in files, packed or not; what is remarked, within bounds |
//! | [`record`], [`run`], [`records`] | the record of a run; what is read of one; records and logs in files and folders |
//! | [`compare`], [`gate`], [`history`], [`bisect`] | two set-ups beside each other; whether one is slower (`docs/gate.md`); since when, over time or over commits |
//! | [`doctor`] | what the time went into and what to do: a file for each finding, in `rules/` |
//! | [`sweep`], [`predict`], [`published`] | time over threads; time of a machine not at hand; what others published |
//! | [`report`], [`export`] | a folder of records as one page; reports and verdicts in other programs' forms |
//! | [`linux`] | what Linux 6.1 and 6.12 make of a map: nodes and zones, hash tables, memory blocks |

pub mod bisect;
pub mod boot;
pub mod boot_log;
pub mod compare;
pub mod console;
pub mod doctor;
pub mod export;
pub mod file;
pub mod gaps;
pub mod gate;
pub mod history;
pub mod linux;
pub mod log;
pub mod matrix;
pub mod notices;
pub mod predict;
pub mod published;
pub mod record;
pub mod records;
pub mod report;
pub mod run;
pub mod stick;
pub mod sweep;
pub mod up;
