//! The serial ports: the first for the log, the second for events.

use uart_16550::backend::PioBackend;
use uart_16550::{BaudRate, Config, Uart16550};

const FIRST: u16 = 0x3f8;
const SECOND: u16 = 0x2f8;

/// One port.
pub(crate) struct Port(Uart16550<PioBackend>);

impl Port {
    /// The port for the log, if it is there.
    pub(crate) fn log() -> Option<Self> {
        Self::open(FIRST)
    }

    /// The port for events, if it is there.
    pub(crate) fn events() -> Option<Self> {
        Self::open(SECOND)
    }

    fn open(base: u16) -> Option<Self> {
        let config = Config {
            baud_rate: BaudRate::Baud115200,
            ..Config::DEFAULT
        };
        // SAFETY: these are the addresses of serial ports on a PC; `init` detects whether
        // there is one. The console's lock is held while one is opened.
        let mut port = unsafe { Uart16550::new_port(base) }.ok()?;
        port.init(config).ok()?;
        Some(Self(port))
    }

    /// Sends all of `bytes`.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.0.send_bytes_exact(bytes);
    }
}
