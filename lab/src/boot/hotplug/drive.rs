//! The thread that does what a script says, through QEMU's machine protocol: [`Driver`].
//!
//! It begins when the guest serves hotplug (marker 0x54), waits until the guest has answered all
//! of it, and presses the power button, at which the guest ends.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use firstlight_wire::marker;
use serde_json::{Value, json};

use super::script::{Action, Script, Step};
use crate::boot::qmp::Qmp;

/// Longest wait for an event, between two looks.
const PERIOD: Duration = Duration::from_millis(5);
/// Longest wait for the guest to answer the last line.
const PATIENCE: Duration = Duration::from_secs(60);

/// What came of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::boot) struct Done {
    pub(super) step: Step,
    /// Where the DIMM is, once it is somewhere.
    pub(super) start: Option<u64>,
    /// Why QEMU did nothing of the kind.
    pub(super) refused: Option<String>,
}

/// What was done.
#[derive(Debug, Default)]
pub(in crate::boot) struct Driven {
    pub(super) done: Vec<Done>,
    /// What went wrong.
    pub(super) notes: Vec<String>,
}

/// The thread, and what it is told.
#[derive(Debug)]
pub(in crate::boot) struct Driver {
    thread: JoinHandle<Driven>,
    begun: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
}

impl Driver {
    /// Does what `script` says to the QEMU whose protocol is at the other end of `stream`; DIMMs
    /// without a node are for `node`.
    pub(in crate::boot) fn start(
        script: &Script,
        node: u32,
        stream: UnixStream,
    ) -> io::Result<Self> {
        let [begun, stop] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let mut drive = Drive {
            steps: script.steps().to_vec(),
            node,
            begun: Arc::clone(&begun),
            stop: Arc::clone(&stop),
            dimms: BTreeMap::new(),
            pending: BTreeMap::new(),
            driven: Driven::default(),
        };
        let thread = thread::Builder::new().spawn(move || {
            if let Err(error) = drive.run(stream) {
                // A guest that has ended closes the protocol.
                if !drive.stop.load(Ordering::Relaxed) {
                    drive.driven.notes.push(format!("hotplug: {error}"));
                }
            }
            drive.driven
        })?;
        Ok(Self {
            thread,
            begun,
            stop,
        })
    }

    /// The guest has shown a marker.
    pub(in crate::boot) fn marker(&self, code: u8) {
        if code == marker::HOTPLUG {
            self.begun.store(true, Ordering::Relaxed);
        }
    }

    /// Ends it; QEMU has ended.
    pub(in crate::boot) fn end(self) -> Driven {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
    }
}

/// What the guest has to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pending {
    Insertion,
    Ejection,
}

struct Drive {
    steps: Vec<Step>,
    node: u32,
    begun: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
    /// Where DIMMs are that came.
    dimms: BTreeMap<u32, u64>,
    pending: BTreeMap<u32, Pending>,
    driven: Driven,
}

/// ACPI's numbers: what an outcome is of.
const OF_INSERTION: u64 = 1;
const OF_EJECTION: u64 = 3;

impl Drive {
    fn run(&mut self, stream: UnixStream) -> io::Result<()> {
        while !self.begun.load(Ordering::Relaxed) {
            if self.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            thread::sleep(PERIOD);
        }
        let mut qmp = Qmp::new(stream)?;
        let begin = Instant::now();
        for step in self.steps.clone() {
            self.until(&mut qmp, |_| begin.elapsed() >= step.at)?;
            self.take(&mut qmp, step)?;
        }
        let end = Instant::now();
        let is_answered = |drive: &Self| drive.pending.is_empty() || end.elapsed() > PATIENCE;
        self.until(&mut qmp, is_answered)?;
        for (dimm, pending) in &self.pending {
            let note = format!("hotplug: the guest did not answer the {pending:?} of dimm{dimm}");
            self.driven.notes.push(note);
        }
        qmp.command(&json!({"execute": "system_powerdown"}))?
            .map_err(io::Error::other)?;
        // The guest ends, and the protocol with it.
        let _ = self.until(&mut qmp, |_| false);
        Ok(())
    }

    /// Hears QEMU's events until `is_time`, or until it ends.
    fn until(&mut self, qmp: &mut Qmp, is_time: impl Fn(&Self) -> bool) -> io::Result<()> {
        while !is_time(self) {
            if self.stop.load(Ordering::Relaxed) {
                return Err(io::Error::other("the guest ended before the script did"));
            }
            if let Some(event) = qmp.event(PERIOD)? {
                self.hear(qmp, &event)?;
            }
        }
        Ok(())
    }

    fn hear(&mut self, qmp: &mut Qmp, event: &Value) -> io::Result<()> {
        let name = event.get("event").and_then(Value::as_str);
        let data = event.get("data").cloned().unwrap_or_default();
        let data = match name {
            Some("ACPI_DEVICE_OST") => data.get("info").cloned().unwrap_or_default(),
            _ => data,
        };
        let dimm = data.get("device").and_then(Value::as_str);
        let dimm = dimm.and_then(|name| name.strip_prefix("dimm")?.parse::<u32>().ok());
        let Some(dimm) = dimm else { return Ok(()) };
        let number = |name: &str| data.get(name).and_then(Value::as_u64);
        match (name, number("source"), number("status")) {
            (Some("ACPI_DEVICE_OST"), Some(OF_INSERTION), _) => {
                self.answered(dimm, Pending::Insertion);
            }
            (Some("ACPI_DEVICE_OST"), Some(OF_EJECTION), Some(1..)) => {
                self.answered(dimm, Pending::Ejection);
            }
            (Some("DEVICE_DELETED"), ..) => {
                self.dimms.remove(&dimm);
                self.pending.remove(&dimm);
                let gone = json!({"execute": "object-del", "arguments": {"id": backend(dimm)}});
                if let Err(words) = qmp.command(&gone)? {
                    let note = format!("hotplug: the memory of dimm{dimm} stays: {words}");
                    self.driven.notes.push(note);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn answered(&mut self, dimm: u32, what: Pending) {
        if self.pending.get(&dimm) == Some(&what) {
            self.pending.remove(&dimm);
        }
    }

    fn take(&mut self, qmp: &mut Qmp, step: Step) -> io::Result<()> {
        let (start, refused) = match step.action {
            Action::Add { dimm, bytes, node } => {
                match self.add(qmp, dimm, bytes, node.unwrap_or(self.node))? {
                    Ok(start) => (Some(start), None),
                    Err(words) => (None, Some(words)),
                }
            }
            Action::Remove { dimm } => {
                let start = self.dimms.get(&dimm).copied();
                let arguments = json!({"id": name(dimm)});
                let command = json!({"execute": "device_del", "arguments": arguments});
                let refused = qmp.command(&command)?.err();
                if refused.is_none() {
                    self.pending.insert(dimm, Pending::Ejection);
                }
                (start, refused)
            }
        };
        self.driven.done.push(Done {
            step,
            start,
            refused,
        });
        Ok(())
    }

    /// Plugs a DIMM in; where it is.
    fn add(
        &mut self,
        qmp: &mut Qmp,
        dimm: u32,
        bytes: u64,
        node: u32,
    ) -> io::Result<Result<u64, String>> {
        let memory = json!({"qom-type": "memory-backend-ram", "id": backend(dimm),
            "size": bytes, "reserve": false});
        let command = json!({"execute": "object-add", "arguments": memory});
        if let Err(words) = qmp.command(&command)? {
            return Ok(Err(words));
        }
        // Before the command: the guest may answer at once.
        self.pending.insert(dimm, Pending::Insertion);
        let device = json!({"driver": "pc-dimm", "id": name(dimm), "memdev": backend(dimm),
            "node": node});
        let command = json!({"execute": "device_add", "arguments": device});
        if let Err(words) = qmp.command(&command)? {
            self.pending.remove(&dimm);
            let command = json!({"execute": "object-del", "arguments": {"id": backend(dimm)}});
            // It was made a moment ago and nothing uses it.
            let _ = qmp.command(&command)?;
            return Ok(Err(words));
        }
        let query = json!({"execute": "query-memory-devices"});
        let devices = qmp.command(&query)?.map_err(io::Error::other)?;
        let devices = devices.as_array().cloned().unwrap_or_default();
        let data = |device: &Value| device.get("data").cloned().unwrap_or_default();
        let is_it = |data: &Value| data.get("id").and_then(Value::as_str) == Some(&name(dimm));
        let found = devices.iter().map(data).find(is_it);
        let start = found.and_then(|data| data.get("addr").and_then(Value::as_u64));
        let start = start.ok_or_else(|| io::Error::other("QEMU does not say where a DIMM is"))?;
        self.dimms.insert(dimm, start);
        Ok(Ok(start))
    }
}

/// The name of a DIMM.
fn name(dimm: u32) -> String {
    format!("dimm{dimm}")
}

/// The name of its memory.
fn backend(dimm: u32) -> String {
    format!("dimm{dimm}-memory")
}
