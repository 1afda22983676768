//! A client in a process of its own, which fills its memory with a pattern and
//! then leaves in one of several ways, some of them rude.
//!
//! The process is this test's program again, told by variables to play the
//! tenant. It says `tenant: ...` on its output and pokes at whatever it kept
//! when a line comes in.

use super::kit::{M, mapped, take};
use firstlight_pool::client::{Allocated, Client};
use firstlight_pool::os::mapping::Mapping;
use firstlight_pool::os::memory_file;
use io_uring::{IoUring, opcode, types};
use rustix::mm::{MapFlags, ProtFlags};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

/// Bytes a tenant takes.
pub(crate) const BYTES: u64 = 4 * M;

/// What it fills them with.
const PATTERN: u8 = 0xa5;

/// How it leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// It ends.
    Exit,
    /// It is killed.
    Killed,
    /// It lets go of all but a mapping, and goes on writing to it.
    Mapping,
    /// It lets go of all but a descriptor, and maps, enlarges, fills it again.
    Descriptor,
    /// It lets go of all but pages pinned for transfers, and transfers into them.
    Pin,
    /// Likewise, after it has reserved as much behind its memory's end.
    PinAndReserve,
}

impl Way {
    pub(crate) const ALL: [Self; 6] = [
        Self::Exit,
        Self::Killed,
        Self::Mapping,
        Self::Descriptor,
        Self::Pin,
        Self::PinAndReserve,
    ];
}

/// A tenant that has filled its memory and, if it keeps something, keeps it.
pub(crate) struct Tenant {
    child: Child,
    input: ChildStdin,
}

impl Tenant {
    /// One that is connected to `socket`; `give` says whether it tells the
    /// daemon that it is done. `None` where it died on the way, as with a daemon
    /// that was killed.
    pub(crate) fn start(socket: &Path, way: Way, give: bool) -> Option<Self> {
        Self::start_as(socket, way, give, None)
    }

    /// One as [`Self::start`] makes, of another user if root starts it.
    pub(crate) fn start_as(socket: &Path, way: Way, give: bool, uid: Option<u32>) -> Option<Self> {
        let uid = uid.map_or(String::new(), |uid| uid.to_string());
        let mut child = Command::new(std::env::current_exe().unwrap())
            .env("FIRSTLIGHT_TENANT_UID", uid)
            .args(["pool_serve::tenant::play", "--exact", "--nocapture"])
            .env("FIRSTLIGHT_TENANT", format!("{way:?}"))
            .env("FIRSTLIGHT_TENANT_GIVES", if give { "1" } else { "0" })
            .env("FIRSTLIGHT_POOL", socket)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let told = output
            .lines()
            .any(|line| line.is_ok_and(|line| line.contains("tenant: done")));
        let mut tenant = Self { child, input };
        if way == Way::Exit {
            tenant.child.wait().unwrap();
        }
        told.then_some(tenant)
    }

    /// Makes it use what it kept. A tenant that dies of it is none the worse.
    pub(crate) fn poke(&mut self) {
        let _ = self.input.write_all(b"poke\n");
    }
}

impl Drop for Tenant {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn play() {
    let Ok(way) = std::env::var("FIRSTLIGHT_TENANT") else {
        return;
    };
    let way = *Way::ALL
        .iter()
        .find(|known| format!("{known:?}") == way)
        .unwrap();
    let socket = PathBuf::from(std::env::var_os("FIRSTLIGHT_POOL").unwrap());
    if let Ok(uid) = std::env::var("FIRSTLIGHT_TENANT_UID").unwrap().parse() {
        // SAFETY: it changes this process's user, and no memory.
        assert_eq!(unsafe { libc::setuid(uid) }, 0);
    }
    let gives = std::env::var("FIRSTLIGHT_TENANT_GIVES").unwrap() == "1";
    let mut pool = Client::connect(&socket).unwrap();
    let Ok(allocated) = pool.take(take(BYTES)) else {
        return;
    };
    let mut memory = mapped(&allocated.memory, BYTES);
    assert_eq!(memory.first_nonzero(), None, "another client's bytes");
    memory.write(0, &vec![PATTERN; usize::try_from(BYTES).unwrap()]);
    match way {
        Way::Exit => {
            println!("tenant: done");
            std::process::exit(0);
        }
        Way::Killed => {
            println!("tenant: done");
            wait();
        }
        Way::Mapping => {
            leave(pool, allocated, gives);
            println!("tenant: done");
            while wait() {
                memory.write(0, &vec![PATTERN; usize::try_from(BYTES).unwrap()]);
            }
        }
        Way::Descriptor => {
            drop(memory);
            let kept = allocated.memory.try_clone().unwrap();
            leave(pool, allocated, gives);
            println!("tenant: done");
            while wait() {
                reuse(&kept);
            }
        }
        Way::Pin | Way::PinAndReserve => {
            drop(memory);
            if way == Way::PinAndReserve {
                reserve_behind(&allocated.memory);
            }
            let mut pin = Pin::new(&allocated.memory);
            leave(pool, allocated, gives);
            println!("tenant: done");
            while wait() {
                pin.transfer();
            }
        }
    }
}

/// Lets go of descriptor and lease pipe.
fn leave(mut pool: Client, allocated: Allocated, gives: bool) {
    if gives {
        let _ = pool.give(allocated.lease.lease.clone());
    }
    drop(allocated);
}

/// The next poke; `false` when there are no more.
fn wait() -> bool {
    let mut line = String::new();
    std::io::stdin()
        .read_line(&mut line)
        .is_ok_and(|bytes| bytes > 0)
}

/// Everything a descriptor is good for.
fn reuse(kept: &OwnedFd) {
    let _ = memory_file::set_length(kept, BYTES);
    let _ = memory_file::allocate(kept, 0, BYTES);
    if let Ok(mut mapping) = Mapping::new(kept, 0, usize::try_from(BYTES).unwrap())
        && mapping.populate().is_ok()
    {
        mapping.write(0, &[PATTERN; 4096]);
    }
}

/// Reserves a huge page behind the end of a file of a mount: for reading, so that the file becomes no longer.
fn reserve_behind(memory: &OwnedFd) {
    let bytes = usize::try_from(2 * M).unwrap();
    let (access, shared) = (ProtFlags::READ, MapFlags::SHARED);
    // SAFETY: a mapping at an address of the kernel's choice, of which nothing is read.
    unsafe {
        let at =
            rustix::mm::mmap(std::ptr::null_mut(), bytes, access, shared, memory, BYTES).unwrap();
        rustix::mm::munmap(at, bytes).unwrap();
    }
}

/// Pages pinned by an I/O ring, without mapping or descriptor.
struct Pin {
    ring: IoUring,
    address: usize,
    source: File,
}

impl Pin {
    fn new(memory: &OwnedFd) -> Self {
        let mut source = tempfile::tempfile().unwrap();
        source
            .write_all(&vec![PATTERN; usize::try_from(M).unwrap()])
            .unwrap();
        let ring = IoUring::new(4).unwrap();
        let bytes = usize::try_from(2 * M).unwrap();
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a mapping at an address of the kernel's choice.
        let address = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                bytes,
                access,
                MapFlags::SHARED,
                memory,
                0,
            )
        }
        .unwrap();
        let buffer = libc::iovec {
            iov_base: address,
            iov_len: bytes,
        };
        // SAFETY: the buffer is the mapping; only the kernel uses it, and it
        // holds the pages itself from here on.
        unsafe { ring.submitter().register_buffers(&[buffer]) }.unwrap();
        // SAFETY: exactly the mapping made above, which nothing refers to.
        unsafe { rustix::mm::munmap(address, bytes) }.unwrap();
        Self {
            ring,
            address: address as usize,
            source,
        }
    }

    /// Lets the kernel write the pattern into the pinned pages.
    fn transfer(&mut self) {
        let bytes = u32::try_from(M).unwrap();
        let source = types::Fd(self.source.as_raw_fd());
        let read = opcode::ReadFixed::new(source, self.address as *mut u8, bytes, 0).build();
        // SAFETY: the kernel writes into pages it pinned itself, not through
        // this process' address space.
        unsafe { self.ring.submission().push(&read) }.unwrap();
        self.ring.submit_and_wait(1).unwrap();
        let done = self.ring.completion().next().unwrap();
        assert_eq!(done.result(), i32::try_from(M).unwrap(), "the pin works");
    }
}
