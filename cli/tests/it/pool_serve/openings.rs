//! Which files the thread that all clients wait for opens and closes: none that a stranger may lock.
//!
//! A close of a file on which somebody has a lock waits for whoever reads `/proc/locks`, and an open of one with a
//! lease for its holder. The kernel tells each opening and each last close with the thread that did it (fanotify).

use super::kit::{Daemon, M, is_root, take, until, write_config};
use super::manager::Manager;
use firstlight_pool::client::Client;
use firstlight_pool::os::need::skip;
use firstlight_pool::protocol::{GrantRequest, PageSize, Resize};
use rustix::fs::OFlags;
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::ffi::CString;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// What happens to files of some mounts.
struct Watch(OwnedFd);

impl Watch {
    /// `None`, and a line that says so, where the kernel does not tell.
    fn new(mounts: &[&str]) -> Option<Self> {
        let flags = libc::FAN_CLASS_NOTIF | libc::FAN_NONBLOCK | libc::FAN_CLOEXEC;
        let flags = flags | libc::FAN_REPORT_TID | libc::FAN_UNLIMITED_QUEUE;
        let reads = OFlags::RDONLY | OFlags::CLOEXEC;
        // SAFETY: it takes integers alone.
        let watch = unsafe { libc::fanotify_init(flags, reads.bits()) };
        if watch < 0 {
            skip("fanotify", std::io::Error::last_os_error());
            return None;
        }
        // SAFETY: the kernel made this descriptor for us just now.
        let watch = unsafe { OwnedFd::from_raw_fd(watch) };
        for mount in mounts {
            let path = CString::new(*mount).unwrap();
            let mask = libc::FAN_OPEN | libc::FAN_CLOSE;
            let add = libc::FAN_MARK_ADD | libc::FAN_MARK_MOUNT;
            // SAFETY: the path ends in zero and lives until the call returns.
            let marked = unsafe {
                libc::fanotify_mark(watch.as_raw_fd(), add, mask, libc::AT_FDCWD, path.as_ptr())
            };
            if marked != 0 {
                skip("fanotify", std::io::Error::last_os_error());
                return None;
            }
        }
        Some(Self(watch))
    }

    /// The files that a thread opened or closed since this was last asked.
    fn of(&self, thread: u32) -> BTreeSet<PathBuf> {
        const EVENT: usize = size_of::<libc::fanotify_event_metadata>();
        let mut files = BTreeSet::new();
        let mut events = vec![0; EVENT * 256];
        loop {
            let length = match rustix::io::read(&self.0, &mut events) {
                Ok(length) => length,
                Err(rustix::io::Errno::AGAIN) => return files,
                // The file is gone, or another program's that runs.
                Err(_) => continue,
            };
            for event in events[..length].chunks_exact(EVENT) {
                let number = |at: usize| i32::from_ne_bytes(event[at..at + 4].try_into().unwrap());
                // Behind the length, versions and the mask.
                let (file, by) = (number(16), number(20));
                if file < 0 {
                    continue;
                }
                // SAFETY: the kernel opened it for us with this event.
                let file = unsafe { OwnedFd::from_raw_fd(file) };
                if u32::try_from(by) == Ok(thread) {
                    let link = format!("/proc/self/fd/{}", file.as_raw_fd());
                    files.insert(std::fs::read_link(link).unwrap());
                }
            }
        }
    }
}

/// Mounts whose files anybody may read.
fn mounts() -> Vec<String> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let places = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    let places = places.filter(|place| {
        let is_of_kernel = ["/proc", "/sys"].iter().any(|top| place.starts_with(top));
        is_of_kernel || ["/", "/run", "/etc"].contains(place)
    });
    places.map(ToOwned::to_owned).collect()
}

const POOL: &str = "
    fill = { rate = \"0\" }
    [[class]]
    page = \"thp\"
    size = \"2M\"
    slabs = 3
    [[quota]]
    cgroup = \"/no such cgroup\"
    bytes = \"2M\"
";

#[test]
fn the_serving_thread_opens_and_closes_no_file_that_a_stranger_may_lock() {
    if !is_root() {
        return;
    }
    let mounts = mounts();
    let mounts: Vec<_> = mounts.iter().map(String::as_str).collect();
    let Some(watch) = Watch::new(&mounts) else {
        return;
    };
    let manager = Manager::new();
    let daemon = Daemon::with_variables(POOL, &[("NOTIFY_SOCKET", &manager.variable())]);
    daemon.until_clean(3);
    let thread = daemon.pid();
    assert!(!watch.of(thread).is_empty(), "it tells nothing");
    for _ in 0..3 {
        let mut pool = daemon.connect();
        let first = pool.take(take(2 * M)).unwrap();
        let mut more = take(3 * M);
        more.max_topup_ms = 60_000;
        let second = pool.take(more);
        pool.give(first.lease.lease).unwrap();
        let granted = pool.grant(GrantRequest {
            page: PageSize::Transparent,
            node: None,
            size_class_bytes: 2 * M,
            uses: 1,
            label: None,
        });
        let granted = granted.unwrap();
        let mut holder = Client::connect(Path::new(&granted.socket)).unwrap();
        let third = holder.take(take(1));
        pool.revoke(granted.grant).unwrap();
        drop((pool, holder, second, third));
        until("all of it is back", || {
            let status = daemon.status();
            status.leases.is_empty() && status.pools[0].clean_slabs == 3
        });
    }
    for slabs in [1, 4] {
        let resize = Resize {
            page: PageSize::Transparent,
            node: None,
            size_class_bytes: 2 * M,
            slabs,
        };
        Client::connect(&daemon.socket())
            .unwrap()
            .resize(resize)
            .unwrap();
        until("as many slabs are clean", || {
            daemon.status().pools[0].clean_slabs == slabs
        });
    }
    write_config(daemon.path(), &POOL.replace("slabs = 3", "slabs = 2"));
    daemon.signal(Signal::HUP);
    until("the configuration is read again", || {
        daemon.status().pools[0].clean_slabs == 2
    });
    // Ticks.
    thread::sleep(Duration::from_millis(2500));
    let own = daemon.path().join("own");
    let is_own = |file: &Path| file.starts_with(&own) || file.starts_with("/memfd:firstlight-slab");
    let files = watch.of(thread);
    let others: Vec<_> = files.iter().filter(|file| !is_own(file)).collect();
    assert!(others.is_empty(), "{others:?}");
}
