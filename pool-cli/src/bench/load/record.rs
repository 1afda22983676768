//! What came of it: schema `firstlight.bench-pool-load/1`, and a table for people.

use super::floods::Flood;
use crate::output::HEADING;
use crate::text::{self, head};
use firstlight_figures::spread;
use firstlight_pool::protocol::PageSize;
use serde::Serialize;
use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

/// Requests for a status of each round.
pub(super) const REQUESTS: u32 = 5000;

/// The connection of a take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub(super) enum Connection {
    /// Open before.
    Open,
    /// Opened for it, within its time.
    New,
}

impl Connection {
    pub(super) const ALL: [Self; 2] = [Self::Open, Self::New];

    const fn shown(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::New => "new",
        }
    }
}

/// Times of some takes.
#[derive(Debug, Clone, Default)]
pub(super) struct Waits(Vec<Duration>);

impl Waits {
    pub(super) fn add(&mut self, wait: Duration) {
        self.0.push(wait);
    }

    /// The least time that so many in a hundred do not exceed, in microseconds.
    fn at(&self, percent: usize) -> Option<f64> {
        let mut times = self.0.clone();
        times.sort_unstable();
        let rank = (times.len() * percent).div_ceil(100).max(1);
        Some(times.get(rank - 1)?.as_secs_f64() * 1e6)
    }
}

/// What one daemon was measured to do.
#[derive(Debug)]
pub(super) struct Round {
    takes: Waits,
    requests_per_s: f64,
    members: Vec<(Connection, Flood, Waits)>,
}

impl Round {
    /// Of takes without a pause.
    pub(super) fn new(takes: Waits) -> Self {
        Self {
            takes,
            requests_per_s: 0.0,
            members: Vec::new(),
        }
    }

    pub(super) fn requests(&mut self, count: u32, elapsed: Duration) {
        self.requests_per_s = f64::from(count) / elapsed.as_secs_f64();
    }

    pub(super) fn add(&mut self, connection: Connection, flood: Flood, waits: Waits) {
        self.members.push((connection, flood, waits));
    }

    fn takes_per_s(&self) -> f64 {
        let all: Duration = self.takes.0.iter().sum();
        f64::from(u32::try_from(self.takes.0.len()).unwrap_or(u32::MAX)) / all.as_secs_f64()
    }
}

/// Of all rounds.
#[derive(Debug, Clone, Copy, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct Spread {
    median: f64,
    min: f64,
    max: f64,
}

impl Spread {
    fn of(figures: impl IntoIterator<Item = f64>) -> Option<Self> {
        let spread = spread::Spread::of(figures)?;
        let [median, min, max] = [spread.median, spread.min, spread.max].map(tenth);
        Some(Self { median, min, max })
    }
}

fn tenth(figure: f64) -> f64 {
    (figure * 10.0).round() / 10.0
}

/// A member's takes.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct Member {
    connection: Connection,
    beside: Flood,
    p50_us: Spread,
    p99_us: Spread,
    /// The median p99, in medians of the p99 alone on such a connection.
    p99_times_alone: f64,
}

/// One daemon.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
struct Daemon {
    /// `null` for this program's.
    program: Option<PathBuf>,
    requests_per_s: Spread,
    takes_per_s: Spread,
    take_p50_us: Spread,
    take_p99_us: Spread,
    members: Vec<Member>,
    rounds: usize,
}

/// The document.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct Record {
    schema: &'static str,
    clock: &'static str,
    page: PageSize,
    /// Of each kind and round.
    takes: u32,
    requests: u32,
    daemons: Vec<Daemon>,
}

impl Daemon {
    /// `None` of no round.
    fn of(program: Option<PathBuf>, rounds: &[Round]) -> Option<Self> {
        let takes = |percent| Spread::of(rounds.iter().filter_map(|r| r.takes.at(percent)));
        let mut daemon = Self {
            program,
            requests_per_s: Spread::of(rounds.iter().map(|round| round.requests_per_s))?,
            takes_per_s: Spread::of(rounds.iter().map(Round::takes_per_s))?,
            take_p50_us: takes(50)?,
            take_p99_us: takes(99)?,
            members: Vec::new(),
            rounds: rounds.len(),
        };
        for connection in Connection::ALL {
            let mut alone = None;
            for beside in Flood::ALL {
                let at = |percent| {
                    let members = rounds.iter().flat_map(|round| &round.members);
                    let mine = members.filter(|(c, f, _)| (*c, *f) == (connection, beside));
                    Spread::of(mine.filter_map(|(_, _, waits)| waits.at(percent)))
                };
                let (Some(p50_us), Some(p99_us)) = (at(50), at(99)) else {
                    continue;
                };
                let alone = *alone.get_or_insert(p99_us.median);
                daemon.members.push(Member {
                    connection,
                    beside,
                    p50_us,
                    p99_us,
                    p99_times_alone: (p99_us.median / alone * 100.0).round() / 100.0,
                });
            }
        }
        Some(daemon)
    }
}

impl Record {
    pub(super) fn of(
        (page, takes): (PageSize, u32),
        daemons: Vec<(Option<PathBuf>, Vec<Round>)>,
    ) -> Self {
        let daemons = daemons.into_iter();
        Self {
            schema: "firstlight.bench-pool-load/1",
            clock: "wall",
            page,
            takes,
            requests: REQUESTS,
            daemons: daemons
                .filter_map(|(program, rounds)| Daemon::of(program, &rounds))
                .collect(),
        }
    }

    /// For people.
    pub(crate) fn table(&self) -> String {
        let mut page = format!(
            "{HEADING}firstlight bench pool --load: {} pages, median (min-max) of rounds of {} takes{HEADING:#}\n",
            self.page, self.takes
        );
        for daemon in &self.daemons {
            daemon.table(&mut page);
        }
        page
    }
}

impl Daemon {
    fn table(&self, page: &mut String) {
        let name = self.program.as_ref().map(|path| path.display().to_string());
        let _ = writeln!(
            page,
            "\n{}, {} rounds: {} requests a second, {} takes a second, a take {} us (p50), {} us (p99)",
            name.as_deref().unwrap_or("this program"),
            self.rounds,
            shown(self.requests_per_s),
            shown(self.takes_per_s),
            shown(self.take_p50_us),
            shown(self.take_p99_us),
        );
        let mut cells = vec![head([
            "connection",
            "beside",
            "p50 us",
            "p99 us",
            "of alone",
        ])];
        cells.extend(self.members.iter().map(|member| {
            vec![
                member.connection.shown().into(),
                member.beside.shown().into(),
                shown(member.p50_us),
                shown(member.p99_us),
                format!("{:.2} x", member.p99_times_alone),
            ]
        }));
        for line in text::table("<<>>>", &cells) {
            let _ = writeln!(page, "{line}");
        }
    }
}

fn shown(spread: Spread) -> String {
    let Spread { median, min, max } = spread;
    format!("{median:.0} ({min:.0}-{max:.0})")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(us: &[u64]) -> Waits {
        Waits(us.iter().copied().map(Duration::from_micros).collect())
    }

    #[test]
    fn each_figure_is_the_median_of_rounds() {
        let round = |takes: &[u64], alone: &[u64], beside: &[u64], requests| {
            let mut round = Round::new(waits(takes));
            round.requests(requests, Duration::from_secs(2));
            round.add(Connection::Open, Flood::Nothing, waits(alone));
            round.add(Connection::Open, Flood::Strangers, waits(beside));
            round
        };
        let rounds = vec![
            round(&[10, 30], &[50, 100], &[60, 150], 1000),
            round(&[20, 20], &[50, 80], &[50, 90], 3000),
            round(&[10, 10], &[50, 120], &[70, 250], 2000),
        ];
        let earlier = Some(PathBuf::from("/earlier"));
        let record = Record::of(
            (PageSize::Huge, 2),
            vec![(None, rounds), (earlier, Vec::new())],
        );
        let seen = serde_json::to_value(&record).expect("JSON");
        assert_eq!(seen["schema"], "firstlight.bench-pool-load/1");
        let daemons = seen["daemons"].as_array().expect("a list");
        assert_eq!(daemons.len(), 1, "what was never measured has no row");
        let spread = |median: f64, min: f64, max: f64| serde_json::json!({"median": median, "min": min, "max": max});
        assert_eq!(daemons[0]["requests_per_s"], spread(1000.0, 500.0, 1500.0));
        assert_eq!(
            daemons[0]["takes_per_s"],
            spread(50_000.0, 50_000.0, 100_000.0)
        );
        assert_eq!(daemons[0]["take_p99_us"], spread(20.0, 10.0, 30.0));
        let strangers = serde_json::json!({
            "connection": "open", "beside": "strangers", "p99_times_alone": 1.5,
            "p50_us": spread(60.0, 50.0, 70.0), "p99_us": spread(150.0, 90.0, 250.0),
        });
        assert_eq!(daemons[0]["members"][1], strangers);
        let table = anstream::adapter::strip_str(&record.table()).to_string();
        assert!(
            table.contains("open        strangers  60 (50-70)  150 (90-250)    1.50 x"),
            "{table}"
        );
    }
}
