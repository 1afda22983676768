//! A host of a test's own: a real libvirtd, a real daemon of the pool, domains.

use crate::schema;
use firstlight_pool::os::hugepages::SetAside;
use firstlight_pool::os::need::skip;
use serde_json::Value;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long anything may take that is expected to come, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Guests share the host's control groups: one host at a time.
static ONE: Mutex<()> = Mutex::new(());

/// Where the daemon listens: not the usual place, so that it must be read.
pub(crate) const SOCKET: &str = "/run/elsewhere/pool.sock";

pub(crate) const QEMU: &str = "/usr/bin/qemu-system-x86_64";
pub(crate) const EMULATOR: &str = "/usr/bin/firstlight-qemu-system-x86_64";

/// What a domain is written with.
#[derive(Clone, Copy)]
pub(crate) struct Domain<'d> {
    pub(crate) name: &'d str,
    pub(crate) emulator: &'d str,
    pub(crate) mib: u64,
    /// Elements of `<domain>` that describe its memory.
    pub(crate) memory: &'d str,
}

impl Domain<'_> {
    fn xml(&self) -> String {
        let Self {
            name,
            emulator,
            mib,
            memory,
        } = self;
        format!(
            "<domain type='qemu'><name>{name}</name><memory unit='MiB'>{mib}</memory>{memory}\
             <vcpu>1</vcpu><os><type arch='x86_64' machine='q35'>hvm</type></os><features><acpi/></features>\
             <devices><emulator>{emulator}</emulator><controller type='usb' model='none'/></devices></domain>"
        )
    }
}

/// The host; all of it ends with the value.
pub(crate) struct Host {
    /// `unshare`, which ends what runs in its name spaces.
    outside: Child,
    /// The first process inside.
    inside: String,
    _folder: tempfile::TempDir,
    _pages: SetAside,
    _one: MutexGuard<'static, ()>,
}

impl Host {
    /// A host with libvirtd and `mib` in huge pages, or a line that says why it is skipped.
    pub(crate) fn new(mib: u64) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            skip("root", "only root can run libvirtd");
            return None;
        }
        for program in ["libvirtd", "virtlogd", "virsh", "nsenter"] {
            if Command::new(program).arg("--version").output().is_err() {
                skip("libvirt", format_args!("{program} is not installed"));
                return None;
            }
        }
        let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let pages = SetAside::new(2 << 20, mib / 2)
            .inspect_err(|error| skip("hugepages", error))
            .ok()?;
        // Name spaces cannot be laid over a folder that is an overlay itself.
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let mut outside = Command::new("unshare")
            .args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"])
            .args(["--net", "--ipc"])
            .args([
                "bash",
                concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/libvirt/host.sh"),
            ])
            .arg(folder.path())
            .arg(env!("CARGO_BIN_EXE_firstlight-pool"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let said = outside.stdout.take().unwrap();
        BufReader::new(said).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n", "host.sh has failed; its reason is above");
        let id = outside.id();
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
        let host = Self {
            outside,
            inside: children.trim().into(),
            _folder: folder,
            _pages: pages,
            _one: one,
        };
        host.settings("");
        host.start_libvirtd();
        Some(host)
    }

    /// A command inside.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command
            .args(["-t", &self.inside, "-m", "-p", "-n", "-i"])
            .args(words);
        command.stdin(Stdio::null()).env("LC_ALL", "C");
        command.env_remove("FIRSTLIGHT_POOL");
        command
    }

    /// Runs a command inside; what it said, also if it failed.
    pub(crate) fn try_run(&self, words: &[&str]) -> (bool, String, String) {
        let Output {
            status,
            stdout,
            stderr,
        } = self.command(words).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (status.success(), text(stdout), text(stderr))
    }

    /// What a command said that must not fail.
    pub(crate) fn run(&self, words: &[&str]) -> String {
        let (done, stdout, stderr) = self.try_run(words);
        assert!(done, "{words:?}: {stderr}");
        stdout
    }

    /// What a command said that must fail.
    pub(crate) fn fails(&self, words: &[&str]) -> String {
        let (done, stdout, stderr) = self.try_run(words);
        assert!(!done, "{words:?} did not fail: {stdout}");
        stderr
    }

    pub(crate) fn virsh(&self, words: &[&str]) -> String {
        self.run(&[&["virsh", "--quiet"], words].concat())
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        let mut command = self.command(&["tee", path]);
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        let mut writer = command.spawn().unwrap();
        let mut end = writer.stdin.take().unwrap();
        end.write_all(text.as_bytes()).unwrap();
        drop(end);
        assert!(writer.wait().unwrap().success(), "{path}");
    }

    /// The clients' settings: the socket's place, and `more`.
    pub(crate) fn settings(&self, more: &str) {
        let text = format!("socket = {SOCKET:?}\n{more}");
        self.write("/etc/firstlight/client.toml", &text);
    }

    pub(crate) fn start_libvirtd(&self) {
        self.run(&["sh", "-c", "libvirtd -d >/dev/null 2>&1"]);
        self.until("libvirtd answers", |host| {
            host.try_run(&["virsh", "list"]).0
        });
    }

    /// Ends libvirtd; guests run on.
    pub(crate) fn stop_libvirtd(&self) {
        self.run(&["pkill", "-x", "libvirtd"]);
        self.until("libvirtd is gone", |host| {
            !host.try_run(&["pgrep", "-x", "libvirtd"]).0
        });
    }

    /// A daemon that keeps so many slabs of `mib`, all of them clean.
    pub(crate) fn start_pool(&self, mib: u64, slabs: u64) {
        let mut config = format!("socket = {SOCKET:?}\ndirectory = \"/run/firstlight/pool\"\n");
        let _ = write!(config, "[access]\ngroup = \"kvm\"\n[fill]\nrate = \"0\"\n");
        let _ = write!(
            config,
            "[[class]]\npage = \"2M\"\nsize = \"{mib}M\"\nslabs = {slabs}\n"
        );
        self.write("/etc/firstlight/pool.toml", &config);
        self.start_pool_again();
        self.until_clean(slabs);
    }

    /// The daemon, as it was.
    pub(crate) fn start_pool_again(&self) {
        let serve = "setsid firstlight-pool serve --config /etc/firstlight/pool.toml \
                     </dev/null >/var/log/pool.log 2>&1 &";
        self.run(&["sh", "-c", serve]);
        self.until("the pool answers", |host| {
            host.try_run(&["firstlight-pool", "status"]).0
        });
    }

    pub(crate) fn stop_pool(&self) {
        self.run(&["pkill", "-f", "^firstlight-pool serve"]);
        self.until("the pool is gone", |host| {
            !host.try_run(&["pgrep", "-f", "^firstlight-pool serve"]).0
        });
    }

    pub(crate) fn until_clean(&self, slabs: u64) {
        self.until("clean slabs", |host| {
            host.pool()["pools"][0]["clean_slabs"] == slabs
        });
    }

    /// What the pool says.
    pub(crate) fn pool(&self) -> Value {
        let text = self.run(&["firstlight-pool", "status", "--json"]);
        schema::document(text.as_bytes())
    }

    /// Sizes of all leases in MiB.
    pub(crate) fn leases(&self) -> Vec<u64> {
        let status = self.pool();
        let rows = status["leases"].as_array().unwrap();
        let size = |row: &Value| row["bytes"].as_u64().unwrap() >> 20;
        rows.iter().map(size).collect()
    }

    /// What `pool libvirt` says about a domain.
    pub(crate) fn state(&self, name: &str) -> Value {
        let text = self.run(&["firstlight-pool", "libvirt", "status", name, "--json"]);
        schema::document(text.as_bytes())
    }

    pub(crate) fn define(&self, domain: Domain<'_>) {
        self.write("/run/domain.xml", &domain.xml());
        self.virsh(&["define", "/run/domain.xml"]);
    }

    /// What the VMM said, from the last start on.
    pub(crate) fn log(&self, name: &str) -> String {
        let log = self.run(&["cat", &format!("/var/log/libvirt/qemu/{name}.log")]);
        let last = log.rfind("starting up libvirt").unwrap_or(0);
        let lines = log[last..].lines();
        let ours = lines.filter(|line| line.starts_with("firstlight: "));
        ours.collect::<Vec<_>>().join("\n")
    }

    /// A domain does not start, and its log says why: libvirt shows as much of that as has
    /// come through its log's own daemon by then, on a busy machine nothing.
    pub(crate) fn does_not_start(&self, name: &str, why: &str) {
        self.fails(&["virsh", "start", name]);
        let path = format!("/var/log/libvirt/qemu/{name}.log");
        self.until(why, |host| {
            let log = host.run(&["cat", &path]);
            let last = log.rfind("starting up libvirt").unwrap_or(0);
            log[last..].contains(why)
        });
    }

    /// Files that a domain's VMM has mapped shared: their names and MiB.
    pub(crate) fn shared_files(&self, name: &str) -> Vec<(String, u64)> {
        let pid = self.run(&["cat", &format!("/run/libvirt/qemu/{name}.pid")]);
        let maps = self.run(&["cat", &format!("/proc/{}/maps", pid.trim())]);
        let shared = maps.lines().filter(|line| line.contains(" rw-s "));
        shared
            .map(|line| {
                let mut words = line.split_whitespace();
                let (from, to) = words.next().unwrap().split_once('-').unwrap();
                let number = |text| u64::from_str_radix(text, 16).unwrap();
                let file = words.nth(4).unwrap_or_default();
                (file.into(), (number(to) - number(from)) >> 20)
            })
            .filter(|(_, mib)| *mib >= 32)
            .collect()
    }

    /// Those of the domains: libvirt made them in the machine's hierarchies, and was killed.
    fn remove_control_groups(&self) {
        let script = "find /sys/fs/cgroup -depth -type d -path '*/machine/qemu-*.libvirt-qemu*' \
                      -exec rmdir {} + 2>/dev/null";
        // One that still has a process of a host that is ending is empty soon.
        for _ in 0..100 {
            let done = Command::new("sh").args(["-c", script]).status();
            if done.is_ok_and(|status| status.success()) {
                return;
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits for something that must come.
    pub(crate) fn until(&self, what: &str, mut come: impl FnMut(&Self) -> bool) {
        let begin = Instant::now();
        while !come(self) {
            assert!(begin.elapsed() < PATIENCE, "waited in vain: {what}");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // The first process inside takes all others along.
        let _ = Command::new("kill").args(["-KILL", &self.inside]).status();
        let _ = self.outside.wait();
        self.remove_control_groups();
    }
}
