//! What was heard of a boot, as a record: [`record`].

use std::time::Duration;

use super::line::MOST_LINE_BYTES;
use super::splitter::{BEGINS, Boot, Over};
use crate::boot::host_name;
use crate::boot_log;
use crate::gaps;
use crate::log;
use crate::record::{Host, Power, Record};

/// The record of `boot`, heard on `console`; times count from the restart before it, else from its
/// first line.
///
/// # Errors
/// It went wrong; how.
pub fn record(boot: &Boot, console: &str) -> Result<Record, String> {
    let last = boot.lines.last();
    if let Over::Panicked(words) = &boot.over {
        return Err(format!("the kernel panicked: {words}"));
    }
    if boot.kernel.is_none() {
        let last = last.map_or(String::new(), |line| log::clean_text(&line.bytes));
        return Err(format!(
            "no kernel began: firmware's last line is {last:?}; expected \"Linux version ...\" (is there console= on its command line?)"
        ));
    }
    let first_at = boot.lines.first().map_or(Duration::ZERO, |line| line.at);
    let zero = boot.restarted.unwrap_or(first_at);
    // Zero would be no time.
    let ns = |at: Duration| nanoseconds(at.saturating_sub(zero)).max(1);
    let mut record = Record::of_linux("boot", console);
    let lines = boot.lines.iter();
    record.log = lines
        .map(|line| String::from_utf8_lossy(&line.bytes).into_owned())
        .collect();
    let lines_ns: Vec<u64> = boot.lines.iter().map(|line| ns(line.at)).collect();
    let text = record.log.join("\n");
    boot_log::tell(text.as_bytes(), &mut record);
    let own = log::lines(text.as_bytes());
    let heard = log::heard(&own, &lines_ns);
    let mut timed = heard.iter().filter(|line| line.stamp_ns.is_some());
    let entry = timed.next().and_then(|line| line.stamp_ns);
    let begin = heard.iter().find(|line| line.text.starts_with(BEGINS));
    let is_late = begin.is_none_or(|line| line.stamp_ns.is_none());
    let at_once = timed.all(|line| line.stamp_ns == entry);
    if is_late || at_once {
        record.gaps = gaps::longest(&own, &record.phases);
        record.notes.push(match at_once {
            true => "all lines came at once, as those of a file do: the host's clock tells no time".into(),
            false => "the console was enabled late, and all lines before that came at once: with earlycon (on a PC: earlyprintk=serial) on the kernel's command line the host's clock tells all times".into(),
        });
    } else {
        boot_log::tell_console(&heard, boot.restarted.is_some(), &mut record);
        record.gaps = gaps::longest(&heard, &record.phases);
    }
    record.notes.extend(remarks(boot));
    record.host = Some(Host {
        name: host_name(),
        console: Some(console.to_owned()),
        accelerator: "real machine".into(),
        accelerator_reason: format!("heard on {console}"),
        qemu_version: None,
        command: Vec::new(),
        attempts: 1,
        retried_because: None,
        power: Power::default(),
        exit_status: None,
        wall_ns: last.map_or(0, |line| ns(line.at)),
        first_output_ns: Some(ns(first_at)),
        lines_ns,
        before_clock_ns: None,
        markers: Vec::new(),
    });
    Ok(record)
}

/// What to know of how it was heard.
fn remarks(boot: &Boot) -> Vec<String> {
    let mut remarks = Vec::new();
    match &boot.over {
        Over::Cut(why) => remarks.push(format!(
            "cut: {why} while the kernel ran; what came after the last line is not known"
        )),
        Over::Silent(silence) => remarks.push(format!(
            "its end is silence: no byte for {} s after the last line",
            silence.as_secs()
        )),
        Over::Next => remarks.push("its end is the begin of the next boot".into()),
        Over::Goodbye | Over::Panicked(_) | Over::Until => {}
    }
    if boot.left_out > 0 {
        let count = boot.left_out;
        remarks.push(format!("{count} lines too many: they are left out"));
    }
    let long = boot.lines.iter().filter(|line| line.left_out > 0).count();
    if long > 0 {
        remarks.push(format!(
            "lines longer than {MOST_LINE_BYTES} bytes, of which the rest is left out: {long}"
        ));
    }
    remarks
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
