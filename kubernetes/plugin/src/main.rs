//! The command `firstlight-kubernetes`.

use clap::{Args, Parser, Subcommand};
use firstlight_kubernetes::apiserver::ApiServer;
use firstlight_kubernetes::events::Events;
use firstlight_kubernetes::host::Host;
use firstlight_kubernetes::{driver, plugin};
use firstlight_pool::os::folder;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// The memory of Firstlight's pool in Kubernetes: as a resource of pods, or for claims
#[derive(Parser)]
#[command(name = "firstlight-kubernetes", version, after_help = EXIT_CODES, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Plugin(Plugin),
    Driver(Driver),
    Metrics(Metrics),
}

const EXIT_CODES: &str = "\
Exit codes:
  0  ended by a signal
  2  wrong usage
  5  it cannot serve";

/// What both ways have in common.
#[derive(Args)]
struct Node {
    /// The pool's socket
    #[arg(long, value_name = "PATH", default_value = "/run/firstlight/pool.sock")]
    socket: PathBuf,
    /// kubelet's folder
    #[arg(long, value_name = "FOLDER", default_value = "/var/lib/kubelet")]
    kubelet: PathBuf,
    /// Folder of the links that pods mount, on the host [default: kubernetes, beside the pool's socket]
    #[arg(long, value_name = "FOLDER")]
    links: Option<PathBuf>,
    /// A static firstlight-pool on the host, which containers then have as /run/firstlight/bin/firstlight-pool
    #[arg(long, value_name = "FILE")]
    client: Option<PathBuf>,
    /// Copy this file there first: to where containers have it from
    #[arg(long, value_name = "FILE", requires = "client")]
    install: Option<PathBuf>,
}

impl Node {
    fn install(&self) -> Result<(), String> {
        let (Some(file), Some(client)) = (&self.install, &self.client) else {
            return Ok(());
        };
        // Then this is a pod's, and the folder is the pool's alone.
        self.socket.parent().map_or(Ok(()), close_to_lists)?;
        install(file, client)
    }

    fn host(self) -> Host {
        let beside = self.socket.with_file_name("kubernetes");
        Host {
            links: self.links.unwrap_or(beside),
            socket: self.socket,
            kubelet: self.kubelet,
            client: self.client,
        }
    }
}

/// How the apiserver is reached.
#[derive(Args)]
struct Cluster {
    /// The apiserver: https://HOST:PORT, or http:// of `kubectl proxy` on this machine [default: the pod's]
    #[arg(long, value_name = "ADDRESS")]
    apiserver: Option<String>,
    /// Folder with the apiserver's root certificate, ca.crt, and this program's token
    #[arg(
        long,
        value_name = "FOLDER",
        default_value = "/var/run/secrets/kubernetes.io/serviceaccount"
    )]
    secrets: PathBuf,
}

impl Cluster {
    fn apiserver(self) -> Result<ApiServer, String> {
        let address = self.apiserver.map_or_else(of_the_pod, Ok)?;
        ApiServer::at(&address, &self.secrets)
    }
}

/// Serve kubelet as a device plugin: slabs of each size are a resource, such as firstlight.dev/2m-8g
///
/// A pod that has one reaches a socket which FIRSTLIGHT_POOL names in its container, and which serves that one slab.
/// It runs as root beside the pool's daemon, and may be ended at any moment: pods keep what they have.
#[derive(Args)]
#[command(after_help = PLUGIN_EXAMPLES)]
struct Plugin {
    #[command(flatten)]
    node: Node,
    /// The pod that this runs in: kubelet is not believed that a pod is gone before it lists this one
    #[arg(long, value_name = "NAMESPACE/NAME")]
    pod: Option<String>,
    /// How long no pod must have a device until the right to its slab ends; another pod's use of it ends that at once
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    absent: u32,
    /// This node's name in the cluster: what is wrong with its pool is an event of it then
    #[arg(long = "node", value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    cluster: Cluster,
}

/// Serve claims as the driver pool.firstlight.dev: slabs are devices that a claim chooses by page, size and node
///
/// A pod with a claim reaches a socket which FIRSTLIGHT_POOL names in its container, and which serves that one slab.
/// It runs as root beside the pool's daemon, and may be ended at any moment: pods keep what they have. Needs Kubernetes
/// 1.34 and a container runtime with CDI. A pool is served by this or by the device plugin, never by both.
#[derive(Args)]
#[command(after_help = DRIVER_EXAMPLES)]
struct Driver {
    #[command(flatten)]
    node: Node,
    /// This node's name in the cluster
    #[arg(long = "node", value_name = "NAME")]
    name: String,
    /// The folder that the container runtime reads of the Container Device Interface
    #[arg(long, value_name = "FOLDER", default_value = "/var/run/cdi")]
    cdi: PathBuf,
    #[command(flatten)]
    cluster: Cluster,
}

/// Serve the pool's metrics to Prometheus, at the pod's own address
///
/// All that reach the address can read what it serves: /metrics, and /status.json with the names of pods, and sizes and
/// processes of leases. On a machine without Kubernetes: `firstlight-pool export`.
#[derive(Args)]
#[command(after_help = METRICS_EXAMPLES)]
struct Metrics {
    /// The pool's socket
    #[arg(long, value_name = "PATH", default_value = "/run/firstlight/pool.sock")]
    socket: PathBuf,
    /// Where to listen
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:9464")]
    listen: SocketAddr,
}

const PLUGIN_EXAMPLES: &str = "\
Examples:
  firstlight-kubernetes plugin
  firstlight-kubernetes plugin --socket /run/firstlight/pool.sock --kubelet /var/lib/kubelet
  firstlight-kubernetes plugin --client /var/lib/firstlight/firstlight-pool
  firstlight-kubernetes plugin --node node1    in a pod: what is wrong is an event of the node

Exit codes: see firstlight-kubernetes --help";

const DRIVER_EXAMPLES: &str = "\
Examples:
  firstlight-kubernetes driver --node node1
  firstlight-kubernetes driver --node node1 --client /var/lib/firstlight/firstlight-pool
  firstlight-kubernetes driver --node node1 --apiserver http://127.0.0.1:8001   where `kubectl proxy` runs

Exit codes: see firstlight-kubernetes --help";

const METRICS_EXAMPLES: &str = "\
Examples:
  firstlight-kubernetes metrics
  firstlight-kubernetes metrics --listen [::]:9464

Exit codes: see firstlight-kubernetes --help";

fn main() -> ExitCode {
    match serve(Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("firstlight-kubernetes: error: {text}");
            ExitCode::from(5)
        }
    }
}

fn say(text: &str) {
    eprintln!("firstlight-kubernetes: {text}");
}

fn serve(command: Command) -> Result<(), String> {
    match command {
        Command::Plugin(given) => {
            given.node.install()?;
            until_ended(plugin::run(given.options()?, &mut say))
        }
        Command::Driver(given) => {
            given.node.install()?;
            until_ended(driver::run(given.options()?, &mut say))
        }
        Command::Metrics(given) => until_ended(async {
            let served = tokio::task::spawn_blocking(move || given.serve());
            served.await.unwrap_or_else(|error| Err(error.to_string()))
        }),
    }
}

impl Metrics {
    fn serve(&self) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("cannot listen at {}: {error}", self.listen);
        let listener = TcpListener::bind(self.listen).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        say(&format!("metrics at http://{address}/metrics"));
        firstlight_pool::export::serve(&listener, &self.socket, false, &say).map_err(failed)
    }
}

fn until_ended(served: impl Future<Output = Result<(), String>>) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let runtime = runtime.map_err(|error| format!("cannot start: {error}"))?;
    let served = runtime.block_on(async {
        let listens =
            |kind| signal(kind).map_err(|error| format!("cannot wait for signals: {error}"));
        let mut term = listens(SignalKind::terminate())?;
        let mut interrupt = listens(SignalKind::interrupt())?;
        tokio::select! {
            served = served => served,
            _ = term.recv() => Ok(()),
            _ = interrupt.recv() => Ok(()),
        }
    });
    // A call that waits for the daemon keeps no signal from ending this.
    runtime.shutdown_background();
    served
}

impl Plugin {
    fn options(self) -> Result<plugin::Options, String> {
        let events = match self.name {
            Some(name) => Some(Events::new(self.cluster.apiserver()?, name)),
            None => None,
        };
        Ok(plugin::Options {
            host: self.node.host(),
            pod: self.pod,
            absent: Duration::from_secs(self.absent.into()),
            events,
        })
    }
}

impl Driver {
    fn options(self) -> Result<driver::Options, String> {
        Ok(driver::Options {
            host: self.node.host(),
            cdi: self.cdi,
            apiserver: self.cluster.apiserver()?,
            node: self.name,
        })
    }
}

/// The apiserver's address, as each pod has it.
fn of_the_pod() -> Result<String, String> {
    let variable = |name: &str| {
        let missing = |_| format!("{name} is not set, which it is in a pod: give --apiserver");
        std::env::var(name).map_err(missing)
    };
    let host = variable("KUBERNETES_SERVICE_HOST")?;
    let port = variable("KUBERNETES_SERVICE_PORT")?;
    let host = if host.contains(':') {
        format!("[{host}]")
    } else {
        host
    };
    Ok(format!("https://{host}:{port}"))
}

/// Lets others pass our folder of the pool's socket and not list it, which kubelet makes for all to list: a process that
/// does may keep all waiting that make something there.
fn close_to_lists(path: &Path) -> Result<(), String> {
    let close = || -> std::io::Result<()> {
        // In another's the pool does not start.
        let folder = match folder::look_at_own(path) {
            Ok(Some(folder)) => folder,
            Ok(None) => return Ok(()),
            Err(error) => {
                say(&format!("others may list {}: {error}", path.display()));
                return Ok(());
            }
        };
        let mode = rustix::fs::fstat(&folder)?.st_mode & 0o7777;
        // One that is sticky is for all to write to.
        if mode & 0o1000 == 0 && mode & 0o066 != 0 {
            rustix::fs::fchmod(&folder, rustix::fs::Mode::from_raw_mode(mode & !0o066))?;
        }
        Ok(())
    };
    close().map_err(|error| format!("cannot set the mode of {}: {error}", path.display()))
}

/// Copies a program, in one step: containers run what was there before.
fn install(file: &Path, to: &Path) -> Result<(), String> {
    let new = to.with_extension("new");
    let copied = std::fs::copy(file, &new).and_then(|_| std::fs::rename(&new, to));
    copied.map_err(|error| {
        format!(
            "cannot copy {} to {}: {error}",
            file.display(),
            to.display()
        )
    })
}
