//! QEMU's virtio memory device, whose size its monitor changes, in our image.

use crate::common::image::image;
use crate::common::qemu;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use firstlight_lab::boot::{Board, Machine, Slots};
use qemu::{QEMU, qemu_is_here};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Longest wait for the guest, which a busy host slows down.
const PATIENCE: Duration = Duration::from_secs(60);
const MIB: u64 = 1 << 20;
/// Exit status of an image that did all it was to do.
const OK: i32 = 85;

/// A guest of 256 MiB with four slots for DIMMs, and QEMU's protocol to it.
struct Guest {
    qemu: Child,
    say: UnixStream,
    hear: BufReader<UnixStream>,
    folder: TempDir,
    /// What the board was answered so far: the DIMM, of what, the outcome.
    outcomes: Vec<(String, u64, u64)>,
}

impl Guest {
    /// With `devices` and space for 8 GiB, serving hotplug.
    fn start(board: Board, append: &str, devices: &[&str]) -> Self {
        Self::start_with(board, append, devices, 8)
    }

    fn start_with(board: Board, append: &str, devices: &[&str], most_gib: u64) -> Self {
        let folder = TempDir::new().unwrap();
        let file = |name: &str| format!("file,path={}", folder.path().join(name).display());
        let machine = Machine {
            board,
            memory_mib: 256,
            hotplug: Some(Slots {
                slots: 4,
                max_memory_mib: most_gib << 10,
            }),
            ..Machine::default()
        };
        let extra: Vec<String> = devices.iter().map(|word| (*word).to_owned()).collect();
        let arguments = qemu::arguments(
            &machine,
            image(),
            append,
            &extra,
            &file("log"),
            &file("events"),
        );
        let (ours, theirs) = UnixStream::pair().unwrap();
        let theirs = OwnedFd::from(theirs);
        let qemu = Command::new(QEMU)
            .args(arguments)
            .args(["-qmp", "stdio"])
            .stdin(Stdio::from(theirs.try_clone().unwrap()))
            .stdout(Stdio::from(theirs))
            .spawn()
            .unwrap();
        ours.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut guest = Self {
            qemu,
            say: ours.try_clone().unwrap(),
            hear: BufReader::new(ours),
            folder,
            outcomes: Vec::new(),
        };
        guest.execute("qmp_capabilities", &json!({}));
        guest.until("hotplug is served", |guest| {
            guest
                .read("log")
                .contains("until the power button is pressed")
        });
        guest
    }

    fn read(&self, name: &str) -> String {
        let bytes = fs::read(self.folder.path().join(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// What QEMU returns for a command.
    fn execute(&mut self, name: &str, arguments: &Value) -> Value {
        let command = json!({"execute": name, "arguments": arguments});
        writeln!(self.say, "{command}").unwrap();
        loop {
            let mut line = String::new();
            assert!(
                self.hear.read_line(&mut line).unwrap() > 0,
                "{}",
                self.read("log")
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
    fn plug(&mut self, dimm: &str, mib: u64, at: Option<u64>) -> u64 {
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
    fn pull(&mut self, dimm: &str) -> u64 {
        let before = self.outcomes.len();
        self.execute("device_del", &json!({"id": dimm}));
        self.outcome(before, dimm, 3)
    }

    fn until(&mut self, what: &str, mut is_so: impl FnMut(&mut Self) -> bool) {
        let begin = Instant::now();
        while !is_so(self) {
            let log = || self.read("log");
            assert!(begin.elapsed() < PATIENCE, "{what}: {}", log());
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// What the guest reported of hotplug.
    fn events(&self) -> Vec<Value> {
        let text = self.read("events");
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let events = whole
            .lines()
            .map(|line| serde_json::from_str(line).unwrap());
        events
            .filter(|event: &Value| event["event"] == "hotplug")
            .collect()
    }

    /// The host wants the device to have so much; waits until the guest has reported `rows` more events.
    fn resize(&mut self, device: &str, mib: u64, rows: usize) -> Vec<Value> {
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
    fn plugged(&mut self, device: &str) -> u64 {
        let path = format!("/machine/peripheral/{device}");
        let size = json!({"path": path, "property": "size"});
        self.execute("qom-get", &size).as_u64().unwrap() / MIB
    }

    /// MiB of the host's memory that QEMU has.
    fn resident(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.qemu.id())).unwrap();
        let line = status
            .lines()
            .find(|line| line.starts_with("VmRSS:"))
            .unwrap();
        let kib = line.split_whitespace().nth(1).unwrap();
        kib.parse::<u64>().unwrap() >> 10
    }

    /// Presses the power button; the guest's log.
    fn end(mut self) -> String {
        writeln!(self.say, "{}", json!({"execute": "system_powerdown"})).unwrap();
        let status = self.qemu.wait().unwrap();
        assert_eq!(status.code(), Some(OK), "{}", self.read("log"));
        self.read("log")
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // It has ended, unless the test failed.
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}

/// Start, size, action and whether it was refused.
fn row(event: &Value) -> (u64, u64, &str, bool) {
    let number = |name: &str| event[name].as_u64().unwrap();
    let action = event["action"].as_str().unwrap();
    (
        number("start") - (4 << 30),
        number("bytes") / MIB,
        action,
        !event["refused"].is_null(),
    )
}

/// Blocks are plugged and unplugged as the host wants, all of them are free memory between, and the
/// host has its memory again.
#[test]
fn memory_comes_and_goes_in_blocks_and_the_host_has_it_again() {
    if !qemu_is_here() {
        return;
    }
    let devices = [
        "-object",
        "memory-backend-ram,id=m0,size=1G,reserve=off",
        "-device",
        "virtio-mem-pci,id=vm0,memdev=m0,requested-size=16M",
    ];
    let mut guest = Guest::start(Board::Q35, "touch", &devices);
    guest.until("the size of the start", |guest| guest.events().len() == 1);
    let began = guest.resident();
    let grown = guest.resize("vm0", 272, 1);
    assert_eq!(row(&grown[0]), (16 * MIB, 256, "add", false));
    assert_eq!(grown[0]["failures"], 0);
    assert_eq!(
        (grown[0]["node"].as_u64(), grown[0]["zone"].as_str()),
        (Some(0), Some("Normal"))
    );
    let full = guest.resident();
    assert!(full > began + 240, "{began} to {full} MiB");
    // The highest go first, one block of 2 MiB or many.
    let one = guest.resize("vm0", 270, 1);
    assert_eq!(row(&one[0]), (270 * MIB, 2, "remove", false));
    let shrunk = guest.resize("vm0", 16, 1);
    assert_eq!(row(&shrunk[0]), (16 * MIB, 254, "remove", false));
    let free = |event: &Value| event["free_frames"].as_u64().unwrap();
    assert_eq!(free(&grown[0]) - free(&shrunk[0]), 256 * MIB / 4096);
    assert_eq!(guest.plugged("vm0"), 16);
    let empty = guest.resident();
    assert!(empty + 240 < full, "{full} to {empty} MiB");
    guest.end();
}

/// With descriptors, beside a DIMM and another device, and with pages in use.
#[test]
fn what_is_in_use_stays_until_it_is_free_and_devices_are_apart() {
    if !qemu_is_here() {
        return;
    }
    let devices = [
        "-object",
        "memory-backend-ram,id=m0,size=1G,reserve=off",
        "-device",
        "virtio-mem-pci,id=vm0,memdev=m0,memaddr=0x100000000",
        "-object",
        "memory-backend-ram,id=m1,size=1G,reserve=off",
        "-device",
        "virtio-mem-pci,id=vm1,memdev=m1,memaddr=0x180000000",
        "-object",
        "memory-backend-ram,id=m2,size=128M,reserve=off",
        "-device",
        "pc-dimm,memdev=m2,addr=0x140000000",
    ];
    let append = "descriptors=early hold_one_in=1";
    let mut guest = Guest::start(Board::Pc, append, &devices);
    let came = guest.resize("vm0", 512, 1);
    assert_eq!(row(&came[0]), (0, 512, "add", false));
    let other = guest.resize("vm1", 200, 1);
    // Memory with descriptors comes in 128 MiB: the rest is left to the host.
    assert_eq!(row(&other[0]), (2 << 30, 128, "add", false));
    // A page of the highest piece is in use; the next try, a second later, finds it free.
    let gone = guest.resize("vm0", 0, 3);
    let rows: Vec<_> = gone.iter().map(row).collect();
    let expected = [
        (0, 384, "remove", false),
        (0, 128, "resize", true),
        (384 * MIB, 128, "remove", false),
    ];
    assert_eq!(rows, expected);
    let why = gone[1]["refused"].as_str().unwrap();
    assert!(
        why.starts_with("0x8000000 of 0x20000000 bytes are in use: "),
        "{why}"
    );
    assert_eq!((guest.plugged("vm0"), guest.plugged("vm1")), (0, 128));
    let log = guest.end();
    let served = "hotplug: 4 slots, 2 memory devices, until the power button is pressed";
    assert!(log.contains(served), "{log}");
}

/// The last column of the table of outcomes, by the first.
fn documented() -> BTreeMap<String, u64> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/hotplug-devices.md");
    let text = fs::read_to_string(page).unwrap();
    let (_, table) = text
        .split_once("| what happens | Linux | ours |\n|---|---|---|\n")
        .unwrap();
    let rows = table.lines().take_while(|line| line.starts_with('|'));
    let cells = rows.map(|row| {
        row.trim_matches('|')
            .split('|')
            .map(str::trim)
            .collect::<Vec<_>>()
    });
    cells
        .map(|cells| {
            let ours = cells[2].trim_start_matches("0x");
            (cells[0].to_owned(), u64::from_str_radix(ours, 16).unwrap())
        })
        .collect()
}

/// What the board is answered is what the page says beside Linux's answers.
#[test]
fn the_board_is_answered_as_the_page_says() {
    if !qemu_is_here() {
        return;
    }
    let mut seen = BTreeMap::new();
    let mut say = |what: &str, status: u64| {
        assert_eq!(seen.insert(what.to_owned(), status), None, "{what}");
    };
    let mut guest = Guest::start_with(Board::Q35, "", &[], 900);
    say("a DIMM of 128 MiB comes", guest.plug("dimm1", 128, None));
    say("a DIMM of 64 MiB comes", guest.plug("dimm2", 64, None));
    say(
        "a DIMM of 128 MiB comes 64 MiB into a block",
        guest.plug("dimm3", 128, None),
    );
    say(
        "a DIMM comes where the window has no tables",
        guest.plug("dimm4", 128, Some(800 << 30)),
    );
    say("a free DIMM is to go", guest.pull("dimm1"));
    guest.end();
    let mut guest = Guest::start(Board::Q35, "descriptors=early", &[]);
    say(
        "a DIMM of 2 MiB comes, `descriptors=early`",
        guest.plug("dimm1", 2, None),
    );
    say("a DIMM that was refused is to go", guest.pull("dimm1"));
    guest.end();
    let mut guest = Guest::start(Board::Q35, "memhp_default_state=offline", &[]);
    say(
        "a DIMM comes, `memhp_default_state=offline`",
        guest.plug("dimm1", 128, None),
    );
    say("a DIMM that waits offline is to go", guest.pull("dimm1"));
    guest.end();
    let mut guest = Guest::start(Board::Q35, "hold_one_in=1", &[]);
    guest.plug("dimm1", 128, None);
    say("a DIMM with a page in use is to go", guest.pull("dimm1"));
    guest.end();
    assert_eq!(seen, documented());
}
