//! `firstlight pool run`: a VMM started on memory of the pool.
//!
//! The command becomes the VMM (`exec`): its process id, exit code and
//! signals are the VMM's. What there is to say goes to standard error
//! before that, because standard output is the guest's.

use crate::Program;
use crate::daemon::Daemon;
use crate::failure::Failure;
use crate::injector;
use crate::output::Output;
use crate::text::bytes;
use clap::Args;
use firstlight_pool::client::{Borrowed, Client, ClientError};
use firstlight_pool::launch::inject::HandOverError;
use firstlight_pool::launch::{
    Backing, BorrowOptions, Need, Ordinary, Plan, Start, borrow, program_path,
};
use firstlight_pool::os::hugepages::{SYS, node_exists};
use firstlight_pool::protocol::{Lease, PageSize, RefusalCode};
use serde::Serialize;
use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// Start a VMM on memory of the pool
///
/// The command becomes the VMM. QEMU's command line is changed where it
/// must be; for any other VMM, {memory} stands for the file's name. Without
/// a daemon, or when it has nothing that fits, the VMM starts the ordinary
/// way and a line says so.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    #[command(flatten)]
    daemon: Daemon,
    /// Memory of the guest, or of each of its nodes; from NODE of the host if named
    /// [default: what the monitor's command line says]
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
    #[arg(last = true, required = true, value_name = "MONITOR")]
    monitor: Vec<OsString>,
}

/// Seconds to ask again for a connection, if the command line does not say.
const BUSY_S: u32 = 10;

/// Between two requests of one start, where the daemon does not say how long.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// However long the daemon says: other slabs come back meanwhile.
const ASK_AGAIN_AT_MOST: Duration = Duration::from_millis(500);

/// How long to wait before the next request.
fn pause(error: &ClientError) -> Duration {
    let said = match error {
        ClientError::Refused(refusal) => refusal.retry_after_ms,
        _ => None,
    };
    let said = said.map(|ms| Duration::from_millis(ms.into()));
    said.map_or(ASK_AGAIN, |said| said.min(ASK_AGAIN_AT_MOST))
}

/// Time for zeroing what a smaller slab lacks, if the command line does not say.
const TOPUP_MS: u32 = 5_000;

const EXAMPLES: &str = "\
Examples:
  firstlight pool run --memory 8G -- qemu-system-x86_64 -kernel vmlinuz -nographic
  firstlight pool run --memory 32G@0 --memory 32G@1 -- qemu-system-x86_64 -smp 8 ...
  firstlight pool run --inject -- qemu-system-x86_64 -m 8G -machine memory-backend=m \\
      -object memory-backend-memfd,id=m,size=8G,hugetlb=on
  firstlight pool run --memory 8G -- cloud-hypervisor --memory size=0 \\
      --memory-zone id=m,size=8G,shared=on,file={memory} ...

Exit codes: the VMM's, once it runs; before that see firstlight --help";

/// What was, or would be, started.
#[derive(Serialize)]
struct Record<'r> {
    schema: &'static str,
    /// Whether the memory is the pool's.
    from_pool: bool,
    /// Why it is not.
    reason: Option<String>,
    leases: Vec<&'r Lease>,
    take_ns: u64,
    notes: &'r [String],
    command: Vec<String>,
}

/// Runs the subcommand; returns only if the VMM was not started.
pub(crate) fn run(options: &Options, of: Program, output: &mut Output) -> Result<(), Failure> {
    let (program, arguments) = options.monitor.split_first().ok_or_else(|| {
        // The parser of arguments asks for at least one.
        Failure::Check("no VMM".into())
    })?;
    let plan = if options.inject {
        Plan::injected(program, arguments, &options.memory)
    } else {
        let is_file = |path: &Path| path.exists() && !path.is_dir();
        Plan::new(program, arguments, &options.memory, &is_file)
    }
    .map_err(Failure::pool)?;
    check_nodes(plan.needs())?;
    if options.show {
        return show(program, &plan, output);
    }
    if program_path(program).is_none() {
        let program = program.to_string_lossy();
        return Err(Failure::Pool(format!(
            "cannot start {program}: no such program"
        )));
    }
    let begin = Instant::now();
    let borrowed = options.take(plan.needs());
    let take_ns = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let mut leases = Vec::new();
    let on_pool = match borrowed {
        Err(error) => Err(Obstacle::from(error)),
        Ok(borrowed) => {
            leases.extend(borrowed.iter().map(|one| one.lease.clone()));
            on_pool(of, program, &plan, borrowed).map_err(Obstacle::from)
        }
    };
    let (start, reason) = match on_pool {
        Ok(start) => (start, None),
        Err(obstacle) if obstacle.is_final || options.require => {
            return Err(obstacle.failure);
        }
        Err(obstacle) => {
            leases.clear();
            (
                ordinary(program, &plan)?,
                Some(obstacle.failure.to_string()),
            )
        }
    };
    let record = Record {
        schema: "firstlight.pool-run/1",
        from_pool: reason.is_none(),
        reason,
        leases: leases.iter().collect(),
        take_ns,
        notes: plan.notes(),
        command: words(program, start.arguments()),
    };
    // Whoever reads this may be gone: no reason not to start.
    let _ = output.say(&record, report);
    let error = start.exec();
    let program = program.to_string_lossy();
    Err(Failure::Pool(format!("cannot start {program}: {error}")))
}

/// Why a VMM is not started on memory of the pool.
struct Obstacle {
    failure: Failure,
    /// Whether it cannot be started without the pool either.
    is_final: bool,
}

impl From<ClientError> for Obstacle {
    fn from(error: ClientError) -> Self {
        Self {
            failure: error.into(),
            is_final: false,
        }
    }
}

impl From<HandOverError> for Obstacle {
    fn from(error: HandOverError) -> Self {
        Self {
            failure: Failure::pool(&error),
            is_final: error.watched,
        }
    }
}

impl Options {
    /// Asks again while it may be of use.
    fn take(&self, needs: &[Need]) -> Result<Vec<Borrowed>, ClientError> {
        let begin = Instant::now();
        loop {
            let error = match self.take_once(needs) {
                Err(error) => error,
                taken => return taken,
            };
            let patience = match &error {
                ClientError::Refused(refusal) => match refusal.code {
                    RefusalCode::Busy => self.wait.unwrap_or(BUSY_S),
                    RefusalCode::Empty | RefusalCode::Quota => self.wait.unwrap_or(0),
                    _ => 0,
                },
                _ => 0,
            };
            let left = Duration::from_secs(patience.into()).saturating_sub(begin.elapsed());
            if left.is_zero() {
                return Err(error);
            }
            thread::sleep(pause(&error).min(left));
        }
    }

    fn take_once(&self, needs: &[Need]) -> Result<Vec<Borrowed>, ClientError> {
        let mut client = Client::connect(&self.daemon.socket())?;
        let options = BorrowOptions {
            page: self.page,
            max_topup_ms: self.topup.unwrap_or(TOPUP_MS),
            topup_if_faster: self.topup.is_none() && !self.require,
        };
        borrow(&mut client, needs, options)
    }
}

/// The VMM on files of the pool, which it inherits with their lease pipes.
fn on_pool(
    of: Program,
    program: &OsStr,
    plan: &Plan,
    borrowed: Vec<Borrowed>,
) -> Result<Start, HandOverError> {
    if plan.is_injected() {
        let lease_pipes = injector::start(of, plan.needs(), borrowed)?;
        let start = Start::new(program, plan.with_memory(&[]));
        return Ok(lease_pipes.into_iter().fold(start, Start::with));
    }
    let files: Vec<Backing> = borrowed.iter().map(Start::backing).collect();
    let start = Start::new(program, plan.with_memory(&files));
    let each = borrowed.into_iter();
    Ok(each.fold(start, |start, one| {
        start.with(one.memory).with(one.lease_pipe)
    }))
}

/// The VMM without the pool.
fn ordinary(program: &OsStr, plan: &Plan) -> Result<Start, Failure> {
    let arguments = match plan.ordinary() {
        Ordinary::Arguments(arguments) => return Ok(Start::new(program, arguments)),
        Ordinary::EmptyFiles => plan
            .needs()
            .iter()
            .map(|need| Start::empty_file(need.bytes)),
    };
    let files: Vec<_> = arguments.collect::<Result<_, _>>().map_err(|error| {
        Failure::Pool(format!(
            "a file for the guest's memory cannot be made: {error}"
        ))
    })?;
    let names: Vec<Backing> = files.iter().map(|(name, _)| name.clone()).collect();
    let start = Start::new(program, plan.with_memory(&names));
    Ok(files
        .into_iter()
        .fold(start, |start, (_, file)| start.with(file)))
}

/// Nodes that were asked for exist.
fn check_nodes(needs: &[Need]) -> Result<(), Failure> {
    for node in needs.iter().filter_map(|need| need.node) {
        if node > 0 && !node_exists(Path::new(SYS), node) {
            return Err(Failure::Pool(format!(
                "this machine has no node {node}; `ls {SYS}/devices/system/node` shows those it has"
            )));
        }
    }
    Ok(())
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
        page
    })
}

fn report(record: &Record<'_>) -> String {
    let mut page = String::new();
    for note in record.notes {
        let _ = writeln!(page, "firstlight: note: {note}");
    }
    if let Some(reason) = &record.reason {
        let _ = writeln!(page, "firstlight: {reason}; starting the ordinary way");
    }
    for lease in &record.leases {
        let node = lease
            .node
            .map_or(String::new(), |node| format!(" of node {node}"));
        let topped_up = match lease.topped_up_bytes {
            0 => String::new(),
            some => format!(", {} zeroed meanwhile", bytes(some)),
        };
        let _ = writeln!(
            page,
            "firstlight: {}{node} from the pool: {} pages, lease {}{topped_up}",
            bytes(lease.bytes),
            lease.page,
            lease.lease,
        );
    }
    page
}

fn words(program: &OsStr, arguments: &[OsString]) -> Vec<String> {
    let all = std::iter::once(program).chain(arguments.iter().map(OsString::as_os_str));
    all.map(|word| word.to_string_lossy().into_owned())
        .collect()
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
