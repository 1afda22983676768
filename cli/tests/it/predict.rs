//! `firstlight predict`: machines of logs and shapes, and how the published rows do.

use crate::common;

use common::{document, files, told};

#[test]
fn a_machine_is_predicted_with_its_range() {
    let shape = [
        "predict",
        "--shape",
        "memory=768G,nodes=2,cpus=104",
        "--json",
    ];
    let prediction = document(&shape);
    assert_eq!(prediction["schema"], "firstlight.predict/1");
    assert_eq!(prediction["threads"], 52);
    assert_eq!(
        prediction["published"]["rows"].as_array().map(Vec::len),
        Some(84)
    );
    let (_, page, _) = told(&[
        "predict",
        "--shape",
        "memory=768G,nodes=2,cpus=104",
        "--check",
    ]);
    assert!(
        page.contains("haswell-14g") && page.contains("off by more than 20 %"),
        "{page}"
    );
    let log = &files("golden/logs", "A_6.12_64G_n2_c2.log")[0];
    let (code, page, _) = told(&["predict", log.to_str().unwrap_or_default()]);
    assert!(
        code == 0 && page.contains("64 GiB, 2 nodes, 2 CPUs, 1 thread a node"),
        "{page}"
    );
}

#[test]
fn a_log_s_own_figures_stand_beside_and_memory_blocks_count() {
    let log = &files("golden/logs", "A_6.12_64G_n2_c2.log")[0];
    let log = log.to_str().unwrap();
    let shape = [
        "predict",
        "--shape",
        "memory=64G,nodes=2,cpus=2",
        "--log",
        log,
        "--json",
    ];
    for arguments in [&["predict", log, "--json"][..], &shape] {
        let prediction = document(arguments);
        let linux = prediction["linux"].as_array().unwrap();
        let measured = |row: &serde_json::Value| row["measured_ms"].as_f64().unwrap();
        let figures: Vec<f64> = linux.iter().map(measured).collect();
        // The log's own words, 76 and 84 ms or the like, and the sum of all.
        let text = std::fs::read_to_string(log).unwrap();
        let said = text
            .lines()
            .filter_map(|line| line.split_once("deferred pages initialised in "));
        let said = said.map(|(_, ms)| ms.trim_end_matches("ms").parse::<f64>().unwrap());
        assert_eq!(figures[0], said.fold(0.0, f64::max));
        let sum = figures[0] + figures[1] + figures[2];
        assert!((sum - figures[3]).abs() < 1e-6, "{figures:?}");
    }
    let blocks = |more: &[&str]| {
        let mut arguments = vec!["predict", "--json", "--shape", "memory=2T,nodes=8,cpus=8"];
        arguments.extend(more);
        document(&arguments)["linux"][2]["ms"].as_f64().unwrap()
    };
    assert!(blocks(&[]) < 40.0);
    let searched = blocks(&["--block-mib", "128", "--release", "5.7"]);
    assert!((14_000.0..14_300.0).contains(&searched), "{searched}");
    let (_, page, _) = told(&[
        "predict",
        "--shape",
        "memory=4T,nodes=8,cpus=256",
        "--check",
    ]);
    for part in ["times what was fitted", "21000, predicted", "can't give it"] {
        assert!(page.contains(part), "{part} in {page}");
    }
}

#[test]
fn what_shows_no_machine_is_refused() {
    let (code, _, stderr) = told(&["predict"]);
    assert_eq!(code, 2, "{stderr}");
    let (code, _, stderr) = told(&["predict", "/dev/null"]);
    assert!(code == 1 && stderr.contains("no memory map"), "{stderr}");
}

#[test]
fn published_tables_are_in_their_own_form() {
    let (code, all, _) = told(&["predict", "--published"]);
    assert_eq!(code, 0);
    for part in [
        "skylake-384g",
        "92.3 %      138.0 (1.0)",
        "THP      yes",
        "total                 1729       644",
    ] {
        assert!(all.contains(part), "{part} in {all}");
    }
    let json = document(&["predict", "--published=sparc-32t", "--json"]);
    assert_eq!(json["tables"]["sparc-32t"]["totals"][2]["before"], 872);
    // It stands alone.
    let (code, _, _) = told(&["predict", "--published", "--shape", "memory=1G"]);
    assert_eq!(code, 2);
}
