//! `firstlight watch`: boots of a real machine, heard on its console; the ear is the
//! [lab's](firstlight_lab::console).

use crate::boot::Boots;
use crate::failure::Failure;
use crate::output::{FAINT, HEADING, NOTE, Output};
use crate::report::Page;
use crate::text::{milliseconds, plural};
use clap::Args;
use firstlight_lab::console::{Console, Ended, Entry, Request, Watched};
use firstlight_lab::matrix::{Store, StoreError};
use std::path::PathBuf;
use std::time::Duration;

/// Listen to a real machine's console and keep a record of each boot
///
/// Each line gets the time at which this host had it. A boot begins with the kernel's first
/// line and is over when the kernel restarts the machine or panics, when a line has the text of
/// --until, or after silence. Records and logs come into the folder under the next free number;
/// gate, compare, report, history and doctor take it.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// A tty, a named pipe, tcp:HOST:PORT of a console server, or - for standard input
    console: Console,
    /// The folder of records
    #[arg(long, short, value_name = "DIR", default_value = "boots")]
    output: PathBuf,
    /// What records are called, with a number behind
    #[arg(long, value_name = "NAME", default_value = "boot", value_parser = name)]
    name: String,
    /// End after so many boots; without it, after 4 GiB of them
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    runs: Option<u32>,
    /// What the shell runs between two boots, such as ipmitool power cycle; for 600 s at most
    #[arg(long, value_name = "COMMAND", requires = "runs")]
    power_cycle: Option<String>,
    /// A boot is over with a line, or a prompt, that contains TEXT; may be given more than once
    #[arg(long, value_name = "TEXT")]
    until: Vec<String>,
    /// A boot is over without a byte for so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..))]
    silence: u64,
    /// The speed of a tty, which has eight bits, no parity and no flow control
    #[arg(long, value_name = "BAUD", default_value_t = 115_200, value_parser = clap::value_parser!(u32).range(50..))]
    baud: u32,
    /// Print the console's lines as they come
    #[arg(long)]
    log: bool,
}

/// Bytes of boots that are kept without `--runs`: a machine that restarts in a loop fills no disk.
const MOST_BYTES: u64 = 4 << 30;
/// How long the command of `--power-cycle` may take.
const MOST_CYCLE: Duration = Duration::from_secs(600);

const EXAMPLES: &str = "\
Examples:
  firstlight watch /dev/ttyUSB0
  firstlight watch /dev/ttyUSB0 -o old --runs 20 --until login: --power-cycle 'ipmitool power cycle'
  firstlight watch tcp:console.lab:4001 --log
  ssh host conserver-console node7 | firstlight watch - --json | jq '.boots[].total_ns'
  firstlight gate old new

Exit codes: 3 if the console cannot be opened or is gone, or no boot was heard, or fewer than --runs, or 4 GiB
of boots without it;
6 if a boot failed, or the machine is silent after a power cycle; 13 if the command of
--power-cycle failed; what was heard is kept. Others: see firstlight --help";

fn name(text: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    match !text.is_empty() && !text.starts_with('.') && text.chars().all(is_plain) {
        true => Ok(text.to_owned()),
        false => Err("expected letters, digits, -, _ and ., not with . in front".into()),
    }
}

/// Runs the subcommand.
pub(crate) fn run(options: &Options, output: &mut Output) -> Result<(), Failure> {
    let io = |error: StoreError| Failure::Io(error.to_string());
    let store = Store::open(&options.output).map_err(io)?;
    let request = Request {
        console: options.console.clone(),
        baud: options.baud,
        until: options.until.clone(),
        silence: Duration::from_secs(options.silence),
        runs: options.runs,
        most_bytes: MOST_BYTES,
        power_cycle: options.power_cycle.clone(),
        cycle_limit: MOST_CYCLE,
        name: options.name.clone(),
    };
    let watched = Boots::new(options.log)?.listen(&request, &store)?;
    output.print::<_, Failure>(&watched, |watched| page(watched, options))?;
    match failure(&watched, options) {
        Some((exit_code, message)) => Err(Failure::Console(exit_code, message)),
        None => Ok(()),
    }
}

/// The exit code and why, if not all went well.
fn failure(watched: &Watched, options: &Options) -> Option<(u8, String)> {
    let boots = watched.boots.len() as u64;
    let heard = match options.runs {
        Some(runs) => format!("{boots} of {}", plural(runs.into(), "boot")),
        None => plural(boots, "boot"),
    };
    let console = &watched.console;
    match &watched.ended {
        Ended::Vanished { why } => {
            return Some((
                3,
                format!("{console} is gone: {why}; heard until then: {heard}"),
            ));
        }
        Ended::Dead { seconds } => {
            let message = format!(
                "{console}: no boot began within {seconds} s of the power cycle; heard: {heard}"
            );
            return Some((6, message));
        }
        Ended::PowerCycle { code, words } => {
            let code = code.map_or("a signal ended it".into(), |code| {
                format!("exit code {code}")
            });
            return Some((
                13,
                format!("the command of --power-cycle failed, {code}: {words:?}; heard: {heard}"),
            ));
        }
        Ended::Stopped { signal } => {
            let code = u8::try_from(signal.saturating_add(128)).unwrap_or(u8::MAX);
            return Some((code, format!("stopped by signal {signal}; heard: {heard}")));
        }
        Ended::Closed if boots == 0 || options.runs.is_some() => {
            return Some((
                3,
                format!(
                    "{console} ended; heard: {heard}, {} of no boot; expected \"Linux version ...\" at the begin of each",
                    plural(watched.passed_over_lines, "kernel line")
                ),
            ));
        }
        Ended::Full { bytes } => {
            let message = format!(
                "{console}: heard {heard}, {} GiB of boots, and the disk is not filled with more; --runs N hears N",
                bytes >> 30
            );
            return Some((3, message));
        }
        Ended::Closed | Ended::Runs => {}
    }
    let failed = watched.boots.iter().filter(|boot| boot.failed.is_some());
    let failed = failed.count() as u64;
    (failed > 0).then(|| (6, format!("failed: {failed} of {}", plural(boots, "boot"))))
}

fn page(watched: &Watched, options: &Options) -> String {
    let mut page = Page::default();
    let folder = options.output.display();
    let count = plural(watched.boots.len() as u64, "boot");
    page.styled(
        HEADING,
        &format!("firstlight watch: {}, {count} in {folder}", watched.console),
    );
    let row = |boot: &Entry| {
        let total = boot.total_ns.map_or("?".into(), milliseconds);
        vec![
            boot.name.clone(),
            total,
            boot.release.clone().unwrap_or_default(),
        ]
    };
    if !watched.boots.is_empty() {
        page.section(
            "Boots",
            "milliseconds from the kernel's entry, or where its own clock begins",
        );
        page.table("<><", &watched.boots.iter().map(row).collect::<Vec<_>>());
    }
    for boot in &watched.boots {
        let notes = boot.failed.iter().chain(&boot.notes);
        for note in notes {
            page.line(format!("  {NOTE}note:{NOTE:#} {}: {note}", boot.name));
        }
    }
    if watched.passed_over_lines > 0 {
        page.line(format!(
            "  {FAINT}{} of no boot: its begin was not heard, or its end was{FAINT:#}",
            plural(watched.passed_over_lines, "kernel line")
        ));
    }
    page.text
}
