//! A Slurm of two nodes on this machine, from Debian's packages, with an authentication
//! daemon of its own: [`Cluster`]. All that it starts ends with it.

use firstlight_pool::os::need::skip;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(120);
/// Names the cluster, and of its nodes which one, in the environment of its processes.
const MARK: &str = "FIRSTLIGHT_TEST_NODE";

pub(crate) struct Cluster {
    folder: tempfile::TempDir,
    daemons: Vec<Child>,
}

impl Cluster {
    /// Starts it; `None`, with a line, where Slurm is not installed.
    pub(crate) fn start() -> Option<Self> {
        for program in ["slurmctld", "slurmd", "munged", "sbatch"] {
            if which(program).is_none() {
                skip(
                    "slurm",
                    format!("no {program} (Debian: slurmctld slurmd munge)"),
                );
                return None;
            }
        }
        if !rustix::process::geteuid().is_root() {
            skip("slurm", "its node daemons need root");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let mut cluster = Self {
            folder,
            daemons: Vec::new(),
        };
        cluster.configure();
        cluster.daemon(
            "munged",
            &["--foreground", "--key-file=KEY", "--socket=MUNGE"],
            "",
        );
        until("munge", || cluster.path("munge.socket").exists());
        cluster.daemon("slurmctld", &["-D", "-f", "CONF"], "");
        for node in ["n1", "n2"] {
            cluster.daemon("slurmd", &["-D", "-f", "CONF", "-N", node], node);
        }
        until("two idle nodes", || {
            cluster.output_of("sinfo", &["-h", "-N", "-o%T"]) == "idle\nidle"
        });
        Some(cluster)
    }

    fn configure(&self) {
        let ports: Vec<TcpListener> = (0..3)
            .map(|_| TcpListener::bind("127.0.0.1:0").unwrap())
            .collect();
        let port = |at: usize| ports[at].local_addr().unwrap().port();
        let host = rustix::system::uname();
        let host = host.nodename().to_str().unwrap();
        let folder = self.folder.path().display();
        // Seconds instead of minutes wherever Slurm waits before it acts.
        let text = format!(
            "ClusterName=test\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={}\n\
             SlurmUser=root\nSlurmdUser=root\nAuthType=auth/munge\n\
             AuthInfo=socket={folder}/munge.socket,cred_expire=5\n\
             CommunicationParameters=NoCtldInAddrAny,NoInAddrAny\n\
             StateSaveLocation={folder}/state\nSlurmdSpoolDir={folder}/spool.%n\n\
             SlurmctldPidFile={folder}/ctld.pid\nSlurmdPidFile={folder}/%n.pid\n\
             SlurmctldLogFile={folder}/ctld.log\nSlurmdLogFile={folder}/%n.log\n\
             ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nMpiDefault=none\n\
             SelectType=select/cons_tres\nSelectTypeParameters=CR_CPU_Memory\n\
             SchedulerType=sched/builtin\nSchedulerParameters=batch_sched_delay=0,sched_interval=1\n\
             ReturnToService=2\nSlurmdTimeout=2\nMessageTimeout=2\nTCPTimeout=1\nKillWait=1\n\
             NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={} CPUs=1 RealMemory=1024 State=UNKNOWN\n\
             NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={} CPUs=1 RealMemory=1024 State=UNKNOWN\n\
             PartitionName=lab Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP\n",
            port(0),
            port(1),
            port(2)
        );
        fs::write(self.path("slurm.conf"), text).unwrap();
        for name in ["state", "spool.n1", "spool.n2", "bin"] {
            fs::create_dir(self.path(name)).unwrap();
        }
        let key = self.path("key");
        fs::write(&key, [7; 1024]).unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    }

    fn daemon(&mut self, program: &str, arguments: &[&str], node: &str) {
        let path = |name: &str| self.path(name).to_str().unwrap().to_owned();
        let mut command = Command::new(which(program).unwrap());
        for argument in arguments {
            let argument = argument.replace("KEY", &path("key"));
            let argument = argument.replace("MUNGE", &path("munge.socket"));
            command.arg(argument.replace("CONF", &path("slurm.conf")));
        }
        if program == "munged" {
            for (option, name) in [("pid", "munge.pid"), ("log", "munge.log"), ("seed", "seed")] {
                command.arg(format!("--{option}-file={}", path(name)));
            }
        }
        let child = command
            .env("SLURM_CONF", self.path("slurm.conf"))
            .env(MARK, self.mark(node))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        self.daemons.push(child);
    }

    fn mark(&self, node: &str) -> String {
        format!("{}:{node}", self.folder.path().display())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A command that speaks to this cluster, and finds programs in its `bin` first.
    pub(crate) fn join<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        let path = std::env::var("PATH").unwrap();
        command
            .env("SLURM_CONF", self.path("slurm.conf"))
            .env("PATH", format!("{}:{path}", self.path("bin").display()))
    }

    /// What a program of Slurm prints.
    pub(crate) fn output_of(&self, program: &str, arguments: &[&str]) -> String {
        let output = self
            .join(Command::new(program).args(arguments))
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// All processes of a node end at once, as when its power fails.
    pub(crate) fn power_off(&self, node: &str) {
        let marks = [
            format!("{MARK}={}", self.mark(node)),
            format!("SLURMD_NODENAME={node}"),
        ];
        // A task that is about to start a process is seen in the next round.
        until("a node without processes", || {
            let of_node = self.processes(|list| list.iter().any(|entry| marks.contains(entry)));
            // Stopped first: none may report how another one ended.
            send(&of_node, Signal::STOP);
            send(&of_node, Signal::KILL);
            of_node.is_empty()
        });
    }

    /// Processes of this cluster whose environment is as `wanted`.
    fn processes(&self, wanted: impl Fn(&[String]) -> bool) -> Vec<i32> {
        let conf = format!("SLURM_CONF={}", self.path("slurm.conf").display());
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").unwrap().filter_map(Result::ok) {
            let Ok(id) = entry.file_name().to_string_lossy().parse() else {
                continue;
            };
            let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
            let list: Vec<String> = environment
                .split(|byte| *byte == 0)
                .map(|entry| String::from_utf8_lossy(entry).into_owned())
                .collect();
            if list.contains(&conf) && wanted(&list) {
                found.push(id);
                // The daemon of a task overwrites its environment by its title.
                found.extend(step_daemon_above(id));
            }
        }
        found
    }
}

/// The parent of a process, if it is Slurm's daemon of a task.
fn step_daemon_above(id: i32) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let parent = status
        .lines()
        .find_map(|line| line.strip_prefix("PPid:"))?
        .trim();
    let name = fs::read_to_string(format!("/proc/{parent}/comm")).ok()?;
    (name.trim() == "slurmstepd").then(|| parent.parse().ok())?
}

fn send(ids: &[i32], signal: Signal) {
    for id in ids.iter().filter_map(|id| Pid::from_raw(*id)) {
        // It may have ended.
        let _ = kill_process(id, signal);
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        send(&self.processes(|_| true), Signal::KILL);
        for daemon in &mut self.daemons {
            let _ = daemon.wait();
        }
        if thread::panicking() {
            for log in ["ctld.log", "n1.log", "n2.log"] {
                let text = fs::read_to_string(self.path(log)).unwrap_or_default();
                let tail: Vec<&str> = text.lines().rev().take(15).collect();
                eprintln!("{log}, the last line first:\n{}", tail.join("\n"));
            }
        }
    }
}

/// Waits for it.
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < PATIENCE, "waited in vain for {what}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// A program in PATH, or where daemons are.
pub(crate) fn which(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain([PathBuf::from("/usr/sbin")])
        .map(|folder| folder.join(name))
        .find(|path| Path::is_file(path))
}
