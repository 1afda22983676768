//! One set-up, judged: [`Group`].

use serde::Serialize;

use super::pairs::{Evidence, Missing};
use super::row::{self, Judged, State};
use super::{Method, Outcome, Rules, initcalls};
use crate::compare::{Kind, Row, TOTAL};

/// The figures of one set-up.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Group {
    /// The set-up, in words.
    pub name: String,
    /// Which clock its times are from.
    pub clock: String,
    /// What came of it.
    pub outcome: Outcome,
    /// Why it is unclear.
    pub unclear: Vec<String>,
    /// Its memory, where it is known.
    pub memory_bytes: Option<u64>,
    /// Its nodes.
    pub nodes: Option<u64>,
    /// Its CPUs.
    pub cpus: Option<u64>,
    /// Runs of A and of B.
    pub runs: [usize; 2],
    /// From where moments and the whole boot count.
    pub counted_from: String,
    /// Every figure both have.
    pub rows: Vec<Judged>,
    /// Figures that one side has.
    pub absent: Vec<String>,
}

impl Group {
    pub(super) fn of(evidence: &Evidence, rules: &Rules) -> Self {
        let first = &evidence.first;
        let [a, b] = &first.sides;
        let mut method = Method::of(&first.clock).with(rules.bounds);
        if [a, b].iter().any(|side| &*side.system == "linux") {
            // All that is known of its boot is from such stamps.
            method.least_ns = method.least_ns.max(row::LEAST_STAMPED_NS);
        }
        let method = &method;
        let machine = a.machine.as_ref().or(b.machine.as_ref());
        let others = evidence.again.as_ref().map(initcalls::filled);
        let again = |row: &Row| {
            let mut rows = others.as_ref()?.iter();
            rows.find(|other| (other.kind, &other.name) == (row.kind, &row.name))
        };
        let mut rows = Vec::new();
        let mut absent = Vec::new();
        for row in &initcalls::filled(first) {
            match row::judge(row, others.is_some().then(|| again(row)), method) {
                Some(judged) => rows.push(Judged {
                    decides: rules.figures.decides(row.kind, &row.name),
                    ..judged
                }),
                None if !row.kind.explains() => absent.push(row.name.clone()),
                None => {}
            }
        }
        if rules.figures.only.is_empty() {
            initcalls::decide(&mut rows, others.as_deref(), first, method);
        }
        let mut group = Self {
            name: evidence.name.clone(),
            clock: first.clock.clone(),
            outcome: Outcome::Pass,
            unclear: Vec::new(),
            memory_bytes: machine.map(|machine| machine.memory_bytes),
            nodes: machine.map(|machine| machine.nodes),
            cpus: machine.map(|machine| machine.cpus),
            runs: [a.runs, b.runs],
            counted_from: first.counted_from.clone(),
            rows,
            absent,
        };
        group.unclear = group.reasons(method, lacking(evidence, rules));
        group.outcome = match (group.has_regressed(), group.unclear.is_empty()) {
            (true, _) => Outcome::Regressed,
            (false, false) => Outcome::Unclear,
            (false, true) => Outcome::Pass,
        };
        group
    }

    /// A set-up of one side.
    pub(super) fn alone(missing: &Missing) -> Self {
        let machine = &missing.machine;
        Self {
            name: missing.name.clone(),
            clock: machine.clock.clone(),
            outcome: Outcome::Unclear,
            unclear: vec![missing.why.clone()],
            memory_bytes: machine.memory_bytes,
            nodes: machine.nodes,
            cpus: machine.cpus,
            runs: missing.runs,
            counted_from: String::new(),
            rows: Vec::new(),
            absent: Vec::new(),
        }
    }

    /// The smallest machine first.
    pub(super) fn order(&self) -> (Option<u64>, Option<u64>, Option<u64>, &str) {
        (self.memory_bytes, self.nodes, self.cpus, &self.name)
    }

    fn deciding(&self) -> impl Iterator<Item = &Judged> {
        self.rows.iter().filter(|row| row.decides)
    }

    fn total(&self) -> Option<&Judged> {
        self.deciding().find(|row| row.kind == Kind::Total)
    }

    /// The whole boot decides where it has moved, else its parts do.
    fn has_regressed(&self) -> bool {
        match self.total().map(|row| row.state) {
            Some(State::Regressed) => true,
            Some(State::Improved) => false,
            _ => self.deciding().any(|row| row.state == State::Regressed),
        }
    }

    fn reasons(&self, method: &Method, lacking: Vec<String>) -> Vec<String> {
        let mut why = Vec::new();
        let [a, b] = self.runs;
        if a.min(b) < method.least_runs {
            why.push(format!(
                "{a} and {b} runs; expected {} a side at least on this clock",
                method.least_runs
            ));
            return why;
        }
        if self.deciding().next().is_none() {
            why.push("no figure that both sides have decides".into());
        }
        why.extend(lacking);
        if self.total().is_some_and(|row| row.state == State::Improved) {
            return why;
        }
        let waiting = self
            .deciding()
            .filter(|row| row.state == State::Unconfirmed && row.lost_ns() > 0.0);
        let waiting: Vec<String> = waiting.map(Judged::words).collect();
        if let Some(first) = waiting.first() {
            let more = match waiting.len() - 1 {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            why.push(format!(
                "{first}{more} wants other runs that say so too; expected {} runs a side",
                2 * method.least_runs
            ));
        }
        why
    }

    /// What is slower, of figures that decide or of the others: the whole boot first, spans
    /// before moments, the largest loss first.
    pub(super) fn moved(&self, decides: bool) -> Vec<String> {
        let slower = self.rows.iter();
        let slower = slower.filter(|row| row.state == State::Regressed && row.decides == decides);
        let mut slower: Vec<&Judged> = slower.collect();
        let place = |row: &Judged| match row.kind {
            Kind::Total => 0,
            Kind::Milestone => 2,
            _ => 1,
        };
        slower.sort_by(|a, b| {
            let lost = b.lost_ns().total_cmp(&a.lost_ns());
            place(a).cmp(&place(b)).then(lost)
        });
        slower.iter().map(|row| row.words()).collect()
    }
}

/// Figures that decide and are not in all runs.
fn lacking(evidence: &Evidence, rules: &Rules) -> Vec<String> {
    let figures = &rules.figures;
    let mut why = Vec::new();
    for comparison in [Some(&evidence.first), evidence.again.as_ref()]
        .into_iter()
        .flatten()
    {
        // Systems name their phases differently, and one before the clock is absent: where its
        // time is not known for another reason, that of the whole boot is not.
        let is_whole = |row: &Row| matches!(row.kind, Kind::Total | Kind::Milestone);
        let deciding = comparison.rows.iter().filter(|row| {
            let wanted = is_whole(row) || !figures.only.is_empty();
            wanted && figures.decides(row.kind, &row.name)
        });
        why.extend(deciding.filter_map(|row| row::lacks(row, &comparison.sides)));
        let is_total = |row: &Row| row.kind == Kind::Total;
        if figures.decides(Kind::Total, TOTAL) && !comparison.rows.iter().any(is_total) {
            why.push("no run has a total".into());
        }
    }
    why.dedup();
    why
}
