//! The table of a restart without firmware.

use crate::output::{GOOD, NOTE};
use crate::report::Page;
use crate::text::{bytes, count, milliseconds, plural};
use firstlight_lab::record::{Record, Restart};

pub(super) fn restart(page: &mut Page, record: &Record) {
    let Some(restart) = &record.restart else {
        return;
    };
    page.section("Warm restart", "without firmware");
    page.line(format!(
        "  {} handed over, {} in a table of {} bytes",
        bytes(restart.preserved_bytes),
        plural(restart.ranges, "range"),
        count(restart.table_bytes),
    ));
    if let Some(why) = &restart.refused {
        page.line(format!("  {NOTE}refused:{NOTE:#} {why}"));
        page.line("  memory came up as after a cold start");
        return;
    }
    content(page, restart);
    let mut rows = Vec::new();
    let mut row = |name: &str, value: String| rows.push(vec![name.to_owned(), value]);
    if let Some(ns) = restart.pause_ns {
        row("pause", format!("{} ms", milliseconds(ns)));
    }
    for (name, instructions) in [
        ("  in instructions", restart.pause_instructions),
        ("entry to all memory, warm", restart.ready_instructions),
        ("entry to all memory, cold", restart.cold_ready_instructions),
    ] {
        if let Some(instructions) = instructions {
            row(name, count(instructions));
        }
    }
    page.table("<>", &rows);
}

fn content(page: &mut Page, restart: &Restart) {
    let guests = bytes(restart.guest_bytes);
    let checked = match restart.checked_bytes {
        all if all == restart.guest_bytes => "every byte".to_owned(),
        some => bytes(some),
    };
    let line = format!("  guests took over {guests}; of it {checked} was checked");
    match restart.wrong_pages {
        0 => page.styled(GOOD, &format!("{line}, nothing had changed")),
        wrong => page.line(format!(
            "{line}: {NOTE}{} wrong{NOTE:#}",
            plural(wrong, "page")
        )),
    }
    page.line(format!(
        "  meanwhile {} of other memory was allocated and written; {} without an owner were freed",
        bytes(restart.other_bytes),
        bytes(restart.released_bytes)
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(restart: Restart) -> String {
        let mut record = Record::new("boot", "instructions");
        record.restart = Some(restart);
        let mut page = Page::default();
        super::restart(&mut page, &record);
        page.text
    }

    fn good() -> Restart {
        Restart {
            preserved_bytes: 8 << 30,
            ranges: 3,
            table_bytes: 128,
            guest_bytes: 4 << 30,
            checked_bytes: 4 << 30,
            pause_ns: Some(171_000),
            pause_instructions: Some(171_000),
            ready_instructions: Some(99_000),
            cold_ready_instructions: Some(94_000),
            ..Restart::default()
        }
    }

    #[test]
    fn a_restart_has_its_pause_and_what_was_checked() {
        let page = text(good());
        for words in [
            "8 GiB handed over, 3 ranges in a table of 128 bytes",
            "took over 4 GiB; of it every byte was checked, nothing had changed",
            "0.171 ms",
            "171,000",
            "99,000",
        ] {
            assert!(page.contains(words), "{words:?} is missing in\n{page}");
        }
        let wrong = text(Restart {
            wrong_pages: 2,
            checked_bytes: 1 << 20,
            ..good()
        });
        assert!(wrong.contains("1 MiB was checked"), "{wrong}");
        assert!(
            wrong.contains("2 pages wrong") && !wrong.contains("nothing had"),
            "{wrong}"
        );
    }

    #[test]
    fn a_refused_table_has_its_reason_and_no_pause() {
        let page = text(Restart {
            refused: Some("it is damaged".into()),
            pause_ns: None,
            ..good()
        });
        assert!(page.contains("it is damaged") && page.contains("as after a cold start"));
        assert!(!page.contains("pause"), "{page}");
    }
}
