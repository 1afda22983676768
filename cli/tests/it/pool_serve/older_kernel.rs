//! A kernel before Linux 6.16, as far as the daemon sees it: sockets cannot refuse descriptors.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// What its programs are told when they set the option.
const REFUSED: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOPROTOOPT as u32;

/// `SO_PASSRIGHTS`.
const OPTION: u32 = 83;

/// Instructions of the filter.
const LENGTH: u16 = 6;

/// Has a command believe that it runs on one.
pub(crate) fn on_an_older_kernel(command: &mut Command) {
    let code = |parts: u32| u16::try_from(parts).unwrap();
    let load = code(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS);
    let equal = code(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K);
    let answer = code(libc::BPF_RET | libc::BPF_K);
    let step = |code, k, jt, jf| libc::sock_filter { code, jt, jf, k };
    let call = u32::try_from(libc::SYS_setsockopt).unwrap();
    // The call's number, and the low half of its third argument.
    let (call_at, option_at) = (0, 32);
    let mut filter: [libc::sock_filter; LENGTH as usize] = [
        step(load, call_at, 0, 0),
        step(equal, call, 0, 3),
        step(load, option_at, 0, 0),
        step(equal, OPTION, 0, 1),
        step(answer, REFUSED, 0, 0),
        step(answer, libc::SECCOMP_RET_ALLOW, 0, 0),
    ];
    let install = move || {
        let program = libc::sock_fprog {
            len: LENGTH,
            filter: filter.as_mut_ptr(),
        };
        // SAFETY: both calls read integers, and the second the program and its instructions, which
        // live until it returns.
        let done = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(
                    libc::PR_SET_SECCOMP,
                    libc::SECCOMP_MODE_FILTER,
                    &raw const program,
                ) == 0
        };
        if done {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    };
    // SAFETY: between fork and exec it makes two system calls and allocates nothing.
    unsafe { command.pre_exec(install) };
}
