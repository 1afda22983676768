//! Standard output and standard error: plain, coloured, or one JSON document.

use crate::Program;
use crate::failure::{Failure, Problem};
use anstream::AutoStream;
use anstyle::{AnsiColor, Style};
use clap::{Args, ColorChoice};
use serde::Serialize;
use std::io::{self, Write};

/// Options every subcommand understands.
#[derive(Args)]
pub struct Options {
    /// Print one JSON document instead of a report
    #[arg(long, global = true, display_order = 900)]
    json: bool,
    /// When to use colours (auto: on a terminal, unless NO_COLOR is set)
    #[arg(long, global = true, display_order = 901, value_name = "WHEN",
          default_value_t = ColorChoice::Auto)]
    color: ColorChoice,
}

/// Headings.
pub const HEADING: Style = Style::new().bold();
/// What matters most.
pub const GOOD: Style = AnsiColor::Green.on_default().bold();
/// What a person should know.
pub const NOTE: Style = AnsiColor::Yellow.on_default();
/// What may be skipped.
pub const FAINT: Style = Style::new().dimmed();
/// What went wrong.
const BAD: Style = AnsiColor::Red.on_default().bold();

/// Where results go.
pub struct Output {
    json: bool,
    color: anstream::ColorChoice,
    program: Program,
}

/// A document of one value: the name of its schema, and the value's fields.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Document<'d, D> {
    /// Its name and version.
    pub schema: &'static str,
    /// The value.
    #[serde(flatten)]
    pub value: &'d D,
}

/// What `--json` prints where a command failed and has no document of its own.
#[derive(Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct Failed<'f> {
    schema: &'static str,
    /// The program's.
    exit_code: u8,
    /// Why it failed.
    message: &'f str,
    /// The last lines of a guest's log.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    log: &'f [String],
    /// What QEMU wrote on standard error.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    complaints: &'f [String],
    /// The command that repeats it.
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    command: &'f [String],
}

impl Output {
    /// As the options say; what it advises is typed as `program`.
    #[must_use]
    pub fn new(options: &Options, program: Program) -> Self {
        let color = match options.color {
            ColorChoice::Auto => anstream::ColorChoice::Auto,
            ColorChoice::Always => anstream::ColorChoice::Always,
            ColorChoice::Never => anstream::ColorChoice::Never,
        };
        Self {
            json: options.json,
            color,
            program,
        }
    }

    /// A report without colours, of `firstlight-pool`.
    #[must_use]
    pub fn plain() -> Self {
        Self {
            json: false,
            color: anstream::ColorChoice::Never,
            program: Program::Pool,
        }
    }

    /// Whether a program reads what is printed.
    #[must_use]
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// Prints `record` as JSON, or what `report` makes of it for a person.
    ///
    /// # Errors
    /// Output that cannot be written.
    pub fn print<R: Serialize, E: From<Failure>>(
        &mut self,
        record: &R,
        report: impl FnOnce(&R) -> String,
    ) -> Result<(), E> {
        let text = if self.json {
            document(record)?
        } else {
            report(record)
        };
        Ok(self.write(&text).map_err(Failure::from)?)
    }

    /// As [`Output::print`], on standard error and in one line of JSON: for what
    /// is said before standard output belongs to another program.
    ///
    /// # Errors
    /// Output that cannot be written.
    pub fn say<R: Serialize>(
        &mut self,
        record: &R,
        report: impl FnOnce(&R) -> String,
    ) -> Result<(), Failure> {
        let text = if self.json {
            line(record)?
        } else {
            report(record)
        };
        let mut stream = AutoStream::new(io::stderr(), self.color).lock();
        stream.write_all(text.as_bytes())?;
        stream.flush()?;
        Ok(())
    }

    fn write(&self, text: &str) -> io::Result<()> {
        let stdout = io::stdout();
        if self.json {
            let mut stdout = stdout.lock();
            stdout.write_all(text.as_bytes())?;
            return stdout.flush();
        }
        let mut stream = AutoStream::new(stdout, self.color).lock();
        stream.write_all(text.as_bytes())?;
        stream.flush()
    }

    /// Says what went wrong: on standard error, and for `--json` as a document.
    pub fn failure(&mut self, failure: &dyn Problem) {
        let message = self.program.words(failure.to_string());
        let details = failure.details();
        // Nowhere is left to report that these cannot be written.
        let mut stream = AutoStream::new(io::stderr(), self.color).lock();
        let _ = writeln!(stream, "{BAD}error:{BAD:#} {message}");
        for line in &details.lines {
            let _ = writeln!(stream, "  {line}");
        }
        if failure.exit_code() == 4 {
            let _ = writeln!(
                stream,
                "  this is a fault of the program: please report it, with the command"
            );
        }
        if self.json && !failure.is_documented() {
            let exit_code = failure.exit_code();
            let schema = "firstlight.error/1";
            if let Ok(text) = document(&Failed {
                schema,
                exit_code,
                message: &message,
                log: details.log,
                complaints: details.complaints,
                command: details.command,
            }) {
                let _ = self.write(&text);
            }
        }
    }
}

fn line<R: Serialize>(record: &R) -> Result<String, Failure> {
    let mut text = serde_json::to_string(record).map_err(no_json)?;
    text.push('\n');
    Ok(text)
}

fn document<R: Serialize>(record: &R) -> Result<String, Failure> {
    let mut text = serde_json::to_string_pretty(record).map_err(no_json)?;
    text.push('\n');
    Ok(text)
}

fn no_json(error: serde_json::Error) -> Failure {
    Failure::Check(format!("the record is no JSON: {error}"))
}
