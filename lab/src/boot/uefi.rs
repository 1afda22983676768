//! A machine whose firmware is UEFI: Debian's OVMF or its like for Arm, variables of its own, and a stick with the
//! loader and our image on it. The image leaves its result in variables and resets; the loader
//! writes it to the stick and switches off.

use std::fs;
use std::path::{Path, PathBuf};

use firstlight_wire::parts::DID_NOT_FIT;
use tempfile::TempDir;

use super::error::{BootError, Misdeed};
use super::events::{Event, Events, MARK, Outcome};
use super::heard::Heard;
use super::machine::Processor;
use super::verdict::{self, Failing};
use crate::stick::{self, Programs, Stick};

/// Firmware and empty variables for aarch64, likewise.
const AARCH64_FIRMWARE: [(&str, &str); 2] = [
    (
        "/usr/share/AAVMF/AAVMF_CODE.fd",
        "/usr/share/AAVMF/AAVMF_VARS.fd",
    ),
    (
        "/usr/share/edk2/aarch64/QEMU_EFI-pflash.raw",
        "/usr/share/edk2/aarch64/vars-template-pflash.raw",
    ),
];

/// Firmware and empty variables, in Debian and in other distributions.
const FIRMWARE: [(&str, &str); 4] = [
    (
        "/usr/share/OVMF/OVMF_CODE_4M.fd",
        "/usr/share/OVMF/OVMF_VARS_4M.fd",
    ),
    (
        "/usr/share/OVMF/OVMF_CODE.fd",
        "/usr/share/OVMF/OVMF_VARS.fd",
    ),
    (
        "/usr/share/edk2/ovmf/OVMF_CODE.fd",
        "/usr/share/edk2/ovmf/OVMF_VARS.fd",
    ),
    (
        "/usr/share/edk2/x64/OVMF_CODE.4m.fd",
        "/usr/share/edk2/x64/OVMF_VARS.4m.fd",
    ),
];

/// How events begin, those of a kernel, and the last one, on a port that firmware writes to as
/// well.
const ANY_EVENT: &[u8] = b"{\"event\":\"";
const FAILURE: &[u8] = b"{\"event\":\"failure\"";
const FIRST_EVENT: &[u8] = b"{\"event\":\"start\"";
const LAST_EVENT: &[u8] = b"{\"event\":\"end\"";

/// The files of a machine with UEFI.
#[derive(Debug)]
pub struct Uefi {
    /// Firmware, which is only read.
    pub code: PathBuf,
    /// Its variables.
    pub variables: PathBuf,
    /// The stick's content.
    pub stick: PathBuf,
    /// Where the last two are; gone with this.
    _folder: TempDir,
}

impl Uefi {
    /// A machine that has never been started, and a new stick for its processor.
    ///
    /// # Errors
    /// [`BootError::NoFirmware`], [`BootError::Stick`], [`BootError::Host`].
    pub fn new(
        processor: Processor,
        programs: Programs<'_>,
        words: &str,
    ) -> Result<Self, BootError> {
        let (x86_64, aarch64) = match processor {
            Processor::Aarch64 => (None, Some(programs)),
            _ => (Some(programs), None),
        };
        let stick = Stick {
            x86_64,
            aarch64,
            words,
        };
        Self::with(processor, &stick)
    }

    /// A machine that has never been started, with a stick that may be for others, too.
    ///
    /// # Errors
    /// As [`Uefi::new`].
    pub fn with(processor: Processor, stick: &Stick<'_>) -> Result<Self, BootError> {
        let known: &[_] = match processor {
            Processor::Aarch64 => &AARCH64_FIRMWARE,
            _ => &FIRMWARE,
        };
        let found = known
            .iter()
            .find(|(code, variables)| Path::new(code).is_file() && Path::new(variables).is_file());
        let (code, empty) = found.ok_or(BootError::NoFirmware)?;
        let host = |what| move |error| BootError::Host { what, error };
        let folder = tempfile::tempdir().map_err(host("make a folder"))?;
        let made = Self {
            code: code.into(),
            variables: folder.path().join("variables"),
            stick: folder.path().join("stick"),
            _folder: folder,
        };
        fs::copy(empty, &made.variables).map_err(host("copy firmware's variables"))?;
        stick.write(&made.stick).map_err(BootError::Stick)?;
        Ok(made)
    }

    /// Whether the boot went well: the image says so, the machine was switched off, and the
    /// stick has the result.
    pub(super) fn judge(&self, heard: &Heard, events: &Events) -> Result<(), Failing> {
        if let Some(verdict) = verdict::without_an_end(heard, events) {
            return verdict;
        }
        let (Some(outcome), Some(0)) = (events.outcome(), heard.status.code()) else {
            return Err(Failing::Guest(Misdeed::Died(heard.status.code())));
        };
        match stick::result(&self.stick) {
            Ok(Some(result)) if is_kept(&result, last_run(&own_events(heard))) => {}
            Ok(Some(result)) => {
                return verdict::contradiction(&format!(
                    "the result on the stick, {} bytes, is not what it sent to the serial port",
                    result.len()
                ));
            }
            Ok(None) => {
                return verdict::contradiction("it ended, and there is no result on the stick");
            }
            Err(error) => return verdict::contradiction(&error.to_string()),
        }
        verdict::of_outcome(outcome, events, last_words(events, outcome))
    }
}

/// Why the run ended, if it says so; else only how.
fn last_words(events: &Events, outcome: Outcome) -> String {
    let mut last_first = events.list.iter().rev();
    last_first
        .find_map(|event| match event {
            Event::Failure { text } => Some(text.clone()),
            _ => None,
        })
        .unwrap_or_else(|| format!("end: {}", outcome.name()))
}

/// The events of the last of several kernels, one of which started the next.
fn last_run(own: &[u8]) -> &[u8] {
    let parts = own.windows(FIRST_EVENT.len());
    let start = parts.rev().position(|part| part == FIRST_EVENT);
    let start = start.map(|from_end| own.len() - FIRST_EVENT.len() - from_end);
    start.and_then(|start| own.get(start..)).unwrap_or(own)
}

/// Whether `result` is what firmware was to keep of `sent`: all of it, or, where a note says how
/// many events did not fit, as many lines fewer, in order, the last one the same. Why a run failed is
/// never missing.
fn is_kept(result: &[u8], sent: &[u8]) -> bool {
    if result == sent {
        return true;
    }
    let mut lines: Vec<&[u8]> = result.split_inclusive(|byte| *byte == b'\n').collect();
    let sent: Vec<&[u8]> = sent.split_inclusive(|byte| *byte == b'\n').collect();
    // The note is not sent: it comes right before the end.
    let Some(note) = lines.len().checked_sub(2).map(|at| lines.remove(at)) else {
        return false;
    };
    let Some(lost) = lost(note) else { return false };
    let mut rest = sent.iter();
    let in_order = lines.iter().all(|line| rest.any(|other| other == line));
    let failures = |lines: &[&[u8]]| {
        let failures = lines.iter().filter(|line| line.starts_with(FAILURE));
        failures.count()
    };
    in_order
        && lines.last() == sent.last()
        && failures(&lines) == failures(&sent)
        && lines.len().checked_add(lost) == Some(sent.len())
}

/// How many events did not fit, if the line is the note about them.
fn lost(line: &[u8]) -> Option<usize> {
    let line = std::str::from_utf8(line).ok()?;
    let text = line.strip_prefix("{\"event\":\"note\",\"text\":\"")?;
    text.split_once(DID_NOT_FIT)?.0.trim_end().parse().ok()
}

/// The image's events: on a port where firmware shows its own text before and after them, or else, where there is one
/// port alone, the marked lines of the log.
pub(super) fn own_events(heard: &Heard) -> Vec<u8> {
    let own = events_of_port(&heard.events);
    if !own.is_empty() {
        return own.to_vec();
    }
    let mark = MARK.as_bytes();
    let lines = heard.log.split_inclusive(|byte| *byte == b'\n');
    let marked = lines.filter_map(|line| {
        let at = line.windows(mark.len()).position(|part| part == mark)?;
        line.get(at + mark.len()..)
    });
    marked.collect::<Vec<_>>().concat()
}

/// The image's events on a port where firmware shows its own text before and after them.
fn events_of_port(port: &[u8]) -> &[u8] {
    let at = |bytes: &[u8], text: &[u8]| bytes.windows(text.len()).position(|part| part == text);
    let own = at(port, ANY_EVENT).and_then(|start| port.get(start..));
    let own = own.unwrap_or_default();
    let end = at(own, LAST_EVENT).and_then(|last| {
        let line = own.get(last..)?.iter().position(|byte| *byte == b'\n')?;
        Some(last + line + 1)
    });
    own.get(..end.unwrap_or(own.len())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::heard::How;
    use super::*;

    #[test]
    fn firmwares_own_text_is_left_out() {
        let start = "{\"event\":\"start\",\"schema\":1}\n";
        let end = "{\"event\":\"end\",\"outcome\":\"ok\"}\n";
        let port = format!("\x1b[2JBdsDxe: starting{start}{end}\x1b[2Jagain");
        assert_eq!(
            events_of_port(port.as_bytes()),
            format!("{start}{end}").as_bytes()
        );
        let cut = format!("noise{start}{{\"event\":\"end\"");
        assert_eq!(events_of_port(cut.as_bytes()), &cut.as_bytes()[5..]);
        assert_eq!(events_of_port(b"noise"), b"");
        // A kernel that fails early sends no start.
        let early = format!("noise{end}\x1b[2Jagain");
        assert_eq!(events_of_port(early.as_bytes()), end.as_bytes());
    }

    #[test]
    fn a_result_that_did_not_fit_is_kept_if_it_says_so() {
        let port = b"{a}\n{b}\n{c}\n{end}\n";
        let note = |lost| format!("{{\"event\":\"note\",\"text\":\"{lost} {DID_NOT_FIT}\"}}\n");
        let kept = |before: &str, lost: u32, end: &str| {
            is_kept(format!("{before}{}{end}", note(lost)).as_bytes(), port)
        };
        assert!(is_kept(port, port) && kept("{a}\n{c}\n", 1, "{end}\n"));
        assert!(kept("{b}\n", 2, "{end}\n"));
        assert!(!kept("{b}\n", 1, "{end}\n"), "one is missing");
        assert!(!kept("{c}\n{a}\n", 1, "{end}\n"), "order");
        assert!(!kept("{a}\n{x}\n", 1, "{end}\n"), "never sent");
        assert!(!kept("{a}\n{b}\n", 1, "{c}\n"), "the end is lost");
        assert!(!is_kept(b"{a}\n{c}\n{end}\n", port), "no note");
        let why = String::from_utf8_lossy(FAILURE) + "}\n";
        let port = format!("{{a}}\n{why}{{end}}\n");
        let kept = |before: &str| {
            let result = format!("{before}{}{{end}}\n", note(1));
            is_kept(result.as_bytes(), port.as_bytes())
        };
        assert!(kept(&why) && !kept("{a}\n"), "the reason is lost");
        let port = port.as_bytes();
        assert!(!is_kept(b"", port) && !is_kept(b"{end}\n", port));
    }

    #[test]
    fn a_restarted_kernel_leaves_its_own_events() {
        let (first, second) = (
            "{\"event\":\"start\",1}\n",
            "{\"event\":\"start\",2}\n{end}\n",
        );
        let both = format!("{first}{second}");
        assert_eq!(last_run(both.as_bytes()), second.as_bytes());
        assert_eq!(last_run(second.as_bytes()), second.as_bytes());
        assert_eq!(last_run(b""), b"");
    }

    #[test]
    fn a_boot_whose_result_is_not_on_the_stick_is_no_good_one() {
        use std::time::Duration;

        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, content: &[u8]| {
            let path = folder.path().join(name);
            fs::write(&path, content).unwrap();
            path
        };
        let mut elf = b"\x7fELF\x02\x01".to_vec();
        elf.resize(64, 0);
        elf[18] = 62;
        let (loader, image) = (file("loader", b"MZ"), file("image", &elf));
        let path = folder.path().join("stick");
        let stick = Stick {
            x86_64: Some(Programs {
                loader: &loader,
                image: &image,
            }),
            aarch64: None,
            words: "",
        };
        stick.write(&path).unwrap();
        let uefi = Uefi {
            code: PathBuf::new(),
            variables: PathBuf::new(),
            stick: path,
            _folder: folder,
        };
        let judge = |how: How, code: i32, end: &str| {
            let port = format!(
                "{{\"event\":\"start\",\"schema\":\"\",\"version\":\"\",\"command_line\":\"\"}}\n{end}"
            );
            let heard = Heard {
                events: port.clone().into_bytes(),
                ..Heard::ended(how, code)
            };
            uefi.judge(&heard, &Events::read(events_of_port(port.as_bytes()), b""))
        };
        let end = "{\"event\":\"end\",\"outcome\":\"ok\"}\n";
        let missing = Misdeed::Contradicted("it ended, and there is no result on the stick".into());
        assert_eq!(judge(How::Exited, 0, end), Err(Failing::Guest(missing)));
        let died = |code| Err(Failing::Guest(Misdeed::Died(Some(code))));
        assert_eq!(judge(How::Exited, 0, ""), died(0));
        assert_eq!(judge(How::Exited, 1, end), died(1));
        let hung = Err(Failing::Guest(Misdeed::Hung(9)));
        assert_eq!(judge(How::Hung(Duration::from_secs(9)), 0, end), hung);
    }
}
