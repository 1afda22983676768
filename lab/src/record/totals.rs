//! Where a whole restart goes, as it is published: [`Totals`].

use serde::Serialize;

use crate::log::{Line, duration};

/// Nanoseconds of each part of a restart; what no line and no clock shows is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Totals {
    /// The kernel before went down.
    pub shutdown_ns: Option<u64>,
    /// Firmware, as systemd was told by it.
    pub firmware_ns: Option<u64>,
    /// Boot loader, likewise.
    pub loader_ns: Option<u64>,
    /// The kernel until its first program.
    pub kernel_ns: Option<u64>,
    /// Programs of the initial file system.
    pub initrd_ns: Option<u64>,
    /// Services.
    pub services_ns: Option<u64>,
    /// All of it; `None` where no line says.
    pub total_ns: Option<u64>,
    /// What is in the total and in no part.
    pub not_explained_ns: Option<u64>,
}

/// What the line of systemd begins with.
const FINISHED: &str = "Startup finished in ";

impl Totals {
    /// From the line in which systemd adds up a boot, if there is one.
    ///
    /// ```
    /// use firstlight_lab::{log::lines, record::Totals};
    /// let log = lines(b"systemd[1]: Startup finished in 1min 2.5s (firmware) + 3.25s (kernel) + 10s (userspace) = 1min 16s.");
    /// let totals = Totals::of(&log);
    /// assert_eq!(totals.firmware_ns, Some(62_500_000_000));
    /// assert_eq!(totals.not_explained_ns, Some(250_000_000));
    /// ```
    #[must_use]
    pub fn of(lines: &[Line<'_>]) -> Self {
        let line = lines
            .iter()
            .rfind(|line| line.text.starts_with("systemd[1]:") && line.text.contains(FINISHED));
        let Some((_, said)) = line.and_then(|line| line.text.split_once(FINISHED)) else {
            return Self::default();
        };
        let mut totals = Self::default();
        let (parts, total) = said.split_once('=').unwrap_or((said, ""));
        for part in parts.split('+') {
            let Some((time, name)) = part.split_once('(') else {
                continue;
            };
            let slot = match name
                .trim()
                .trim_end_matches(['.', ' '])
                .trim_end_matches(')')
            {
                "firmware" => &mut totals.firmware_ns,
                "loader" => &mut totals.loader_ns,
                "kernel" => &mut totals.kernel_ns,
                "initrd" => &mut totals.initrd_ns,
                "userspace" => &mut totals.services_ns,
                _ => continue,
            };
            *slot = duration(time);
        }
        totals.total_ns = duration(total.trim().trim_end_matches('.'));
        totals.settle();
        totals
    }

    /// The parts there are, with their names.
    #[must_use]
    pub fn parts(&self) -> [(&'static str, Option<u64>); 6] {
        [
            ("Shutdown", self.shutdown_ns),
            ("Firmware", self.firmware_ns),
            ("Loader", self.loader_ns),
            ("Kernel", self.kernel_ns),
            ("Initrd", self.initrd_ns),
            ("Services", self.services_ns),
        ]
    }

    /// Works out what is not explained.
    pub(crate) fn settle(&mut self) {
        let parts = self.parts();
        let known = parts.iter().filter_map(|part| part.1);
        let sum = known.fold(0, u64::saturating_add);
        self.not_explained_ns = self.total_ns.map(|total| total.saturating_sub(sum));
    }
}
