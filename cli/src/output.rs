//! Standard output and standard error: plain, coloured, or one JSON document.

use crate::failure::Failure;
use anstream::AutoStream;
use anstyle::{AnsiColor, Style};
use clap::{Args, ColorChoice};
use serde::Serialize;
use std::io::{self, Write};

/// Options every subcommand understands.
#[derive(Args)]
pub(crate) struct Options {
    /// Print one JSON document instead of a report
    #[arg(long, global = true, display_order = 900)]
    json: bool,
    /// When to use colours (auto: on a terminal, unless NO_COLOR is set)
    #[arg(long, global = true, display_order = 901, value_name = "WHEN",
          default_value_t = ColorChoice::Auto)]
    color: ColorChoice,
}

/// Headings.
pub(crate) const HEADING: Style = Style::new().bold();
/// What matters most.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default().bold();
/// What a person should know.
pub(crate) const NOTE: Style = AnsiColor::Yellow.on_default();
/// What may be skipped.
pub(crate) const FAINT: Style = Style::new().dimmed();
/// What went wrong.
const BAD: Style = AnsiColor::Red.on_default().bold();

/// Where results go.
pub(crate) struct Output {
    json: bool,
    color: anstream::ColorChoice,
}

impl Output {
    pub(crate) fn new(options: &Options) -> Self {
        let color = match options.color {
            ColorChoice::Auto => anstream::ColorChoice::Auto,
            ColorChoice::Always => anstream::ColorChoice::Always,
            ColorChoice::Never => anstream::ColorChoice::Never,
        };
        Self {
            json: options.json,
            color,
        }
    }

    /// A report without colours.
    pub(crate) fn plain() -> Self {
        Self {
            json: false,
            color: anstream::ColorChoice::Never,
        }
    }

    /// Whether a program reads what is printed.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Prints `record` as JSON, or what `report` makes of it for a person.
    pub(crate) fn print<R: Serialize>(
        &mut self,
        record: &R,
        report: impl FnOnce(&R) -> String,
    ) -> Result<(), Failure> {
        let text = if self.json {
            document(record)?
        } else {
            report(record)
        };
        self.write(&text)?;
        Ok(())
    }

    /// As [`Output::print`], on standard error and in one line of JSON: for what
    /// is said before standard output belongs to somebody else.
    pub(crate) fn say<R: Serialize>(
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
    pub(crate) fn failure(&mut self, failure: &Failure) {
        #[derive(Serialize)]
        struct Document<'f> {
            schema: &'static str,
            exit_code: u8,
            message: &'f str,
            #[serde(skip_serializing_if = "<[String]>::is_empty")]
            log: &'f [String],
            #[serde(skip_serializing_if = "<[String]>::is_empty")]
            complaints: &'f [String],
            #[serde(skip_serializing_if = "<[String]>::is_empty")]
            command: &'f [String],
        }
        let message = failure.to_string();
        // Nowhere is left to report that these cannot be written.
        let mut stream = AutoStream::new(io::stderr(), self.color).lock();
        let _ = writeln!(stream, "{BAD}error:{BAD:#} {message}");
        for line in failure.particulars() {
            let _ = writeln!(stream, "  {line}");
        }
        // These are in a document of their own.
        let told = matches!(failure, Failure::Regressed(_) | Failure::Guests(_));
        if self.json && !told {
            let exit_code = failure.exit_code();
            let schema = "firstlight.error/1";
            if let Ok(text) = document(&Document {
                schema,
                exit_code,
                message: &message,
                log: failure.guest_log(),
                complaints: failure.complaints(),
                command: failure.command(),
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
