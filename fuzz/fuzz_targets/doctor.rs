//! The doctor and what it reads: boots, gaps and findings of any bytes.
#![no_main]

use firstlight_lab::{doctor, gaps, log};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    // Each message of JSON counts as a line.
    let lines = 1 + data
        .iter()
        .filter(|byte| matches!(byte, b'\n' | b'{'))
        .count();
    let boots = log::boots(data);
    // No line is lost between two boots, and none is in both.
    let numbers = boots
        .iter()
        .flat_map(|boot| &boot.lines)
        .map(|line| line.number);
    assert!(numbers.clone().is_sorted() && numbers.clone().all(|number| number <= lines));
    assert_eq!(numbers.count(), log::lines(data).len());
    for boot in &boots {
        let gaps = gaps::longest(&boot.lines, &[]);
        assert!(gaps.len() <= gaps::MOST && gaps.is_sorted_by(|a, b| a.ns >= b.ns));
        assert!(
            gaps.iter()
                .all(|gap| gap.ns > 0 && gap.before.line <= gap.after.line)
        );
    }
    let diagnosis = doctor::diagnose("log", data);
    assert_eq!(diagnosis.boots, boots.len());
    for finding in &diagnosis.findings {
        assert!((1..=lines).contains(&finding.line), "{finding:?}");
        assert!(finding.cost_ms.is_none_or(|ms| ms >= 0.0), "{finding:?}");
        assert!(
            !finding.evidence.contains(|c: char| c.is_control()),
            "{finding:?}"
        );
    }
    let found = diagnosis.findings.iter();
    assert!(found.is_sorted_by_key(|finding| (finding.boot, finding.line)));
    assert_eq!(
        diagnosis,
        doctor::diagnose("log", data),
        "the same text reads the same"
    );
});
