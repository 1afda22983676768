//! The boot lab; begun here with the reader of kernel logs, [`log`], and a model
//! of what kernels make of a machine's memory, [`linux`]; what either remarks is
//! kept within bounds by [`notices`].

pub mod linux;
pub mod log;
pub mod notices;
