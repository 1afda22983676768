//! The daemon, the launcher and QEMU together, as `docs/pool.md` starts them.
//! Skipped with a line where QEMU, the image's target or huge pages are missing.

use crate::common;
use crate::common::guest;

use firstlight_pool::os::hugepages;
use firstlight_pool::os::need::skip;
use guest::{QEMU, Qmp, image, qemu_is_here};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const HUGE: u64 = 2 << 20;

/// A daemon with two slabs of 128 MiB; ended when dropped.
struct Daemon {
    child: Child,
    folder: TempDir,
    _pages: hugepages::SetAside,
}

impl Daemon {
    fn start() -> Option<Self> {
        if !qemu_is_here() {
            return None;
        }
        let pages = hugepages::SetAside::new(HUGE, 128);
        let pages = pages.map_err(|error| skip("hugepages", error));
        let pages = pages.ok()?;
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().display();
        let text = format!(
            "socket = \"{path}/pool.sock\"\ndirectory = \"{path}/pool\"\n\
             [fill]\nrate = \"0\"\npause_at_pressure = 0\n\
             [[class]]\nsize = \"128M\"\nslabs = 2\nsource = \"memfd\"\n"
        );
        let config = folder.path().join("pool.toml");
        fs::write(&config, text).expect("a file");
        let config = config.to_str().expect("a plain name");
        let mut command = common::command(&["pool", "serve", "--config", config]);
        let child = command.stderr(Stdio::null()).spawn().expect("it starts");
        let daemon = Self {
            child,
            folder,
            _pages: pages,
        };
        daemon.wait("both slabs are clean", |pool| pool["clean_slabs"] == 2);
        Some(daemon)
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("pool.sock")
    }

    /// Its status; `None` before it listens.
    fn status(&self) -> Option<Value> {
        let socket = self.socket();
        let socket = socket.to_str().expect("a plain name");
        let (code, text, _) = common::told(&["pool", "status", "--json", "--socket", socket]);
        (code == 0).then(|| serde_json::from_str(&text).expect("a document"))
    }

    fn wait(&self, what: &str, is_so: impl Fn(&Value) -> bool) {
        let begin = Instant::now();
        loop {
            let status = self.status();
            if status
                .as_ref()
                .is_some_and(|status| is_so(&status["pools"][0]))
            {
                return;
            }
            assert!(
                begin.elapsed() < Duration::from_secs(300),
                "{what}: {status:?}"
            );
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// `pool run --require` with QEMU, its arguments separated by blanks.
    fn run(&self, options: &str, qemu: &str) -> Command {
        let socket = self.socket();
        let socket = socket.to_str().expect("a plain name");
        let mut arguments = vec!["pool", "run", "--require", "--socket", socket];
        arguments.extend(options.split_whitespace());
        arguments.extend(["--", QEMU, "-display", "none", "-nodefaults"]);
        arguments.extend(qemu.split_whitespace());
        common::command(&arguments)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let pid = self.child.id().to_string();
        // It may have ended already.
        let _ = Command::new("kill").arg(pid).status();
        let _ = self.child.wait();
    }
}

#[test]
fn a_guest_runs_on_the_pool_and_the_pool_gets_it_back() {
    let Some(daemon) = Daemon::start() else {
        return;
    };
    let mut qmp = Qmp::start(&mut daemon.run("--memory 128M", "-S -qmp stdio"));
    daemon.wait("one is allocated", |pool| {
        pool["allocated_slabs"] == 1 && pool["clean_slabs"] == 1
    });
    let rows = qmp.ask("query-memdev");
    assert_eq!(rows[0]["share"], true, "{rows}");
    assert_eq!(qmp.quit(), 0);
    daemon.wait("it is back, and clean again", |pool| {
        pool["allocated_slabs"] == 0 && pool["clean_slabs"] == 2
    });
    let status = daemon.status().expect("it listens");
    assert_eq!(status["counters"]["takes"], 1);
    assert_eq!(status["counters"]["returns"], 1);
}

#[test]
fn guests_can_use_all_of_what_was_allocated_named_or_injected() {
    let Some(daemon) = Daemon::start() else {
        return;
    };
    let Some(image) = image() else { return };
    let guest = format!(
        "-smp 2 -cpu max -no-reboot -append selftest -serial null \
         -device isa-debug-exit,iobase=0xf4,iosize=4 -kernel {image}"
    );
    let injected = format!(
        "-m 128M -machine memory-backend=m {guest} \
         -object memory-backend-memfd,id=m,size=128M,hugetlb=on,hugetlbsize=2M,prealloc=on"
    );
    for (options, qemu) in [
        ("--memory 128M --memory 128M", &guest),
        ("--inject", &injected),
    ] {
        let status = daemon.run(options, qemu).status().expect("it ran");
        assert_eq!(status.code(), Some(85), "{options}: the self-test passed");
        daemon.wait("all is back", |pool| pool["clean_slabs"] == 2);
    }
    let status = daemon.status().expect("it listens");
    assert_eq!(status["counters"]["takes"], 3);
}

#[test]
fn a_daemonized_guest_keeps_its_lease() {
    let Some(daemon) = Daemon::start() else {
        return;
    };
    let pid_file = daemon.folder.path().join("pid");
    let qemu = format!("-m 128M -S -daemonize -pidfile {}", pid_file.display());
    assert!(daemon.run("", &qemu).status().expect("it ran").success());
    let status = daemon.status().expect("it listens");
    assert_eq!(
        status["leases"].as_array().map(Vec::len),
        Some(1),
        "{status}"
    );
    let pid = fs::read_to_string(&pid_file).expect("QEMU wrote its number");
    let killed = Command::new("kill").args(["-KILL", pid.trim()]).status();
    assert!(killed.expect("kill is there").success());
    daemon.wait("it is back", |pool| {
        pool["allocated_slabs"] == 0 && pool["clean_slabs"] == 2
    });
}

#[test]
fn a_daemon_shrinks_grows_and_ends_by_request() {
    let Some(mut daemon) = Daemon::start() else {
        return;
    };
    let socket = daemon.socket();
    let socket = socket.to_str().expect("a plain name");
    let resize = |slabs: &str| {
        let arguments = [
            "pool", "resize", "--socket", socket, "--size", "128M", "--slabs", slabs,
        ];
        common::told(&arguments)
    };
    let (code, stdout, stderr) = resize("1");
    assert_eq!(
        (code, stdout.as_str()),
        (0, "128 MiB: 1 slab to keep, 2 before\n"),
        "{stderr}"
    );
    daemon.wait("one is left", |pool| pool["clean_bytes"] == 128 << 20);
    assert_eq!(resize("2").0, 0);
    daemon.wait("both are back", |pool| pool["clean_slabs"] == 2);
    let arguments = [
        "pool", "resize", "--socket", socket, "--size", "3M", "--slabs", "1",
    ];
    let (code, _, stderr) = common::told(&arguments);
    assert_eq!(code, 8, "no multiple of a page");
    assert!(
        stderr.starts_with("error: the pool refuses (bad-request)"),
        "{stderr}"
    );

    let drained = common::document(&["pool", "drain", "--json", "--socket", socket]);
    assert_eq!(drained["schema"], "firstlight.pool-drain/2");
    assert_eq!(drained["released_bytes"], 256 << 20);
    assert_eq!(drained["allocated_slabs"], 0);
    let ended = daemon.child.wait().expect("it is ours");
    assert!(ended.success(), "{ended}");
}
