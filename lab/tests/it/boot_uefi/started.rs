//! A machine that is started by hand: [`start`], and [`power_on`] where it is to be looked at.

use crate::boot_uefi::DEADLINE;
use crate::common::checkers::check_stick;
use firstlight_lab::boot::{
    Accelerator, Firmware, Launch, Machine, Ports, System, Uefi, Unwatched, find_image, find_loader,
};
use firstlight_lab::stick::Programs;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicUsize;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A machine that was started by hand, with a stick that was changed.
pub(crate) struct Started {
    /// Exit status of QEMU; none if it did not end by itself.
    pub(crate) status: Option<i32>,
    pub(crate) log: String,
    pub(crate) uefi: Uefi,
}

/// Starts one whose stick and variables `change` was made to, until it ends or its log has `until`;
/// `readonly` is a drive that cannot be written. What it leaves on the stick has to be sound.
pub(crate) fn start(
    change: impl FnOnce(&mut Uefi),
    readonly: &str,
    extra: &[String],
    until: &str,
) -> Started {
    power_on(change, readonly, extra).ended(until)
}

/// Starts one, which runs until it ends or goes out of sight.
pub(crate) fn power_on(
    change: impl FnOnce(&mut Uefi),
    readonly: &str,
    extra: &[String],
) -> Running {
    let machine = Machine {
        memory_mib: 512,
        ..Machine::default()
    };
    power_on_machine(machine, "", change, readonly, extra)
}

/// Another machine, with words for the image on its stick.
pub(crate) fn power_on_machine(
    machine: Machine,
    words: &str,
    change: impl FnOnce(&mut Uefi),
    readonly: &str,
    extra: &[String],
) -> Running {
    let stop = AtomicUsize::new(0);
    let processor = machine.board.processor();
    let loader = find_loader(processor, &stop, &mut Unwatched).unwrap();
    let image = find_image(processor, &stop, &mut Unwatched).unwrap();
    let programs = Programs {
        loader: &loader,
        image: &image,
    };
    let mut uefi = Uefi::new(processor, programs, words).unwrap();
    change(&mut uefi);
    let machine = Machine {
        firmware: Firmware::Uefi,
        ..machine
    };
    let launch = Launch {
        machine: &machine,
        accelerator: Accelerator::Tcg,
        system: System::Image,
        kernel: Path::new(""),
        initrd: None,
        append: "",
        uefi: Some(&uefi),
        extra,
    };
    let port = |file: &str| format!("file,path={}", uefi.stick.with_file_name(file).display());
    let protocol = uefi.stick.with_file_name("protocol");
    let arguments = launch.arguments(&Ports {
        log: port("log"),
        events: port("events"),
        markers: "null".into(),
        protocol: Some(format!(
            "socket,server=on,wait=off,path={}",
            protocol.display()
        )),
    });
    let arguments = arguments.into_iter().map(|argument| {
        let text = argument.to_str().unwrap();
        match !readonly.is_empty() && text.starts_with(readonly) {
            true => format!("{text},readonly=on"),
            false => text.to_owned(),
        }
    });
    let child = Command::new(format!("qemu-system-{processor}"))
        .args(arguments)
        .stdin(Stdio::null())
        .spawn();
    let qemu = Killed(child.unwrap());
    Running { qemu, uefi }
}

/// A machine under way.
pub(crate) struct Running {
    qemu: Killed,
    uefi: Uefi,
}

impl Running {
    /// QEMU, and its files.
    pub(crate) fn parts(self) -> (Killed, Uefi) {
        (self.qemu, self.uefi)
    }

    /// What became of it, at its end or when its log has `until`.
    pub(crate) fn ended(mut self, until: &str) -> Started {
        let status = self.until(until);
        let log = self.log();
        let Self { qemu, uefi } = self;
        drop(qemu);
        check_stick(&uefi.stick);
        Started { status, log, uefi }
    }

    /// Waits for its end, or for `until` in its log; the exit status, if it ended by itself.
    pub(crate) fn until(&mut self, until: &str) -> Option<i32> {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.qemu.0.try_wait().unwrap() {
                return status.code();
            }
            if !until.is_empty() && self.log().contains(until) {
                return None;
            }
            let log = self.log();
            assert!(begin.elapsed() < DEADLINE, "no end; so far:\n{log}");
            sleep(Duration::from_millis(50));
        }
    }

    /// The log so far.
    pub(crate) fn log(&self) -> String {
        self.port("log")
    }

    /// The events so far, one a line; firmware writes to this port as well.
    pub(crate) fn events(&self) -> String {
        let all = self.port("events");
        let lines = all.lines().map(|line| line.trim_ascii_end());
        let own = lines.filter_map(|line| Some(&line[line.find("{\"event\":")?..]));
        own.flat_map(|line| [line, "\n"]).collect()
    }

    fn port(&self, file: &str) -> String {
        let bytes = fs::read(self.uefi.stick.with_file_name(file)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// What its screen shows now.
    pub(crate) fn screen(&self) -> Picture {
        let picture = self.uefi.stick.with_file_name("picture");
        let words = serde_json::json!({"filename": picture});
        self.ask(&serde_json::json!({"execute": "screendump", "arguments": words}));
        Picture::read(&fs::read(picture).unwrap())
    }

    /// The registers of all CPUs now.
    pub(crate) fn registers(&self) -> String {
        let words = serde_json::json!({"command-line": "info registers -a"});
        let command = serde_json::json!({"execute": "human-monitor-command", "arguments": words});
        let answer: serde_json::Value = serde_json::from_str(&self.ask(&command)).unwrap();
        answer["return"].as_str().unwrap().to_owned()
    }

    /// What QEMU answers to a command.
    fn ask(&self, command: &serde_json::Value) -> String {
        let protocol = self.uefi.stick.with_file_name("protocol");
        let mut stream = UnixStream::connect(protocol).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let mut answers = BufReader::new(stream.try_clone().unwrap()).lines();
        let mut last = String::new();
        for command in [&serde_json::json!({"execute": "qmp_capabilities"}), command] {
            writeln!(stream, "{command}").unwrap();
            // A greeting and events may come before the answer.
            let answer = answers
                .by_ref()
                .map(Result::unwrap)
                .find(|line| line.contains("\"return\"") || line.contains("\"error\""));
            let answer = answer.unwrap_or_else(|| panic!("{command}: no answer"));
            assert!(answer.contains("\"return\""), "{command}: {answer}");
            last = answer;
        }
        last
    }
}

/// A picture of a screen.
pub(crate) struct Picture {
    pub(crate) width: usize,
    pub(crate) height: usize,
    /// Red, green and blue, row by row.
    pixels: Vec<[u8; 3]>,
}

impl Picture {
    /// From a PPM file as QEMU writes it: `P6`, width, height and 255, each with a byte of space behind.
    fn read(file: &[u8]) -> Self {
        let mut parts = file.splitn(5, |byte| byte.is_ascii_whitespace());
        let mut word = || parts.next().unwrap();
        let kind = word();
        let mut number = || str::from_utf8(word()).unwrap().parse().unwrap();
        let [width, height, most] = [(); 3].map(|()| number());
        assert_eq!((kind, most), (&b"P6"[..], 255));
        let (pixels, rest) = word().as_chunks();
        assert_eq!((pixels.len(), rest), (width * height, &[][..]));
        let pixels = pixels.to_vec();
        Self {
            width,
            height,
            pixels,
        }
    }

    /// Whether a pixel is as white as only a code is: letters are darker.
    fn is_white(&self, x: usize, y: usize) -> bool {
        self.pixels[y * self.width + x] == [0xff; 3]
    }

    /// The text of its QR code; `None` if there is none that can be read.
    pub(crate) fn code(&self) -> Option<String> {
        let gray = |x, y| u8::from(self.is_white(x, y)) * 255;
        let mut image = rqrr::PreparedImage::prepare_from_greyscale(self.width, self.height, gray);
        let codes = image.detect_grids();
        codes.iter().find_map(|code| Some(code.decode().ok()?.1))
    }
}

/// A QEMU that is killed when it goes out of sight.
pub(crate) struct Killed(pub(crate) Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Started {
    #[track_caller]
    pub(crate) fn says(&self, words: &str) -> &Self {
        assert!(
            self.log.contains(words),
            "{words:?} is missing in\n{}",
            self.log
        );
        self
    }
}

/// So that a result on the screen alone ends the machine.
pub(crate) fn exit_device() -> Vec<String> {
    ["-device", "isa-debug-exit,iobase=0xf4,iosize=4"]
        .map(String::from)
        .to_vec()
}
