//! Huge pages reserved in a file that a client has, by a process of its own: [`Reserver`].
//!
//! hugetlbfs reserves in `mmap` alone, which waits for the file's lock while it holds the lock of its process' whole
//! address space. A client can hold its file's lock for long. In the daemon all threads would wait with it, as soon as
//! one of them needs memory; here it is a process that does nothing else, and the thread that asked it.

use crate::os::{background, memory_file};
use crate::protocol::packet;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// Bytes of a request: where the range begins, and its bytes; of an answer: the number of an error, or 0.
const REQUEST_BYTES: usize = 16;
const ANSWER_BYTES: usize = 4;

/// Reserves huge pages in files of clients; see the [module](self).
#[derive(Debug, Default)]
pub struct Reserver {
    command: Vec<OsString>,
    helper: Mutex<Option<Helper>>,
}

/// The process, which ends when this is dropped.
#[derive(Debug)]
struct Helper {
    socket: OwnedFd,
    process: Child,
}

impl Reserver {
    /// By the process of this command, which calls [`serve`] with its standard input; it starts with the first
    /// reservation. Without a command by this process, for files that no client has.
    #[must_use]
    pub fn by(command: &[OsString]) -> Self {
        Self {
            command: command.to_vec(),
            helper: Mutex::default(),
        }
    }

    /// [`memory_file::reserve`].
    ///
    /// # Errors
    /// As there; the process does not start, or ended: the next call starts another.
    pub fn reserve(&self, file: impl AsFd, start: u64, bytes: u64) -> io::Result<()> {
        let Some((program, arguments)) = self.command.split_first() else {
            return memory_file::reserve(file, start, bytes);
        };
        let mut helper = self.helper.lock().unwrap_or_else(PoisonError::into_inner);
        let running = match helper.take() {
            Some(running) => running,
            None => Helper::start(program, arguments)?,
        };
        let answer = running.ask(file, start, bytes)?;
        *helper = Some(running);
        match answer {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }

    /// The process' number, once there is one.
    #[cfg(test)]
    fn process(&self) -> Option<u32> {
        let helper = self.helper.try_lock().ok()?;
        Some(helper.as_ref()?.process.id())
    }
}

impl Helper {
    fn start(program: &OsString, arguments: &[OsString]) -> io::Result<Self> {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (socket, theirs) = socketpair(family, kind, SocketFlags::CLOEXEC, None)?;
        let process = Command::new(program)
            .args(arguments)
            .current_dir("/")
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self { socket, process })
    }

    /// The number of the error, or 0.
    fn ask(&self, file: impl AsFd, start: u64, bytes: u64) -> io::Result<i32> {
        let mut request = [0; REQUEST_BYTES];
        let (first, second) = request.split_at_mut(REQUEST_BYTES / 2);
        first.copy_from_slice(&start.to_ne_bytes());
        second.copy_from_slice(&bytes.to_ne_bytes());
        packet::send(&self.socket, &request, &[file.as_fd()])?;
        let answer = packet::receive_bare(&self.socket, ANSWER_BYTES);
        let answer = answer.ok().and_then(|answer| answer.try_into().ok());
        let ended = || io::Error::other("the process that reserves huge pages ended");
        answer.map(i32::from_ne_bytes).ok_or_else(ended)
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // It may wait for a client's lock: nothing here waits for it.
        let _ = self.process.kill();
        let _ = self.process.try_wait();
    }
}

/// Reserves what comes over `socket`, until its other end is closed: what the process of a [`Reserver`] does.
///
/// # Errors
/// A request that is none.
pub fn serve(socket: impl AsFd) -> io::Result<()> {
    // It may have been started by a thread that keeps out of the way; this one has a client's lock.
    let _ = background::run_as_usual();
    let _ = background::run_nicely(0);
    loop {
        let request = match packet::receive(&socket, REQUEST_BYTES, 1) {
            Ok(request) => request,
            Err(packet::PacketError::Closed) => return Ok(()),
            Err(error) => return Err(io::Error::other(error.to_string())),
        };
        let number = |at: usize| {
            let bytes = request.message.get(at..at + REQUEST_BYTES / 2)?;
            Some(u64::from_ne_bytes(bytes.try_into().ok()?))
        };
        let (Some(start), Some(bytes), Some(file)) = (
            number(0),
            number(REQUEST_BYTES / 2),
            request.descriptors.first(),
        ) else {
            return Err(io::Error::other("expected a range and a file"));
        };
        let answer = match memory_file::reserve(file, start, bytes) {
            Ok(()) => 0,
            Err(error) => error.raw_os_error().unwrap_or(libc::EIO),
        };
        packet::send(&socket, &answer.to_ne_bytes(), &[])?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::hugepages::SetAside;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    const PAGE: u64 = 2 << 20;
    /// Pages that are zeroed by one call, which has the file's lock meanwhile.
    const PAGES: u64 = 64;

    /// Says that the test's program is the process, which this test then is.
    const HELPER: &str = "FIRSTLIGHT_TEST_RESERVES";

    fn by_this_program() -> Reserver {
        let this = std::env::current_exe().unwrap().into_os_string();
        let test = "fill::reserver::tests::the_process_of_the_others";
        let env = format!("{HELPER}=1");
        let command = ["env", &env].map(OsString::from).into_iter();
        let arguments = ["--exact", test, "--nocapture", "--test-threads=1"].map(OsString::from);
        Reserver::by(&command.chain([this]).chain(arguments).collect::<Vec<_>>())
    }

    /// No test but where another starts it as its process.
    #[test]
    fn the_process_of_the_others() {
        if std::env::var_os(HELPER).is_some() {
            serve(io::stdin()).unwrap();
        }
    }

    fn pages(pages: u64) -> Option<SetAside> {
        SetAside::new(PAGE, pages)
            .inspect_err(|error| crate::os::need::skip("hugepages", error))
            .ok()
    }

    /// Whether one of its threads has something to do: it waits for a lock, or turns round for it.
    fn is_at_it(process: u32) -> bool {
        let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
        let stats = threads
            .flatten()
            .filter_map(|thread| std::fs::read_to_string(thread.path().join("stat")).ok());
        let mut states = stats.filter_map(|stat| stat.rsplit(") ").next()?.chars().next());
        states.any(|state| matches!(state, 'D' | 'R'))
    }

    #[test]
    fn it_reserves_or_says_what_the_kernel_said() {
        let Some(_pages) = pages(4) else {
            return;
        };
        let file = memory_file::unnamed(c"test", Some(PAGE)).unwrap();
        memory_file::set_length(&file, 4 * PAGE).unwrap();
        let reserver = by_this_program();
        reserver.reserve(&file, 0, 2 * PAGE).unwrap();
        let process = reserver.process();
        let error = reserver.reserve(&file, 0, 1 << 40).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{error}");
        assert_eq!(reserver.process(), process);
        // Another one, once it has ended.
        let pid = rustix::process::Pid::from_raw(process.unwrap().cast_signed()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        reserver.reserve(&file, 0, PAGE).unwrap_err();
        reserver.reserve(&file, 0, PAGE).unwrap();
        assert_ne!(reserver.process(), process);
    }

    /// While another holds the lock of the file, and the process waits for it, this one maps memory.
    #[test]
    fn a_file_that_is_locked_keeps_no_other_thread_from_mapping_memory() {
        let Some(_pages) = pages(PAGES) else {
            return;
        };
        let reserver = by_this_program();
        let small = memory_file::unnamed(c"test", Some(PAGE)).unwrap();
        memory_file::set_length(&small, PAGE).unwrap();
        reserver.reserve(&small, 0, PAGE).unwrap();
        memory_file::set_length(&small, 0).unwrap();
        let process = reserver.process().unwrap();
        let file = memory_file::unnamed(c"test", Some(PAGE)).unwrap();
        // The lock is held for as long as pages are zeroed: in some round all is seen before it is let go.
        let seen = (0..100).any(|_| {
            memory_file::set_length(&file, 0).unwrap();
            memory_file::set_length(&file, PAGES * PAGE).unwrap();
            let (is_held, mut seen) = (AtomicBool::new(true), false);
            thread::scope(|scope| {
                scope.spawn(|| {
                    memory_file::allocate(&file, 0, PAGES * PAGE).unwrap();
                    is_held.store(false, Ordering::Release);
                });
                // Not before the other has the lock.
                while memory_file::held_bytes(&file).unwrap() == 0 {
                    thread::yield_now();
                }
                scope.spawn(|| reserver.reserve(&file, 0, PAGE).unwrap());
                while is_held.load(Ordering::Acquire) {
                    if is_at_it(process) {
                        let memory = Vec::<u8>::with_capacity(64 << 20);
                        std::hint::black_box(memory.as_ptr());
                        seen |= is_held.load(Ordering::Acquire);
                        break;
                    }
                }
            });
            seen
        });
        assert!(seen, "memory was mapped only once the lock was let go");
    }
}
