//! What `firstlight matrix` takes: [`Options`].

use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};

/// Boot kernels x shapes x command lines x clocks, in turns, and keep all of it
///
/// Each boot leaves a record and its raw log in the folder. The same command goes on where
/// it was stopped. A Linux without an initial file system gets one that the lab builds:
/// it switches the machine off when it runs.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// The matrix, as TOML
    pub(super) matrix: PathBuf,
    /// The folder of results
    #[arg(long, short, value_name = "DIR", default_value = "runs")]
    pub(super) output: PathBuf,
    /// Make boots that failed again
    #[arg(long)]
    pub(super) retry: bool,
    /// Only say what would be booted
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Where the boots are made; slurm: an array job for each cell
    #[arg(long, value_enum, default_value_t = Place::Here)]
    pub(super) on: Place,
    /// A further argument for sbatch, such as --partition=NAME; may be given more than once
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    pub(super) sbatch: Vec<String>,
    /// The file of the image, instead of the one beside this program
    #[arg(long, value_name = "FILE")]
    pub(super) image: Option<PathBuf>,
    /// One run of a cell, CELL/RUN: what a job of Slurm makes
    #[arg(long, value_name = "CELL/RUN", hide = true)]
    pub(super) task: Option<String>,
}

/// Where boots are made.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Place {
    /// On this host, one after the other
    Here,
    /// On the nodes of Slurm; the folder, the kernels and this program must be there as well
    Slurm,
}

const EXAMPLES: &str = "\
Example of a matrix:
  runs = 5
  clocks = [\"wall\", \"instructions\"]
  words = [\"\", \"init_on_free=1\"]
  [[kernel]]
  name = \"image\"
  [[kernel]]
  name = \"6.12\"
  path = \"target/linux/6.12/vmlinuz\"
  [[shape]]
  memory_mib = 16384
  nodes = 2
  cpus = 2

Examples:
  firstlight matrix MATRIX.toml -o runs
  firstlight matrix MATRIX.toml -o /shared/runs --on slurm --sbatch=--partition=lab
  firstlight report runs -o report.html

Exit codes: see firstlight --help; 6 if a boot failed";

/// The initial file system that the lab builds.
pub(super) const INITRD: &str = "initrd.cpio";

impl Options {
    /// The folder from which paths of the matrix count.
    pub(super) fn base(&self) -> &Path {
        self.matrix.parent().unwrap_or(Path::new("."))
    }
}
