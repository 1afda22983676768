//! Boots of real machines, heard on their consoles: [`watch`] keeps a record of each, in the form
//! of those of `boot`. Times are by the host's clock, [`From::HostClock`](crate::record::From).
//!
//! | file | concept |
//! |---|---|
//! | `source` | where a console is, [`Console`]; a tty's settings |
//! | `line` | bytes become lines with a time, [`Cutter`] |
//! | `splitter` | lines become boots, [`Splitter`] |
//! | `record` | a boot becomes a record |

mod line;
mod record;
mod source;
mod splitter;

pub use line::{Cutter, Line, MOST_LINE_BYTES};
pub use record::record;
pub use source::Console;
pub use splitter::{Boot, Over, Splitter};

use std::io;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::boot::{Watch, ask};
use crate::log::clean_text;
use crate::matrix::{Run as Kept, Store, StoreError};
use crate::run::Run;
use source::{Heard, Queue};

/// Name and version of the form of [`Watched`].
pub const SCHEMA: &str = "firstlight.watch/1";

/// How often a request to stop is looked for.
const TICK: Duration = Duration::from_millis(20);
/// Bytes that are on their way at most: what a tty says while the command that power-cycles runs.
const MOST_QUEUED: usize = 64 << 20;
/// What a boot takes of [`Request::most_bytes`] at least.
const LEAST_BOOT_BYTES: u64 = 64 << 10;
/// Lines of a boot that failed which are kept.
const FAILED_LINES: usize = 1000;

/// What to listen to.
#[derive(Clone, Debug)]
pub struct Request {
    /// Where the console is.
    pub console: Console,
    /// The speed of a tty.
    pub baud: u32,
    /// A boot is over with a line that has one of these.
    pub until: Vec<String>,
    /// A boot is over without a byte for so long.
    pub silence: Duration,
    /// Boots after which it ends.
    pub runs: Option<u32>,
    /// Without `runs`, it ends after boots of so many bytes.
    pub most_bytes: u64,
    /// What the shell runs between two boots.
    pub power_cycle: Option<String>,
    /// How long that may take.
    pub cycle_limit: Duration,
    /// What records are called, with a number behind.
    pub name: String,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Watched {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The console.
    pub console: String,
    /// The boots, in their order.
    pub boots: Vec<Entry>,
    /// Kernel lines that are of none of them: of a kernel whose begin was not heard, or whose
    /// end was.
    pub passed_over_lines: u64,
    /// Why it ended.
    pub ended: Ended,
}

/// One boot.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Entry {
    /// Its record's name in the folder, without an ending.
    pub name: String,
    /// What the kernel calls itself.
    pub release: Option<String>,
    /// The whole boot, from the kernel's entry; `None` where that has no time.
    pub total_ns: Option<u64>,
    /// Why it failed.
    pub failed: Option<String>,
    /// What to know of how it was heard.
    pub notes: Vec<String>,
}

/// Why no more is heard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "how", rename_all = "kebab-case")]
pub enum Ended {
    /// As many boots as requested.
    Runs,
    /// As many bytes as may be kept.
    Full {
        /// So many.
        bytes: u64,
    },
    /// A pipe was closed.
    Closed,
    /// The tty or the console server is gone.
    Vanished {
        /// What the system says.
        why: String,
    },
    /// The machine is silent after a power cycle.
    Dead {
        /// For so long.
        seconds: u64,
    },
    /// The command that power-cycles failed.
    PowerCycle {
        /// Its exit code, where it has one.
        code: Option<i32>,
        /// Its last words.
        words: String,
    },
    /// A signal.
    Stopped {
        /// Its number.
        signal: i32,
    },
}

/// Why nothing can be heard, or kept.
#[derive(Debug, thiserror::Error)]
pub enum ConsoleError {
    /// The console cannot be opened.
    #[error("cannot listen to {0}: {1}")]
    Open(String, io::Error),
    /// What was heard cannot be kept.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Listens as `request` says and keeps a record of each boot in `store`. While it does, `look`
/// looks on; as soon as `stop` holds the number of a signal, it ends.
///
/// # Errors
/// [`ConsoleError`]; that a console ends is none.
pub fn watch(
    request: &Request,
    store: &Store,
    stop: &AtomicUsize,
    look: &mut dyn Watch,
) -> Result<Watched, ConsoleError> {
    let console = request.console.to_string();
    let open = |error| ConsoleError::Open(console.clone(), error);
    look.stage("waiting");
    let (source, tty) = source::open(&request.console, request.baud).map_err(open)?;
    let (reader, heard) = source::queue(MOST_QUEUED);
    let reading = thread::Builder::new().spawn(move || reader.listen(source));
    reading.map_err(open)?;
    let now = Instant::now();
    let mut ear = Ear {
        request,
        store,
        look,
        start: now,
        latest: now,
        cycled: None,
        due: false,
        number: 0,
        lines: Cutter::default(),
        splitter: Splitter::new(request.until.clone()),
        boots: Vec::new(),
        kept_bytes: 0,
    };
    let ended = ear.follow(&heard, stop)?;
    drop(tty);
    Ok(Watched {
        schema: SCHEMA,
        console,
        boots: ear.boots,
        passed_over_lines: ear.splitter.passed_over(),
        ended,
    })
}

/// What has been heard so far.
struct Ear<'e> {
    request: &'e Request,
    store: &'e Store,
    look: &'e mut dyn Watch,
    start: Instant,
    /// When the latest byte came, or a power cycle ended.
    latest: Instant,
    /// When the machine was power-cycled, until it says something.
    cycled: Option<Instant>,
    /// A power cycle is due.
    due: bool,
    /// Of the latest record.
    number: usize,
    lines: Cutter,
    splitter: Splitter,
    boots: Vec<Entry>,
    /// Of what was heard of them.
    kept_bytes: u64,
}

impl Ear<'_> {
    /// Listens until there is a reason to stop.
    fn follow(&mut self, heard: &Queue, stop: &AtomicUsize) -> Result<Ended, ConsoleError> {
        let mut next = None;
        loop {
            let signal = stop.load(Ordering::Relaxed);
            if signal != 0 {
                self.close("it was stopped")?;
                let signal = i32::try_from(signal).unwrap_or(i32::MAX);
                return Ok(Ended::Stopped { signal });
            }
            let chunk = match next.take() {
                Some(chunk) => Ok(chunk),
                None => heard.next(TICK),
            };
            match chunk {
                Ok(Heard::Bytes(at, bytes)) => self.take(at, &bytes)?,
                Ok(Heard::End(end)) => return self.end(end),
                Err(RecvTimeoutError::Disconnected) => return self.end(Ok(())),
                Err(RecvTimeoutError::Timeout) => {
                    if let Some(ended) = self.pause()? {
                        return Ok(ended);
                    }
                }
            }
            if self.is_done() {
                return Ok(self.done());
            }
            if std::mem::take(&mut self.due) && !self.splitter.is_running() {
                match self.power_cycle(heard, stop)? {
                    Ok(chunk) => next = chunk,
                    Err(ended) => return Ok(ended),
                }
            }
            self.look.tick();
        }
    }

    fn is_done(&self) -> bool {
        match self.request.runs {
            Some(runs) => self.boots.len() >= runs as usize,
            None => self.kept_bytes >= self.request.most_bytes,
        }
    }

    fn done(&self) -> Ended {
        match self.request.runs {
            Some(_) => Ended::Runs,
            None => Ended::Full {
                bytes: self.request.most_bytes,
            },
        }
    }

    fn take(&mut self, at: Instant, bytes: &[u8]) -> Result<(), ConsoleError> {
        self.latest = at;
        let mut lines = Vec::new();
        self.lines
            .push(at.duration_since(self.start), bytes, |line| {
                lines.push(line);
            });
        for line in lines {
            self.line(line)?;
            if self.is_done() {
                break;
            }
        }
        // The last words of a kernel that ran before are no sign of life.
        if self.splitter.has_begun() {
            self.cycled = None;
        }
        Ok(())
    }

    fn line(&mut self, line: Line) -> Result<(), ConsoleError> {
        self.look.line(clean_text(&line.bytes).trim_end());
        let was_running = self.splitter.is_running();
        for boot in self.splitter.push(line) {
            self.keep(&boot)?;
        }
        if self.splitter.is_running() != was_running {
            self.stage();
        }
        Ok(())
    }

    fn stage(&mut self) {
        let number = self.boots.len() + 1;
        self.look.stage(&match self.splitter.is_running() {
            true => format!("boot {number}"),
            false => format!("waiting for boot {number}"),
        });
    }

    /// Nothing comes for a while.
    fn pause(&mut self) -> Result<Option<Ended>, ConsoleError> {
        if let Some(boot) = self.splitter.pause(self.lines.begun()) {
            self.keep(&boot)?;
            self.stage();
        }
        let silence = self.latest.elapsed();
        if silence <= self.request.silence {
            return Ok(None);
        }
        if self.cycled.is_some() {
            let seconds = silence.as_secs();
            return Ok(Some(Ended::Dead { seconds }));
        }
        self.rest()?;
        if let Some(boot) = self.splitter.silent(self.request.silence) {
            self.keep(&boot)?;
            self.stage();
        }
        Ok(None)
    }

    /// A line that has begun is one.
    fn rest(&mut self) -> Result<(), ConsoleError> {
        let at = self.latest.duration_since(self.start);
        match self.lines.finish(at) {
            Some(line) => self.line(line),
            None => Ok(()),
        }
    }

    fn close(&mut self, why: &str) -> Result<(), ConsoleError> {
        self.rest()?;
        match self.splitter.close(why) {
            Some(boot) => self.keep(&boot),
            None => Ok(()),
        }
    }

    fn end(&mut self, end: io::Result<()>) -> Result<Ended, ConsoleError> {
        let is_pipe = match &self.request.console {
            Console::Input => true,
            Console::Tcp(_) => false,
            Console::Path(path) => !is_tty(path),
        };
        // A boot that is cut here is kept, and is none of those requested.
        let why = match (end, is_pipe) {
            (Ok(()), true) => {
                self.close("the pipe was closed")?;
                return Ok(Ended::Closed);
            }
            (Ok(()), false) => "it hung up".to_owned(),
            (Err(error), _) => error.to_string(),
        };
        self.close(&format!("the console is gone ({why})"))?;
        Ok(Ended::Vanished { why })
    }

    /// Keeps a record of `boot`, or why it failed.
    fn keep(&mut self, boot: &Boot) -> Result<(), ConsoleError> {
        // Boots that follow each other without a pause need none.
        self.due = self.request.power_cycle.is_some() && boot.over != Over::Next;
        let heard = boot.lines.iter().map(|line| line.bytes.len() as u64);
        self.kept_bytes += heard.sum::<u64>().max(LEAST_BOOT_BYTES);
        let cell = &self.request.name;
        let mut numbers = self.number + 1..;
        let free = |number: &usize| self.store.run(cell, *number) == Kept::Missing;
        self.number = numbers.find(free).unwrap_or(usize::MAX);
        let name = Store::name(cell, self.number);
        let console = self.request.console.to_string();
        let heed = match record(boot, &console) {
            Ok(record) => {
                self.store.keep_alone(cell, self.number, &record)?;
                let kernel = record.source.kernel.as_ref();
                Entry {
                    name,
                    release: kernel.and_then(|kernel| kernel.release.clone()),
                    total_ns: Run::of_record(&record).ok().and_then(|run| run.total_ns()),
                    failed: None,
                    notes: record.notes,
                }
            }
            Err(message) => {
                let first = boot.lines.len().saturating_sub(FAILED_LINES);
                let lines = boot.lines.iter().skip(first);
                let log: Vec<String> = lines.map(|line| clean_text(&line.bytes)).collect();
                self.store.fail(cell, self.number, &message, &log)?;
                Entry {
                    name,
                    release: None,
                    total_ns: None,
                    failed: Some(message),
                    notes: Vec::new(),
                }
            }
        };
        self.boots.push(heed);
        Ok(())
    }

    /// Runs the command that power-cycles; what came meanwhile is of no boot. The chunk that came
    /// after it, or why all ends.
    fn power_cycle(
        &mut self,
        heard: &Queue,
        stop: &AtomicUsize,
    ) -> Result<Result<Option<Heard>, Ended>, ConsoleError> {
        let Some(words) = &self.request.power_cycle else {
            return Ok(Ok(None));
        };
        self.look.stage("power cycle");
        let mut command = Command::new("sh");
        command.arg("-c").arg(words);
        let limit = self.request.cycle_limit;
        let answer = match ask(command, Some(limit), stop, self.look) {
            Ok(answer) => answer,
            // The signal is looked at next.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(Ok(None)),
            Err(error) => {
                let words = match error.kind() {
                    io::ErrorKind::TimedOut => {
                        format!("it takes longer than {} s", limit.as_secs())
                    }
                    _ => format!("cannot start it: {error}"),
                };
                return Ok(Err(Ended::PowerCycle { code: None, words }));
            }
        };
        if !answer.status.success() {
            let said = [answer.stdout, answer.stderr].concat();
            let last = said.rsplit(|byte| *byte == b'\n').map(clean_text);
            let mut last = last.filter(|line| !line.trim().is_empty());
            return Ok(Err(Ended::PowerCycle {
                code: answer.status.code(),
                words: last.next().unwrap_or_default(),
            }));
        }
        let end = Instant::now();
        let mut next = None;
        while let Ok(chunk) = heard.next_now() {
            match chunk {
                Heard::Bytes(at, bytes) if at <= end => self.take(at, &bytes)?,
                chunk => {
                    next = Some(chunk);
                    break;
                }
            }
        }
        self.latest = end;
        if !self.splitter.is_running() {
            self.cycled = Some(end);
            self.splitter.power_cycled(end.duration_since(self.start));
        }
        self.stage();
        Ok(Ok(next))
    }
}

fn is_tty(path: &std::path::Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    // One that is gone was one.
    std::fs::metadata(path).map_or(true, |data| !data.file_type().is_fifo())
}
