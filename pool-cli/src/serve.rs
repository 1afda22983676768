//! `firstlight pool serve`: the daemon.

use crate::Program;
use crate::failure::Failure;
use clap::Args;
use firstlight_pool::config::Config;
use firstlight_pool::fill::{Policy, mapper};
use firstlight_pool::server;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;

/// Keep memory zeroed beforehand and allocate it, until a signal or a drain ends it
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    /// What to keep and for whom, in TOML; pool/example.toml explains every word
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

const EXAMPLES: &str = "\
Examples:
  firstlight pool serve --config pool/example.toml

Ctrl-C or SIGTERM ends it; running virtual machines keep their memory. SIGHUP reads the
configuration again: pools, quotas, groups, limits and the rate of filling.

Exit codes: see firstlight --help";

/// Runs the subcommand.
pub(crate) fn run(options: &Options, program: Program) -> Result<(), Failure> {
    let config = Config::read(&options.config).map_err(Failure::config)?;
    // The reader may be gone: no reason to end.
    let mut say = |line: &str| {
        let _ = writeln!(io::stderr(), "{}: {line}", program.name());
    };
    let path = options.config.clone();
    let read = move || Config::read(&path).map_err(|error| error.to_string());
    // Also where the program was replaced meanwhile.
    let command = ["/proc/self/exe"].iter().chain(program.prefix());
    let mapper = command.chain(&["mapper"]).map(OsString::from).collect();
    server::serve(&config, read, mapper, &mut say).map_err(Failure::served)
}

/// Map files of clients for a daemon, at its standard input
#[derive(Args)]
pub struct MapperOptions {
    /// Take memory from this node
    #[arg(long, value_name = "N")]
    node: Option<u32>,

    /// Run on these CPUs
    #[arg(long, value_name = "N", value_delimiter = ',')]
    cpus: Vec<usize>,

    /// Run with this weight
    #[arg(long, value_name = "N")]
    nice: Option<u8>,
}

/// Runs the process.
pub(crate) fn map(options: &MapperOptions) -> Result<(), Failure> {
    let policy = Policy {
        node: options.node,
        cpus: options.cpus.clone(),
        nice: options.nice,
        ..Policy::default()
    };
    let served = mapper::serve(io::stdin(), &policy);
    served.map_err(|error| Failure::Pool(format!("beside the daemon: {error}")))
}
