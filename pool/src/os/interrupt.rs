//! A system call of another thread, ended.

use std::os::unix::thread::JoinHandleExt;
use std::thread::JoinHandle;

/// Sends SIGIO to a thread, which ends what it waits for in the kernel with `EINTR`. This process
/// must have a handler for it, or it ends.
pub fn interrupt<T>(thread: &JoinHandle<T>) {
    // SAFETY: the thread was neither joined nor detached, since its handle is here: its number
    // is valid, also after it has ended.
    unsafe { libc::pthread_kill(thread.as_pthread_t(), libc::SIGIO) };
}
