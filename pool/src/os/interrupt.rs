//! A system call of another thread, ended.

use rustix::process::{Pid, getpid};

/// Sends SIGIO to a thread of this process, which ends what it waits for in the kernel with `EINTR`. This process
/// must have a handler for it, or it ends.
pub fn interrupt(thread: Pid) {
    let (process, thread) = (getpid().as_raw_nonzero(), thread.as_raw_nonzero());
    // SAFETY: integers only; a thread of another process, or none, is refused.
    unsafe { libc::syscall(libc::SYS_tgkill, process, thread, libc::SIGIO) };
}
