//! Whether a boot of our image went well: [`judge`]. Event and exit status are two
//! witnesses, and both are heard. By UEFI the second witness is the stick: `uefi`.

use super::error::Misdeed;
use super::events::{Events, Outcome};
use super::heard::{Heard, How};

/// How a boot that did not go well is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failing {
    /// The allocator's own checks failed.
    Check(Misdeed),
    /// The machine cannot be brought up.
    Machine(Misdeed),
    /// The guest went wrong.
    Guest(Misdeed),
}

/// What the image and QEMU say of the end; `last_line` is the log's.
pub(super) fn judge(heard: &Heard, events: &Events, last_line: &str) -> Result<(), Failing> {
    let words = || last_line.to_owned();
    let written = heard.status.code().and_then(Outcome::of_exit_status);
    let exited = heard.how == How::Exited;
    match written.filter(|_| exited) {
        Some(Outcome::Fault) => return Err(Failing::Guest(Misdeed::Faulted(words()))),
        Some(Outcome::Panic) => return Err(Failing::Guest(Misdeed::Panicked(words()))),
        _ => {}
    }
    if let Some(verdict) = without_an_end(heard, events) {
        return verdict;
    }
    let Some(written) = written else {
        return Err(Failing::Guest(Misdeed::Died(heard.status.code())));
    };
    match (written, events.outcome()) {
        (written, Some(told)) if written != told => contradiction(&format!(
            "its last event says {:?}, its exit status {:?}",
            told.name(),
            written.name()
        )),
        (_, None) => contradiction(&format!(
            "its exit status says {:?}, and it sent no event that it ends",
            written.name()
        )),
        (_, Some(told)) => of_outcome(told, events, words()),
    }
}

/// The verdict on a boot that no end is expected of any more: it said what nobody can read, or
/// was ended by its host.
pub(super) fn without_an_end(heard: &Heard, events: &Events) -> Option<Result<(), Failing>> {
    let misdeed = match (&events.rubbish, heard.how) {
        (Some(rubbish), _) => Misdeed::Rubbish(rubbish.to_string()),
        (None, How::Hung(silence)) => Misdeed::Hung(silence.as_secs()),
        (None, How::Flooded(bytes)) => Misdeed::Flooded(bytes as u64),
        (None, How::Until) => return Some(Ok(())),
        (None, How::Exited | How::Interrupted(_)) => return None,
    };
    Some(Err(Failing::Guest(misdeed)))
}

/// The verdict on a boot whose witnesses agree on `outcome`; `words` say why.
pub(super) fn of_outcome(outcome: Outcome, events: &Events, words: String) -> Result<(), Failing> {
    match (outcome, events.failures()) {
        (Outcome::Ok, 0) => Ok(()),
        (Outcome::Ok, failures) => contradiction(&format!(
            "its self-test counts {failures} failures, and its last event says \"ok\""
        )),
        (Outcome::CheckFailed, _) => Err(Failing::Check(Misdeed::Panicked(words))),
        (Outcome::Fault, _) => Err(Failing::Guest(Misdeed::Faulted(words))),
        (Outcome::Panic, _) => Err(Failing::Guest(Misdeed::Panicked(words))),
        (Outcome::Machine, _) => Err(Failing::Machine(Misdeed::Panicked(words))),
    }
}

pub(super) fn contradiction(what: &str) -> Result<(), Failing> {
    Err(Failing::Guest(Misdeed::Contradicted(what.into())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn heard(how: How, code: i32, events: &str) -> (Heard, Events) {
        let heard = Heard::ended(how, code);
        (heard, Events::read(events.as_bytes(), b""))
    }

    fn verdict(how: How, code: i32, events: &str) -> Result<(), Failing> {
        let (heard, events) = heard(how, code, events);
        judge(&heard, &events, "the last line")
    }

    #[test]
    fn both_witnesses_must_agree() {
        let end = |outcome: &str| format!(r#"{{"event":"end","outcome":"{outcome}"}}"#);
        let words = || "the last line".to_owned();
        assert_eq!(verdict(How::Exited, 85, &end("ok")), Ok(()));
        let table = [
            (87, Failing::Check(Misdeed::Panicked(words()))),
            (89, Failing::Guest(Misdeed::Faulted(words()))),
            (91, Failing::Guest(Misdeed::Panicked(words()))),
            (93, Failing::Machine(Misdeed::Panicked(words()))),
        ];
        for (code, failing) in table {
            let outcome = Outcome::of_exit_status(code).unwrap();
            let result = verdict(How::Exited, code, &end(outcome.name()));
            assert_eq!(result, Err(failing), "{code}");
        }
        for (code, events) in [
            (85, ""),
            (93, ""),
            (85, &*end("machine")),
            (93, &*end("ok")),
        ] {
            let result = verdict(How::Exited, code, events);
            let contradicts = matches!(result, Err(Failing::Guest(Misdeed::Contradicted(_))));
            assert!(contradicts, "{code} {events}: {result:?}");
        }
        // One that faulted may not have been able to say so.
        let result = verdict(How::Exited, 89, "");
        assert_eq!(result, Err(Failing::Guest(Misdeed::Faulted(words()))));
        let result = verdict(How::Exited, 0, &end("ok"));
        assert_eq!(result, Err(Failing::Guest(Misdeed::Died(Some(0)))));
    }

    #[test]
    fn rubbish_is_told_whatever_comes_after() {
        let end = "junk\n{\"event\":\"end\",\"outcome\":\"ok\"}";
        for how in [How::Exited, How::Hung(Duration::from_secs(9))] {
            let result = verdict(how, 85, end);
            let is_rubbish = matches!(result, Err(Failing::Guest(Misdeed::Rubbish(_))));
            assert!(is_rubbish, "{result:?}");
        }
        let silence = How::Hung(Duration::from_secs(9));
        let result = verdict(silence, 0, "");
        assert_eq!(result, Err(Failing::Guest(Misdeed::Hung(9))));
    }
}
