//! Leases outlive the daemon: what is out stays charged and counted, and ends when its
//! client ends, under a service manager and without one.

use super::kit::{
    Daemon, M, another_user, free_pages, huge_pages, is_root, mapped, take, until, write_config,
};
use super::manager::Manager;
use firstlight_pool::client::{Allocated, Client, ClientError};
use firstlight_pool::os::memory_file;
use firstlight_pool::protocol::{FillChange, Label, RefusalCode, Take};
use rustix::process::Signal;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

const TENANT: u32 = 65_021;

fn config(source: &str) -> String {
    format!(
        "fill = {{ rate = \"0\", batch = 1 }}\n\
         [[class]]\nsize = \"4M\"\nslabs = 6\nsource = \"{source}\"\n\
         [[quota]]\nuid = {TENANT}\nbytes = \"12M\"\n"
    )
}

fn open_to_all(daemon: &Daemon) {
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(daemon.path(), open).unwrap();
}

/// A daemon with six clean slabs that need no huge pages, and its configuration.
fn without_huge_pages(manager: Option<&Manager>) -> (String, Daemon) {
    let config = config("memfd").replace("size =", "page = \"thp\"\nsize =");
    let socket = manager.map(Manager::variable);
    let variables = socket.as_deref().map(|socket| ("NOTIFY_SOCKET", socket));
    let daemon = Daemon::with_variables(&config, variables.as_slice());
    open_to_all(&daemon);
    daemon.until_clean(6);
    (config, daemon)
}

fn allocate(daemon: &Daemon) -> Result<Allocated, ClientError> {
    let socket = daemon.socket();
    let take = Take {
        label: Some(Label::new("web-1")),
        ..take(4 * M)
    };
    another_user(TENANT, || Client::connect(&socket)?.take(take))
}

fn is_over_quota(daemon: &Daemon) -> bool {
    matches!(allocate(daemon), Err(ClientError::Refused(refusal)) if refusal.code == RefusalCode::Quota)
}

/// How the daemon ends, and what comes after it.
enum Next<'m> {
    Managed(&'m Manager),
    Alone,
}

fn restart(daemon: &mut Daemon, kill: bool, next: Next<'_>) {
    if kill {
        daemon.kill();
    } else {
        assert_eq!(daemon.stop(), 0);
    }
    match next {
        Next::Managed(manager) => manager.start_again(daemon),
        Next::Alone => {
            daemon.start_again();
            daemon.until_it_answers();
        }
    }
}

fn managed(source: &str, kill: bool) {
    if !is_root() {
        return;
    }
    let Some(_pages) = huge_pages(20) else { return };
    let free = free_pages();
    let manager = Manager::new();
    let variables = [("NOTIFY_SOCKET", &*manager.variable())];
    let mut daemon = Daemon::with_variables(&config(source), &variables);
    open_to_all(&daemon);
    daemon.until_clean(6);
    let mut leases: Vec<_> = (0..3).map(|_| allocate(&daemon).unwrap()).collect();
    let mut memory = mapped(&leases[0].memory, 4 * M);
    memory.write(7, b"mine");
    // One was given back, and its client keeps the descriptor.
    let revoked = leases.pop().unwrap();
    daemon.connect().give(revoked.lease.lease.clone()).unwrap();
    until("it is emptied", || {
        memory_file::held_bytes(&revoked.memory).is_ok_and(|bytes| bytes == 0)
    });
    let before = daemon.status();

    restart(&mut daemon, kill, Next::Managed(&manager));
    let status = daemon.status();
    assert_eq!(status.pools[0].allocated_slabs, 2, "{source}");
    assert_eq!(status.pools[0].unknown_slabs, 0);
    assert_eq!(status.leases.len(), 2);
    for (now, then) in status.leases.iter().zip(&before.leases) {
        assert_eq!((&now.lease, now.uid), (&then.lease, TENANT));
        assert_eq!(now.label, Some(Label::new("web-1")));
    }
    assert!(is_over_quota(&daemon), "the restart forgot its charges");
    // A revoked client draws nothing.
    daemon.until_clean(4);
    let settled = free_pages();
    let _ = memory_file::refill(&revoked.memory, 0, 4 * M);
    until("it was taken away again", || free_pages() == settled);
    drop(revoked);
    until("its charge is credited", || !is_over_quota(&daemon));
    until("what that was asked with is over", || {
        daemon.status().leases.len() == 2
    });

    // A lease ends by its old name, and by its pipe.
    assert_eq!(memory.first_nonzero(), Some(7));
    let first = leases.remove(0);
    daemon.connect().give(first.lease.lease.clone()).unwrap();
    drop((first, memory));
    assert_eq!(daemon.connect().drain().unwrap().allocated_slabs, 1);
    drop(leases);
    assert_eq!(daemon.wait(), 0, "the drain waits for the last lease");
    assert_eq!(manager.kept(), Vec::<String>::new());
    until("all huge pages are back", || free_pages() == free);
}

#[test]
fn leases_outlive_a_stop_under_a_manager() {
    managed("mount", false);
}

#[test]
fn leases_outlive_a_kill_under_a_manager() {
    managed("mount", true);
}

#[test]
fn leases_of_files_without_a_name_outlive_a_kill_under_a_manager() {
    managed("memfd", true);
}

/// With each restart a tenant could use up its quota of clean slabs again.
#[test]
fn what_waits_for_a_clean_slab_is_charged_after_a_kill_too() {
    if !is_root() {
        return;
    }
    let manager = Manager::new();
    let (config, mut daemon) = without_huge_pages(Some(&manager));
    let rate = |daemon: &Daemon, rate| {
        let change = FillChange {
            on: None,
            rate: Some(rate),
        };
        daemon.connect().fill(change).unwrap();
    };
    // From now on a slab takes weeks, and nothing is saved up.
    rate(&daemon, 1);
    drop([(); 3].map(|()| allocate(&daemon).unwrap()));
    until("all three are back", || {
        let status = daemon.status();
        status.quotas[0].owed_bytes == 12 * M && status.pools[0].clean_slabs == 3
    });
    write_config(daemon.path(), &config.replace("rate = \"0\"", "rate = 1"));
    for _ in 0..2 {
        restart(&mut daemon, true, Next::Managed(&manager));
        let status = daemon.status();
        assert_eq!(status.quotas[0].owed_bytes, 12 * M);
        assert_eq!(status.pools[0].clean_slabs, 3);
        assert!(is_over_quota(&daemon));
    }
    rate(&daemon, 0);
    until("slabs are in their places", || !is_over_quota(&daemon));
}

/// Its client may have the memory for as long as it has the pipe.
#[test]
fn a_lease_that_a_byte_ended_around_a_kill_is_charged_until_its_pipe_is_closed() {
    if !is_root() {
        return;
    }
    let (_, mut daemon) = without_huge_pages(None);
    let leases = [(); 3].map(|()| allocate(&daemon).unwrap());
    // Before it can heed them.
    daemon.signal(Signal::STOP);
    for lease in &leases {
        rustix::io::write(&lease.lease_pipe, b"x").unwrap();
    }
    daemon.kill();
    daemon.start_again();
    daemon.until_it_answers();
    assert_eq!(daemon.status().pools[0].unknown_slabs, 3);
    // Nor does one that comes now end it.
    for lease in &leases {
        rustix::io::write(&lease.lease_pipe, b"x").unwrap();
    }
    assert!(is_over_quota(&daemon));
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(daemon.status().pools[0].unknown_slabs, 3);
    assert!(is_over_quota(&daemon));
    drop(leases);
    until("its charges are credited", || !is_over_quota(&daemon));
    assert_eq!(daemon.status().pools[0].unknown_slabs, 0);
}

/// Whoever uses up the daemon's descriptors ends no lease of another: a pipe that cannot be opened counts as
/// open. Here its name is a link, which the daemon does not follow.
#[test]
fn a_pipe_that_cannot_be_looked_at_ends_no_lease() {
    if !is_root() {
        return;
    }
    let manager = Manager::new();
    let (_, mut daemon) = without_huge_pages(Some(&manager));
    let leases: Vec<_> = (0..2).map(|_| allocate(&daemon).unwrap()).collect();
    let mut memory = mapped(&leases[0].memory, 4 * M);
    memory.write(7, b"mine");
    let pipes: Vec<_> = std::fs::read_dir(daemon.path().join("own"))
        .unwrap()
        .collect();
    let pipes = pipes.into_iter().map(|entry| entry.unwrap().path());
    let pipes: Vec<_> = pipes
        .filter(|path| {
            path.file_name()
                .unwrap()
                .to_string_lossy()
                .starts_with("lease-")
        })
        .collect();
    assert_eq!(pipes.len(), 2);
    daemon.kill();
    let aside = |path: &std::path::Path| path.with_extension("aside");
    for path in &pipes {
        std::fs::rename(path, aside(path)).unwrap();
        std::os::unix::fs::symlink(aside(path), path).unwrap();
    }
    manager.start_again(&mut daemon);
    assert_eq!(daemon.status().leases.len(), 2);
    assert_eq!(memory.first_nonzero(), Some(7), "it was emptied");
    for path in &pipes {
        std::fs::rename(aside(path), path).unwrap();
    }
    drop(memory);
    drop(leases);
    until("both leases end by their pipes", || {
        daemon.status().leases.is_empty()
    });
}

fn alone(source: &str, kill: bool) {
    if !is_root() {
        return;
    }
    let Some(_pages) = huge_pages(24) else { return };
    let mut daemon = Daemon::start(&config(source));
    open_to_all(&daemon);
    daemon.until_clean(6);
    let mut leases: Vec<_> = (0..3).map(|_| allocate(&daemon).unwrap()).collect();
    let mut memory = mapped(&leases[0].memory, 4 * M);
    memory.write(7, b"mine");
    drop(leases.pop());
    until("it is back", || {
        daemon.status().pools[0].allocated_slabs == 2
    });

    restart(&mut daemon, kill, Next::Alone);
    daemon.until_clean(4);
    let row = daemon.status().pools[0].clone();
    assert_eq!(
        (row.allocated_slabs, row.unknown_slabs, row.clean_slabs),
        (0, 2, 4)
    );
    let third = allocate(&daemon).unwrap();
    assert!(is_over_quota(&daemon), "the restart forgot its charges");
    assert_eq!(memory.first_nonzero(), Some(7), "its memory was taken away");
    drop((leases.pop(), third));
    until("one of them and the new one have ended", || {
        let row = daemon.status().pools[0].clone();
        (row.allocated_slabs, row.unknown_slabs) == (0, 1)
    });
    assert_eq!(daemon.connect().drain().unwrap().allocated_slabs, 1);
    drop((leases, memory));
    assert_eq!(daemon.wait(), 0, "the drain waits for the last one");
}

#[test]
fn leases_are_unknown_after_a_stop_without_a_manager_and_never_free() {
    alone("memfd", false);
}

#[test]
fn leases_are_unknown_after_a_kill_without_a_manager_and_never_free() {
    alone("mount", true);
}
