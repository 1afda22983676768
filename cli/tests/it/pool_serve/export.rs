//! What `firstlight pool export` serves, as a user that may do nothing else.

use super::kit::{Daemon, another_user, is_root, take, until};
use super::manager::{Killed, activated};
use firstlight_pool::client::{Client, ClientError};
use firstlight_pool::os::need::skip;
use firstlight_pool::protocol::{QuotaOf, RefusalCode};
use std::cell::RefCell;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

const OBSERVER: u32 = 65_031;

fn pool() -> Daemon {
    pool_with("")
}

fn pool_with(more: &str) -> Daemon {
    let daemon = Daemon::start(&format!(
        "access = {{ observers = \"{OBSERVER}\" }}\nfill = {{ rate = \"0\" }}\n\
         [[class]]\npage = \"thp\"\nsource = \"memfd\"\nsize = \"4M\"\nslabs = 2\n{more}"
    ));
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(daemon.path(), open).unwrap();
    daemon.until_clean(2);
    daemon
}

/// The exporter in a process of its own, and its port.
struct Exporter {
    _child: Killed,
    says: RefCell<BufReader<std::process::ChildStderr>>,
    port: u16,
}

impl Exporter {
    fn start(daemon: &Daemon) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_firstlight"));
        command
            .args([
                "pool",
                "export",
                "--html",
                "--listen",
                "127.0.0.1:0",
                "--socket",
            ])
            .arg(daemon.socket())
            .stderr(Stdio::piped());
        if rustix::process::geteuid().is_root() {
            // The program may lie where only root can go: it is open before.
            command.uid(OBSERVER).gid(OBSERVER);
        }
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        said.read_line(&mut line).unwrap();
        let port = line
            .split("127.0.0.1:")
            .nth(1)
            .and_then(|rest| rest.split('/').next());
        let port = port.unwrap_or_else(|| panic!("{line}")).parse().unwrap();
        Self {
            _child: Killed(child),
            says: RefCell::new(said),
            port,
        }
    }

    /// The next line that it says.
    fn next_line(&self) -> String {
        let mut line = String::new();
        self.says.borrow_mut().read_line(&mut line).unwrap();
        line
    }

    /// Requests a page.
    fn request(&self, path: &str) -> TcpStream {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let head = format!(
            "GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\n\r\n",
            self.port
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream
    }

    fn get(&self, path: &str) -> String {
        read(self.request(path))
    }
}

fn read(mut stream: TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn metrics_and_pages_are_served_by_another_process() {
    let mut daemon = pool();
    let exporter = Exporter::start(&daemon);
    let metrics = exporter.get("/metrics");
    assert!(metrics.starts_with("HTTP/1.1 200 OK\r\n"), "{metrics}");
    let line = "firstlight_pool_clean_slabs{page=\"thp\",node=\"any\",size_bytes=\"4194304\"} 2";
    assert!(metrics.contains(line), "{metrics}");
    assert!(metrics.contains("\nfirstlight_pool_up 1\n"), "{metrics}");
    assert!(exporter.get("/").contains("<title>firstlight pool</title>"));
    assert!(exporter.get("/status.json").contains("\"clean_slabs\":2"));
    assert!(exporter.get("/other").starts_with("HTTP/1.1 404"));
    let sockets = std::fs::read_to_string(format!("/proc/{}/net/tcp", daemon.pid())).unwrap();
    let mine: Vec<_> = std::fs::read_dir(format!("/proc/{}/fd", daemon.pid()))
        .unwrap()
        .filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok())
        .map(|link| link.to_string_lossy().into_owned())
        .collect();
    for line in sockets.lines().skip(1) {
        let inode = line.split_whitespace().nth(9).unwrap();
        assert!(!mine.contains(&format!("socket:[{inode}]")), "{line}");
    }
    // More than there is place for, all of them unfinished: each request that is whole is
    // answered before any of these has taken too long.
    let unfinished: Vec<_> = (0..130)
        .map(|_| {
            let mut stream = TcpStream::connect(("127.0.0.1", exporter.port)).unwrap();
            // Closed for a newer one perhaps.
            let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: ");
            stream
        })
        .collect();
    assert!(exporter.get("/metrics").contains("firstlight_pool_up 1"));
    let mut last = unfinished.last().unwrap();
    last.write_all(b"localhost\r\n\r\n").unwrap();
    let mut text = String::new();
    last.read_to_string(&mut text).unwrap();
    assert!(
        text.contains("firstlight_pool_up 1"),
        "it was closed: {text}"
    );
    drop(unfinished);
    // Killed, it takes nothing with it.
    let killed = Exporter::start(&daemon);
    drop(killed);
    assert!(exporter.get("/metrics").contains("firstlight_pool_up 1"));
    daemon.kill();
    assert!(
        exporter
            .get("/metrics")
            .contains("\nfirstlight_pool_up 0\n")
    );
    assert!(exporter.get("/status.json").starts_with("HTTP/1.1 503"));
    let said = exporter.next_line();
    assert!(said.contains("no pool answers"), "{said}");
    daemon.start_again();
    daemon.until_it_answers();
    assert!(exporter.get("/metrics").contains("firstlight_pool_up 1"));
    let said = exporter.next_line();
    assert!(said.contains("answers again"), "said once: {said}");
}

/// One that was asked after the other would be closed without an answer.
#[test]
fn a_daemon_that_hangs_is_down_for_each_scrape_and_no_page_waits_for_it() {
    let daemon = pool();
    let exporter = Exporter::start(&daemon);
    daemon.while_stopped(|| {
        let scrapes: Vec<_> = (0..4).map(|_| exporter.request("/metrics")).collect();
        let status = exporter.request("/status.json");
        assert!(exporter.get("/").contains("<title>firstlight pool</title>"));
        for scrape in scrapes {
            let metrics = read(scrape);
            assert!(metrics.contains("\nfirstlight_pool_up 0\n"), "{metrics}");
        }
        let status = read(status);
        assert!(status.contains("did not answer in time"), "{status}");
    });
    assert!(exporter.get("/metrics").contains("firstlight_pool_up 1"));
    let said = exporter.next_line();
    assert!(said.contains("did not answer in time"), "said once: {said}");
    let said = exporter.next_line();
    assert!(said.contains("answers again"), "{said}");
}

/// A socket that systemd made: the daemon opens it to those that its rules know, the exporter's
/// user among them, and to no other.
#[test]
fn a_socket_from_the_manager_is_open_to_those_that_the_rules_know() {
    if !is_root() {
        return;
    }
    for (access, expected) in [
        (String::new(), false),
        (format!("access = {{ observers = \"{OBSERVER}\" }}\n"), true),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(folder.path(), open).unwrap();
        let socket = folder.path().join("theirs.sock");
        let Some(mut daemon) = activated(folder.path(), &socket, &access) else {
            return;
        };
        let mode = || std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777;
        let served = mode();
        let seen = |uid| {
            another_user(uid, || {
                Client::connect(&socket).and_then(|mut pool| pool.status())
            })
        };
        let observed = seen(OBSERVER);
        assert_eq!(observed.is_ok(), expected, "{observed:?}");
        seen(OBSERVER + 1).unwrap_err();
        // Nobody's but the owner's; without access control lists any user may connect, and is sent away.
        let modes: &[u32] = if expected { &[0o660, 0o666] } else { &[0o600] };
        assert!(modes.contains(&served), "{served:o}");
        // Once it has stopped, those that a changed configuration names must be able to start it.
        let pid = daemon.0.id().to_string();
        let status = Command::new("kill").args(["-TERM", &pid]).status();
        assert!(status.unwrap().success());
        until("it stops", || daemon.0.try_wait().unwrap().is_some());
        assert_eq!(mode(), 0o666);
    }
}

#[test]
fn an_observer_sees_everything_and_may_do_nothing() {
    if !is_root() {
        return;
    }
    let daemon = pool_with("[[quota]]\nuid = 65032\nbytes = \"4M\"\n");
    let lease = daemon.connect().take(take(1)).unwrap();
    let socket = daemon.socket();
    let refused = |result: Result<(), ClientError>| match result {
        Err(ClientError::Refused(refusal)) => refusal.code,
        other => panic!("{other:?}"),
    };
    another_user(OBSERVER, || {
        let mut pool = Client::connect(&socket).unwrap();
        let status = pool.status().unwrap();
        assert_eq!(status.leases.len(), 1, "of another user");
        assert_eq!(status.leases[0].lease, None, "a name");
        let accounts = status.quotas.iter().map(|row| (row.of, row.name.as_str()));
        assert_eq!(accounts.collect::<Vec<_>>(), [(QuotaOf::User, "65032")]);
        let give = pool.give(lease.lease.lease.clone());
        for result in [pool.take(take(1)).map(drop), pool.drain().map(drop), give] {
            assert_eq!(refused(result), RefusalCode::Denied);
        }
    });
    assert_eq!(daemon.status().leases.len(), 1);
    // Which the exporter shows to every process of this machine.
    let metrics = Exporter::start(&daemon).get("/metrics");
    let line = "firstlight_pool_quota_bytes{of=\"user\",name=\"65032\"} 4194304";
    assert!(metrics.contains(line), "{metrics}");
}

#[test]
fn the_page_shows_a_browser_what_is_clean_and_what_is_allocated() {
    let daemon = pool();
    let _allocated = daemon.connect().take(take(1)).unwrap();
    let exporter = Exporter::start(&daemon);
    let profile = tempfile::tempdir().unwrap();
    let browse = |browser: &str| {
        Command::new(browser)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"])
            .arg("--virtual-time-budget=4000")
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg(format!("http://127.0.0.1:{}/", exporter.port))
            .output()
    };
    let browsers = ["chromium", "chromium-browser", "google-chrome"];
    let Some(output) = browsers.iter().find_map(|name| browse(name).ok()) else {
        return skip("browser", format!("none of {browsers:?} is installed"));
    };
    let page = String::from_utf8_lossy(&output.stdout);
    for shown in [
        "<td>4 MiB of thp</td><td>2</td><td>1</td><td>0</td><td>1</td>",
        "<td>-</td><td>4 MiB</td>",
        "title=\"allocated 4 MiB\" style=\"width: 50%;\"",
        "<td>taken</td><td>1</td>",
    ] {
        assert!(page.contains(shown), "{shown}\n{page}");
    }
}
