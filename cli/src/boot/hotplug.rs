//! The table of DIMMs that came and went while a guest ran.

use crate::report::Page;
use crate::text::{bytes, count, milliseconds};
use firstlight_lab::record::{Hotplugged, Record};

/// Longest reason in the table.
const REASON_CHARS: usize = 240;

pub(super) fn hotplug(page: &mut Page, record: &Record) {
    if record.hotplug.is_empty() {
        return;
    }
    let counted = record.clock == "instructions";
    let unit = match counted {
        true => "instructions from the event until the memory could be used, or was gone",
        false => "milliseconds from the event until the memory could be used, or was gone",
    };
    page.section("Hotplug", unit);
    let mut rows = vec![
        [
            "at ms", "event", "dimm", "size", "node", "zone", "after", "",
        ]
        .map(String::from)
        .to_vec(),
    ];
    rows.extend(record.hotplug.iter().map(|event| row(event, counted)));
    page.table("><<>><><", &rows);
}

fn row(event: &Hotplugged, counted: bool) -> Vec<String> {
    let number = |value: Option<u64>| value.map_or_else(String::new, |value| value.to_string());
    let after = match counted {
        true => event.instructions.map(count),
        false => event.allocatable_ns.or(event.gone_ns).map(milliseconds),
    };
    let reason = event.refused.as_deref().map(|reason| {
        let short: String = reason.chars().take(REASON_CHARS).collect();
        format!("refused: {short}")
    });
    vec![
        number(event.at_ms),
        event.event.clone(),
        event.id.clone().unwrap_or_default(),
        match event.bytes {
            0 => String::new(),
            size => bytes(size),
        },
        number(event.node.map(u64::from)),
        match event.offline {
            true => "offline".to_owned(),
            false => event.zone.clone().unwrap_or_default(),
        },
        after.unwrap_or_default(),
        reason.unwrap_or_default(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_rows() {
        let mut record = Record::new("boot", "instructions");
        record.hotplug.push(Hotplugged {
            event: "add".into(),
            id: Some("dimm1".into()),
            at_ms: Some(100),
            bytes: 1 << 30,
            node: Some(0),
            zone: Some("Movable".into()),
            allocatable_ns: Some(20_000),
            instructions: Some(20_000),
            ..Hotplugged::default()
        });
        record.hotplug.push(Hotplugged {
            event: "remove".into(),
            refused: Some("9 frames are in use".into()),
            ..Hotplugged::default()
        });
        record.hotplug.push(Hotplugged {
            event: "add".into(),
            offline: true,
            ..Hotplugged::default()
        });
        let mut page = Page::default();
        hotplug(&mut page, &record);
        let text = page.text;
        for expected in [
            "dimm1",
            "1 GiB",
            "Movable",
            "20,000",
            "refused: 9 frames",
            "offline",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
    }
}
