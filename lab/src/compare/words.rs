//! What a system does in the compared span, in words: [`does`].

use crate::run::Run;

/// One sentence a step.
pub(super) fn does(told: &Run) -> Vec<String> {
    if told.source.kind == "linux" {
        return linux(told).into();
    }
    let Some(descriptors) = &told.descriptors else {
        return vec![
            "keeps no descriptor for a page: writes the allocator's own tables, which follow ranges".into(),
        ];
    };
    let bytes = descriptors.descriptor_bytes;
    let cpus = told.machine.asked.as_ref().map_or(1, |asked| asked.cpus);
    let workers = match cpus {
        1 => "its CPU writes".to_owned(),
        cpus => format!("{cpus} CPUs write"),
    };
    let words = match &*descriptors.mode {
        "lazy" => [
            format!(
                "takes room for {bytes} bytes a page and writes none of them before the boot goes on"
            ),
            format!(
                "a section of 128 MiB is written when it is first touched; {workers} the rest behind the boot, checked afterwards"
            ),
        ],
        "early" => [
            format!("writes {bytes} bytes a page for the part that Linux writes early"),
            format!("{workers} the rest behind the boot, checked afterwards"),
        ],
        "eager" => [
            format!("writes {bytes} bytes for every page before the boot goes on, by one CPU"),
            "nothing is left for later".into(),
        ],
        other => [
            format!("keeps {bytes} bytes a page"),
            format!("they are written in a mode that is not known here: {other:?}"),
        ],
    };
    words.into()
}

fn linux(told: &Run) -> [String; 2] {
    let defers = told
        .phases
        .iter()
        .any(|phase| phase.name == "deferred memmap");
    let later = if defers {
        "each node's workers (one; since 5.8 one for each of its CPUs) write the rest and free page after page to the allocator, before init starts (deferred memmap)"
    } else {
        "nothing is left for later"
    };
    let early = if defers {
        "writes 64 bytes a page for a first part, and sets up zones (memmap early)"
    } else {
        "writes 64 bytes for every page, and sets up zones (memmap early)"
    };
    [early.into(), later.into()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_mode_has_its_words() {
        let told = |kind: &str, mode: Option<&str>, phase: &str| {
            let descriptors = mode.map(|mode| {
                json!({"mode": mode, "writer": "words", "descriptor_bytes": 8, "sections": 1,
                    "ready_sections": 1, "touched_sections": 0, "worked_sections": 1,
                    "written_bytes": 64, "reserved_bytes": 64, "checked_frames": 1,
                    "wrong_frames": 0})
            });
            let told = Run::of(json!({
                "schema": "firstlight.run/1", "kind": "boot", "clock": "wall",
                "source": {"kind": kind},
                "machine": {"asked": {"board": "pc", "memory_bytes": 1, "nodes": 1, "cpus": 3}},
                "milestones": {}, "phases": [{"name": phase, "start_ns": 0, "end_ns": 1}],
                "descriptors": descriptors,
            }));
            does(&told.unwrap()).join("; ")
        };
        for (kind, mode, phase, part) in [
            ("image", None, "layout", "no descriptor"),
            ("image", Some("lazy"), "layout", "3 CPUs write the rest"),
            (
                "image",
                Some("early"),
                "layout",
                "8 bytes a page for the part",
            ),
            ("image", Some("eager"), "layout", "8 bytes for every page"),
            ("image", Some("later"), "layout", "not known"),
            ("linux", None, "deferred memmap", "each node's workers"),
            ("linux", None, "kernel", "64 bytes for every page"),
        ] {
            let text = told(kind, mode, phase);
            assert!(text.contains(part), "{part:?} in {text:?}");
        }
    }
}
