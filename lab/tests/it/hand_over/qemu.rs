//! A boot in real QEMU, emulated: started, heard to its end, and killed if that
//! does not come.

use crate::common::qemu::{QEMU, arguments};
use firstlight_lab::boot::Machine;
use firstlight_lab::boot::events::{Event, Events, Outcome};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Condvar, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// No boot here takes longer, however slow the host.
const DEADLINE: Duration = Duration::from_secs(20);
/// Boots at the same time, at most.
const AT_ONCE: usize = 2;

/// What a boot came to.
#[derive(Debug)]
pub(crate) struct Boot {
    status: Option<i32>,
    log: String,
    events: Events,
}

impl Boot {
    /// Boots `kernel` on `machine`.
    pub(crate) fn run(machine: &Machine, kernel: &Path, append: &str, extra: &[String]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let [log, events] = ["log", "events"].map(|name| folder.path().join(name));
        let port = |path: &Path| format!("file,path={}", path.display());
        let arguments = arguments(machine, kernel, append, extra, &port(&log), &port(&events));
        let permit = Permit::wait();
        let mut qemu = Command::new(QEMU);
        qemu.args(arguments).stdin(Stdio::null());
        let status = Running(qemu.spawn().unwrap()).end();
        drop(permit);
        let log = std::fs::read(log).unwrap();
        let events = Events::read(&std::fs::read(events).unwrap(), &log);
        let log = String::from_utf8_lossy(&log).into_owned();
        let Some(status) = status else {
            panic!("no end within {DEADLINE:?}; so far:\n{log}");
        };
        Self {
            status,
            log,
            events,
        }
    }

    /// It ended with `outcome`, as exit status and as the one `end` event.
    #[track_caller]
    pub(crate) fn ended(&self, outcome: Outcome) -> &Self {
        assert_eq!(self.outcome(), Ok(outcome), "{}", self.log);
        self
    }

    /// How it ended; an error if it is not clear.
    pub(crate) fn outcome(&self) -> Result<Outcome, String> {
        if let Some(rubbish) = &self.events.rubbish {
            return Err(format!("an event nobody can read: {rubbish}"));
        }
        // Whatever firmware says, it is shown as text.
        let shown = |byte: u8| matches!(byte, b' '..=b'~' | b'\r' | b'\n');
        if !self.log.bytes().all(shown) {
            return Err("bytes in the log that are no text".into());
        }
        let ends = |event: &&Event| matches!(event, Event::End { .. });
        let ends = self.events.list.iter().filter(ends).count();
        let told = self.events.outcome().map(Outcome::exit_status);
        let outcome = self.status.and_then(Outcome::of_exit_status);
        match outcome.filter(|_| ends == 1 && told == self.status) {
            Some(outcome) => Ok(outcome),
            None => Err(format!(
                "exit status {:?}, {ends} end events, the last one stands for {told:?}",
                self.status
            )),
        }
    }

    /// A line of the log has these words.
    #[track_caller]
    pub(crate) fn says(&self, words: &str) -> &Self {
        let said = self.log.lines().any(|line| line.contains(words));
        assert!(said, "{words:?} is missing in\n{}", self.log);
        self
    }

    /// Ticks and source of a milestone.
    pub(crate) fn events(&self) -> &[Event] {
        &self.events.list
    }

    pub(crate) fn milestone(&self, wanted: &str) -> Option<(u64, Option<&str>)> {
        self.events.list.iter().find_map(|event| match event {
            Event::Milestone {
                name,
                ticks,
                source,
            } if name == wanted => Some((*ticks, source.as_deref())),
            _ => None,
        })
    }

    /// The whole log.
    pub(crate) fn log(&self) -> &str {
        &self.log
    }
}

/// A QEMU that is killed when it goes out of sight.
struct Running(Child);

impl Running {
    /// Waits for its end; `None` if that takes too long.
    fn end(mut self) -> Option<Option<i32>> {
        let start = Instant::now();
        while start.elapsed() < DEADLINE {
            if let Some(status) = self.0.try_wait().unwrap() {
                return Some(status.code());
            }
            sleep(Duration::from_millis(5));
        }
        None
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Leave to run a QEMU; tests run on as many threads as there are CPUs.
struct Permit(());

static RUNNING: Mutex<usize> = Mutex::new(0);
static FREED: Condvar = Condvar::new();

impl Permit {
    fn wait() -> Self {
        let running = RUNNING.lock().unwrap();
        let full = |running: &mut usize| *running == AT_ONCE;
        *FREED.wait_while(running, full).unwrap() += 1;
        Self(())
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        *RUNNING.lock().unwrap() -= 1;
        FREED.notify_one();
    }
}
