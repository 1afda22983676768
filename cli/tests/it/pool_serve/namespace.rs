//! A user that is many users in a user namespace, and one to the daemon.

use super::kit::{Daemon, is_root, serve, take};
use firstlight_pool::client::{Client, ClientError};
use firstlight_pool::os::need::skip;
use firstlight_pool::protocol::RefusalCode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

const GROUP: u32 = 65_040;
const MEMBER: u32 = 65_041;
const FIRST: u32 = 200_000;

/// Connects as number `inner` of a user namespace that a member of the group has made, as
/// `newuidmap` lets it. A process of its own does: threads cannot be in different ones.
fn connect(socket: &Path, inner: u32) -> Client {
    let flags = rustix::net::SocketFlags::CLOEXEC;
    let end = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let end = end.unwrap();
    let address = SocketAddrUnix::new(socket).unwrap();
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let groups = [GROUP];
    // SAFETY: the child calls the kernel only, and ends without running anything of ours.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: these change the child's user, and no memory.
        let done = unsafe {
            libc::setgroups(1, groups.as_ptr()) == 0
                && libc::setresgid(GROUP, GROUP, GROUP) == 0
                && libc::setresuid(MEMBER, MEMBER, MEMBER) == 0
                && libc::unshare(libc::CLONE_NEWUSER) == 0
        };
        let done = done
            && rustix::io::write(&theirs, b"u").is_ok()
            && rustix::io::read(&theirs, &mut [0; 1]) == Ok(1);
        // SAFETY: as above.
        let done = done
            && unsafe { libc::setresuid(inner, inner, inner) == 0 }
            && rustix::net::connect(&end, &address).is_ok();
        // SAFETY: nothing of the parent's is undone.
        unsafe { libc::_exit(i32::from(!done)) }
    }
    drop(theirs);
    ours.read_exact(&mut [0; 1]).expect("a namespace");
    std::fs::write(
        format!("/proc/{child}/uid_map"),
        format!("0 {FIRST} 65536\n"),
    )
    .unwrap();
    ours.write_all(b"m").unwrap();
    let mut status = 0;
    // SAFETY: the child is ours, and its status is written to an integer.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "it connected");
    Client::new(end)
}

/// A daemon that finds `text` in `/etc/subuid`.
fn daemon(text: &str) -> Option<Daemon> {
    if !is_root() {
        return None;
    }
    if !Path::new("/etc/subuid").exists() {
        skip("subuid", "no /etc/subuid to put another file over");
        return None;
    }
    let mut daemon = Daemon::start(&format!(
        "access = {{ group = \"{GROUP}\", quota = \"2M\" }}\nfill = {{ rate = \"0\" }}\n\
         [[class]]\npage = \"thp\"\nsource = \"memfd\"\nsize = \"2M\"\nslabs = 3\n"
    ));
    daemon.kill();
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(daemon.path(), open).unwrap();
    let file = daemon.path().join("subuid");
    std::fs::write(&file, text).unwrap();
    let command = serve(daemon.path());
    let child = Command::new("unshare")
        .args([
            "--mount",
            "sh",
            "-c",
            "mount --bind \"$0\" /etc/subuid && exec \"$@\"",
        ])
        .arg(&file)
        .arg(command.get_program())
        .args(command.get_args())
        .spawn()
        .unwrap();
    daemon.replace(child);
    daemon.until_it_answers();
    daemon.until_clean(3);
    Some(daemon)
}

fn is_over_quota(client: &mut Client) -> bool {
    match client.take(take(1)) {
        Ok(allocated) => {
            // It goes back at once, and is charged until it is replaced.
            drop(allocated);
            false
        }
        Err(ClientError::Refused(refusal)) => {
            assert_eq!(refusal.code, RefusalCode::Quota);
            true
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_member_has_one_quota_however_many_users_it_is_in_a_namespace() {
    let Some(daemon) = daemon(&format!("{MEMBER}:{FIRST}:65536\n")) else {
        return;
    };
    let mut first = connect(&daemon.socket(), 5);
    let held = first.take(take(1)).unwrap();
    for inner in [6, 65_000] {
        assert!(is_over_quota(&mut connect(&daemon.socket(), inner)));
    }
    drop(held);
}

#[test]
fn users_of_no_range_are_each_their_own() {
    let Some(daemon) = daemon("") else { return };
    let mut first = connect(&daemon.socket(), 5);
    let held = first.take(take(1)).unwrap();
    assert!(!is_over_quota(&mut connect(&daemon.socket(), 6)));
    drop(held);
}
