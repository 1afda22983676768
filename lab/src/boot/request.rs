//! What is asked of [`run`](super::run): [`Request`].

use std::path::PathBuf;
use std::time::Duration;

use super::accelerator::Wish;
use super::hotplug::Script;
use super::machine::{Machine, System};

/// What is to be booted, and how.
#[derive(Clone, Debug)]
pub struct Request {
    /// The machine.
    pub machine: Machine,
    /// What runs it.
    pub wish: Wish,
    /// A Linux kernel; without one it is our image.
    pub kernel: Option<PathBuf>,
    /// The file of our image, where it is not to be looked for.
    pub image: Option<PathBuf>,
    /// Linux's initial file system.
    pub initrd: Option<PathBuf>,
    /// Words for the guest's command line.
    pub append: String,
    /// Further arguments for QEMU.
    pub extra: Vec<String>,
    /// QEMU, where it is not to be looked for.
    pub qemu: Option<PathBuf>,
    /// The boot fails if the guest prints nothing for this long.
    pub silence: Duration,
    /// What happens to its DIMMs.
    pub script: Option<Script>,
    /// A guest whose log has this text has done what it should.
    pub until: Option<String>,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            machine: Machine::default(),
            wish: Wish::default(),
            kernel: None,
            image: None,
            initrd: None,
            append: String::new(),
            extra: Vec::new(),
            qemu: None,
            silence: Duration::from_secs(120),
            script: None,
            until: None,
        }
    }
}

impl Request {
    pub(super) fn system(&self) -> System {
        match self.kernel {
            Some(_) => System::Linux,
            None => System::Image,
        }
    }
}
