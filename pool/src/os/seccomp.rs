//! Another process' calls that set the size of a file or seal it, told to us
//! before they are made (seccomp user notification).
//!
//! [`watch_files`] puts a filter on the calling thread, and so on whatever it
//! becomes or starts; there is no way back. The [`Watcher`] it returns goes to
//! the process that decides: each [`Call`] waits until it is passed on, said to
//! be done, or given another file. Without that process such calls fail, so it
//! must live as long as those it watches.

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

/// The processor's own calls, as the filter is told of them; zero where no
/// filter is written for the processor.
const ARCHITECTURE: u32 = if cfg!(target_arch = "x86_64") {
    0xc000_003e
} else if cfg!(target_arch = "aarch64") {
    0xc000_00b7
} else if cfg!(target_arch = "riscv64") {
    0xc000_00f3
} else {
    0
};

/// Where the filter finds them: in the kernel's `struct seccomp_data`.
const NUMBER_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;
/// The low half of the second argument, on a little-endian processor.
const SECOND_ARGUMENT_AT: u32 = 24;

/// A call that waits for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    id: u64,
    /// The thread that called, by its number in our name space.
    pub thread: u32,
    /// The descriptor it named.
    pub descriptor: u32,
    /// What it wants.
    pub wish: Wish,
}

/// What a call wants done with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// `ftruncate`: to be so long.
    Length(u64),
    /// `fcntl(F_ADD_SEALS)`: to be sealed.
    Seal,
}

/// The end where calls arrive.
#[derive(Debug)]
pub struct Watcher {
    listener: OwnedFd,
}

/// From now on `ftruncate` and `fcntl(F_ADD_SEALS)` of this thread, of what it
/// executes and of what it starts wait for the [`Watcher`].
///
/// Where the process may not filter calls otherwise, it gives up gaining
/// privileges by what it executes (`no_new_privs`).
///
/// # Errors
/// `Unsupported` for a processor no filter is written for; the operating
/// system's refusal: an old kernel, or a watcher that is there already.
pub fn watch_files() -> io::Result<Watcher> {
    if ARCHITECTURE == 0 || cfg!(target_endian = "big") {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let mut filter = filter()?;
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
        filter: filter.as_mut_ptr(),
    };
    let install = || {
        // SAFETY: the kernel reads the program and its instructions, which both
        // live until the call returns, and copies them.
        let answer = unsafe {
            libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
                &raw const program,
            )
        };
        i32::try_from(answer).map_err(|_| io::ErrorKind::InvalidData)
    };
    let mut listener = install()?;
    if listener < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EACCES) {
        // SAFETY: the call reads integers only.
        if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
            return Err(io::Error::last_os_error());
        }
        listener = install()?;
    }
    if listener < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor; no other owner knows it.
    let listener = unsafe { OwnedFd::from_raw_fd(listener) };
    Ok(Watcher { listener })
}

/// Notify of the two calls, allow all others.
fn filter() -> io::Result<[libc::sock_filter; 9]> {
    let word = |value: i64| u32::try_from(value).map_err(|_| io::ErrorKind::InvalidData);
    let truncate = word(libc::SYS_ftruncate)?;
    let control = word(libc::SYS_fcntl)?;
    let add_seals = word(libc::F_ADD_SEALS.into())?;
    let code = |parts: u32| u16::try_from(parts).map_err(|_| io::ErrorKind::InvalidData);
    let load = code(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS)?;
    let equal = code(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K)?;
    let answer = code(libc::BPF_RET | libc::BPF_K)?;
    let step = |code, k, jt, jf| libc::sock_filter { code, jt, jf, k };
    // Jumps count the instructions that are passed over.
    Ok([
        step(load, ARCHITECTURE_AT, 0, 0),
        step(equal, ARCHITECTURE, 0, 5),
        step(load, NUMBER_AT, 0, 0),
        step(equal, truncate, 4, 0),
        step(equal, control, 0, 2),
        step(load, SECOND_ARGUMENT_AT, 0, 0),
        step(equal, add_seals, 1, 0),
        step(answer, libc::SECCOMP_RET_ALLOW, 0, 0),
        step(answer, libc::SECCOMP_RET_USER_NOTIF, 0, 0),
    ])
}

impl Watcher {
    /// The watcher another process was handed.
    #[must_use]
    pub fn new(listener: OwnedFd) -> Self {
        Self { listener }
    }

    /// Waits for the next call; `None` when no process is left that could make one.
    ///
    /// # Errors
    /// The operating system's refusal.
    pub fn next_call(&self) -> io::Result<Option<Call>> {
        loop {
            if !self.wait()? {
                return Ok(None);
            }
            // SAFETY: all zero is a valid notification, and what the kernel wants.
            let mut told: libc::seccomp_notif = unsafe { mem::zeroed() };
            let request = libc::SECCOMP_IOCTL_NOTIF_RECV;
            if let Some(error) = self.control(request, &mut told).err() {
                match error.raw_os_error() {
                    // The caller was killed or interrupted before we looked.
                    Some(libc::ENOENT | libc::EINTR) => continue,
                    _ => return Err(error),
                }
            }
            let [descriptor, second, ..] = told.data.args;
            let truncates = libc::c_long::from(told.data.nr) == libc::SYS_ftruncate;
            return Ok(Some(Call {
                id: told.id,
                thread: told.pid,
                // The kernel looks at the low half only.
                descriptor: u32::try_from(descriptor & 0xffff_ffff).unwrap_or(u32::MAX),
                wish: if truncates {
                    Wish::Length(second)
                } else {
                    Wish::Seal
                },
            }));
        }
    }

    /// The call is made as if it were not watched.
    ///
    /// # Errors
    /// The operating system's refusal; a caller that is gone is none.
    pub fn pass(&self, call: &Call) -> io::Result<()> {
        let flags = u32::try_from(libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE).unwrap_or(1);
        self.answer(call, flags)
    }

    /// The call is not made, and its caller told that it was.
    ///
    /// # Errors
    /// The operating system's refusal; a caller that is gone is none.
    pub fn done(&self, call: &Call) -> io::Result<()> {
        self.answer(call, 0)
    }

    /// The descriptor the call names becomes `file`, closed on execution; the
    /// call still waits.
    ///
    /// # Errors
    /// `NotFound` where the caller is gone; the operating system's refusal.
    pub fn replace(&self, call: &Call, file: BorrowedFd<'_>) -> io::Result<()> {
        let number = |value: i32| u32::try_from(value).map_err(|_| io::ErrorKind::InvalidData);
        let mut wish = libc::seccomp_notif_addfd {
            id: call.id,
            flags: u32::try_from(libc::SECCOMP_ADDFD_FLAG_SETFD).unwrap_or(1),
            srcfd: number(file.as_raw_fd())?,
            newfd: call.descriptor,
            newfd_flags: number(libc::O_CLOEXEC)?,
        };
        self.control(libc::SECCOMP_IOCTL_NOTIF_ADDFD, &mut wish)
    }

    /// Whether the call still waits: what was looked up about its thread in the
    /// meantime was about no other.
    #[must_use]
    pub fn still_waits(&self, call: &Call) -> bool {
        let mut id = call.id;
        self.control(libc::SECCOMP_IOCTL_NOTIF_ID_VALID, &mut id)
            .is_ok()
    }

    fn answer(&self, call: &Call, flags: u32) -> io::Result<()> {
        let mut answer = libc::seccomp_notif_resp {
            id: call.id,
            val: 0,
            error: 0,
            flags,
        };
        match self.control(libc::SECCOMP_IOCTL_NOTIF_SEND, &mut answer) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            answered => answered,
        }
    }

    /// Until a call is there (`true`) or no process is left (`false`).
    fn wait(&self) -> io::Result<bool> {
        use rustix::event::{PollFd, PollFlags, poll};
        let mut polled = [PollFd::new(&self.listener, PollFlags::IN)];
        rustix::io::retry_on_intr(|| poll(&mut polled, None))?;
        Ok(polled[0].revents().contains(PollFlags::IN))
    }

    /// Asks the kernel about `value`; `request` must be one of the listener's
    /// that reads or writes a `T`.
    fn control<T>(&self, request: libc::Ioctl, value: &mut T) -> io::Result<()> {
        let value = ptr::from_mut(value);
        // SAFETY: the requests used here encode the size of the structure they
        // read and write, and each is paired with that structure; it lives and
        // is ours alone during the call.
        let answer = unsafe { libc::ioctl(self.listener.as_raw_fd(), request, value) };
        if answer < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }
}

impl AsFd for Watcher {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::memory_file;
    use std::sync::mpsc;
    use std::thread;

    /// A thread that watches itself, so that the filter ends with it.
    #[test]
    fn calls_wait_and_get_what_the_watcher_decides() {
        let (watchers, watched) = mpsc::channel();
        let caller = thread::spawn(move || {
            let file = memory_file::unnamed(c"theirs", None).unwrap();
            match watch_files() {
                Ok(watcher) => watchers.send(watcher).unwrap(),
                Err(error) => {
                    crate::os::need::skip("seccomp", error);
                    return None;
                }
            }
            memory_file::set_length(&file, 4096).unwrap();
            let passed = rustix::fs::fstat(&file).unwrap().st_size;
            memory_file::set_length(&file, 8192).unwrap();
            let replaced = rustix::fs::fstat(&file).unwrap().st_size;
            memory_file::seal_against_growth(&file).unwrap();
            let sealed = memory_file::is_sealed(&file).unwrap();
            Some((passed, replaced, sealed))
        });
        let Ok(watcher) = watched.recv() else {
            assert_eq!(caller.join().unwrap(), None);
            return;
        };
        let ours = memory_file::unnamed(c"ours", None).unwrap();
        rustix::fs::ftruncate(&ours, 12_288).unwrap();

        let first = watcher.next_call().unwrap().unwrap();
        assert_eq!(first.wish, Wish::Length(4096));
        assert!(watcher.still_waits(&first));
        watcher.pass(&first).unwrap();
        let second = watcher.next_call().unwrap().unwrap();
        assert_eq!(second.wish, Wish::Length(8192));
        assert!(!watcher.still_waits(&first));
        watcher.replace(&second, ours.as_fd()).unwrap();
        watcher.done(&second).unwrap();
        let third = watcher.next_call().unwrap().unwrap();
        assert_eq!(
            (third.wish, third.descriptor),
            (Wish::Seal, second.descriptor)
        );
        watcher.done(&third).unwrap();
        assert_eq!(caller.join().unwrap(), Some((4096, 12_288, false)));
        watcher
            .done(&third)
            .expect("a caller that is gone is no error");
        assert_eq!(watcher.next_call().unwrap(), None, "no process is left");
    }
}
