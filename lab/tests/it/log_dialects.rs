//! One boot in every dialect: whatever showed the log, the doctor finds the same.

use firstlight_lab::doctor::{Finding, diagnose};

/// Microseconds and messages of a boot with three costs that only stamps show.
const BOOT: [(u64, &str); 12] = [
    (0, "Linux version 6.1.0-13-amd64 (x) (gcc) #1 SMP"),
    (0, "Command line: root=/dev/sda init_on_free=1"),
    (10_000, "BIOS-provided physical RAM map:"),
    (
        10_500,
        "BIOS-e820: [mem 0x0000000000100000-0x00000001ffffffff] usable",
    ),
    (20_000, "Zone ranges:"),
    (
        20_100,
        "  Normal   [mem 0x0000000100000000-0x00000001ffffffff]",
    ),
    (
        26_875,
        "On node 0, zone Normal: 12 pages in unavailable ranges",
    ),
    (2_028_450, "ACPI: PM-Timer IO Port: 0x408"),
    (
        2_100_000,
        "mem auto-init: stack:all(zero), heap alloc:off, heap free:on",
    ),
    (
        5_227_123,
        "Memory: 7800000K/8388068K available (14339K kernel code)",
    ),
    (
        5_300_000,
        "SLUB: HWalign=64, Order=0-3, MinObjects=0, CPUs=4, Nodes=1",
    ),
    (5_400_250, "Freeing \"unused\" kernel image memory: 2660K"),
];

fn written(line: impl Fn(u64, &str) -> String) -> String {
    let lines = BOOT.iter().map(|(us, text)| line(*us, text) + "\n");
    lines.collect()
}

fn stamp(us: u64) -> String {
    format!("{:5}.{:06}", us / 1_000_000, us % 1_000_000)
}

/// `07:00:05.227123` and the like, so long after 07:00:00.
fn time(us: u64, point: char) -> String {
    let seconds = us / 1_000_000;
    format!("07:00:{seconds:02}{point}{:06}", us % 1_000_000)
}

fn since(us: u64) -> u64 {
    let before = BOOT.iter().rev().find(|line| line.0 < us);
    us - before.map_or(us, |line| line.0)
}

/// All findings with their costs in whole milliseconds.
fn found(findings: &[Finding]) -> Vec<(&'static str, Option<u64>, &'static str)> {
    let found = findings.iter().map(|finding| {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a test's figure"
        )]
        let ms = finding.cost_ms.map(|ms| ms.round() as u64);
        (finding.id, ms, finding.cost)
    });
    found.collect()
}

fn json(us: u64, text: &str) -> String {
    let text = text.replace('"', "\\\"");
    format!(
        "{{\"__CURSOR\":\"s=1\",\"_BOOT_ID\":\"b1\",\"_TRANSPORT\":\"kernel\",\"PRIORITY\":\"6\",\
         \"_SOURCE_MONOTONIC_TIMESTAMP\":\"{us}\",\"__REALTIME_TIMESTAMP\":\"1795244400000000\",\
         \"SYSLOG_IDENTIFIER\":\"kernel\",\"MESSAGE\":\"{text}\"}}"
    )
}

fn dialects() -> Vec<(&'static str, String)> {
    let dmesg_json = |us: u64, text: &str| {
        let text = text.replace('"', "\\\"");
        format!(
            "      }},{{\n         \"pri\": 6,\n         \"time\": {},\n         \"msg\": \"{text}\"",
            stamp(us)
        )
    };
    let whole = format!(
        "{{\n   \"dmesg\": [\n{}      }}\n   ]\n}}\n",
        written(dmesg_json).replacen("      },", "      ", 1)
    );
    vec![
        ("dmesg -J", whole),
        ("journalctl -o json", written(json)),
        (
            "journalctl -o json-pretty",
            written(json).replace(",\"", ",\n\t\""),
        ),
        (
            "dmesg --time-format=delta",
            written(|us, text| format!("[<{}>] {text}", stamp(since(us)))),
        ),
        (
            "dmesg --time-format=iso",
            written(|us, text| format!("2026-11-21T{}+01:00 {text}", time(us, ','))),
        ),
        (
            "journalctl -o short-precise",
            written(|us, text| format!("Nov 21 {} host kernel: {text}", time(us, '.'))),
        ),
        (
            "journalctl -o short-iso-precise",
            written(|us, text| format!("2026-11-21T{}+0100 host kernel: {text}", time(us, '.'))),
        ),
        (
            "journalctl -o short-unix",
            written(|us, text| {
                format!(
                    "1795244{:03}.{:06} host kernel: {text}",
                    us / 1_000_000,
                    us % 1_000_000
                )
            }),
        ),
        (
            "journalctl -o short-monotonic",
            written(|us, text| format!("[{}] host kernel: {text}", stamp(us))),
        ),
        (
            "/dev/kmsg",
            written(|us, text| format!("6,339,{us},-;{text}\n SUBSYSTEM=acpi\n DEVICE=+acpi:x")),
        ),
        (
            "netconsole",
            written(|us, text| format!("6.1.0,6,339,{us},-,ncfrag=0/99;{text}")),
        ),
        (
            "grabserial",
            written(|us, text| {
                format!(
                    "[{} {}] {text}",
                    stamp(us + 700_000).trim(),
                    stamp(since(us)).trim()
                )
            }),
        ),
        (
            "grabserial, with stamps of the kernel",
            written(|us, text| {
                format!(
                    "[{} 0.000100] [{}] {text}",
                    stamp(us * 2 + 700_000).trim(),
                    stamp(us)
                )
            }),
        ),
        (
            "a recorder of a serial line",
            written(|us, text| format!("[2026-11-21 {}] {text}", time(us, '.'))),
        ),
        (
            "a phone",
            written(|us, text| format!("[{},0] {text}", stamp(us))),
        ),
        (
            "a phone that says its CPU",
            written(|us, text| format!("[{}] <CPU:0> {text}", stamp(us))),
        ),
        (
            "a phone that says its task",
            written(|us, text| format!("[{}] <6>.(0)[0:swapper/0]{text}", stamp(us))),
        ),
        (
            "callers",
            written(|us, text| format!("[{}][    T0] {text}", stamp(us))),
        ),
    ]
}

#[test]
fn every_dialect_has_the_findings_and_costs_of_the_kernels_own() {
    let plain = written(|us, text| format!("[{}] {text}", stamp(us)));
    let expected = found(&diagnose("plain", plain.as_bytes()).findings);
    assert_eq!(
        expected,
        [
            ("memmap-eager", Some(2002), "measured"),
            ("init-on-free", Some(3127), "measured")
        ]
    );
    for (dialect, log) in dialects() {
        let diagnosis = diagnose(dialect, log.as_bytes());
        assert_eq!(found(&diagnosis.findings), expected, "{dialect}: {log}");
        assert_eq!(diagnosis.boots, 1, "{dialect}");
        assert!(diagnosis.kernel_lines > 0, "{dialect}");
        for finding in &diagnosis.findings {
            let line = log.lines().nth(finding.line - 1).unwrap();
            assert!(
                line.contains(&finding.evidence) || dialect.contains("serial"),
                "{dialect}: {finding:?}"
            );
            assert!(
                line.contains("ACPI: PM-Timer") || line.contains("mem auto-init"),
                "{dialect}: {line}"
            );
        }
    }
}

#[test]
fn whole_seconds_are_read_as_such() {
    for (dialect, log) in [
        (
            "short-full",
            written(|us, text| {
                format!(
                    "Sat 2026-11-21 07:00:{:02} UTC host kernel: {text}",
                    us / 1_000_000
                )
            }),
        ),
        (
            "short-iso",
            written(|us, text| {
                format!(
                    "2026-11-21T07:00:{:02}+0000 host kernel: {text}",
                    us / 1_000_000
                )
            }),
        ),
        (
            "short",
            written(|us, text| format!("Nov 21 07:00:{:02} host kernel: {text}", us / 1_000_000)),
        ),
        (
            "dmesg -T",
            written(|us, text| format!("[Sat Nov 21 07:00:{:02} 2026] {text}", us / 1_000_000)),
        ),
    ] {
        let found = found(&diagnose(dialect, log.as_bytes()).findings);
        // At least a second less than what passed, by such a clock.
        assert_eq!(
            found[0],
            ("memmap-eager", Some(1000), "measured"),
            "{dialect}"
        );
        assert_eq!(found[1].0, "init-on-free", "{dialect}");
    }
}

#[test]
fn boots_of_a_journal_are_told_apart_in_every_form() {
    let again = |log: &str, from: &str, to: &str| log.to_owned() + &log.replace(from, to);
    let dialects = dialects();
    let log = |name: &str| &dialects.iter().find(|dialect| dialect.0 == name).unwrap().1;
    for both in [
        again(log("journalctl -o json"), "\"b1\"", "\"b2\""),
        again(log("journalctl -o short-precise"), "07:00:", "07:05:"),
        again(log("journalctl -o short-unix"), "1795244", "1795245"),
        again(log("/dev/kmsg"), "6,339", "6,340"),
    ] {
        let diagnosis = diagnose("both", both.as_bytes());
        assert_eq!(diagnosis.boots, 2, "{both}");
        let boots: Vec<usize> = diagnosis
            .findings
            .iter()
            .map(|finding| finding.boot)
            .collect();
        assert_eq!(boots, [1, 1, 2, 2], "{both}");
    }
}

#[test]
fn all_messages_in_one_line_have_their_own_evidence() {
    let log = format!(
        "{{\"dmesg\":[{}]}}",
        written(|us, text| {
            format!(
                "{{\"pri\":6,\"time\":{},\"msg\":\"{}{}\"}},",
                stamp(us).trim(),
                text.replace('"', "'"),
                " ".repeat(300)
            )
        })
        .replace('\n', "")
    );
    let diagnosis = diagnose("one line", log.as_bytes());
    let evidence: Vec<&str> = diagnosis
        .findings
        .iter()
        .map(|finding| finding.evidence.trim())
        .collect();
    assert_eq!(evidence.len(), 2);
    assert!(
        evidence[0].starts_with("ACPI: PM-Timer") && evidence[1].starts_with("mem auto-init"),
        "{evidence:?}"
    );
}
