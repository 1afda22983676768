//! The serial ports: the first, or the one that ACPI names, for the log; the second for events.

use core::sync::atomic::{AtomicU16, Ordering::Relaxed};

use uart_16550::backend::PioBackend;
use uart_16550::{BaudRate, Config, Uart16550};

const FIRST: u16 = 0x3f8;
const SECOND: u16 = 0x2f8;

/// The port for the log.
static LOG: AtomicU16 = AtomicU16::new(FIRST);

/// The log goes to the port at `base` from the next opening on, if one is there; whether it is.
pub(crate) fn choose(base: u16) -> bool {
    let is_there = base == FIRST || Port::open(base).is_some();
    if is_there {
        LOG.store(base, Relaxed);
    }
    is_there
}

/// One port.
pub(crate) struct Port(Uart16550<PioBackend>);

impl Port {
    /// The port for the log, if it is there.
    pub(crate) fn log() -> Option<Self> {
        Self::open(LOG.load(Relaxed))
    }

    /// The port for events, if it is there and has not the log.
    pub(crate) fn events() -> Option<Self> {
        let has_log = LOG.load(Relaxed) == SECOND;
        (!has_log).then(|| Self::open(SECOND)).flatten()
    }

    fn open(base: u16) -> Option<Self> {
        let config = Config {
            baud_rate: BaudRate::Baud115200,
            ..Config::DEFAULT
        };
        // SAFETY: these are the addresses of serial ports on a PC, or ACPI's; `init` detects whether
        // there is one. One CPU opens them: the console's lock is held, or no other port is open yet.
        let mut port = unsafe { Uart16550::new_port(base) }.ok()?;
        port.init(config).ok()?;
        Some(Self(port))
    }

    /// Sends all of `bytes`.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.0.send_bytes_exact(bytes);
    }
}
