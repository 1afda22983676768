//! `firstlight report`: its forms, what hostile records do to it, and the page in a browser.

use crate::common;

use common::guest::{image, qemu_is_here};
use common::{document, files, run, told};
use firstlight_pool::os::need::skip;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;

/// A record of `memory_gib` whose phases grow with it.
fn record(memory_gib: u64, run: u64) -> Value {
    let ms = 1_000_000;
    let memmap = memory_gib * 3 * ms + run * 1000;
    json!({
        "schema": "firstlight.run/1", "kind": "boot", "clock": "wall",
        "source": {"kind": "linux", "kernel": {"release": "6.12.1"}, "command_line": "quiet"},
        "machine": {"asked": {"board": "q35", "memory_bytes": memory_gib << 30, "nodes": 2, "cpus": 4}},
        "milestones": {},
        "phases": [
            {"name": "memmap early", "start_ns": 10 * ms, "end_ns": 10 * ms + memmap},
            {"name": "kernel", "start_ns": 10 * ms + memmap, "end_ns": 50 * ms + memmap},
        ],
        "gaps": [{
            "ns": 5 * ms, "phase": "kernel",
            "before": {"line": 1, "stamp_ns": ms, "text": "a"},
            "after": {"line": 2, "stamp_ns": 6 * ms, "text": "b"},
        }],
        "log": ["[    0.0100] mem auto-init: stack:off, heap alloc:off, heap free:on"],
    })
}

/// A folder with three sizes, three runs each, two logs and a sweep.
fn folder(path: &Path) -> String {
    for gib in [4, 16, 64] {
        for number in 0..3 {
            let text = record(gib, number).to_string();
            fs::write(path.join(format!("{gib}-{number}.json")), text).unwrap();
        }
    }
    for log in files("logs", ".log").iter().take(2) {
        fs::copy(log, path.join(log.file_name().unwrap())).unwrap();
    }
    let sweep = document(&[
        "bench",
        "descriptors",
        "--shape",
        "memory=64M",
        "--runs",
        "1",
        "--threads",
        "1,2",
        "--json",
    ]);
    fs::write(path.join("sweep.json"), sweep.to_string()).unwrap();
    path.to_str().unwrap().to_owned()
}

fn form(folder: &str, format: &str) -> String {
    let (code, text, stderr) = told(&["report", folder, "--format", format]);
    assert_eq!((code, &*stderr), (0, ""), "{format}");
    text
}

#[test]
fn the_page_has_all_its_parts_and_needs_nothing_else() {
    let path = tempfile::tempdir().unwrap();
    let page = form(&folder(path.path()), "html");
    for id in [
        "summary",
        "time-lines",
        "sizes",
        "threads",
        "distribution",
        "gaps",
        "findings",
    ] {
        assert!(page.contains(&format!("id=\"{id}\"")), "{id}");
    }
    for outside in [
        "http:", "https:", "//", "<script", "src=", "url(", "@import", "<link",
    ] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(page.contains("init-on-free") && page.contains("deferral-serial"));
    assert!(page.contains("prefers-color-scheme:dark") && page.contains("@media print"));
}

#[test]
fn every_other_form_is_what_its_readers_take() {
    let path = tempfile::tempdir().unwrap();
    let folder = folder(path.path());
    let csv = form(&folder, "csv");
    assert!(csv.starts_with("setup,clock,memory_bytes,run,phase,start_ns,end_ns\n"));
    assert!(csv.lines().all(|line| line.matches("\",\"").count() < 8));
    assert!(csv.lines().count() > 1 + 9 * 2);
    let trace: Value = serde_json::from_str(&form(&folder, "chrome-trace")).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    assert!(
        events
            .iter()
            .any(|event| event["name"] == "memmap early" && event["dur"] == 12_000.0)
    );
    let folded = form(&folder, "folded");
    for line in folded.lines() {
        let (stack, us) = line.rsplit_once(' ').unwrap();
        assert_eq!(stack.matches(';').count(), 1, "{line}");
        let _: u64 = us.parse().unwrap();
    }
    assert_eq!(form(&folder, "junit").matches("<testcase").count(), 11);
    let markdown = form(&folder, "markdown");
    assert!(markdown.starts_with("| set-up "), "{markdown}");
    let columns: Vec<usize> = markdown
        .lines()
        .map(|line| line.replace("\\|", "").matches('|').count())
        .collect();
    assert!(columns.iter().all(|count| *count == 7), "{markdown}");
    let entries: Value = serde_json::from_str(&form(&folder, "benchmark-action")).unwrap();
    let memmap = entries.as_array().unwrap().iter();
    let mut memmap = memmap.filter(|entry| {
        entry["name"]
            .as_str()
            .unwrap()
            .ends_with("emulated: memmap early")
            || entry["name"]
                .as_str()
                .unwrap()
                .ends_with(", quiet: memmap early")
    });
    let memmap = memmap.next().unwrap();
    assert_eq!(
        (&memmap["unit"], &memmap["value"]),
        (&"ms".into(), &12.001.into())
    );
    let bencher: Value = serde_json::from_str(&form(&folder, "bencher")).unwrap();
    let name = memmap["name"].as_str().unwrap();
    assert_eq!(bencher[name]["latency"]["value"], 12_001_000.0);
    let influx = form(&folder, "influx");
    let points = influx.lines().filter(|line| line.contains("setup=4\\ GiB"));
    assert_eq!(points.clone().count(), 3, "{influx}");
    for point in points {
        assert!(
            point.starts_with("firstlight_boot,clock=wall,run="),
            "{point}"
        );
        assert!(
            point.contains("memmap\\ early=12") && point.contains(" total="),
            "{point}"
        );
    }
    assert!(form(&folder, "table").contains("memmap early over memory: 3.0000 ms a GiB, r2 1.000"));
    let report = document(&["report", &folder, "--json"]);
    assert_eq!(report["schema"], "firstlight.report/1");
    let fit = &report["fits"][0];
    assert_eq!(
        (&fit["phase"], &fit["points"][2][0]),
        (&"memmap early".into(), &64.0.into())
    );
}

#[test]
fn what_a_record_says_is_text_and_nothing_else() {
    let path = tempfile::tempdir().unwrap();
    let evil = "</style><script>alert(1)</script>'\"&|;=1+1";
    let mut record = record(4, 0);
    record["source"]["command_line"] = evil.into();
    record["phases"][0]["name"] = evil.into();
    record["gaps"][0]["before"]["text"] = evil.into();
    fs::write(path.path().join("a.json"), record.to_string()).unwrap();
    let folder = path.path().to_str().unwrap();
    for format in ["html", "junit"] {
        let page = form(folder, format);
        assert!(
            !page.contains("<script") && !page.contains("\"&|"),
            "{page}"
        );
    }
    assert_eq!(form(folder, "folded").lines().count(), 2);
    let lines = form(folder, "csv");
    assert_eq!(lines.lines().count(), 3, "{lines}");
}

#[test]
fn a_thousand_runs_make_a_small_page() {
    let path = tempfile::tempdir().unwrap();
    let log = fs::read_to_string(&files("golden/logs", "A_6.12_64G_n2_c2.log")[0]).unwrap();
    let lines: Vec<&str> = log.lines().take(80).collect();
    for number in 0..1000 {
        let mut record = record(4 << (number % 20), number);
        record["log"] = json!(lines);
        fs::write(
            path.path().join(format!("{number}.json")),
            record.to_string(),
        )
        .unwrap();
    }
    let page = form(path.path().to_str().unwrap(), "html");
    assert!(page.len() < 5_000_000, "{}", page.len());
    assert!(page.contains("1000 runs"));
}

#[test]
fn two_set_ups_have_their_differences_and_what_they_share_once() {
    let path = tempfile::tempdir().unwrap();
    let runs = path.path().join("runs");
    fs::create_dir_all(&runs).unwrap();
    for (words, more) in [("shared quiet", 0), ("shared loud", 7_000_000)] {
        for number in 0..3 {
            let mut record = record(4, number);
            record["source"]["command_line"] = words.into();
            record["host"] = json!({"accelerator": "tcg"});
            record["time_base"] = json!({"from": "power-on"});
            let end = record["phases"][1]["end_ns"].as_u64().unwrap();
            record["phases"][1]["end_ns"] = (end + more).into();
            let name = format!("{}-{number}", words.replace(' ', "_"));
            fs::write(runs.join(format!("{name}.json")), record.to_string()).unwrap();
            fs::write(runs.join(format!("{name}.log")), "[    1.0] a\n").unwrap();
        }
    }
    let failed =
        json!({"schema": "firstlight.failed/1", "cell": "c", "message": "it hung <b>", "log": []});
    fs::write(runs.join("c-0.failed"), failed.to_string()).unwrap();
    fs::write(
        runs.join("later.json"),
        record(4, 0).to_string().replace("run/1", "run/2"),
    )
    .unwrap();
    let page = path.path().join("page.html");
    let (folder, out) = (runs.to_str().unwrap(), page.to_str().unwrap());
    let (code, _, stderr) = told(&["report", folder, "-o", out, "--title", "Nightly <1>"]);
    assert_eq!(code, 0, "{stderr}");
    let page = fs::read_to_string(page).unwrap();
    for part in [
        "<h1>Nightly &lt;1&gt;</h1>",
        "<code>shared</code>",
        "id=\"differences\"",
        // The whole boot first; A is the louder one, by the order of names.
        "<tr><td>total</td>",
        "-7.000",
        "named emulated",
        "4 CPUs, emulated, loud",
        "3 of 3 runs",
        "href=\"./runs/shared_loud-",
        ".log\"",
        "failed: it hung &lt;b&gt;",
        "left out: its schema is",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
    let table = form(folder, "table");
    assert!(
        table.contains("failed: ") && table.contains("left out: "),
        "{table}"
    );
}

#[test]
fn what_is_no_folder_of_records_is_refused() {
    let path = tempfile::tempdir().unwrap();
    let (code, _, stderr) = told(&["report", path.path().to_str().unwrap()]);
    assert_eq!(code, 1, "{stderr}");
    assert!(stderr.contains("no record in"), "{stderr}");
    fs::write(path.path().join("a.json"), record(4, 0).to_string()).unwrap();
    let folder = path.path().to_str().unwrap();
    let (code, _, stderr) = told(&["report", folder, "-o", "/nowhere/report.html"]);
    assert_eq!(
        (code, stderr.contains("cannot write")),
        (3, true),
        "{stderr}"
    );
    // A reader that goes away is none.
    assert!(run(&["report", folder]).status.success());
}

/// Chromium's program, if it is here.
fn browser() -> Option<&'static str> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let here = |name: &&str| Command::new(name).arg("--version").output().is_ok();
    let found = names.into_iter().find(|name| here(name));
    if found.is_none() {
        skip("browser", "chromium is not installed");
    }
    found
}

#[test]
fn a_browser_draws_the_page_light_dark_and_on_paper() {
    let Some(browser) = browser() else { return };
    let path = tempfile::tempdir().unwrap();
    let folder = folder(path.path());
    let page = path.path().join("report.html");
    assert!(
        run(&["report", &folder, "-o", page.to_str().unwrap()])
            .status
            .success()
    );
    let address = format!("file://{}", page.display());
    let draw = |name: &str, options: &[&str]| {
        let file = path.path().join(name);
        let mut command = Command::new(browser);
        command
            .args([
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--window-size=1200,2400",
            ])
            .arg(format!(
                "--user-data-dir={}",
                path.path().join("profile").display()
            ))
            .args(
                options
                    .iter()
                    .map(|option| option.replace("FILE", file.to_str().unwrap())),
            )
            .arg(&address);
        let output = command.output().expect("the browser starts");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        fs::read(&file).unwrap_or_else(|error| panic!("{name}: {error}: {said}"))
    };
    let light = draw("light.png", &["--screenshot=FILE"]);
    let dark = draw(
        "dark.png",
        &[
            "--screenshot=FILE",
            "--blink-settings=preferredColorScheme=0",
        ],
    );
    let paper = draw("paper.pdf", &["--print-to-pdf=FILE"]);
    assert!(
        light.starts_with(b"\x89PNG") && light.len() > 50_000,
        "{}",
        light.len()
    );
    assert!(dark.starts_with(b"\x89PNG") && dark != light);
    assert!(paper.starts_with(b"%PDF"));
}

#[test]
fn boots_with_more_cpus_stand_beside_a_published_machine() {
    let path = tempfile::tempdir().unwrap();
    for (cpus, ms) in [(1_u64, 400_u64), (2, 210), (4, 205)] {
        let mut record = record(16, 0);
        record["machine"]["asked"]["cpus"] = cpus.into();
        record["log"] = json!([format!(
            "[    0.0400] node 0 deferred pages initialised in {ms}ms"
        )]);
        fs::write(path.path().join(format!("{cpus}.json")), record.to_string()).unwrap();
    }
    let folder = path.path().to_str().unwrap();
    let (code, table, stderr) =
        told(&["report", folder, "--format", "table", "--beside", "zen-16g"]);
    assert_eq!((code, &*stderr), (0, ""));
    for part in [
        "48.8 %      205.0 (0.0)",
        "knee: 2 CPUs",
        "published, zen-16g",
    ] {
        assert!(table.contains(part), "{part} in {table}");
    }
    let report = document(&["report", folder, "--json", "--beside", "zen-16g"]);
    let rows = report["cpus"][0]["rows"].as_array().unwrap();
    assert_eq!((rows.len(), &rows[2]["cpus"]), (3, &4.into()));
    assert_eq!(report["beside"]["rows"].as_array().unwrap().len(), 5);
    assert!(form(folder, "html").contains("knee: 2 CPUs"));
    let (code, _, stderr) = told(&["report", folder, "--beside", "other"]);
    assert!(code == 2 && stderr.contains("skylake-384g"), "{stderr}");
}

/// A guest with 2 CPUs on 2 nodes, counted in instructions.
#[test]
fn what_the_image_swept_has_a_row_for_each_node_part_and_number_of_threads() {
    let Some(image) = image().filter(|_| qemu_is_here()) else {
        return;
    };
    let path = tempfile::tempdir().unwrap();
    for bytes in [8, 64] {
        let words = format!("sweep descriptor_bytes={bytes} threads=1,2");
        let mut boot = vec!["boot", "--memory", "1G", "--nodes", "2", "--cpus", "2"];
        boot.extend([
            "--clock",
            "instructions",
            "--image",
            image,
            "--append",
            &words,
        ]);
        if bytes == 8 {
            let (code, page, _) = told(&boot);
            assert_eq!(code, 0);
            for part in ["8 bytes in a guest", "a page, whole", "take turns", "all "] {
                assert!(page.contains(part), "{part:?} in {page}");
            }
        }
        boot.push("--json");
        let file = path.path().join(format!("{bytes}.json"));
        fs::write(&file, run(&boot).stdout).unwrap();
        let report = document(&["report", file.to_str().unwrap(), "--json"]);
        let sweep = &report["sweeps"][0];
        assert_eq!(sweep["schema"], "firstlight.sweep/1");
        assert_eq!(sweep["clock"], "instructions");
        let rows = sweep["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 2 * 3 * 2);
        for row in rows {
            assert_eq!(
                (&row["where"], &row["descriptor_bytes"]),
                (&"guest".into(), &bytes.into())
            );
            let (pages, ms) = (row["pages"].as_u64().unwrap(), &row["ms"]["median"]);
            assert_eq!(row["bytes_written"], pages * bytes);
            // One instruction is one nanosecond.
            let each = ms.as_f64().unwrap() * 1e6 / pages as f64;
            let given = row["instructions_per_page"].as_f64().unwrap();
            assert!((each - given).abs() < 0.01, "{row}");
            // Fewer would mean that nothing was written.
            assert!(given > 0.1 && given < 30.0, "{row}");
            assert!(row["fraction_of_best_memset"].is_null());
            assert_eq!(row["percent_of_cpus"].as_f64().unwrap() % 100.0, 0.0);
        }
        // Both nodes together are all of them.
        let pages = |node: Value, part: &str| {
            let mut rows = rows.iter();
            let row = rows.find(|row| row["node"] == node && row["part"] == part);
            row.unwrap()["pages"].as_u64().unwrap()
        };
        for part in ["whole", "deferred"] {
            let all = pages(Value::Null, part);
            assert_eq!(pages(0.into(), part) + pages(1.into(), part), all);
        }
    }
}

#[test]
fn initcalls_and_services_are_in_the_record_and_in_the_report_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = String::from("[    0.000000] Linux version 6.12\n[    0.500000] a\n");
    for number in 1..=25_u32 {
        let at = 1000 + number;
        log.push_str(&format!(
            "[    1.{at:06}] initcall call{number}_init+0x0/0x10 returned 0 after {}000 usecs\n",
            number * 7 % 26
        ));
    }
    log.push_str("[    2.000000] systemd[1]: Starting slow.service - S...\n");
    log.push_str("[    5.000000] systemd[1]: Finished slow.service - S.\n");
    let path = folder.path().join("boot.log");
    std::fs::write(&path, &log).unwrap();
    let record = document(&["doctor", path.to_str().unwrap(), "--record", "--json"]);
    let calls = record["initcalls"].as_array().unwrap();
    // The slowest 20 of 25; the log has all.
    let ms: Vec<u64> = calls
        .iter()
        .map(|call| call["ns"].as_u64().unwrap() / 1_000_000)
        .collect();
    assert_eq!(ms, (6..=25).rev().collect::<Vec<_>>());
    // 11 * 7 is 25 more than two times 26.
    assert_eq!(
        (&calls[0]["name"], &calls[0]["line"]),
        (&"call11_init".into(), &13.into())
    );
    assert_eq!(record["services"][0]["name"], "slow.service - S");
    assert_eq!(record["services"][0]["ns"], 3_000_000_000_u64);
    let json = folder.path().join("boot.json");
    std::fs::write(&json, record.to_string()).unwrap();
    let page = |folder: &std::path::Path| {
        let (code, page, stderr) = told(&["report", folder.to_str().unwrap()]);
        assert_eq!(code, 0, "{stderr}");
        page
    };
    let page_of_record = page(folder.path());
    for part in ["Initcalls and services", "call11_init", "slow.service"] {
        assert!(page_of_record.contains(part), "{part}");
    }
    // A record of before names none, and is read.
    let mut old = record;
    for field in ["initcalls", "services"] {
        old.as_object_mut().unwrap().remove(field);
    }
    std::fs::write(&json, old.to_string()).unwrap();
    assert!(page(folder.path()).contains("Boot report"));
}
