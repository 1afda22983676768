//! A lease pipe whose lock a process holds for as long as it likes: what reads, opens or closes the
//! pipe waits for that process, and the daemon's serving thread does none of these.

use super::kit::{Daemon, is_root, take, until};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::mm::{MapFlags, ProtFlags, UserfaultfdFlags, mmap_anonymous, userfaultfd};
use std::os::fd::{AsRawFd, OwnedFd};
use std::thread::{self, JoinHandle};
use std::time::Duration;

const PAGE: usize = 4096;
/// `UFFDIO_API` and `UFFDIO_REGISTER` of `linux/userfaultfd.h`, on 64 bits.
const API: libc::c_ulong = 0xc018_aa3f;
const REGISTER: libc::c_ulong = 0xc020_aa00;
const API_VERSION: u64 = 0xaa;
const MODE_MISSING: u64 = 1;

/// A writer to a pipe, which holds its lock until `memory` is closed.
struct Held {
    memory: Option<OwnedFd>,
    writer: Option<JoinHandle<()>>,
}

impl Held {
    fn new(pipe: OwnedFd) -> Self {
        // SAFETY: whoever touches memory that is registered below waits; nobody but the writer does.
        let memory = unsafe { userfaultfd(UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::NONBLOCK) };
        let memory = memory.expect("root may have one");
        // SAFETY: new memory, at no address that is in use; it is never unmapped.
        let page = unsafe {
            let access = ProtFlags::READ | ProtFlags::WRITE;
            mmap_anonymous(std::ptr::null_mut(), PAGE, access, MapFlags::PRIVATE).unwrap()
        };
        let page = page.expose_provenance();
        let mut api = [API_VERSION, 0, 0];
        let mut register = [page as u64, PAGE as u64, MODE_MISSING, 0];
        // SAFETY: the kernel reads and writes as much as the structures of both calls have.
        unsafe {
            let descriptor = memory.as_raw_fd();
            assert_eq!(libc::ioctl(descriptor, API, api.as_mut_ptr()), 0);
            assert_eq!(libc::ioctl(descriptor, REGISTER, register.as_mut_ptr()), 0);
        }
        let writer = thread::spawn(move || {
            let page = std::ptr::with_exposed_provenance::<u8>(page);
            // SAFETY: a page of this process for as long as it lives.
            let page = unsafe { std::slice::from_raw_parts(page, PAGE) };
            // Refused once nobody reads any more.
            let _ = rustix::io::write(&pipe, page);
        });
        let held = Self {
            memory: Some(memory),
            writer: Some(writer),
        };
        until("the writer waits for its page", || {
            let memory = held.memory.as_ref().unwrap();
            let mut asked = [PollFd::new(memory, PollFlags::IN)];
            poll(&mut asked, None).unwrap() == 1 && asked[0].revents() == PollFlags::IN
        });
        held
    }

    /// Lets the lock go.
    fn end(&mut self) {
        self.memory = None;
        self.writer.take().unwrap().join().unwrap();
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Of a test that fails, too: the daemon does not end before.
        self.memory = None;
    }
}

#[test]
fn a_pipe_that_cannot_be_read_or_closed_keeps_nobody_waiting() {
    if !is_root() {
        return;
    }
    let mut daemon = Daemon::start(
        "fill = { rate = \"0\" }
        [[class]]
        page = \"thp\"
        source = \"memfd\"
        size = \"2M\"
        slabs = 3\n",
    );
    daemon.until_clean(3);
    let mut holder = daemon.connect();
    let mut pipes = Vec::new();
    let mut held = Vec::new();
    let is_served = || {
        daemon.until_clean(1);
        let mut other = daemon.connect();
        let taken = other.take(take(1)).unwrap();
        other.give(taken.lease.lease).unwrap();
    };

    // Ended by a byte that is there when the daemon looks, and cannot be read.
    let taken = holder.take(take(1)).unwrap();
    daemon.while_stopped(|| {
        rustix::io::write(&taken.lease_pipe, b"x").unwrap();
        held.push(Held::new(taken.lease_pipe.try_clone().unwrap()));
    });
    until("the lease is over", || daemon.status().leases.is_empty());
    drop(taken.memory);
    pipes.push(taken.lease_pipe);
    is_served();
    // Held, and nothing else: its lease goes on.
    let taken = holder.take(take(1)).unwrap();
    held.push(Held::new(taken.lease_pipe.try_clone().unwrap()));
    is_served();
    assert_eq!(daemon.status().leases.len(), 1);
    // Given back on its connection: the daemon has its end to close.
    holder.give(taken.lease.lease.clone()).unwrap();
    drop(taken.memory);
    pipes.push(taken.lease_pipe);
    is_served();

    // More than the daemon waits for either of them.
    thread::sleep(Duration::from_millis(100));
    is_served();

    held.iter_mut().for_each(Held::end);
    is_served();
    assert_eq!(daemon.stop(), 0);
}
