//! A guest that serves memory hotplug, and QEMU's protocol to it: [`Guest`].

use std::fs;
use std::io::{BufRead, BufReader, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use firstlight_lab::boot::{Machine, Uefi};
use firstlight_lab::stick;
use firstlight_wire::MARK;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::image::image;
use super::qemu::{self, QEMU};
use crate::boot_uefi::DEADLINE;
use crate::boot_uefi::started::{Killed, power_on_machine};

/// Longest wait for the guest, which a busy host slows down.
const PATIENCE: Duration = Duration::from_secs(60);
pub(crate) const MIB: u64 = 1 << 20;
/// Exit status of an image that did all it was to do.
const OK: i32 = 85;

/// The guest.
pub(crate) struct Guest {
    qemu: Killed,
    say: UnixStream,
    hear: BufReader<UnixStream>,
    files: Files,
    /// What the board was answered so far: the DIMM, of what, the outcome.
    outcomes: Vec<(String, u64, u64)>,
}

/// Where its log and its events are.
enum Files {
    Own(TempDir),
    /// With a stick for the result; the events may be marked lines of the log.
    Uefi(Uefi),
}

impl Guest {
    /// On a PC that QEMU's loader starts, with `devices`.
    pub(crate) fn start(machine: &Machine, append: &str, devices: &[&str]) -> Self {
        let folder = TempDir::new().unwrap();
        let file = |name: &str| format!("file,path={}", folder.path().join(name).display());
        let extra: Vec<String> = devices.iter().map(|word| (*word).to_owned()).collect();
        let (log, events) = (file("log"), file("events"));
        let arguments = qemu::arguments(machine, image(), append, &extra, &log, &events);
        let (ours, theirs) = UnixStream::pair().unwrap();
        let theirs = OwnedFd::from(theirs);
        let qemu = Command::new(QEMU)
            .args(arguments)
            .args(["-qmp", "stdio"])
            .stdin(Stdio::from(theirs.try_clone().unwrap()))
            .stdout(Stdio::from(theirs))
            .spawn();
        Self::new(Killed(qemu.unwrap()), ours, Files::Own(folder), PATIENCE)
    }

    /// On a machine that is started by UEFI, with `words` on its stick.
    pub(crate) fn by_uefi(machine: Machine, words: &str, devices: &[&str]) -> Self {
        let extra: Vec<String> = devices.iter().map(|word| (*word).to_owned()).collect();
        let (qemu, uefi) = power_on_machine(machine, words, |_| {}, "", &extra).parts();
        let protocol = uefi.stick.with_file_name("protocol");
        let begin = Instant::now();
        let ours = loop {
            match UnixStream::connect(&protocol) {
                Ok(stream) => break stream,
                Err(error) => assert!(begin.elapsed() < PATIENCE, "{error}"),
            }
            thread::sleep(Duration::from_millis(10));
        };
        Self::new(qemu, ours, Files::Uefi(uefi), DEADLINE)
    }

    /// The guest once it serves hotplug, after `longest` at the latest.
    fn new(qemu: Killed, ours: UnixStream, files: Files, longest: Duration) -> Self {
        ours.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut guest = Self {
            qemu,
            say: ours.try_clone().unwrap(),
            hear: BufReader::new(ours),
            files,
            outcomes: Vec::new(),
        };
        guest.execute("qmp_capabilities", &json!({}));
        guest.within(longest, "hotplug is served", |guest| {
            let log = guest.log();
            log.contains("until the power button is pressed") || guest.has_ended()
        });
        guest
    }

    fn has_ended(&mut self) -> bool {
        let log = self.log();
        let status = self.qemu.0.try_wait().unwrap();
        assert!(status.is_none(), "{status:?}: {log}");
        false
    }

    fn read(&self, name: &str) -> String {
        let file: PathBuf = match &self.files {
            Files::Own(folder) => folder.path().join(name),
            Files::Uefi(uefi) => uefi.stick.with_file_name(name),
        };
        let bytes = fs::read(file).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    pub(crate) fn log(&self) -> String {
        self.read("log")
    }

    /// What QEMU returns for a command.
    pub(crate) fn execute(&mut self, name: &str, arguments: &Value) -> Value {
        let command = json!({"execute": name, "arguments": arguments});
        writeln!(self.say, "{command}").unwrap();
        loop {
            let mut line = String::new();
            assert!(
                self.hear.read_line(&mut line).unwrap() > 0,
                "{}",
                self.log()
            );
            let said: Value = serde_json::from_str(&line).unwrap();
            assert_eq!(said.get("error"), None, "{command}");
            if let Some(answer) = said.get("return") {
                return answer.clone();
            }
            let info = &said["data"]["info"];
            if said["event"] == "ACPI_DEVICE_OST" {
                let number = |name: &str| info[name].as_u64().unwrap();
                let device = info["device"].as_str().unwrap_or_default().to_owned();
                self.outcomes
                    .push((device, number("source"), number("status")));
            }
        }
    }

    /// The outcome of the last event, of an insertion (1) or an ejection (3) of `dimm`, that the board was
    /// answered after `before` others.
    fn outcome(&mut self, before: usize, dimm: &str, source: u64) -> u64 {
        self.until("an outcome", |guest| {
            guest.execute("query-status", &json!({}));
            guest.outcomes.len() > before
        });
        let (of, seen, status) = self.outcomes.last().unwrap();
        assert_eq!(
            (of.as_str(), *seen, self.outcomes.len()),
            (dimm, source, before + 1)
        );
        *status
    }

    /// A DIMM comes, at an address or wherever QEMU puts it; what the board was answered.
    pub(crate) fn plug(&mut self, dimm: &str, mib: u64, at: Option<u64>) -> u64 {
        let before = self.outcomes.len();
        let memory = format!("{dimm}-memory");
        let backend = json!({"qom-type": "memory-backend-ram", "id": memory, "size": mib * MIB,
            "reserve": false});
        self.execute("object-add", &backend);
        let mut device = json!({"driver": "pc-dimm", "id": dimm, "memdev": memory});
        if let Some(at) = at {
            device["addr"] = at.into();
        }
        self.execute("device_add", &device);
        self.outcome(before, dimm, 1)
    }

    /// A DIMM is to go; what the board was answered.
    pub(crate) fn pull(&mut self, dimm: &str) -> u64 {
        let before = self.outcomes.len();
        self.execute("device_del", &json!({"id": dimm}));
        self.outcome(before, dimm, 3)
    }

    pub(crate) fn until(&mut self, what: &str, is_so: impl FnMut(&mut Self) -> bool) {
        self.within(PATIENCE, what, is_so);
    }

    fn within(&mut self, longest: Duration, what: &str, mut is_so: impl FnMut(&mut Self) -> bool) {
        let begin = Instant::now();
        while !is_so(self) {
            assert!(begin.elapsed() < longest, "{what}: {}", self.log());
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// What the guest reported of hotplug.
    pub(crate) fn events(&self) -> Vec<Value> {
        let text = match &self.files {
            Files::Own(_) => self.read("events"),
            Files::Uefi(_) => self.log(),
        };
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let lines = whole.lines().map(|line| match line.find(MARK) {
            Some(at) => &line[at + MARK.len()..],
            None => line,
        });
        let events = lines.filter_map(|line| serde_json::from_str(line).ok());
        events
            .filter(|event: &Value| event["event"] == "hotplug")
            .collect()
    }

    /// The event that is so many from the first on, counted from 1, once there is one.
    pub(crate) fn event(&mut self, row: usize) -> Value {
        self.until("an event", |guest| guest.events().len() >= row);
        self.events().remove(row - 1)
    }

    /// The host wants the device to have so much; waits until the guest has reported `rows` more events.
    pub(crate) fn resize(&mut self, device: &str, mib: u64, rows: usize) -> Vec<Value> {
        let before = self.events().len();
        let path = format!("/machine/peripheral/{device}");
        let size = json!({"path": path, "property": "requested-size", "value": mib * MIB});
        self.execute("qom-set", &size);
        self.until("events", |guest| guest.events().len() >= before + rows);
        let mut events = self.events();
        assert_eq!(events.len(), before + rows, "{events:#?}");
        events.split_off(before)
    }

    /// MiB that are plugged, as QEMU says.
    pub(crate) fn plugged(&mut self, device: &str) -> u64 {
        let path = format!("/machine/peripheral/{device}");
        let size = json!({"path": path, "property": "size"});
        self.execute("qom-get", &size).as_u64().unwrap() / MIB
    }

    /// MiB of the host's memory that QEMU has.
    pub(crate) fn resident(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.qemu.0.id())).unwrap();
        let line = status
            .lines()
            .find(|line| line.starts_with("VmRSS:"))
            .unwrap();
        let kib = line.split_whitespace().nth(1).unwrap();
        kib.parse::<u64>().unwrap() >> 10
    }

    /// Presses the power button; the guest's log. By UEFI the result is on the stick.
    pub(crate) fn end(mut self) -> String {
        writeln!(self.say, "{}", json!({"execute": "system_powerdown"})).unwrap();
        let status = self.qemu.0.wait().unwrap().code();
        let log = self.log();
        match &self.files {
            Files::Own(_) => assert_eq!(status, Some(OK), "{log}"),
            Files::Uefi(uefi) => {
                assert_eq!(status, Some(0), "{log}");
                let result = stick::result(&uefi.stick).unwrap().unwrap();
                let end = b"{\"event\":\"end\",\"outcome\":\"ok\"";
                let mut parts = result.windows(end.len());
                assert!(parts.any(|part| part == end), "{log}");
            }
        }
        log
    }
}
