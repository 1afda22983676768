//! How far a long measurement is: one line on a terminal, [`Progress`].

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The line; nothing where standard error is no terminal. It is gone when this is dropped.
#[derive(Debug)]
pub struct Progress(ProgressBar);

impl Progress {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(5));
        if let Ok(style) = ProgressStyle::with_template("{elapsed:>4}  {wide_msg}") {
            bar.set_style(style);
        }
        Self(bar)
    }

    /// What is under way now.
    pub fn say(&self, text: impl Into<String>) {
        self.0.set_message(text.into());
    }
}

impl Default for Progress {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
