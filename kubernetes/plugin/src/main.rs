//! The command `firstlight-kubernetes`.

use clap::{Args, Parser, Subcommand};
use firstlight_kubernetes::plugin;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// The memory of Firstlight's pool as a resource of Kubernetes
#[derive(Parser)]
#[command(name = "firstlight-kubernetes", version, after_help = EXIT_CODES, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Plugin(Plugin),
}

const EXIT_CODES: &str = "\
Exit codes:
  0  ended by a signal
  2  wrong usage
  5  it cannot serve";

/// Serve kubelet as a device plugin: slabs of each size are a resource, such as firstlight.dev/2m-8g
///
/// A pod that has one reaches a socket which FIRSTLIGHT_POOL names in its container, and which serves that one slab.
/// It runs as root beside the pool's daemon, and may be ended at any moment: pods keep what they have.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
struct Plugin {
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
    /// The pod that this runs in: kubelet is not believed that a pod is gone before it lists this one
    #[arg(long, value_name = "NAMESPACE/NAME")]
    pod: Option<String>,
    /// How long no pod must have a device until the right to its slab ends; another pod's use of it ends that at once
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    absent: u32,
}

const EXAMPLES: &str = "\
Examples:
  firstlight-kubernetes plugin
  firstlight-kubernetes plugin --socket /run/firstlight/pool.sock --kubelet /var/lib/kubelet
  firstlight-kubernetes plugin --client /var/lib/firstlight/firstlight-pool

Exit codes: see firstlight-kubernetes --help";

fn main() -> ExitCode {
    let Command::Plugin(given) = Arguments::parse().command;
    let links = given
        .links
        .unwrap_or_else(|| given.socket.with_file_name("kubernetes"));
    let options = plugin::Options {
        socket: given.socket,
        kubelet: given.kubelet,
        links,
        client: given.client,
        pod: given.pod,
        absent: Duration::from_secs(given.absent.into()),
    };
    let mut say = |text: &str| eprintln!("firstlight-kubernetes: {text}");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let copied = match (&given.install, &options.client) {
        (Some(file), Some(client)) => install(file, client),
        _ => Ok(()),
    };
    let served = copied
        .and(runtime.map_err(|error| format!("cannot start: {error}")))
        .and_then(|runtime| {
            let served = runtime.block_on(plugin::run(options, &mut say));
            // A call that waits for the daemon keeps no signal from ending this.
            runtime.shutdown_background();
            served
        });
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("firstlight-kubernetes: error: {text}");
            ExitCode::from(5)
        }
    }
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
