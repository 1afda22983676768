//! A lease pipe whose lock a process holds for as long as it likes: what reads, opens or closes the
//! pipe waits for that process, and the daemon's serving thread does none of these.

use super::held_page::{HeldPage, PAGE};
use super::kit::{Daemon, is_root, take, until};
use std::os::fd::OwnedFd;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// A writer to a pipe, which holds its lock until the page is let go of.
struct Held {
    page: HeldPage,
    writer: Option<JoinHandle<()>>,
}

impl Held {
    fn new(pipe: OwnedFd) -> Self {
        let page = HeldPage::new();
        let address = page.address();
        let writer = thread::spawn(move || {
            let page = std::ptr::with_exposed_provenance::<u8>(address);
            // SAFETY: a page of this process for as long as it lives.
            let page = unsafe { std::slice::from_raw_parts(page, PAGE) };
            // Refused once nobody reads any more.
            let _ = rustix::io::write(&pipe, page);
        });
        page.until_asked_for();
        Self {
            page,
            writer: Some(writer),
        }
    }

    /// Lets the lock go.
    fn end(&mut self) {
        self.page.let_go();
        self.writer.take().unwrap().join().unwrap();
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
