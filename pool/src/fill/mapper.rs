//! Files that a client has, mapped in a process of its own: [`Mapper`].
//!
//! Some of what refilling a guest needs is done by mapping alone: hugetlbfs reserves in `mmap`, tmpfs has pages touched.
//! That waits for locks of the file while it holds the lock of a whole address space, and a client can hold these for
//! long. In the daemon all threads would wait with it, as soon as one of them needs memory; here it is a process that
//! does nothing else, and the thread that asked it.
//!
//! A huge page is promised to a file a moment before one who touches it there may have it: were there no other page
//! free just then, a guest that touches this one would be killed (`SIGBUS`). So the last free page of the machine is left
//! alone: it is counted here, before the file's lock is waited for.

use super::Policy;
use crate::os::hugepages::{KeptCounts, SYS};
use crate::os::{background, inherited, memory_file};
use crate::protocol::{PageSize, packet};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes of a number in a request: what is to be done, where the range begins, and its bytes.
const NUMBER_BYTES: usize = 8;
const REQUEST_BYTES: usize = 3 * NUMBER_BYTES;
/// Bytes of an answer: the number of an error, or 0.
const ANSWER_BYTES: usize = 4;
/// Huge pages that are free before one is reserved, at least.
const LEAST_PAGES: u64 = 2;

/// The kernel's counts of huge pages of 2 MiB and 1 GiB, where it has such.
#[derive(Debug)]
struct HugePages([io::Result<Option<KeptCounts>>; 2]);

impl HugePages {
    const SIZES: [PageSize; 2] = [PageSize::Huge, PageSize::Giant];

    fn open() -> Self {
        Self::open_in(Path::new(SYS))
    }

    fn open_in(sys: &Path) -> Self {
        let counts = |page: PageSize| KeptCounts::open(sys, page.bytes(), None);
        Self(Self::SIZES.map(counts))
    }

    /// Reserves the page of a file at `start`, unless fewer than [`LEAST_PAGES`] are free.
    fn reserve(&self, file: impl AsFd, start: u64, page_bytes: u64) -> io::Result<()> {
        let mut sizes = Self::SIZES.iter().zip(&self.0);
        let of_size = sizes.find(|(size, _)| size.bytes() == page_bytes);
        match of_size.map(|(_, counts)| counts) {
            Some(Err(error)) => return Err(io::Error::new(error.kind(), error.to_string())),
            Some(Ok(Some(counts))) if counts.counts()?.available_pages() < LEAST_PAGES => {
                return Err(io::Error::from_raw_os_error(libc::ENOSPC));
            }
            _ => {}
        }
        memory_file::reserve(file, start, page_bytes)
    }
}

/// What is done to a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    /// [`HugePages::reserve`].
    Reserve = 1,
    /// [`memory_file::populate`].
    Populate = 2,
}

impl Operation {
    const ALL: [Self; 2] = [Self::Reserve, Self::Populate];

    fn run(self, pages: &HugePages, file: impl AsFd, start: u64, bytes: u64) -> io::Result<()> {
        match self {
            Self::Reserve => pages.reserve(file, start, bytes),
            Self::Populate => memory_file::populate(file, start, super::batches::length(bytes)?),
        }
    }
}

/// Maps files of clients; see the [module](self).
#[derive(Debug, Default)]
pub struct Mapper {
    command: Vec<OsString>,
    helpers: Mutex<Helpers>,
}

/// The process, and those before it.
#[derive(Debug, Default)]
struct Helpers {
    running: Option<Helper>,
    /// Killed. One may wait for a client's lock: nothing here waits for it.
    ended: Vec<Child>,
}

#[derive(Debug)]
struct Helper {
    socket: OwnedFd,
    process: Child,
}

impl Mapper {
    /// By the process of this command, which calls [`serve`] with its standard input, and with its options as a policy: of
    /// this one it gets `--node`, `--cpus` and `--nice`. Without a command by this process, for files that no client has.
    #[must_use]
    pub fn by(command: &[OsString], policy: &Policy) -> Self {
        let mut command = command.to_vec();
        if !command.is_empty() {
            let nodes = policy.node.iter().map(|node| ("--node", node.to_string()));
            let cpus = policy.cpus.iter().map(|cpu| ("--cpus", cpu.to_string()));
            let nice = policy.nice.iter().map(|nice| ("--nice", nice.to_string()));
            let options = nodes.chain(cpus).chain(nice);
            command.extend(options.flat_map(|(name, value)| [name.into(), value.into()]));
        }
        Self {
            command,
            helpers: Mutex::default(),
        }
    }

    /// Starts the process, before there are clients whose descriptors it would have until it runs.
    ///
    /// # Errors
    /// It does not start; the first that needs it tries again.
    pub fn start(&self) -> io::Result<()> {
        let mut helpers = self.lock();
        if helpers.running.is_none()
            && let Some((program, arguments)) = self.command.split_first()
        {
            helpers.running = Some(Helper::start(program, arguments)?);
        }
        Ok(())
    }

    /// [Reserves](memory_file::reserve) the huge page of a file at `start`, if it is not the last one that is free.
    ///
    /// # Errors
    /// `StorageFull` where no other page is free; as there; the process does not start, or ended twice.
    pub fn reserve(&self, file: impl AsFd, start: u64, page_bytes: u64) -> io::Result<()> {
        self.run(Operation::Reserve, file, start, page_bytes)
    }

    /// [`memory_file::populate`].
    ///
    /// # Errors
    /// As [`Mapper::reserve`].
    pub fn populate(&self, file: impl AsFd, start: u64, bytes: u64) -> io::Result<()> {
        self.run(Operation::Populate, file, start, bytes)
    }

    fn run(&self, operation: Operation, file: impl AsFd, start: u64, bytes: u64) -> io::Result<()> {
        let Some((program, arguments)) = self.command.split_first() else {
            return operation.run(&HugePages::open(), file, start, bytes);
        };
        let mut helpers = self.lock();
        helpers.forget_ended();
        let answer = match &helpers.running {
            Some(running) => running.ask(operation, &file, start, bytes),
            None => Err(io::ErrorKind::NotConnected.into()),
        };
        let answer = answer.or_else(|_| {
            helpers.end();
            let running = helpers.running.insert(Helper::start(program, arguments)?);
            let answer = running.ask(operation, &file, start, bytes);
            answer.inspect_err(|_| helpers.end())
        })?;
        match answer {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Helpers> {
        self.helpers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The process' number, once there is one.
    #[cfg(test)]
    fn process(&self) -> Option<u32> {
        let helpers = self.helpers.try_lock().ok()?;
        Some(helpers.running.as_ref()?.process.id())
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
    fn ask(
        &self,
        operation: Operation,
        file: impl AsFd,
        start: u64,
        bytes: u64,
    ) -> io::Result<i32> {
        let numbers = [operation as u64, start, bytes].map(u64::to_ne_bytes);
        packet::send(&self.socket, numbers.as_flattened(), &[file.as_fd()])?;
        let answer = packet::receive_bare(&self.socket, ANSWER_BYTES);
        let answer = answer.ok().and_then(|answer| answer.try_into().ok());
        let ended = || io::Error::other("the process that maps files ended");
        answer.map(i32::from_ne_bytes).ok_or_else(ended)
    }
}

impl Helpers {
    fn end(&mut self) {
        if let Some(mut helper) = self.running.take() {
            let _ = helper.process.kill();
            self.ended.push(helper.process);
        }
    }

    fn forget_ended(&mut self) {
        let is_there = |process: &mut Child| matches!(process.try_wait(), Ok(None));
        self.ended.retain_mut(is_there);
    }
}

impl Drop for Helpers {
    fn drop(&mut self) {
        self.end();
        self.forget_ended();
    }
}

/// Does what comes over `socket`, until its other end is closed, with memory and on CPUs as `policy` says: what the process
/// of a [`Mapper`] does.
///
/// # Errors
/// A request that is none.
pub fn serve(socket: impl AsFd, policy: &Policy) -> io::Result<()> {
    // What the daemon's parent left open.
    inherited::close_all_but_standard();
    // It may have been started by a thread that keeps out of the way; this one has a client's locks.
    let _ = background::run_as_usual();
    let _ = background::run_nicely(policy.nice.unwrap_or(0));
    super::stay_near(policy);
    super::take_memory(policy.node)?;
    let pages = HugePages::open();
    // Once it is set up.
    let _ = rustix::thread::set_name(c"mapper");
    answer(socket, &pages)
}

/// Does what comes over `socket`, until its other end is closed.
fn answer(socket: impl AsFd, pages: &HugePages) -> io::Result<()> {
    loop {
        let request = match packet::receive(&socket, REQUEST_BYTES, 1) {
            Ok(request) => request,
            Err(packet::PacketError::Closed) => return Ok(()),
            Err(error) => return Err(io::Error::other(error.to_string())),
        };
        let (numbers, rest) = request.message.as_chunks::<NUMBER_BYTES>();
        let (&[operation, start, bytes], []) = (numbers, rest) else {
            return Err(io::Error::other(
                "expected what to do, a start and a number of bytes",
            ));
        };
        let [operation, start, bytes] = [operation, start, bytes].map(u64::from_ne_bytes);
        let mut known = Operation::ALL.into_iter();
        let operation = known.find(|known| *known as u64 == operation);
        let (Some(operation), Some(file)) = (operation, request.descriptors.first()) else {
            return Err(io::Error::other("expected a file and what to do with it"));
        };
        let answer = match operation.run(pages, file, start, bytes) {
            Ok(()) => 0,
            Err(error) => error.raw_os_error().unwrap_or(libc::EIO),
        };
        // Closed before it is said to be done.
        drop(request);
        packet::send(&socket, &answer.to_ne_bytes(), &[])?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::hugepages::{self, SetAside};
    use std::os::fd::BorrowedFd;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    const PAGE: u64 = 2 << 20;
    /// Pages that are zeroed by one call, which has the file's lock meanwhile.
    const PAGES: u64 = 64;

    /// Says that the test's program is the process, which this test then is.
    const HELPER: &str = "FIRSTLIGHT_TEST_RESERVES";

    fn by_this_program() -> Mapper {
        let this = std::env::current_exe().unwrap().into_os_string();
        let test = "fill::mapper::tests::the_process_of_the_others";
        let env = format!("{HELPER}=1");
        let command = ["env", &env].map(OsString::from).into_iter();
        let arguments = ["--exact", test, "--nocapture", "--test-threads=1"].map(OsString::from);
        let command: Vec<_> = command.chain([this]).chain(arguments).collect();
        Mapper::by(&command, &Policy::default())
    }

    /// No test but where another starts it as its process.
    #[test]
    fn the_process_of_the_others() {
        if std::env::var_os(HELPER).is_some() {
            serve(io::stdin(), &Policy::default()).unwrap();
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
        let mapper = by_this_program();
        mapper.reserve(&file, 0, PAGE).unwrap();
        let process = mapper.process();
        // Where others have all but one, that one is left.
        let other = memory_file::unnamed(c"other", Some(PAGE)).unwrap();
        let seen = hugepages::counts(Path::new(SYS), PAGE, None).unwrap();
        let others = (seen.unwrap().available_pages() - 1) * PAGE;
        memory_file::allocate(&other, 0, others).unwrap();
        let error = mapper.reserve(&file, PAGE, PAGE).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{error}");
        let seen = hugepages::counts(Path::new(SYS), PAGE, None).unwrap();
        assert_eq!(seen.unwrap().available_pages(), 1);
        drop(other);
        let error = mapper.reserve(&file, 0, 1 << 40).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{error}");
        assert_eq!(mapper.process(), process);
        // Another one, once it has ended.
        let pid = rustix::process::Pid::from_raw(process.unwrap().cast_signed()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        mapper.reserve(&file, 0, PAGE).unwrap();
        assert_ne!(mapper.process(), process);
        // Of the one that ended nothing is left.
        let folder = format!("/proc/{}", process.unwrap());
        while std::fs::exists(&folder).unwrap() {
            mapper.reserve(&file, 0, PAGE).unwrap();
        }
    }

    #[test]
    fn what_is_no_request_ends_it() {
        let file = memory_file::unnamed(c"test", None).unwrap();
        memory_file::set_length(&file, 8192).unwrap();
        let request = |operation: u64, start: u64, bytes: u64| {
            let numbers = [operation, start, bytes].map(u64::to_ne_bytes);
            numbers.as_flattened().to_vec()
        };
        // What is answered to one request, and what comes of the process.
        let said = |message: &[u8], files: &[BorrowedFd<'_>]| {
            let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
            let (ours, theirs) = socketpair(family, kind, SocketFlags::CLOEXEC, None).unwrap();
            packet::send(&ours, message, files).unwrap();
            rustix::net::shutdown(&ours, rustix::net::Shutdown::Write).unwrap();
            let ended = answer(theirs, &HugePages::open()).map_err(|error| error.to_string());
            let answer = packet::receive_bare(&ours, ANSWER_BYTES).ok();
            let number = |answer: Vec<u8>| i32::from_ne_bytes(answer.try_into().unwrap());
            (answer.map(number), ended)
        };
        let one = [file.as_fd()];
        assert_eq!(said(&request(2, 0, 4096), &one), (Some(0), Ok(())));
        // Ranges that are none are the kernel's to refuse.
        for (start, bytes) in [(1, 4096), (0, 0), (0, u64::MAX), (!4095, 4096)] {
            let (answer, ended) = said(&request(2, start, bytes), &one);
            assert!(
                answer.is_some_and(|answer| answer > 0),
                "{start:#x}, {bytes:#x}: {answer:?}"
            );
            assert_eq!(ended, Ok(()));
        }
        for message in [&[1][..], &request(2, 0, 4096)[..23], &[0; 16]] {
            let (answer, ended) = said(message, &one);
            assert!(answer.is_none() && ended.unwrap_err().contains("expected what to do"));
        }
        for operation in [0, 3, u64::MAX] {
            let (answer, ended) = said(&request(operation, 0, 4096), &one);
            assert!(answer.is_none() && ended.unwrap_err().contains("expected a file"));
        }
        let (answer, ended) = said(&request(2, 0, 4096), &[]);
        assert!(answer.is_none() && ended.unwrap_err().contains("expected a file"));
        let (answer, ended) = said(&request(2, 0, 4096), &[file.as_fd(), file.as_fd()]);
        assert!(answer.is_none() && ended.is_err());
        let (answer, ended) = said(&[0; REQUEST_BYTES + 1], &one);
        assert!(answer.is_none() && ended.is_err());
    }

    /// The last free page might be the one that it takes.
    #[test]
    fn nothing_is_reserved_where_free_pages_cannot_be_counted() {
        let sys = tempfile::tempdir().unwrap();
        let folder = hugepages::setting(sys.path(), PAGE, None);
        let folder = folder.parent().unwrap();
        std::fs::create_dir_all(folder).unwrap();
        let file = memory_file::unnamed(c"test", None).unwrap();
        let kind = || {
            let pages = HugePages::open_in(sys.path());
            pages.reserve(&file, 0, PAGE).unwrap_err().kind()
        };
        assert_eq!(kind(), io::ErrorKind::NotFound);
        std::fs::write(folder.join("nr_hugepages"), "8\n").unwrap();
        std::fs::write(folder.join("free_hugepages"), "many\n").unwrap();
        assert_eq!(kind(), io::ErrorKind::InvalidData);
        std::fs::write(folder.join("free_hugepages"), "1\n").unwrap();
        assert_eq!(kind(), io::ErrorKind::StorageFull);
    }

    #[test]
    fn it_touches_pages_that_are_not_there() {
        let file = memory_file::unnamed(c"test", None).unwrap();
        memory_file::set_length(&file, 1 << 20).unwrap();
        let mapper = by_this_program();
        mapper.start().unwrap();
        let process = mapper.process();
        mapper.populate(&file, 4096, 8192).unwrap();
        assert_eq!(mapper.process(), process);
        assert!(memory_file::held_bytes(&file).unwrap() >= 8192);
        assert!(!memory_file::has_hole(&file, 4096, 8192).unwrap());
    }

    /// While another holds the lock of the file, and the process waits for it, this one maps memory.
    #[test]
    fn a_file_that_is_locked_keeps_no_other_thread_from_mapping_memory() {
        let Some(_pages) = pages(PAGES) else {
            return;
        };
        let mapper = by_this_program();
        let small = memory_file::unnamed(c"test", Some(PAGE)).unwrap();
        memory_file::set_length(&small, PAGE).unwrap();
        mapper.reserve(&small, 0, PAGE).unwrap();
        memory_file::set_length(&small, 0).unwrap();
        let process = mapper.process().unwrap();
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
                scope.spawn(|| mapper.reserve(&file, 0, PAGE).unwrap());
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
