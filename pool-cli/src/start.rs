//! Starting a VMM as planned, on memory of the pool or, where there is none, the ordinary way.

use crate::Program;
use crate::clean;
use crate::failure::Failure;
use crate::injector;
use crate::output::Output;
use crate::text::bytes;
use firstlight_pool::client::{Allocated, Client, ClientError};
use firstlight_pool::launch::inject::HandOverError;
use firstlight_pool::launch::{
    AllocateOptions, Backing, Need, Ordinary, Plan, Start, allocate, huge_page_bytes, program_path,
};
use firstlight_pool::os::hugepages::{SYS, node_exists};
use firstlight_pool::protocol::{Label, Lease, PageSize, RefusalCode};
use serde::Serialize;
use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::NamedTempFile;

/// How memory is requested.
pub(crate) struct Terms {
    /// The daemon's socket.
    pub(crate) socket: PathBuf,
    /// Only this page size.
    pub(crate) page: Option<PageSize>,
    /// Milliseconds for zeroing what a smaller slab lacks.
    pub(crate) topup: Option<u32>,
    /// Seconds to ask again.
    pub(crate) wait: Option<u32>,
    /// Whether to fail where the pool has nothing.
    pub(crate) require: bool,
    /// What makes it fail then, where it does not.
    pub(crate) require_by: &'static str,
    /// Where the body goes that a guest is made with over an API.
    pub(crate) body_to: Option<PathBuf>,
    /// What the guest is called.
    pub(crate) label: Label,
}

/// Seconds to ask again for a connection, if the command line does not say.
const BUSY_S: u32 = 10;

/// Between two requests of one start, where the daemon does not say how long.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// However soon the daemon says: a request in a loop is in the way of the others.
const ASK_AGAIN_AT_LEAST: Duration = Duration::from_millis(20);

/// However long the daemon says: other slabs come back meanwhile.
const ASK_AGAIN_AT_MOST: Duration = Duration::from_millis(500);

/// How long to wait before the next request.
fn pause(error: &ClientError) -> Duration {
    let said = match error {
        ClientError::Refused(refusal) => refusal.retry_after_ms,
        _ => None,
    };
    let said = said.map(|ms| Duration::from_millis(ms.into()));
    said.map_or(ASK_AGAIN, |said| {
        said.clamp(ASK_AGAIN_AT_LEAST, ASK_AGAIN_AT_MOST)
    })
}

/// Time for zeroing what a smaller slab lacks, if the command line does not say.
pub(crate) const TOPUP_MS: u32 = 5_000;

/// What was, or would be, started.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct Record<'r> {
    pub(crate) schema: &'static str,
    /// Whether the memory is the pool's.
    pub(crate) from_pool: bool,
    /// Why it is not.
    pub(crate) reason: Option<String>,
    /// What makes that a failure instead.
    #[serde(skip)]
    pub(crate) require_by: &'static str,
    pub(crate) leases: Vec<&'r Lease>,
    pub(crate) take_ns: u64,
    pub(crate) notes: &'r [String],
    pub(crate) command: Vec<String>,
}

/// Becomes the VMM; returns only what stood in the way.
pub(crate) fn start(
    of: Program,
    program: &OsStr,
    plan: &Plan,
    terms: &Terms,
    output: &mut Output,
) -> Failure {
    match started(of, program, plan, terms, output) {
        Err(failure) => failure,
        Ok(error) => {
            let program = program.to_string_lossy();
            Failure::Pool(format!("cannot start {program}: {error}"))
        }
    }
}

/// The error of `exec`, or what stood in the way before it.
fn started(
    of: Program,
    program: &OsStr,
    plan: &Plan,
    terms: &Terms,
    output: &mut Output,
) -> Result<io::Error, Failure> {
    if program_path(program).is_none() {
        let program = program.to_string_lossy();
        return Err(Failure::Pool(format!(
            "cannot start {program}: no such program; expected one that is installed, or its path"
        )));
    }
    let begin = Instant::now();
    let allocated = terms.take(plan.needs());
    let take_ns = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let mut leases = Vec::new();
    let on_pool = match allocated {
        Err(error) => Err(Obstacle::from(error)),
        Ok(allocated) => {
            leases.extend(allocated.iter().map(|one| one.lease.clone()));
            on_pool(of, program, plan, allocated).map_err(Obstacle::from)
        }
    };
    // What the plan notes is of the pool's memory.
    let mut notes = plan.notes().to_vec();
    let ((start, body), reason) = match on_pool {
        Ok(start) => (start, None),
        Err(obstacle) if obstacle.is_final || terms.require => {
            return Err(obstacle.failure);
        }
        Err(obstacle) => {
            leases.clear();
            let start = (ordinary(program, plan)?, plan.body(&[]));
            notes.clear();
            if obstacle.has_daemon {
                notes.extend(terms.clean_pages(of, plan, &start));
            }
            (start, Some(of.words(obstacle.failure.to_string())))
        }
    };
    if let Some((path, body)) = terms.body_to.as_ref().zip(body) {
        write_body(path, &body).map_err(|error| {
            let path = path.display();
            Failure::Pool(format!(
                "{path} cannot be written, so nothing is started: {error}"
            ))
        })?;
    }
    let record = Record {
        schema: "firstlight.pool-run/1",
        from_pool: reason.is_none(),
        reason,
        require_by: terms.require_by,
        leases: leases.iter().collect(),
        take_ns,
        notes: &notes,
        command: words(program, start.arguments()),
    };
    // The reader may be gone: no reason not to start.
    let _ = output.say(&record, report);
    Ok(start.exec())
}

/// Why a VMM is not started on memory of the pool.
struct Obstacle {
    failure: Failure,
    /// Whether it cannot be started without the pool either.
    is_final: bool,
    /// Whether a daemon said so.
    has_daemon: bool,
}

impl From<ClientError> for Obstacle {
    fn from(error: ClientError) -> Self {
        Self {
            has_daemon: matches!(error, ClientError::Refused(_)),
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
            has_daemon: false,
        }
    }
}

impl Terms {
    /// Asks again while it may be of use.
    fn take(&self, needs: &[Need]) -> Result<Vec<Allocated>, ClientError> {
        let begin = Instant::now();
        let mut hung_up = false;
        loop {
            let error = match self.take_once(needs) {
                Err(error) => error,
                taken => return taken,
            };
            let patience = match &error {
                // A daemon that restarts may lose a connection that waits for it.
                ClientError::Closed if !hung_up => {
                    hung_up = true;
                    BUSY_S
                }
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

    /// A start without the pool fails where its huge pages are in clean slabs: which those are.
    fn clean_pages(
        &self,
        of: Program,
        plan: &Plan,
        (start, body): &(Start, Option<String>),
    ) -> Option<String> {
        let page_bytes = huge_page_bytes(start.arguments(), body.as_deref())?;
        clean::note(of, &self.socket, page_bytes, plan.needs())
    }

    fn take_once(&self, needs: &[Need]) -> Result<Vec<Allocated>, ClientError> {
        let mut client = Client::connect(&self.socket)?;
        let options = AllocateOptions {
            page: self.page,
            max_topup_ms: self.topup.unwrap_or(TOPUP_MS),
            topup_if_faster: self.topup.is_none() && !self.require,
            label: Some(self.label.clone()),
        };
        allocate(&mut client, needs, &options)
    }
}

/// For its owner alone: a body may have secrets. A reader sees all of it or none.
fn write_body(path: &Path, body: &str) -> io::Result<()> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let mut file = NamedTempFile::new_in(folder.unwrap_or(Path::new(".")))?;
    io::Write::write_all(&mut file, body.as_bytes())?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// The VMM on files of the pool, which it inherits with their lease pipes, and the body that names them.
fn on_pool(
    of: Program,
    program: &OsStr,
    plan: &Plan,
    allocated: Vec<Allocated>,
) -> Result<(Start, Option<String>), HandOverError> {
    if plan.is_injected() {
        let lease_pipes = injector::start(of, plan.needs(), allocated)?;
        let start = Start::new(program, plan.with_memory(&[]));
        return Ok((lease_pipes.into_iter().fold(start, Start::with), None));
    }
    let files: Vec<Backing> = allocated.iter().map(Start::backing).collect();
    let start = Start::new(program, plan.with_memory(&files));
    let each = allocated.into_iter();
    let start = each.fold(start, |start, one| {
        start.with(one.memory).with(one.lease_pipe)
    });
    Ok((start, plan.body(&files)))
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
pub(crate) fn check_nodes(needs: &[Need]) -> Result<(), Failure> {
    for node in needs.iter().filter_map(|need| need.node) {
        if node > 0 && !node_exists(Path::new(SYS), node) {
            return Err(Failure::Pool(format!(
                "this machine has no node {node}; `ls {SYS}/devices/system/node` shows those it has"
            )));
        }
    }
    Ok(())
}

/// What becomes of a start without the pool, and what makes it fail instead.
pub(crate) fn the_ordinary_way(require_by: &str) -> String {
    format!(
        "starting the ordinary way, on the kernel's memory: huge pages only where the command \
         line has them ({require_by} fails instead)"
    )
}

fn report(record: &Record<'_>) -> String {
    let mut page = String::new();
    for note in record.notes {
        let _ = writeln!(page, "firstlight: note: {note}");
    }
    if let Some(reason) = &record.reason {
        let ordinary = the_ordinary_way(record.require_by);
        let _ = writeln!(page, "firstlight: {reason}; {ordinary}");
    }
    for lease in &record.leases {
        let node = lease
            .node
            .map_or(String::new(), |node| format!(" of node {node}"));
        let topped_up = match lease.topped_up_bytes {
            0 => String::new(),
            some => format!(
                ", {} of it zeroed while this waited: slabs of {} would need none",
                bytes(some),
                bytes(lease.bytes)
            ),
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

pub(crate) fn words(program: &OsStr, arguments: &[OsString]) -> Vec<String> {
    let all = std::iter::once(program).chain(arguments.iter().map(OsString::as_os_str));
    all.map(|word| word.to_string_lossy().into_owned())
        .collect()
}
