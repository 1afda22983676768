//! Where a configuration came from, so that what this machine turns out not to have is
//! reported with its line too.

use super::{Config, ConfigError};
use std::path::{Path, PathBuf};
use toml::Spanned;

/// A file and its text. All are equal: two configurations are the same whatever file they
/// come from.
#[derive(Debug, Clone, Default)]
pub(super) struct Origin {
    path: PathBuf,
    text: String,
}

impl Origin {
    pub(super) fn new(path: &Path, text: &str) -> Self {
        Self {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }
}

impl PartialEq for Origin {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Origin {}

impl Config {
    /// That a value is wrong, with its line.
    #[must_use]
    pub fn wrong<T>(&self, value: &Spanned<T>, what: &str) -> ConfigError {
        let Origin { path, text } = &self.origin;
        ConfigError::at(path, text, Some(value.span()), what)
    }
}
