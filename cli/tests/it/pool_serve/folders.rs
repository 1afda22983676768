//! Where the daemon's folders and its socket may be, on paths that strangers change, and what clients do at a socket of a
//! stranger's.

use super::grants::{HOLDER, REQUEST, container};
use super::kit::{Daemon, another_user, is_root, serve, take, until};
use firstlight_pool::client::{Client, ClientError};
use firstlight_pool::os::need::skip;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const POOL: &str = "
    fill = { rate = \"0\" }
    [[class]]
    page = \"thp\"
    source = \"memfd\"
    size = \"2M\"
    slabs = 1
";

fn mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

/// A folder where any user makes names.
fn public_in(folder: &Path) -> PathBuf {
    let public = folder.join("public");
    std::fs::create_dir(&public).unwrap();
    mode(&public, 0o1777);
    public
}

/// Writes the configuration of a daemon with these paths, in a folder.
fn configure(folder: &Path, socket: &Path, directory: &Path) {
    let places = format!("socket = {socket:?}\ndirectory = {directory:?}\n");
    std::fs::write(folder.join("pool.toml"), places + POOL).unwrap();
}

/// What a daemon says that does not start.
fn refusal(folder: &Path, socket: &Path, directory: &Path) -> String {
    configure(folder, socket, directory);
    let mut child = serve(folder).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    let mut stderr = child.stderr.take().unwrap();
    stderr.read_to_string(&mut said).unwrap();
    assert!(!child.wait().unwrap().success(), "{said}");
    said
}

/// Whether a daemon comes up. Until it does its process is looked at.
fn comes_up(child: &mut Child, socket: &Path) -> bool {
    let mut is_up = false;
    until("it is up, or has ended", || {
        is_up = Client::connect(socket).is_ok();
        is_up || child.try_wait().unwrap().is_some()
    });
    is_up
}

#[test]
fn no_folder_that_a_stranger_made_is_on_a_path_of_the_daemon_s() {
    if !is_root() {
        return;
    }
    let (own, top, victim) = (container(), container(), container());
    let public = public_in(top.path());
    let [folder, link, moved, shared] =
        ["folder", "link", "moved", "shared"].map(|name| public.join(name));
    another_user(HOLDER, || {
        std::fs::create_dir(&folder).unwrap();
        symlink(victim.path(), &link).unwrap();
    });
    // Of root's, in a stranger's folder.
    let [link_there, shared_there] = ["link", "shared"].map(|name| folder.join(name));
    symlink(victim.path(), &link_there).unwrap();
    std::fs::create_dir(&shared_there).unwrap();
    mode(&shared_there, 0o2777);
    another_user(HOLDER, || {
        std::fs::rename(&link_there, &moved).unwrap();
        std::fs::rename(&shared_there, &shared).unwrap();
    });
    let is = |is: &str, path: &Path| format!("{} is {is}", path.display());
    let theirs = format!("user {HOLDER}'s");
    for (stranger, text) in [
        (&folder, is(&theirs, &folder)),
        (&link, is("a link", &link)),
        (&moved, is("a link", &moved)),
        (&shared, format!("others may write to {}", shared.display())),
    ] {
        let said = refusal(
            own.path(),
            &own.path().join("pool.sock"),
            &stranger.join("own"),
        );
        assert!(said.contains(&text), "{said}");
        let said = refusal(
            own.path(),
            &stranger.join("pool.sock"),
            &own.path().join("own"),
        );
        assert!(said.contains(&text), "{said}");
        assert_eq!(std::fs::read_dir(stranger).unwrap().count(), 0);
    }
}

#[test]
fn a_directory_that_clients_would_pass_is_refused() {
    let own = container();
    let passed = own.path().join("passed");
    let [socket, below] = ["pool.sock", "run/pool.sock"].map(|name| passed.join(name));
    for socket in [socket, below] {
        let said = refusal(own.path(), &socket, &passed);
        assert!(said.contains("`socket` lies in `directory`"), "{said}");
        assert!(!passed.exists());
    }
    // By a link to what is not there yet.
    let link = own.path().join("link");
    symlink("passed", &link).unwrap();
    let said = refusal(own.path(), &passed.join("pool.sock"), &link);
    assert!(said.contains("lies in it"), "{said}");
}

#[test]
fn without_proc_the_socket_is_open_to_those_that_may_connect() {
    if !is_root() {
        return;
    }
    let mut daemon = Daemon::start("[access]\ngroup = \"65053\"\n");
    daemon.kill();
    let command = serve(daemon.path());
    let script = "mount -t tmpfs none /proc && exec \"$@\"";
    let started = Command::new("unshare")
        .args(["--mount", "sh", "-c", script, "sh"])
        .arg(command.get_program())
        .args(command.get_args())
        .spawn();
    let mut child = started.unwrap();
    if !comes_up(&mut child, &daemon.socket()) {
        return skip("mount", "no /proc can be without its files");
    }
    daemon.replace(child);
    let mode = std::fs::metadata(daemon.socket())
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o660);
}

/// All that is the machine's root's is there a user's without a number.
#[test]
fn a_daemon_in_a_user_namespace_has_its_socket_where_any_user_may() {
    if !is_root() {
        return;
    }
    let own = container();
    let public = public_in(own.path());
    chown(own.path(), Some(HOLDER), Some(HOLDER)).unwrap();
    let socket = public.join("pool.sock");
    configure(own.path(), &socket, &own.path().join("own"));
    let command = serve(own.path());
    let in_namespace = |words: &[&std::ffi::OsStr]| {
        let mut unshare = Command::new("unshare");
        unshare.args(["--user", "--map-root-user"]).args(words);
        unshare.uid(HOLDER).gid(HOLDER).stdin(Stdio::null());
        unshare
    };
    let tried = in_namespace(&[command.get_program(), "--version".as_ref()]).output();
    if !tried.is_ok_and(|tried| tried.status.success()) {
        return skip(
            "user namespace",
            "none, or the program is not for all users",
        );
    }
    let words: Vec<_> = [command.get_program()]
        .into_iter()
        .chain(command.get_args())
        .collect();
    let mut child = in_namespace(&words).spawn().unwrap();
    let is_up = comes_up(&mut child, &socket);
    // One of the namespace's takes from it; root does not, though root may.
    let taken = another_user(HOLDER, || Client::connect(&socket)?.check_server());
    let of_root = Client::connect(&socket).and_then(|pool| pool.check_server());
    let _ = child.kill();
    child.wait().unwrap();
    assert!(is_up);
    taken.unwrap();
    assert!(matches!(of_root, Err(ClientError::Stranger { .. })));
}

#[test]
fn a_daemon_starts_from_a_folder_that_its_user_may_not_enter() {
    if !is_root() {
        return;
    }
    let (own, closed) = (container(), container());
    mode(closed.path(), 0o700);
    let run = own.path().join("run");
    another_user(HOLDER, || std::fs::create_dir(&run)).unwrap_err();
    std::fs::create_dir(&run).unwrap();
    chown(&run, Some(HOLDER), Some(HOLDER)).unwrap();
    let socket = run.join("pool.sock");
    configure(own.path(), &socket, &run.join("own"));
    let command = serve(own.path());
    let as_holder = || {
        let mut setpriv = Command::new("setpriv");
        let user = HOLDER.to_string();
        setpriv.args(["--reuid", &user, "--regid", &user, "--clear-groups"]);
        setpriv.arg(command.get_program()).stdin(Stdio::null());
        setpriv.current_dir(closed.path());
        setpriv
    };
    let tried = as_holder().arg("--version").output();
    if !tried.is_ok_and(|tried| tried.status.success()) {
        return skip("setpriv", "none, or the program is not for all users");
    }
    let mut child = as_holder().args(command.get_args()).spawn().unwrap();
    let is_up = comes_up(&mut child, &socket);
    let _ = child.kill();
    child.wait().unwrap();
    assert!(is_up);
}

/// A socket at which a user listens.
fn listen(user: u32, path: &Path) -> OwnedFd {
    another_user(user, || {
        let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
        let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None).unwrap();
        rustix::net::bind(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
        rustix::net::listen(&socket, 4).unwrap();
        socket
    })
}

#[test]
fn nothing_is_taken_at_the_socket_of_a_stranger() {
    if !is_root() {
        return;
    }
    let top = container();
    let public = public_in(top.path());
    let [beside, below] = ["pool.sock", "folder/pool.sock"].map(|name| public.join(name));
    another_user(HOLDER, || std::fs::create_dir(below.parent().unwrap())).unwrap();
    let _listen = [&beside, &below].map(|path| listen(HOLDER, path));
    for path in [&beside, &below] {
        let mut pool = Client::connect(path).unwrap();
        let refused = [pool.take(take(1)).map(drop), pool.grant(REQUEST).map(drop)];
        for refused in refused {
            match refused {
                Err(ClientError::Stranger { socket, user, us }) => {
                    assert_eq!((&socket, user, us), (path, HOLDER, 0));
                }
                other => panic!("{other:?}"),
            }
        }
        another_user(HOLDER, || Client::connect(path)?.check_server()).unwrap();
    }
    // Of a user that has a folder which it could not make itself, at any depth; and where no other user makes names now.
    mode(&public, 0o755);
    let deep = below.with_file_name("deep").join("pool.sock");
    another_user(HOLDER, || std::fs::create_dir(deep.parent().unwrap())).unwrap();
    let _listens = listen(HOLDER, &deep);
    for path in [&beside, &below, &deep] {
        let until = Instant::now() + Duration::from_millis(200);
        let taken = Client::connect_until(path, until).unwrap().take(take(1));
        assert!(matches!(taken, Err(ClientError::Silent)), "{taken:?}");
    }
}
