//! The thread that does what a script says, through QEMU's machine protocol: [`drive`].
//!
//! It begins when the guest serves hotplug (marker 0x54), waits until the guest has answered all
//! of it, and presses the power button, at which the guest ends.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use firstlight_wire::marker;
use serde_json::{Value, json};

use super::script::{Action, Script, Step};
use crate::boot::beside::{Beside, Signals};
use crate::boot::qmp::{self, Qmp};

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

/// Does what `script` says to the QEMU whose protocol is at the other end of `stream`; DIMMs
/// without a node are for `node`.
pub(in crate::boot) fn drive(
    script: &Script,
    node: u32,
    stream: UnixStream,
) -> io::Result<Beside<Driven>> {
    let steps = script.steps().to_vec();
    Beside::start(marker::HOTPLUG, move |signals| {
        let mut drive = Drive {
            steps,
            node,
            signals,
            dimms: BTreeMap::new(),
            pending: BTreeMap::new(),
            driven: Driven::default(),
        };
        if let Err(error) = drive.run(stream) {
            // A guest that has ended closes the protocol.
            if !drive.signals.is_stopped() {
                drive.driven.notes.push(format!("hotplug: {error}"));
            }
        }
        drive.driven
    })
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
    signals: Arc<Signals>,
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
        while !self.signals.has_begun() {
            if self.signals.is_stopped() {
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
        // The guest ends, and the protocol with it: QEMU presses the button before it answers, so that
        // the guest may be faster.
        match qmp.command(&json!({"execute": "system_powerdown"})) {
            Ok(answer) => drop(answer.map_err(io::Error::other)?),
            Err(error) if qmp::is_closed(&error) => return Ok(()),
            Err(error) => return Err(error),
        }
        let _ = self.until(&mut qmp, |_| false);
        Ok(())
    }

    /// Hears QEMU's events until `is_time`, or until it ends.
    fn until(&mut self, qmp: &mut Qmp, is_time: impl Fn(&Self) -> bool) -> io::Result<()> {
        while !is_time(self) {
            if self.signals.is_stopped() {
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

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};

    use super::*;

    /// What comes of a script without lines where QEMU does `end` once it has read the first byte of
    /// the command after its greeting.
    fn driven(end: impl FnOnce(BufReader<UnixStream>)) -> Driven {
        driven_by(&Script::default(), end)
    }

    /// [`driven`] with any script.
    fn driven_by(script: &Script, end: impl FnOnce(BufReader<UnixStream>)) -> Driven {
        let (ours, its) = UnixStream::pair().unwrap();
        let beside = drive(script, 0, ours).unwrap();
        beside.marker(marker::HOTPLUG);
        let mut its = BufReader::with_capacity(1, its);
        its.get_mut().write_all(b"{\"QMP\": {}}\n").unwrap();
        let mut line = String::new();
        its.read_line(&mut line).unwrap();
        assert!(line.contains("qmp_capabilities"), "{line}");
        its.get_mut().write_all(b"{\"return\": {}}\n").unwrap();
        its.fill_buf().unwrap();
        end(its);
        // The thread sees the protocol's end before it hears of QEMU's.
        while !beside.is_finished() {
            thread::sleep(PERIOD);
        }
        beside.end()
    }

    #[test]
    fn a_guest_may_end_before_the_button_is_answered() {
        let read = driven(|mut its| {
            its.read_line(&mut String::new()).unwrap();
        });
        assert_eq!(read.notes, Vec::<String>::new());
        // The rest of the command is unread: the connection is reset.
        let unread = driven(drop);
        assert_eq!(unread.notes, Vec::<String>::new());
        let answered = driven(|mut its| {
            its.read_line(&mut String::new()).unwrap();
            its.get_mut().write_all(b"{\"return\": {}}\n").unwrap();
        });
        assert_eq!(answered.notes, Vec::<String>::new());
    }

    /// A guest that lets go of the second DIMM, keeps the first, and has no slot for the third.
    #[test]
    fn the_button_is_pressed_once_every_dimm_is_answered() {
        let script = "at 0 add 1G\nat 0 add 1G\nat 0 add 1G\nat 0 remove dimm1\nat 0 remove dimm2";
        let mut commands = Vec::new();
        let driven = driven_by(&script.parse().unwrap(), |mut its| {
            let mut line = String::new();
            while its.read_line(&mut line).unwrap() > 0 {
                let command: Value = serde_json::from_str(&line).unwrap();
                line.clear();
                let execute = command["execute"].as_str().unwrap();
                let id = command["arguments"]["id"].as_str().unwrap_or_default();
                commands.push(format!("{execute} {id}").trim_end().to_owned());
                let outcome = |source: u64, status: u64| {
                    let info = json!({"device": id, "source": source, "status": status});
                    json!({"event": "ACPI_DEVICE_OST", "data": {"info": info}})
                };
                let done = json!({"return": {}});
                let answers = match (execute, id) {
                    ("device_add", "dimm3") => vec![json!({"error": {"desc": "no slot"}})],
                    ("device_add", _) => vec![outcome(OF_INSERTION, 0), done],
                    ("device_del", "dimm1") => vec![done, outcome(OF_EJECTION, 0x81)],
                    // It is gone only when QEMU says so, not yet when the guest agrees.
                    ("device_del", _) => {
                        let gone = json!({"event": "DEVICE_DELETED", "data": {"device": id}});
                        vec![done, outcome(OF_EJECTION, 0), gone]
                    }
                    ("query-memory-devices", _) => {
                        let device = |dimm: u64| json!({"data": {"id": format!("dimm{dimm}"), "addr": dimm << 32}});
                        vec![json!({"return": [device(1), device(2)]})]
                    }
                    ("system_powerdown", _) => break,
                    _ => vec![done],
                };
                let text: String = answers.iter().map(|answer| format!("{answer}\n")).collect();
                its.get_mut().write_all(text.as_bytes()).unwrap();
            }
        });
        assert_eq!(driven.notes, Vec::<String>::new());
        let came: Vec<_> = driven
            .done
            .iter()
            .map(|done| (done.start, done.refused.as_deref()))
            .collect();
        let (one, two) = ((Some(1 << 32), None), (Some(2 << 32), None));
        assert_eq!(came, [one, two, (None, Some("no slot")), one, two]);
        let expected = [
            "object-add dimm1-memory",
            "device_add dimm1",
            "query-memory-devices",
            "object-add dimm2-memory",
            "device_add dimm2",
            "query-memory-devices",
            "object-add dimm3-memory",
            "device_add dimm3",
            "object-del dimm3-memory",
            "device_del dimm1",
            "device_del dimm2",
            "object-del dimm2-memory",
            "system_powerdown",
        ];
        assert_eq!(commands, expected);
    }

    #[test]
    fn a_button_that_is_refused_is_told() {
        let refused = driven(|mut its| {
            its.read_line(&mut String::new()).unwrap();
            let answer = b"{\"error\": {\"desc\": \"no button\"}}\n";
            its.get_mut().write_all(answer).unwrap();
        });
        assert_eq!(refused.notes, ["hotplug: no button"]);
    }
}
