//! Debian's two kernels (`make linux`) on one shape: compared, judged, swept.

use crate::common;

use common::{document, told};
use firstlight_pool::os::need::skip;
use std::path::{Path, PathBuf};

/// Both kernels, if they are here.
pub(crate) fn kernels() -> Option<[String; 2]> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target = target.unwrap_or(Path::new(env!("CARGO_MANIFEST_DIR")).join("../target"));
    let path = |version: &str| target.join("linux").join(version).join("vmlinuz");
    let paths = ["6.1", "6.12"].map(path);
    let missing = paths.iter().find(|path| !path.is_file());
    if let Some(path) = missing {
        skip("linux", format!("no {} (make linux)", path.display()));
        return None;
    }
    Some(paths.map(|path| path.to_str().unwrap().to_owned()))
}

#[test]
fn two_real_kernels_differ_where_they_do() {
    let Some([old, new]) = kernels() else { return };
    let side = |kernel: &str| format!("--memory 1G --clock instructions --kernel '{kernel}'");
    let comparison = document(&["compare", &side(&old), &side(&new), "--json"]);
    let rows = comparison["rows"].as_array().unwrap();
    for kind in ["milestone", "phase", "gap"] {
        assert!(
            rows.iter()
                .any(|row| row["kind"] == kind && row["ratio"].is_number()),
            "{kind}"
        );
    }
    // The newer one's boot is shorter as a whole, which decides: back to the older one is slower.
    let back = document(&["compare", &side(&new), &side(&old), "--json"]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("c.json");
    for (comparison, expected, total) in [(&comparison, 0, "improved"), (&back, 7, "regressed")] {
        std::fs::write(&file, comparison.to_string()).unwrap();
        let (code, stdout, _) = told(&["gate", file.to_str().unwrap(), "--json"]);
        let verdict: serde_json::Value = serde_json::from_str(&stdout).unwrap();
        assert_eq!(code, expected, "{verdict}");
        let rows = verdict["groups"][0]["rows"].as_array().unwrap();
        let decides = rows.iter().find(|row| row["kind"] == "total").unwrap();
        assert_eq!(decides["state"], total, "{verdict}");
        assert_eq!(
            verdict["moved"].as_array().unwrap().is_empty(),
            expected == 0
        );
    }
    // And each is the same as itself.
    let same = document(&["gate", "--self", &side(&new), "--json"]);
    assert_eq!(same["noise_floor_percent"], 0.0, "{same}");
}

#[test]
fn a_matrix_over_cpus_stands_beside_a_published_machine() {
    let Some([_, new]) = kernels() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("matrix.toml");
    let matrix = format!(
        "runs = 1\n[[kernel]]\nname = \"new\"\npath = {new:?}\n[[shape]]\nmemory_mib = 4096\ncpus = [1, 2]\n"
    );
    std::fs::write(&file, matrix).unwrap();
    let runs = folder.path().join("runs");
    let [file, runs] = [&file, &runs].map(|path| path.to_str().unwrap());
    let result = document(&["matrix", file, "-o", runs, "--json"]);
    assert_eq!(result["cells"].as_array().unwrap().len(), 2);
    let report = document(&["report", runs, "--beside", "zen-16g", "--json"]);
    let rows = report["cpus"][0]["rows"].as_array().unwrap();
    assert_eq!((rows.len(), &rows[1]["cpus"]), (2, &2.into()));
    for row in rows {
        assert!(
            row["boot"]["mean_ms"].as_f64().unwrap() > row["deferred"]["mean_ms"].as_f64().unwrap()
        );
    }
    assert_eq!(report["beside"]["rows"].as_array().unwrap().len(), 5);
    // What the host saw of one of them.
    let record = std::path::Path::new(runs).join("new-4096m-1n-1c-w0-wall-0000.json");
    let record: serde_json::Value =
        serde_json::from_slice(&std::fs::read(record).unwrap()).unwrap();
    let host = &record["host"];
    let hidden = host["before_clock_ns"].as_u64().unwrap();
    let whole = host["wall_ns"].as_u64().unwrap();
    assert!(hidden > 0 && hidden < whole, "{host}");
    assert!(host["power"].is_object(), "{host}");
}
