//! Where a console is, and its bytes: [`Console`], [`open`].

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, fcntl_getfl, fcntl_setfl};
use rustix::net::sockopt;
use rustix::termios::{
    ControlModes, OptionalActions, SpecialCodeIndex, Termios, isatty, tcgetattr, tcsetattr,
};

/// How long a console server may take to answer.
const CONNECT: Duration = Duration::from_secs(10);
/// Time after which a peer that says nothing is asked whether it is there, and how often.
const KEEP_ALIVE: (Duration, u32) = (Duration::from_secs(10), 3);
/// What stands before the address of a console server.
const TCP: &str = "tcp:";

/// Where a console is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Console {
    /// Standard input.
    Input,
    /// A console server, `HOST:PORT`.
    Tcp(String),
    /// A tty or a named pipe.
    Path(PathBuf),
}

impl FromStr for Console {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "-" {
            return Ok(Self::Input);
        }
        let Some(address) = text.strip_prefix(TCP) else {
            return Ok(Self::Path(text.into()));
        };
        match address.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {
                Ok(Self::Tcp(address.to_owned()))
            }
            _ => Err("expected tcp:HOST:PORT, such as tcp:console.lab:4001".into()),
        }
    }
}

impl fmt::Display for Console {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Input => f.write_str("standard input"),
            Self::Tcp(address) => write!(f, "{TCP}{address}"),
            Self::Path(path) => path.display().fmt(f),
        }
    }
}

/// A console that is open.
pub(super) enum Source {
    Bytes(Box<dyn Read + Send>),
    /// Opened by the reader: that waits until somebody writes to it.
    Pipe(PathBuf),
}

/// Opens `console`; a tty is raw at `baud` from then on, until the second value goes.
///
/// # Errors
/// What the system says; a file that is no console.
pub(super) fn open(console: &Console, baud: u32) -> io::Result<(Source, Option<Tty>)> {
    let path = match console {
        Console::Input => return Ok((Source::Bytes(Box::new(io::stdin())), None)),
        Console::Tcp(address) => return Ok((Source::Bytes(Box::new(connect(address)?)), None)),
        Console::Path(path) => path,
    };
    let kind = std::fs::metadata(path)?.file_type();
    if kind.is_fifo() {
        return Ok((Source::Pipe(path.clone()), None));
    }
    if !kind.is_char_device() {
        return Err(io::Error::other(
            "it is neither a tty nor a pipe: its lines have no time at which they come; expected a console, or a log for `firstlight doctor`",
        ));
    }
    // Without a wait for the carrier.
    let flags = OFlags::RDONLY | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty())?;
    let tty = match isatty(&file) {
        true => Some(Tty::raw(&file, baud)?),
        false => None,
    };
    fcntl_setfl(&file, fcntl_getfl(&file)?.difference(OFlags::NONBLOCK))?;
    Ok((Source::Bytes(Box::new(File::from(file))), tty))
}

fn connect(address: &str) -> io::Result<TcpStream> {
    let mut failed = io::Error::other("it has no address");
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT) {
            Ok(stream) => {
                let (after, count) = KEEP_ALIVE;
                sockopt::set_socket_keepalive(&stream, true)?;
                sockopt::set_tcp_keepidle(&stream, after)?;
                sockopt::set_tcp_keepintvl(&stream, after)?;
                sockopt::set_tcp_keepcnt(&stream, count)?;
                return Ok(stream);
            }
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// A tty with settings of ours; it gets its own back when this goes.
pub(super) struct Tty {
    file: OwnedFd,
    before: Termios,
}

impl Tty {
    /// Eight bits as they come, without flow control, whatever the carrier is.
    fn raw(tty: impl AsFd, baud: u32) -> io::Result<Self> {
        let before = tcgetattr(&tty)?;
        let mut raw = before.clone();
        raw.make_raw();
        raw.control_modes |= ControlModes::CLOCAL | ControlModes::CREAD;
        raw.control_modes -= ControlModes::CRTSCTS;
        raw.special_codes[SpecialCodeIndex::VMIN] = 1;
        raw.special_codes[SpecialCodeIndex::VTIME] = 0;
        raw.set_speed(baud)?;
        tcsetattr(&tty, OptionalActions::Now, &raw)?;
        let file = tty.as_fd().try_clone_to_owned()?;
        Ok(Self { file, before })
    }
}

impl Drop for Tty {
    fn drop(&mut self) {
        // One that is gone needs none.
        let _ = tcsetattr(&self.file, OptionalActions::Now, &self.before);
    }
}

/// What a reader hands on.
pub(super) enum Heard {
    /// Bytes, and when they came.
    Bytes(Instant, Vec<u8>),
    /// Nothing more comes: the end, or why.
    End(io::Result<()>),
}

/// Hands on what comes until there is nothing more or nobody listens.
pub(super) fn listen(source: Source, heard: &SyncSender<Heard>) {
    let end = match source {
        Source::Bytes(bytes) => read(bytes, heard),
        Source::Pipe(path) => File::open(path).and_then(|file| read(Box::new(file), heard)),
    };
    let _ = heard.send(Heard::End(end));
}

fn read(mut source: Box<dyn Read + Send>, heard: &SyncSender<Heard>) -> io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let count = match source.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let at = Instant::now();
        let bytes = buffer.get(..count).unwrap_or_default().to_vec();
        if heard.send(Heard::Bytes(at, bytes)).is_err() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consoles_have_names() {
        let is = |text: &str| text.parse::<Console>();
        assert_eq!(is("-"), Ok(Console::Input));
        assert_eq!(is("tcp:[::1]:23"), Ok(Console::Tcp("[::1]:23".into())));
        assert_eq!(is("/dev/ttyS0"), Ok(Console::Path("/dev/ttyS0".into())));
        for wrong in ["tcp:", "tcp:host", "tcp::23", "tcp:host:x", "tcp:h:99999"] {
            let why = is(wrong).unwrap_err();
            assert!(why.contains("tcp:HOST:PORT"), "{wrong}: {why}");
        }
    }
}
