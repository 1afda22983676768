//! A daemon for tests: it speaks the real protocol, allocates real memory files and
//! keeps nothing ready. Each take is one new file.

#![allow(
    clippy::allow_attributes,
    dead_code,
    reason = "each test file uses some of these"
)]

use firstlight_pool::os::memory_file;
use firstlight_pool::protocol::{
    Lease, LeaseId, MOST_REQUEST_BYTES, PageSize, Refusal, RefusalCode, Reply, Request, Take,
    packet,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, socket_with,
};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;

const HUGE: u64 = 2 << 20;

/// A file allocated, and the end of the pipe that closes with its last copy.
pub(crate) struct Provided {
    pub(crate) take: Take,
    pub(crate) file: OwnedFd,
    lease_pipe: OwnedFd,
}

impl Provided {
    /// Whether the lease has ended, after at most `seconds`.
    pub(crate) fn ended_within(&self, seconds: i64) -> bool {
        let mut polled = [PollFd::new(&self.lease_pipe, PollFlags::IN)];
        let timeout = Timespec {
            tv_sec: seconds,
            tv_nsec: 0,
        };
        poll(&mut polled, Some(&timeout)).expect("it can be waited for");
        polled[0].revents().contains(PollFlags::HUP)
    }

    /// Bytes of it in the mappings that `/proc/PID/maps` lists.
    pub(crate) fn mapped_bytes(&self, maps: &str) -> u64 {
        let inode = rustix::fs::fstat(&self.file)
            .expect("the file is ours")
            .st_ino;
        let bytes = |line: &str| {
            let mut words = line.split_whitespace();
            let (start, end) = words.next()?.split_once('-')?;
            let ours = words.nth(3)?.parse() == Ok(inode);
            let address = |text| u64::from_str_radix(text, 16).ok();
            ours.then_some(address(end)? - address(start)?)
        };
        maps.lines().filter_map(bytes).sum()
    }

    /// Bytes that were touched, or that were there from the beginning.
    pub(crate) fn held_bytes(&self) -> u64 {
        memory_file::held_bytes(&self.file).expect("the file is ours")
    }
}

/// The daemon.
pub(crate) struct StandIn {
    folder: tempfile::TempDir,
    allocated: Arc<Mutex<Vec<Provided>>>,
}

impl StandIn {
    /// Allocates files of this kind until `slabs` are allocated, each `extra` bytes
    /// larger than asked for.
    pub(crate) fn new(page: PageSize, slabs: usize, extra: u64) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let daemon = Self {
            folder,
            allocated: Arc::default(),
        };
        let address = SocketAddrUnix::new(daemon.socket()).expect("a short name");
        let kind = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let socket = socket_with(kind.0, kind.1, SocketFlags::CLOEXEC, None).expect("a socket");
        bind(&socket, &address).expect("a free name");
        listen(&socket, 8).expect("it listens");
        let allocated = Arc::clone(&daemon.allocated);
        thread::spawn(move || {
            while let Ok(connection) = accept_with(&socket, SocketFlags::CLOEXEC) {
                while let Ok(packet) = packet::receive(&connection, MOST_REQUEST_BYTES, 0) {
                    let request = Request::decode(&packet.message).expect("a request");
                    answer(&connection, request, &allocated, (page, slabs, extra));
                }
            }
        });
        daemon
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("pool.sock")
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// All that was allocated, in order.
    pub(crate) fn allocated(&self) -> Vec<Provided> {
        std::mem::take(&mut self.allocated.lock().expect("no panic while locked"))
    }
}

fn answer(
    connection: &OwnedFd,
    request: Request,
    allocated: &Mutex<Vec<Provided>>,
    (page, slabs, extra): (PageSize, usize, u64),
) {
    let mut allocated = allocated.lock().expect("no panic while locked");
    let take = match request {
        Request::Take(take) if allocated.len() < slabs => take,
        Request::Give(_) => {
            let message = Reply::Give.encode().expect("small");
            return packet::send(connection, &message, &[]).expect("the client listens");
        }
        _ => {
            let refusal = Refusal::new(RefusalCode::Empty, "nothing is ready");
            let message = Reply::Refused(refusal).encode().expect("small");
            return packet::send(connection, &message, &[]).expect("the client listens");
        }
    };
    let bytes = take.bytes.next_multiple_of(HUGE) + extra;
    let huge = (page == PageSize::Huge).then_some(HUGE);
    let file = memory_file::unnamed(c"slab", huge).expect("a file");
    memory_file::set_length(&file, bytes).expect("a size");
    if huge.is_some() {
        memory_file::allocate(&file, 0, bytes).expect("huge pages were set aside");
    }
    let (lease_pipe, theirs) = std::io::pipe().expect("a pipe");
    let lease = Lease {
        lease: LeaseId::new(format!("test-{}", allocated.len())).expect("a name"),
        bytes,
        page,
        node: take.node,
        align_bytes: HUGE,
        topped_up_bytes: 0,
    };
    let message = Reply::Take(lease).encode().expect("small");
    let memory = memory_file::reopen(&file).expect("/proc is there");
    packet::send(connection, &message, &[memory.as_fd(), theirs.as_fd()]).expect("they listen");
    allocated.push(Provided {
        take,
        file,
        lease_pipe: lease_pipe.into(),
    });
}
