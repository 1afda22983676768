//! The boot lab; begun here with the reader of kernel logs, [`log`].

pub mod log;
