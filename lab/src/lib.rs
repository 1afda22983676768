//! What kernels say and do: a reader of their logs, [`log`] (from a [`file`](mod@file), packed or not), and a model of what
//! Linux makes of a machine's memory, [`linux`]. What either remarks is kept
//! within bounds by [`notices`]. [`up`] brings a machine's memory up in a process, [`boot`] starts a machine, [`console`] listens to a real one; what came of one run, or what a log says of one ([`boot_log`]),
//! is its [`record`], of a sweep over numbers of threads its [`sweep`];
//! [`compare`] puts two runs beside each other, [`gate`] judges them, [`bisect`] says since when,
//! [`history`] where figures changed over time; [`gaps`] are the longest
//! spans between two lines of a log, and [`doctor`] says what a log's time went into; [`report`] shows
//! a folder of records.

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
