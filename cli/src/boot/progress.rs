//! What a person sees while a guest runs: its log, or on a terminal one line with
//! the latest of it.

use anstream::eprintln;
use firstlight_lab::boot::Watch;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The line on the terminal; nothing where there is no terminal.
pub(super) struct Progress {
    bar: ProgressBar,
    prints_log: bool,
}

impl Progress {
    pub(super) fn new(prints_log: bool) -> Self {
        let target = if prints_log {
            ProgressDrawTarget::hidden()
        } else {
            ProgressDrawTarget::stderr_with_hz(10)
        };
        let bar = ProgressBar::with_draw_target(None, target);
        if let Ok(style) = ProgressStyle::with_template("{elapsed:>4} {prefix}  {wide_msg}") {
            bar.set_style(style);
        }
        Self { bar, prints_log }
    }

    /// Leaves the terminal as it was.
    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

impl Watch for Progress {
    fn stage(&mut self, text: &str) {
        self.bar.set_prefix(text.to_owned());
    }

    fn line(&mut self, line: &str) {
        if self.prints_log {
            eprintln!("{line}");
        } else {
            self.bar.set_message(line.to_owned());
        }
    }

    fn tick(&mut self) {
        self.bar.tick();
    }
}
