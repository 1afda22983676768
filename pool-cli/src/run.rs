//! `firstlight pool run`: a VMM started on memory of the pool.
//!
//! The command becomes the VMM (`exec`): its process id, exit code and
//! signals are the VMM's. What there is to say goes to standard error
//! before that, because standard output is the guest's.

use crate::Program;
use crate::daemon::Daemon;
use crate::failure::Failure;
use crate::input;
use crate::output::Output;
use crate::start::{self, Record, Terms, check_nodes, words};
use clap::Args;
use firstlight_pool::launch::{Backing, Need, Plan, label};
use firstlight_pool::protocol::{Label, PageSize};
use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};

/// Start a VMM on memory of the pool
///
/// The command becomes the VMM. QEMU's command line is changed where it
/// must be; for any other VMM, {memory} stands for the file's name. Without
/// a daemon, or when it has nothing that fits, the VMM starts the ordinary
/// way, on the kernel's memory, and a line says so; --require fails instead.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    #[command(flatten)]
    daemon: Daemon,
    /// Memory of the guest, or of each of its nodes; from NODE of the host if named
    /// [default: what the VMM's command line says]
    #[arg(long, value_name = "SIZE[@NODE]")]
    memory: Vec<Need>,
    /// Only memory of this page size: 2M, 1G or thp
    #[arg(long, value_name = "SIZE")]
    page: Option<PageSize>,
    /// Time the daemon may spend on zeroing what a smaller slab lacks
    /// [default: 5000, without --require only if the slab has more than half of it]
    #[arg(long, value_name = "MS")]
    topup: Option<u32>,
    /// Time to ask again for memory that is not there yet; only for a connection, of which
    /// there are too many, 10 seconds without this
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(0..=86_400))]
    wait: Option<u32>,
    /// What `pool status` calls the guest [default: QEMU's -name, or the program's name]
    #[arg(long, value_name = "NAME")]
    label: Option<Label>,
    /// For Cloud Hypervisor, whose guest is made over its API: read the body IN of vm.create, and
    /// write OUT, which has the pool's memory, for `ch-remote create OUT`
    #[arg(long, num_args = 2, value_names = ["IN", "OUT"], action = clap::ArgAction::Set, conflicts_with = "inject")]
    vm_config: Option<Vec<PathBuf>>,
    /// Leave the command line as it is, and serve what the VMM makes with memfd_create
    #[arg(long)]
    inject: bool,
    /// Fail where the pool has nothing, instead of starting the ordinary way
    #[arg(long)]
    require: bool,
    /// Print what would be started, and start nothing
    #[arg(long)]
    show: bool,
    /// The VMM and its arguments
    #[arg(last = true, required = true, value_name = "VMM")]
    vmm: Vec<OsString>,
}

const EXAMPLES: &str = "\
Examples:
  firstlight pool run --memory 2G -- qemu-system-x86_64 -S -display none   needs no kernel
  firstlight pool run --memory 8G -- qemu-system-x86_64 -kernel vmlinuz -nographic
  firstlight pool run --memory 32G@0 --memory 32G@1 -- qemu-system-x86_64 -smp 8 ...
  firstlight pool run --inject -- qemu-system-x86_64 -m 8G -machine memory-backend=m \\
      -object memory-backend-memfd,id=m,size=8G,hugetlb=on
  firstlight pool run -- cloud-hypervisor --kernel vmlinuz --memory size=8G
  firstlight pool run --vm-config vm.json /run/vm.json -- cloud-hypervisor --api-socket /run/vm.sock
  firstlight pool run --memory 8G -- some-vmm --ram-file {memory} ...

Exit codes: the VMM's, once it runs; before that see firstlight --help";

/// Runs the subcommand; returns only if the VMM was not started.
pub(crate) fn run(options: &Options, of: Program, output: &mut Output) -> Result<(), Failure> {
    let (program, arguments) = options.vmm.split_first().ok_or_else(|| {
        // The parser of arguments asks for at least one.
        Failure::Check("no VMM".into())
    })?;
    let is_file = |path: &Path| path.exists() && !path.is_dir();
    let bodies = options.vm_config.as_deref().unwrap_or_default();
    let plan = if options.inject {
        Plan::injected(program, arguments, &options.memory)
    } else if let Some(path) = bodies.first() {
        let body = read_body(path)?;
        if let Some(out) = bodies.get(1) {
            check_out(path, out)?;
        }
        Plan::over_api(program, arguments, &body, &options.memory, &is_file)
    } else {
        Plan::new(program, arguments, &options.memory, &is_file)
    }
    .map_err(Failure::pool)?;
    check_nodes(plan.needs())?;
    if options.show {
        return show(program, &plan, output);
    }
    let terms = Terms {
        socket: options.daemon.socket()?,
        page: options.page,
        topup: options.topup,
        wait: options.wait,
        require: options.require,
        require_by: "--require",
        body_to: bodies.get(1).cloned(),
        label: options
            .label
            .clone()
            .unwrap_or_else(|| label(program, arguments)),
    };
    Err(start::start(of, program, &plan, &terms, output))
}

/// More than the body of any guest.
const MOST_BODY_BYTES: u64 = 1 << 20;

fn read_body(path: &Path) -> Result<String, Failure> {
    let failed = |error: io::Error| {
        let path = path.display();
        Failure::Pool(format!("{path}: {error}; expected the body of vm.create"))
    };
    let text = input::read(path, MOST_BODY_BYTES).map_err(failed)?;
    text.ok_or_else(|| failed(io::Error::other("a body of more than 1 MiB")))
}

/// OUT becomes a new file: what is there and no file, or what IN says, stays.
fn check_out(body: &Path, out: &Path) -> Result<(), Failure> {
    let refuse = |what: &str| {
        let out = out.display();
        Err(Failure::Pool(format!(
            "--vm-config: {out} {what}; expected the name of a file for OUT alone"
        )))
    };
    let Ok(there) = out.symlink_metadata() else {
        return Ok(());
    };
    if !there.is_file() {
        return refuse("is there, and no file");
    }
    match (body.canonicalize(), out.canonicalize()) {
        (Ok(body), Ok(out)) if body == out => refuse("is IN"),
        _ => Ok(()),
    }
}

fn show(program: &OsStr, plan: &Plan, output: &mut Output) -> Result<(), Failure> {
    let files: Vec<Backing> = (0..plan.needs().len())
        .map(|at| Backing {
            path: format!("/proc/self/fd/N{at}"),
            align_bytes: None,
        })
        .collect();
    let record = Record {
        schema: "firstlight.pool-run/1",
        from_pool: true,
        reason: None,
        require_by: "--require",
        leases: Vec::new(),
        take_ns: 0,
        notes: plan.notes(),
        command: words(program, &plan.with_memory(&files)),
    };
    output.print(&record, |record| {
        let mut page = String::new();
        for note in record.notes {
            let _ = writeln!(page, "# note: {note}");
        }
        let words: Vec<String> = record.command.iter().map(|word| quoted(word)).collect();
        let _ = writeln!(page, "{}", words.join(" "));
        if let Some(body) = plan.body(&files) {
            let _ = writeln!(page, "{body}");
        }
        page
    })
}

/// A word as a shell reads it.
fn quoted(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./,:=@+%".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        return word.into();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn words_survive_a_shell() {
        let table = [
            ("-m", "-m"),
            ("", "''"),
            ("console=ttyS0 quiet", "'console=ttyS0 quiet'"),
            ("it's", r"'it'\''s'"),
            ("{\"a\":1}", "'{\"a\":1}'"),
        ];
        for (word, expected) in table {
            assert_eq!(quoted(word), expected);
        }
    }
}
