//! What can go wrong, and the exit code for it. What the parser of arguments
//! refuses is told by itself, with exit code 2 as well.

use firstlight_figures::advice::Advised;
use firstlight_lab::boot::{BootError, shell_words};
use firstlight_lab::compare::Unlike;
use firstlight_lab::file::FileError;
use firstlight_lab::records::Unreadable;
use firstlight_lab::run::NoRecord;
use firstlight_lab::up::UpError;
use firstlight_pool::client::ClientError;
use firstlight_pool_cli::Problem;
use firstlight_pool_cli::failure::Details;
use std::fmt;
use std::io;
use std::path::Path;

/// Why a subcommand did not finish.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Options that do not go together.
    Usage(String),
    /// The machine's description makes no sense, or cannot be brought up.
    Machine(String),
    /// A file that cannot be read, output that cannot be written.
    Io(String),
    /// The engine's own checks failed.
    Check(String),
    /// A subcommand of the pool, or output that cannot be written.
    Pool(firstlight_pool_cli::Failure),
    /// A machine that was to be booted.
    Boot(BootError),
    /// Some of many guests went wrong; the document says which.
    Guests(String),
    /// Some of many logs could not be read, or are none; the document says which.
    Unread(String),
    /// A log has a finding that was asked to fail on; the document has it.
    Found(String),
    /// A console did not tell all it should have; the exit code. The document has what was heard.
    Console(u8, String),
    /// What was compared is slower than before; the document says in what.
    Regressed(String),
    /// Whether it is slower cannot be said; the document says why.
    Unclear(String),
}

impl Problem for Failure {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Machine(_) | Self::Boot(BootError::Machine(_)) => 1,
            Self::Usage(_) | Self::Boot(BootError::Refused(_)) => 2,
            Self::Io(_) | Self::Unread(_) => 3,
            Self::Check(_) | Self::Boot(BootError::CheckFailed(_)) => 4,
            Self::Pool(failure) => failure.exit_code(),
            Self::Boot(BootError::Guest(_)) | Self::Guests(_) => 6,
            Self::Regressed(_) => 7,
            Self::Unclear(_) => 11,
            Self::Found(_) => 12,
            Self::Console(exit_code, _) => *exit_code,
            // As a shell tells it of a program that a signal ended.
            Self::Boot(BootError::Interrupted(signal)) => {
                u8::try_from(signal.saturating_add(128)).unwrap_or(u8::MAX)
            }
            // Files, QEMU, the host.
            Self::Boot(_) => 3,
        }
    }

    fn details(&self) -> Details<'_> {
        Details {
            log: self.guest_log(),
            complaints: self.complaints(),
            command: self.command(),
            lines: self.particulars(),
        }
    }

    fn is_documented(&self) -> bool {
        matches!(
            self,
            Self::Regressed(_)
                | Self::Unclear(_)
                | Self::Guests(_)
                | Self::Unread(_)
                | Self::Found(_)
                | Self::Console(..)
        ) || matches!(self, Self::Pool(failure) if failure.is_documented())
    }
}

impl Failure {
    /// A file or directory that could not be read.
    pub(crate) fn unreadable(path: &Path, error: &io::Error) -> Self {
        let error = Advised(error);
        Self::Io(format!("cannot read {}: {error}", path.display()))
    }

    /// Records that cannot be read, or are none.
    pub(crate) fn records(error: &Unreadable) -> Self {
        match error {
            Unreadable::File(_) => Self::Io(error.to_string()),
            Unreadable::NoRecord(..) | Unreadable::Nothing(_) | Unreadable::NoLog(_) => {
                Self::Machine(error.to_string())
            }
        }
    }

    /// What the engine refused, and at which step.
    pub(crate) fn machine(step: &str, error: impl fmt::Display) -> Self {
        Self::Machine(format!("{step}: {error}"))
    }

    /// The last lines of the guest's log, where it was the guest.
    pub(crate) fn guest_log(&self) -> &[String] {
        match self {
            Self::Boot(error) => error.fault().map_or(&[], |fault| &fault.tail),
            _ => &[],
        }
    }

    /// What QEMU itself complained about.
    fn complaints(&self) -> &[String] {
        match self {
            Self::Boot(error) => error.fault().map_or(&[], |fault| &fault.complaints),
            _ => &[],
        }
    }

    /// The command that repeats what failed.
    fn command(&self) -> &[String] {
        match self {
            Self::Boot(BootError::QemuRefused { command, .. }) => command,
            Self::Boot(error) => error.fault().map_or(&[], |fault| &fault.command),
            _ => &[],
        }
    }

    /// What a person wants to know besides the message, line by line.
    fn particulars(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (head, list) in [
            ("the last lines of its log:", self.guest_log()),
            ("QEMU says:", self.complaints()),
        ] {
            if !list.is_empty() {
                lines.push(head.to_owned());
                lines.extend(list.iter().map(|line| format!("  {line}")));
            }
        }
        if !self.command().is_empty() {
            lines.push("to repeat it by hand:".into());
            lines.push(format!("  {}", shell_words(self.command())));
        }
        lines
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(text)
            | Self::Machine(text)
            | Self::Io(text)
            | Self::Check(text)
            | Self::Guests(text)
            | Self::Unread(text)
            | Self::Found(text)
            | Self::Console(_, text)
            | Self::Regressed(text)
            | Self::Unclear(text) => f.write_str(text),
            Self::Boot(error) => write!(f, "{error}"),
            Self::Pool(failure) => write!(f, "{failure}"),
        }
    }
}

/// A file that cannot be read.
impl From<FileError> for Failure {
    fn from(error: FileError) -> Self {
        Self::Io(error.to_string())
    }
}

/// Runs that cannot stand beside each other.
impl From<Unlike> for Failure {
    fn from(error: Unlike) -> Self {
        Self::Usage(error.to_string())
    }
}

/// A boot whose record cannot be read.
impl From<NoRecord> for Failure {
    fn from(error: NoRecord) -> Self {
        Self::Check(error.to_string())
    }
}

/// A machine that does not come up.
impl From<UpError> for Failure {
    fn from(error: UpError) -> Self {
        match error {
            UpError::Machine(why) => Self::Machine(why),
            UpError::Io(why) => Self::Io(why),
            UpError::Check(why) => Self::Check(why),
        }
    }
}

/// A subcommand of the pool, or output, that failed.
impl From<firstlight_pool_cli::Failure> for Failure {
    fn from(failure: firstlight_pool_cli::Failure) -> Self {
        Self::Pool(failure)
    }
}

/// A request that a daemon did not fulfil.
impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        firstlight_pool_cli::Failure::from(error).into()
    }
}

/// Standard output that could not be written.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        firstlight_pool_cli::Failure::from(error).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_causes_have_the_same_code() {
        use firstlight_pool_cli::Failure as OfPool;
        let text = String::new;
        for (failure, code) in [
            (OfPool::Closed.into(), 0),
            (Failure::Machine(text()), 1),
            (OfPool::Usage(text()).into(), 2),
            (Failure::Usage(text()), 2),
            (OfPool::Io(text()).into(), 3),
            (Failure::Io(text()), 3),
            (OfPool::Check(text()).into(), 4),
            (Failure::Check(text()), 4),
            (OfPool::Pool(text()).into(), 5),
            (Failure::Guests(text()), 6),
            (Failure::Regressed(text()), 7),
            (Failure::Found(text()), 12),
            (OfPool::Refused(text()).into(), 8),
            (OfPool::Config(text()).into(), 9),
            (OfPool::NoDaemon(text()).into(), 10),
            (Failure::Unclear(text()), 11),
        ] {
            assert_eq!(failure.exit_code(), code, "{failure:?}");
        }
    }
}
