//! `firstlight-pool plan` beside a real daemon: hits are those of the same trace played with both.

use crate::schema;
use firstlight_pool::client::{Client, ClientError};
use firstlight_pool::protocol::{FillChange, Take};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output};
use std::thread;
use std::time::{Duration, Instant};

const M: u64 = 1 << 20;

/// Seconds, bytes and seconds. What starts within a second finds nothing filled meanwhile, which takes 16 s; after a
/// gap all is filled.
const STARTS: [(f64, u64, f64); 13] = [
    (0.0, 16 * M, 5000.0),
    (0.2, 8 * M, 1.0),
    (0.4, 16 * M, 2000.0),
    (0.6, 16 * M, 10.0),
    (1.4, 2 * M, 10.0),
    (1000.0, 16 * M, 3000.0),
    (1000.1, 16 * M, 10.0),
    (3000.0, 16 * M, 1.0),
    (3000.5, 16 * M, 10.0),
    (6000.0, 16 * M, 10.0),
    (6000.1, 16 * M, 10.0),
    (6000.2, 16 * M, 10.0),
    (6000.3, 16 * M, 10.0),
];

fn plan(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_firstlight-pool"))
        .arg("plan")
        .args(arguments)
        .output()
        .unwrap()
}

/// A daemon, ended with the value.
struct Daemon(Child, Client);

impl Daemon {
    fn start(folder: &Path, slabs: u32) -> Self {
        let socket = folder.join("pool.sock");
        let directory = folder.join("pool");
        let config = format!(
            "socket = {socket:?}\ndirectory = {directory:?}\n[fill]\nrate = \"0\"\nbatch = \"1M\"\n\
             nice = 0\npause_at_pressure = 0\n[[class]]\npage = \"thp\"\nsize = \"16M\"\n\
             source = \"memfd\"\nslabs = {slabs}\n"
        );
        fs::write(folder.join("pool.toml"), config).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_firstlight-pool"))
            .args(["serve", "--config"])
            .arg(folder.join("pool.toml"))
            .spawn()
            .unwrap();
        let begin = Instant::now();
        loop {
            match Client::connect(&socket) {
                Ok(client) => return Self(child, client),
                Err(error) => assert!(begin.elapsed() < Duration::from_secs(300), "{error}"),
            }
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// As after a long time: all slabs that are not allocated are clean. From then on filling is slow.
    fn settle(&mut self, allocated: usize) {
        let rate = |rate| FillChange {
            on: None,
            rate: Some(rate),
        };
        self.1.fill(rate(0)).unwrap();
        let begin = Instant::now();
        loop {
            let pools = self.1.status().unwrap().pools;
            let (out, clean) = (pools[0].allocated_slabs, pools[0].clean_slabs);
            if out as usize == allocated && out + clean == pools[0].wanted_slabs {
                break;
            }
            assert!(begin.elapsed() < Duration::from_secs(300), "{pools:?}");
            thread::sleep(Duration::from_millis(2));
        }
        self.1.fill(rate(M)).unwrap();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let _ = self.0.wait();
    }
}

/// How many starts are hit by a real daemon: gaps of the trace are waited for as long as it fills.
fn hits(slabs: u32) -> usize {
    let folder = tempfile::tempdir().unwrap();
    let mut daemon = Daemon::start(folder.path(), slabs);
    let starts = STARTS
        .iter()
        .enumerate()
        .map(|(at, start)| (start.0, at, true));
    let ends = STARTS.iter().enumerate();
    let ends = ends.map(|(at, start)| (start.0 + start.2, at, false));
    let mut events: Vec<(f64, usize, bool)> = starts.chain(ends).collect();
    events.sort_by(|one, other| one.0.total_cmp(&other.0));
    let (mut before, mut hits) = (f64::MIN, 0);
    let mut running = BTreeMap::new();
    for (time, at, is_start) in events {
        if time - before > 100.0 {
            daemon.settle(running.len());
        }
        before = time;
        if !is_start {
            running.remove(&at);
            continue;
        }
        let take = Take {
            bytes: STARTS[at].1,
            node: None,
            page: None,
            max_topup_ms: 0,
            topup_if_faster: false,
            label: None,
        };
        match daemon.1.take(take) {
            Ok(allocated) => {
                hits += 1;
                running.insert(at, allocated);
            }
            Err(ClientError::Refused(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
    hits
}

#[test]
fn hits_are_those_of_a_real_daemon() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("starts.csv");
    let lines = STARTS.map(|(time, bytes, lifetime)| format!("{time},{bytes},,{lifetime}\n"));
    fs::write(
        &trace,
        "time,size,node,lifetime\n".to_owned() + &lines.concat(),
    )
    .unwrap();
    let trace = trace.to_str().unwrap();
    let output = plan(&[trace, "--rate", "1M", "--goal", "hits=100%", "--json"]);
    let document = schema::document(&output.stdout);
    assert_eq!(
        (output.status.code(), &document["schema"]),
        (Some(0), &"firstlight.pool-plan/1".into())
    );
    let stocks = document["stocks"].as_array().unwrap();
    for (slabs, by_hand) in [(1, 2), (3, 8)] {
        let row = stocks.iter().find(|row| row["slabs"] == slabs).unwrap();
        assert_eq!(row["hits"], by_hand, "{row}");
        assert_eq!(hits(slabs), by_hand, "{slabs}");
    }
}

#[test]
fn where_no_stock_is_enough_the_exit_code_says_so_and_the_table_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let drawing = folder.path().join("plan.svg");
    let rates = ["--starts", "60/h", "--sizes", "8G", "--lifetime", "10m"];
    let few = ["--memory", "32G", "--svg", drawing.to_str().unwrap()];
    let output = plan(&[&rates[..], &few].concat());
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    assert_eq!(output.status.code(), Some(5));
    let said = text(&output.stderr);
    let expected =
        "no stock meets p99=100ms: not one of 4 slabs, the most that --memory has space for";
    assert!(said.contains(expected), "{said}");
    assert_eq!(
        text(&output.stdout).lines().count(),
        10,
        "{}",
        text(&output.stdout)
    );
    assert!(fs::read_to_string(&drawing).unwrap().contains("<polyline"));
    // One document, not another for the failure.
    let output = plan(&[&rates[..], &few, &["--json"]].concat());
    let document = schema::document(&output.stdout);
    assert_eq!(document["smallest_slabs"], Value::Null);
    let enough = plan(&[&rates[..], &["--json"]].concat());
    assert_eq!(enough.status.code(), Some(0));
    let document = schema::document(&enough.stdout);
    let smallest = document["smallest_slabs"].as_u64().unwrap();
    assert!((10..40).contains(&smallest), "{document:#}");
    for (arguments, said) in [
        (&["/dev/zero"][..], "expected a trace below 256 MiB"),
        (&["/nonexistent"], "expected a trace that can be read"),
        (&["/proc/self/status"], "line 1: header"),
        (&["--starts", "60/h"], "--sizes"),
        (
            &["--starts", "0/h", "--sizes", "8G", "--lifetime", "10m"],
            "expected 1000/h",
        ),
    ] {
        let output = plan(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(
            text(&output.stderr).contains(said),
            "{}",
            text(&output.stderr)
        );
    }
}
