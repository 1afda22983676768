//! From the lines of a console to boots, as they come: [`Splitter`].
//!
//! | a boot | by |
//! |---|---|
//! | begins | `Linux version`; lines of firmware before it are its own |
//! | is over | `reboot: ...`, the end of a panic, a line with a text that was waited for, silence, the next boot, the end of the console |
//!
//! Kernel lines between two boots are of neither. Where a further boot begins without the end of
//! the one before, the reader of logs decides.

use std::time::Duration;

use super::line::Line;
use crate::boot::{HALTED, PANIC, says_goodbye};
use crate::log::{self, Boundary};

/// The first words of a kernel.
pub(super) const BEGINS: &str = "Linux version ";
/// Most bytes of a boot that are kept, with [`LINE_BYTES`] for each line.
const MOST_BYTES: usize = 16 << 20;
/// What a line takes besides its bytes.
const LINE_BYTES: usize = 64;

/// How a boot came to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Over {
    /// The kernel restarts the machine or switches it off.
    Goodbye,
    /// It panicked; with these words.
    Panicked(String),
    /// A line with a text that was waited for.
    Until,
    /// Silence of this length.
    Silent(Duration),
    /// Another boot began.
    Next,
    /// The console ended; why.
    Cut(String),
}

/// What was heard of one boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Boot {
    /// Its lines, in their order.
    pub lines: Vec<Line>,
    /// Index of the kernel's first; of none where only firmware spoke.
    pub kernel: Option<usize>,
    /// When the machine restarted, where that is known: a power cycle, or the last words of the
    /// kernel before.
    pub restarted: Option<Duration>,
    /// How it ended.
    pub over: Over,
    /// Lines that were too many to be kept.
    pub left_out: u64,
}

/// Tells boots apart.
#[derive(Debug, Default)]
pub struct Splitter {
    until: Vec<String>,
    lines: Vec<Line>,
    bytes: usize,
    left_out: u64,
    restarted: Option<Duration>,
    /// Of the boot that runs; `None` between two boots.
    running: Option<Running>,
    /// Kernel lines that are of no boot.
    passed_over: u64,
}

#[derive(Debug)]
struct Running {
    kernel: usize,
    boundary: Boundary,
    panic: Option<String>,
}

impl Splitter {
    /// A boot is over with a line that has one of `until`, too.
    #[must_use]
    pub fn new(until: Vec<String>) -> Self {
        Self {
            until,
            ..Self::default()
        }
    }

    /// Takes the next line; the boots that are over with it, two at most.
    pub fn push(&mut self, line: Line) -> Vec<Boot> {
        let messages: Vec<_> = log::lines(&line.bytes)
            .into_iter()
            .map(log::Line::into_owned)
            .collect();
        let at = line.at;
        self.keep(line);
        let mut over = Vec::new();
        for message in messages {
            over.extend(self.message(message, at));
        }
        self.bound();
        over
    }

    fn keep(&mut self, line: Line) {
        self.bytes += line.bytes.len() + LINE_BYTES;
        self.lines.push(line);
    }

    /// Forgets the latest line, where there are too many.
    fn bound(&mut self) {
        if self.bytes <= MOST_BYTES {
            return;
        }
        self.left_out += 1;
        if self.running.is_none() {
            // The last lines of firmware that speaks without an end are as good as its first.
            self.clear();
        } else if let Some(line) = self.lines.pop() {
            self.bytes -= line.bytes.len() + LINE_BYTES;
        }
    }

    fn clear(&mut self) {
        self.lines.clear();
        self.bytes = 0;
    }

    fn message(&mut self, mut message: log::Line<'static>, at: Duration) -> Option<Boot> {
        message.number = self.lines.len();
        let waited = self.is_waited_for(&message.text);
        let Some(running) = &mut self.running else {
            self.between(&message);
            return None;
        };
        let next = running.boundary.another_begins(&message);
        if let Some(number) = next {
            let index = number.saturating_sub(1).min(self.lines.len());
            let rest = self.lines.split_off(index);
            let boot = self.finish(Over::Next);
            for line in rest {
                self.keep(line);
            }
            self.begin(&message, 0);
            return Some(boot);
        }
        let text = &*message.text;
        if running.panic.is_none() && text.contains(PANIC) {
            running.panic = Some(text.to_owned());
        }
        let halted = running.panic.is_some()
            && [HALTED, "Rebooting in "]
                .iter()
                .any(|end| text.contains(end));
        if halted {
            return Some(self.finish(Over::Goodbye));
        }
        if says_goodbye(text) {
            let boot = self.finish(Over::Goodbye);
            self.restarted = Some(at);
            return Some(boot);
        }
        waited.then(|| self.finish(Over::Until))
    }

    /// A line that comes while no kernel runs.
    fn between(&mut self, message: &log::Line<'_>) {
        let text = &*message.text;
        if text.starts_with(BEGINS) {
            self.begin(message, self.lines.len().saturating_sub(1));
        } else if message.kernel && message.stamp_ns.is_some_and(|ns| ns > 0) {
            // Of a kernel that ran before, whose end was seen, or whose begin was not.
            self.clear();
            // It says in several lines that it restarts.
            self.passed_over += u64::from(!text.starts_with("reboot: "));
        }
    }

    fn begin(&mut self, message: &log::Line<'_>, kernel: usize) {
        self.running = Some(Running {
            kernel,
            boundary: Boundary::new_boot(true, message.stamp_ns),
            panic: None,
        });
    }

    fn finish(&mut self, over: Over) -> Boot {
        let running = self.running.take();
        let kernel = running.as_ref().map(|running| running.kernel);
        let panic = running.and_then(|running| running.panic);
        self.bytes = 0;
        Boot {
            lines: std::mem::take(&mut self.lines),
            kernel,
            restarted: self.restarted.take(),
            over: panic.map_or(over, Over::Panicked),
            left_out: std::mem::take(&mut self.left_out),
        }
    }

    /// Whether `text` has what ends a boot.
    fn is_waited_for(&self, text: &str) -> bool {
        self.until.iter().any(|until| text.contains(until))
    }

    /// A line that has begun and is not continued for a while: a prompt counts as it is.
    pub fn pause(&mut self, begun: &[u8]) -> Option<Boot> {
        let waited = || self.is_waited_for(&log::clean_text(begun));
        (self.running.is_some() && waited()).then(|| self.finish(Over::Until))
    }

    /// Nothing comes for `silence`: whatever is under way is over.
    pub fn silent(&mut self, silence: Duration) -> Option<Boot> {
        let firmware = self.restarted.is_some() && !self.lines.is_empty();
        let begun = self.running.is_some() || firmware;
        begun.then(|| self.finish(Over::Silent(silence)))
    }

    /// The console has ended.
    pub fn close(&mut self, why: &str) -> Option<Boot> {
        let running = self.running.is_some();
        running.then(|| self.finish(Over::Cut(why.to_owned())))
    }

    /// The machine was power-cycled at `at`; what it said before is of no boot.
    pub fn power_cycled(&mut self, at: Duration) {
        if self.running.is_none() {
            self.clear();
            self.restarted = Some(at);
        }
    }

    /// Whether anything was heard of the next boot: firmware, or a kernel.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.running.is_some() || !self.lines.is_empty()
    }

    /// Whether a kernel runs.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Kernel lines that are of no boot: of a kernel whose begin was not heard, or whose end was.
    #[must_use]
    pub fn passed_over(&self) -> u64 {
        self.passed_over
    }
}
