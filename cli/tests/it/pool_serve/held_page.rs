//! A page that nobody serves: whoever touches it waits, in the kernel and with the locks it has there.

use super::kit::until;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mm::{MapFlags, ProtFlags, UserfaultfdFlags, mmap_anonymous, userfaultfd};
use std::os::fd::{AsRawFd, OwnedFd};

pub(super) const PAGE: usize = 4096;
/// `UFFDIO_API` and `UFFDIO_REGISTER` of `linux/userfaultfd.h`, on 64 bits.
const API: libc::c_ulong = 0xc018_aa3f;
const REGISTER: libc::c_ulong = 0xc020_aa00;
const API_VERSION: u64 = 0xaa;
const MODE_MISSING: u64 = 1;

/// One of this process, until it is let go of: also by a test that fails.
pub(super) struct HeldPage {
    memory: Option<OwnedFd>,
    address: usize,
}

impl HeldPage {
    pub(super) fn new() -> Self {
        // SAFETY: whoever touches memory that is registered below waits; nobody but threads made for that does.
        let memory = unsafe { userfaultfd(UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::NONBLOCK) };
        let memory = memory.expect("root may have one");
        // SAFETY: new memory, at no address that is in use; it is never unmapped.
        let page = unsafe {
            let access = ProtFlags::READ | ProtFlags::WRITE;
            mmap_anonymous(std::ptr::null_mut(), PAGE, access, MapFlags::PRIVATE).unwrap()
        };
        let address = page.expose_provenance();
        let mut api = [API_VERSION, 0, 0];
        let mut register = [address as u64, PAGE as u64, MODE_MISSING, 0];
        // SAFETY: the kernel reads and writes as much as the structures of both calls have.
        unsafe {
            let descriptor = memory.as_raw_fd();
            assert_eq!(libc::ioctl(descriptor, API, api.as_mut_ptr()), 0);
            assert_eq!(libc::ioctl(descriptor, REGISTER, register.as_mut_ptr()), 0);
        }
        Self {
            memory: Some(memory),
            address,
        }
    }

    pub(super) fn address(&self) -> usize {
        self.address
    }

    /// Waits until somebody waits for it.
    pub(super) fn until_asked_for(&self) {
        until("a thread waits for its page", || {
            let memory = self.memory.as_ref().unwrap();
            let mut asked = [PollFd::new(memory, PollFlags::IN)];
            let ready = poll(&mut asked, Some(&Timespec::default())).unwrap();
            ready == 1 && asked[0].revents() == PollFlags::IN
        });
    }

    /// Whoever waits goes on.
    pub(super) fn let_go(&mut self) {
        self.memory = None;
    }
}
