//! What the operator wants, from a TOML file.
//!
//! [`Config::read`] gives a [`Config`] in which everything was checked, or a
//! [`ConfigError`] that shows the line. `file.rs` has the file's shape and
//! defaults, `check.rs` what one line alone cannot show to be wrong, `words.rs`
//! the values: sizes and lists of CPUs, `origin.rs` the lines for messages. The shipped example is `pool/example.toml`.

mod check;
mod error;
mod file;
mod origin;
mod persist;
mod words;

/// The configuration that is shipped as an example: each key with what it is.
pub const EXAMPLE: &str = include_str!("../../example.toml");

pub use error::ConfigError;
pub use file::{Access, Class, Config, Fill, Limits, Page, Quota, Source};
pub use words::{Cpus, Size};

use origin::Origin;
use std::path::Path;

impl Config {
    /// Reads and checks the file.
    ///
    /// # Errors
    /// What is wrong, and on which line.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text =
            std::fs::read_to_string(path).map_err(|error| ConfigError::unreadable(path, &error))?;
        Self::parse(path, &text)
    }

    /// Reads and checks the text of such a file; `path` is only for messages.
    ///
    /// ```
    /// use firstlight_pool::config::Config;
    /// use std::path::Path;
    /// let text = "[[class]]\npage = \"2M\"\nsize = \"8G\"\nslabs = 2\n";
    /// let config = Config::parse(Path::new("pool.toml"), text)?;
    /// assert_eq!(config.class[0].size.as_ref().bytes(), 8 << 30);
    ///
    /// let error = Config::parse(Path::new("pool.toml"), "[fill]\nrat = \"1G\"\n").unwrap_err();
    /// assert!(error.to_string().starts_with("pool.toml, line 2: unknown field `rat`"));
    /// # Ok::<(), firstlight_pool::config::ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// As [`Config::read`].
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let mut config: Self = toml::from_str(text)
            .map_err(|error| ConfigError::at(path, text, error.span(), error.message()))?;
        check::check(&config)
            .map_err(|wrong| ConfigError::at(path, text, wrong.span, &wrong.text))?;
        config.origin = Origin::new(path, text);
        Ok(config)
    }
}
