//! Where a console is, and its bytes: [`Console`], [`open`].

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread;
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
/// How often a reader looks whether a full queue has room.
const TICK: Duration = Duration::from_millis(20);
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

/// A new queue of what is heard: the end for a reader, and that for who listens.
pub(super) fn queue(most_bytes: usize) -> (Reader, Queue) {
    let (sender, heard) = channel();
    let bytes = Arc::new(AtomicUsize::new(0));
    let reader = Reader {
        sender,
        bytes: Arc::clone(&bytes),
        most_bytes,
    };
    (reader, Queue { heard, bytes })
}

/// What was heard and nobody has taken yet.
pub(super) struct Queue {
    heard: Receiver<Heard>,
    bytes: Arc<AtomicUsize>,
}

impl Queue {
    /// The next; waits for it.
    pub(super) fn next(&self, time: Duration) -> Result<Heard, RecvTimeoutError> {
        self.heard
            .recv_timeout(time)
            .inspect(|heard| self.took(heard))
    }

    /// The next, if it is there.
    pub(super) fn next_now(&self) -> Result<Heard, TryRecvError> {
        self.heard.try_recv().inspect(|heard| self.took(heard))
    }

    fn took(&self, heard: &Heard) {
        self.bytes.fetch_sub(heard.size(), Ordering::Relaxed);
    }
}

impl Heard {
    /// What it takes in a queue.
    fn size(&self) -> usize {
        let bytes = match self {
            Self::Bytes(_, bytes) => bytes.len(),
            Self::End(_) => 0,
        };
        bytes + size_of::<Self>()
    }
}

/// Reads a console as it speaks, whoever listens meanwhile.
pub(super) struct Reader {
    sender: Sender<Heard>,
    bytes: Arc<AtomicUsize>,
    /// With so many in the queue it waits.
    most_bytes: usize,
}

impl Reader {
    /// Hands on what comes until there is nothing more or nobody listens.
    pub(super) fn listen(&self, source: Source) {
        let end = match source {
            Source::Bytes(bytes) => self.read(bytes),
            Source::Pipe(path) => File::open(path).and_then(|file| self.read(Box::new(file))),
        };
        self.hand_on(Heard::End(end));
    }

    fn read(&self, mut source: Box<dyn Read + Send>) -> io::Result<()> {
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
            if !self.hand_on(Heard::Bytes(at, bytes)) {
                return Ok(());
            }
        }
    }

    /// Whether anybody listens.
    fn hand_on(&self, heard: Heard) -> bool {
        let size = heard.size();
        self.bytes.fetch_add(size, Ordering::Relaxed);
        let goes_on = self.sender.send(heard).is_ok();
        while goes_on && self.bytes.load(Ordering::Relaxed) > self.most_bytes {
            thread::sleep(TICK);
            if Arc::strong_count(&self.bytes) == 1 {
                return false;
            }
        }
        goes_on
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

    /// A tty: a byte with each read.
    struct Tty(usize);

    impl Read for Tty {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.0 = self.0.saturating_sub(1);
            buffer[0] = b'x';
            Ok(usize::from(self.0 > 0))
        }
    }

    /// Interrupted before each byte, and broken after some.
    struct Broken(usize);

    impl Read for Broken {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.0 += 1;
            buffer[0] = b'x';
            match self.0 {
                7.. => Err(io::ErrorKind::BrokenPipe.into()),
                count if count % 2 == 1 => Err(io::ErrorKind::Interrupted.into()),
                _ => Ok(1),
            }
        }
    }

    #[test]
    fn a_read_that_is_interrupted_is_repeated_and_one_that_fails_is_told() {
        let (reader, queue) = queue(1 << 20);
        reader.listen(Source::Bytes(Box::new(Broken(0))));
        let all: Vec<_> = std::iter::from_fn(|| queue.next_now().ok()).collect();
        let bytes = all.iter().filter(|heard| matches!(heard, Heard::Bytes(..)));
        assert_eq!(bytes.count(), 3);
        let Some(Heard::End(Err(error))) = all.last() else {
            panic!("no end is told");
        };
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn a_tty_is_read_while_nobody_listens_up_to_a_bound_in_bytes() {
        let (reader, queue) = queue(1 << 20);
        reader.listen(Source::Bytes(Box::new(Tty(5000))));
        let all = std::iter::from_fn(|| queue.next_now().ok());
        assert_eq!(all.count(), 5000);
        assert_eq!(queue.bytes.load(Ordering::Relaxed), 0);
        let endless = Source::Bytes(Box::new(Tty(usize::MAX)));
        let reading = thread::spawn(move || reader.listen(endless));
        while queue.bytes.load(Ordering::Relaxed) <= 1 << 20 {
            thread::yield_now();
        }
        assert!(queue.next(Duration::ZERO).is_ok());
        drop(queue);
        reading.join().unwrap();
    }
}
