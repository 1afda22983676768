//! `firstlight matrix --on slurm` with a real Slurm and real guests: `make slurm`.

use crate::common;
use crate::common::guest;
use crate::common::schema;

mod cluster;

use cluster::{Cluster, until, which};
use guest::{QEMU, image, qemu_is_here};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};

/// A cluster and a matrix of two cells.
struct Lab {
    cluster: Cluster,
    image: &'static str,
}

impl Lab {
    fn start(runs: usize) -> Option<Self> {
        let image = image().filter(|_| qemu_is_here())?;
        let cluster = Cluster::start()?;
        let text = format!(
            "runs = {runs}\nwords = [\"\", \"descriptors=eager\"]\n\
             [[kernel]]\nname = \"image\"\n[[shape]]\nmemory_mib = 256\n"
        );
        fs::write(cluster.path("matrix.toml"), text).unwrap();
        let lab = Self { cluster, image };
        lab.hold_guests();
        Some(lab)
    }

    /// A QEMU before the real one: a guest on a node whose file `hold.NODE` exists stays
    /// where it is, and says so in `held.NODE`.
    fn hold_guests(&self) {
        let folder = self.cluster.path("");
        let folder = folder.display();
        let text = format!(
            "#!/bin/sh\nhold={folder}hold.$SLURMD_NODENAME\n\
             case \"$1\" in --version) ;; *)\n\
             while [ -e \"$hold\" ]; do : >{folder}held.$SLURMD_NODENAME; sleep 0.05; done;;\n\
             esac\nexec {} \"$@\"\n",
            which(QEMU).unwrap().display()
        );
        let path = self.cluster.path("bin").join(QEMU);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn hold(&self, node: &str) {
        fs::write(self.cluster.path(&format!("hold.{node}")), "").unwrap();
    }

    fn release(&self, node: &str) {
        for name in ["hold", "held"] {
            let _ = fs::remove_file(self.cluster.path(&format!("{name}.{node}")));
        }
    }

    fn wait_until_held(&self, node: &str) {
        until("a guest on hold", || {
            self.cluster.path(&format!("held.{node}")).exists()
        });
    }

    fn command(&self, more: &[&str]) -> Command {
        let path = |name: &str| self.cluster.path(name).to_str().unwrap().to_owned();
        let (matrix, runs) = (path("matrix.toml"), path("runs"));
        let mut arguments = vec!["matrix", &matrix, "-o", &runs, "--on", "slurm", "--json"];
        arguments.extend(["--image", self.image]);
        arguments.extend(more);
        let mut command = common::command(&arguments);
        self.cluster.join(&mut command);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn begin(&self, more: &[&str]) -> Child {
        self.command(more).spawn().unwrap()
    }

    fn done(&self) -> usize {
        let Ok(entries) = fs::read_dir(self.cluster.path("runs")) else {
            return 0;
        };
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names
            .filter(|name| name.starts_with("image-") && name.ends_with(".json"))
            .count()
    }

    /// Jobs that were submitted until now.
    fn jobs(&self) -> Vec<String> {
        let list = self
            .cluster
            .output_of("squeue", &["-h", "--states=all", "-o%F"]);
        let mut jobs: Vec<String> = list.lines().map(str::to_owned).collect();
        jobs.sort();
        jobs.dedup();
        jobs
    }

    fn record(&self, cell: usize, run: usize) -> Value {
        let name = format!("runs/image-256m-1n-1c-w{cell}-wall-{run:04}.json");
        schema::document(&fs::read(self.cluster.path(&name)).unwrap())
    }
}

/// Exit code, the document, standard error.
fn end(child: Child) -> (i32, Value, String) {
    let output = child.wait_with_output().unwrap();
    let document = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    if document != Value::Null {
        schema::hold(&document);
    }
    let words = String::from_utf8(output.stderr).unwrap();
    (output.status.code().unwrap(), document, words)
}

fn counts(document: &Value, key: &str) -> Vec<u64> {
    let cells = document["cells"].as_array().unwrap();
    cells
        .iter()
        .map(|cell| cell[key].as_u64().unwrap())
        .collect()
}

#[test]
fn a_node_that_dies_costs_no_finished_run_and_its_own_are_repeated() {
    let Some(lab) = Lab::start(3) else { return };
    lab.hold("n1");
    let first = lab.begin(&[]);
    lab.wait_until_held("n1");
    // The other node does all the rest.
    until("five runs", || lab.done() == 5);
    let kept: Vec<Value> = (0..6)
        .filter(|at| {
            let name = format!("runs/image-256m-1n-1c-w{}-wall-{:04}.json", at / 3, at % 3);
            lab.cluster.path(&name).exists()
        })
        .map(|at| lab.record(at / 3, at % 3))
        .collect();
    assert!(kept.iter().all(|record| record["host"]["name"] == "n2"));
    lab.cluster.power_off("n1");
    let (code, document, words) = end(first);
    assert_eq!(code, 0, "{words}");
    assert_eq!(counts(&document, "done"), [3, 3]);
    // The repeated run was made elsewhere, and no other again.
    let all: Vec<Value> = (0..6).map(|at| lab.record(at / 3, at % 3)).collect();
    assert!(all.iter().all(|record| record["host"]["name"] == "n2"));
    assert_eq!(all.iter().filter(|record| kept.contains(record)).count(), 5);
    assert_eq!(lab.jobs().len(), 2, "an array job a cell");

    // All is done: nothing is submitted.
    let (code, _, words) = end(lab.begin(&[]));
    assert_eq!((code, lab.jobs().len()), (0, 2), "{words}");
    // Cells of both words, each with its own.
    assert_ne!(all[0]["log"], all[3]["log"]);
    let report = common::told(&[
        "report",
        lab.cluster.path("runs").to_str().unwrap(),
        "--format",
        "table",
    ]);
    assert!(
        report.0 == 0 && report.1.contains("descriptors=eager"),
        "{report:?}"
    );
}

#[test]
fn a_lab_that_is_stopped_goes_on_and_a_cancelled_run_is_marked() {
    let Some(lab) = Lab::start(2) else { return };
    for node in ["n1", "n2"] {
        lab.hold(node);
    }
    let first = lab.begin(&[]);
    for node in ["n1", "n2"] {
        lab.wait_until_held(node);
    }
    let id = rustix::process::Pid::from_child(&first);
    rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
    assert_eq!(end(first).0, 128 + 15);
    let jobs = lab.jobs();
    assert_eq!((jobs.len(), lab.done()), (2, 0));

    // The next lab waits for the jobs of the first.
    let second = lab.begin(&[]);
    let cancelled = lab
        .cluster
        .output_of("squeue", &["-h", "-r", "-tRUNNING", "-wn1", "-o%F_%K"]);
    lab.cluster.output_of("scancel", &[&cancelled]);
    for node in ["n1", "n2"] {
        lab.release(node);
    }
    let (code, document, words) = end(second);
    assert_eq!(code, 6, "{words}");
    assert_eq!(counts(&document, "done").iter().sum::<u64>(), 3);
    assert_eq!(counts(&document, "failed").iter().sum::<u64>(), 1);
    let why = document["failed"][0]["message"].as_str().unwrap();
    assert!(
        why.contains(&cancelled) && why.contains("CANCELLED"),
        "{why}"
    );
    assert_eq!(lab.jobs(), jobs);

    // It is made again on request, alone.
    let (code, document, words) = end(lab.begin(&["--retry"]));
    assert_eq!(code, 0, "{words}");
    assert_eq!(counts(&document, "done"), [2, 2]);
    assert_eq!(lab.jobs().len(), 3);
}

#[test]
fn what_slurm_refuses_is_said() {
    let Some(lab) = Lab::start(1) else { return };
    let (code, _, words) = end(lab.begin(&["--sbatch=--partition=nowhere"]));
    assert_eq!(code, 3, "{words}");
    assert!(
        words.contains("sbatch") && words.contains("partition"),
        "{words}"
    );
}
