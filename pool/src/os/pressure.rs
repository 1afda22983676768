//! Memory pressure, as the kernel measures it (`/proc/pressure/memory`).
//!
//! Background work reads how much of the last ten seconds tasks waited for
//! memory, and steps back. A kernel without these figures has no pressure as far as can
//! be seen: the caller gets `None`. The files are [kept open](super::kept).
//!
//! A task that waits for the limit of its own cgroup counts there too, while the machine
//! has memory to spare. So a [`Gauge`] also looks whether the machine itself reclaims
//! (`/proc/vmstat`, whose counts leave reclaim for a cgroup's limit out).

use super::kept::KeptFile;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// Where the figures are.
pub const MEMORY: &str = "/proc/pressure/memory";

/// Percent of the last ten seconds in which at least one task waited.
///
/// # Errors
/// The file cannot be read, or says something else.
pub fn some_percent_10s(memory: &KeptFile) -> io::Result<f64> {
    parse(&memory.read()?).ok_or_else(|| memory.wrong("no line \"some avg10=...\""))
}

/// Where the kernel counts reclaim.
const VMSTAT: &str = "/proc/vmstat";
/// As far back as the kernel's figure looks.
const RECENT: Duration = Duration::from_secs(10);

/// Pressure of the machine itself.
#[derive(Debug)]
pub struct Gauge {
    /// Without the feature there is no file, or one that may not be opened.
    memory: Option<KeptFile>,
    vmstat: Option<KeptFile>,
    /// The count of reclaim at the last look, and when it last grew.
    reclaimed: Option<u64>,
    grew_at: Option<Instant>,
}

impl Gauge {
    /// Of this machine.
    #[must_use]
    pub fn of_machine() -> Self {
        Self::of_files(MEMORY, VMSTAT)
    }

    /// Of files in the place of `/proc/pressure/memory` and `/proc/vmstat`, which stay open.
    pub fn of_files(memory: impl AsRef<Path>, vmstat: impl AsRef<Path>) -> Self {
        Self {
            memory: KeptFile::open(memory.as_ref()).ok(),
            vmstat: KeptFile::open(vmstat.as_ref()).ok(),
            reclaimed: None,
            grew_at: None,
        }
    }

    /// Percent of the last ten seconds in which tasks waited for memory; `None` where
    /// that cannot be read, or the machine itself reclaimed nothing in that time.
    pub fn percent(&mut self, now: Instant) -> Option<f64> {
        let percent = some_percent_10s(self.memory.as_ref()?).ok()?;
        let Some(reclaimed) = self.vmstat.as_ref().and_then(reclaimed) else {
            // Nothing says that it is not the machine.
            return Some(percent);
        };
        if self.reclaimed.is_some_and(|before| reclaimed > before) {
            self.grew_at = Some(now);
        }
        self.reclaimed = Some(reclaimed);
        let grew_at = self.grew_at?;
        (now.saturating_duration_since(grew_at) < RECENT).then_some(percent)
    }
}

/// Pages looked at by the machine's own reclaim, and tasks that had to wait for it.
fn reclaimed(vmstat: &KeptFile) -> Option<u64> {
    let text = vmstat.read().ok()?;
    let counts = text.lines().filter_map(|line| {
        let (name, count) = line.split_once(' ')?;
        let counted = name.starts_with("allocstall") || name.starts_with("pgscan_kswapd");
        counted.then(|| count.trim().parse::<u64>().ok())?
    });
    counts.reduce(u64::saturating_add)
}

fn parse(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with("some "))?;
    let value = line
        .split(' ')
        .find_map(|word| word.strip_prefix("avg10="))?;
    let percent: f64 = value.parse().ok()?;
    (0.0..=100.0).contains(&percent).then_some(percent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn reads_the_kernels_lines_and_refuses_others() {
        for (text, percent) in [
            (
                "some avg10=1.23 avg60=0.00 avg300=0.00 total=9\nfull avg10=9.00 avg60=0.00 avg300=0.00 total=0\n",
                Some(1.23),
            ),
            (
                "full avg10=9.00 avg60=0 avg300=0 total=0\nsome avg10=0.00 avg60=1",
                Some(0.0),
            ),
            ("some avg60=1.0", None),
            ("some avg10=NaN", None),
            ("some avg10=-1", None),
            ("", None),
        ] {
            assert_eq!(parse(text), percent, "{text}");
        }
    }

    #[test]
    fn a_cgroup_that_waits_for_its_own_limit_is_no_pressure() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        fs::write(
            file("memory"),
            "some avg10=60.00 avg60=0 avg300=0 total=0\n",
        )
        .unwrap();
        let reclaimed = |pages: u64| {
            let text = format!("nr_free_pages 9\nallocstall_normal 1\npgscan_kswapd {pages}\n");
            fs::write(file("vmstat"), text).unwrap();
        };
        reclaimed(100);
        let mut gauge = Gauge::of_files(file("memory"), file("vmstat"));
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        assert_eq!(gauge.percent(at(0)), None);
        assert_eq!(gauge.percent(at(1)), None, "nothing was reclaimed since");
        reclaimed(101);
        assert_eq!(gauge.percent(at(2)), Some(60.0));
        assert_eq!(gauge.percent(at(11)), Some(60.0));
        assert_eq!(gauge.percent(at(12)), None, "that was ten seconds ago");
        fs::write(file("vmstat"), "nr_free_pages 9\n").unwrap();
        assert_eq!(gauge.percent(at(13)), Some(60.0));
    }

    #[test]
    fn a_kernel_without_the_file_has_no_figure() {
        let mut none = Gauge::of_files("/proc/pressure/none", VMSTAT);
        assert_eq!(none.percent(Instant::now()), None);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("memory");
        fs::write(&path, "rubbish\n").unwrap();
        let error = some_percent_10s(&KeptFile::open(&path).unwrap()).unwrap_err();
        assert!(error.to_string().contains("no line"), "{error}");
    }
}
