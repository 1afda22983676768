//! Descriptors that the parent of this process left open.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// `command` inherits its standard streams and no other descriptor.
///
/// Where the kernel is older than Linux 5.11 the command cannot be started.
pub fn only_standard(command: &mut Command) {
    let close_the_rest = || {
        // SAFETY: integers only. Nothing is closed yet: on execution the descriptors of
        // the child are, which no other process has.
        let answer = unsafe {
            libc::syscall(
                libc::SYS_close_range,
                libc::c_uint::from(3_u8),
                libc::c_uint::MAX,
                libc::CLOSE_RANGE_CLOEXEC,
            )
        };
        if answer < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    };
    // SAFETY: between fork and execution only one system call is made, which takes no lock
    // and no memory.
    unsafe { command.pre_exec(close_the_rest) };
}

/// Closes all descriptors of this process but its standard streams: for a program that has opened none itself.
pub fn close_all_but_standard() {
    // SAFETY: integers only; no value of this process owns one of these descriptors, as the caller has opened none.
    unsafe {
        libc::syscall(
            libc::SYS_close_range,
            libc::c_uint::from(3_u8),
            libc::c_uint::MAX,
            libc::c_uint::from(0_u8),
        )
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::{AsRawFd, OwnedFd};

    #[test]
    fn what_was_left_open_is_not_passed_on() {
        let (read, _write) = io::pipe().expect("a pipe");
        let copy = rustix::io::dup(&read).expect("a descriptor");
        let left: OwnedFd = copy;
        crate::launch::keep_open(&left).expect("it is open");
        let is_open = |prepare: fn(&mut Command)| {
            let name = format!("/proc/self/fd/{}", left.as_raw_fd());
            let mut command = Command::new("test");
            prepare(command.args(["-e", &name]));
            command.status().expect("a command").success()
        };
        assert!(is_open(|_| {}));
        assert!(!is_open(only_standard));
    }
}
