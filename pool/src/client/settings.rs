//! What this machine's clients use where their command lines say nothing, from a TOML file.
//!
//! libvirt starts VMMs without the variables of any shell, so where the daemon listens
//! must be in a file. The shipped example is `pool/client.toml`.

use crate::config::ConfigError;
use crate::protocol::DEFAULT_SOCKET;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Where the file is.
pub const SETTINGS: &str = "/etc/firstlight/client.toml";

/// Longest wait for memory, in seconds.
const MOST_WAIT_S: u32 = 86_400;

/// The file; all of it has defaults.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// The daemon's socket.
    pub socket: PathBuf,
    /// VMMs that are started through `firstlight-qemu-system-...`.
    pub emulator: Emulator,
}

/// How a VMM is started that libvirt starts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Emulator {
    /// Fail where the pool has nothing, instead of starting on the kernel's memory.
    pub require: bool,
    /// Seconds to wait for memory that is not there yet.
    pub wait_s: Option<u32>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            socket: DEFAULT_SOCKET.into(),
            emulator: Emulator::default(),
        }
    }
}

impl Settings {
    /// Reads the file at `path`; where there is none, the defaults.
    ///
    /// # Errors
    /// What is wrong, and on which line.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        match fs::read_to_string(path) {
            Ok(text) => Self::parse(path, &text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(ConfigError::unreadable(path, &error)),
        }
    }

    fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let settings: Self = toml::from_str(text)
            .map_err(|error| ConfigError::at(path, text, error.span(), error.message()))?;
        let wrong = |what: &str| Err(ConfigError::at(path, text, None, what));
        if !settings.socket.is_absolute() {
            return wrong("socket must be an absolute path, such as /run/firstlight/pool.sock");
        }
        if settings.emulator.wait_s > Some(MOST_WAIT_S) {
            return wrong("emulator.wait_s is more than a day: expected 0 to 86400");
        }
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Settings, String> {
        Settings::parse(Path::new("client.toml"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn the_shipped_example_is_what_holds_without_it() {
        let shipped = include_str!("../../client.toml");
        assert_eq!(parse(shipped), Ok(Settings::default()));
        let uncommented: String = shipped
            .lines()
            .map(|line| {
                line.strip_prefix("# ")
                    .filter(|line| line.contains(" = "))
                    .unwrap_or(line)
            })
            .collect::<Vec<_>>()
            .join("\n");
        let all = parse(&uncommented).expect("each word that is commented out is one");
        assert_eq!(
            all.emulator,
            Emulator {
                require: true,
                wait_s: Some(30)
            }
        );
    }

    #[test]
    fn where_there_is_no_file_the_usual_holds() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("client.toml");
        assert_eq!(Settings::read(&path), Ok(Settings::default()));
        Settings::read(folder.path()).expect_err("a folder is no file");
    }

    #[test]
    fn each_wrong_word_is_named_with_its_line() {
        for (text, expected) in [
            (
                "sockt = \"/a\"",
                "client.toml, line 1: unknown field `sockt`",
            ),
            (
                "\nsocket = 5",
                "client.toml, line 2: invalid type: integer `5`",
            ),
            (
                "socket = \"pool.sock\"",
                "client.toml: socket must be an absolute path",
            ),
            (
                "[emulator]\nrequire = 1",
                "client.toml, line 2: invalid type: integer `1`",
            ),
            (
                "[emulator]\nwait = 1",
                "client.toml, line 2: unknown field `wait`",
            ),
            (
                "[emulator]\nwait_s = -1",
                "client.toml, line 2: invalid value: integer `-1`",
            ),
            (
                "[emulator]\nwait_s = 86401",
                "client.toml: emulator.wait_s is more than a day",
            ),
            ("socket", "client.toml, line 1: "),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }
}
