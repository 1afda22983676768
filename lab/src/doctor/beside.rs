//! Two logs beside each other: [`beside`] says which boot took longer, what became slower, and
//! which findings only one has.
//!
//! Logs begin and end where it pleases their clocks and whoever took them. The whole boot is the time
//! from the first line that both have to the latest end of a boot ([`End`]) that both show; where neither shows
//! any, to the last line that both have. Of two records whose times begin at the same moment it is what every
//! other command says of them.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Diagnosis;
use crate::compare::{Kind, Unlike, compare, gaps_before};
use crate::log::{End, Line, alike, clock_start, disorder};
use crate::record::From;
use crate::run::{Run, unlike};

/// A smaller part of the whole boot may be noise where there is one boot of each.
const EFFECT: f64 = 0.05;
/// What is shorter matters in no boot.
const LEAST_NS: u64 = 1_000_000;

/// Two boots.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Beside {
    /// The line from which both count.
    pub from: Option<String>,
    /// The line to which they do.
    pub to: Option<String>,
    /// Nanoseconds from one to the other in A, then in B.
    pub total_ns: [Option<u64>; 2],
    /// Whether B is slower.
    pub verdict: Verdict,
    /// Why that is unclear.
    pub unclear: Option<String>,
    /// What takes longer in B, the largest loss first.
    pub slower: Vec<Loss>,
    /// Nanoseconds that spans of the log which are shorter in B have gained.
    pub gained_ns: u64,
    /// Findings that only A has, then those that only B has.
    pub only: [Vec<&'static str>; 2],
    /// What to know before the figures are read.
    pub notes: Vec<String>,
}

/// Whether the whole of B is slower than that of A.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// By 5 % and 1 ms at least.
    Slower,
    /// Likewise.
    Faster,
    /// Neither.
    Alike,
    /// The logs do not show the same boot up to the same end.
    Unclear,
}

/// A span that takes longer in B.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Loss {
    /// A phase, an initcall, a service or a gap.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// Nanoseconds in A; `None` if A does not have it.
    pub a_ns: Option<u64>,
    /// Nanoseconds in B.
    pub b_ns: u64,
}

impl Loss {
    /// What it lost.
    #[must_use]
    pub fn ns(&self) -> u64 {
        self.b_ns.saturating_sub(self.a_ns.unwrap_or(0))
    }
}

/// Puts two logs beside each other; of each its first boot.
///
/// # Errors
/// [`Unlike`].
pub fn beside(a: (&Diagnosis, &Run), b: (&Diagnosis, &Run)) -> Result<Beside, Unlike> {
    let (one, other) = (a.1.lines(), b.1.lines());
    let (whole, unclear) = match Whole::of(&one, &other) {
        Ok(whole) => (Some(whole), None),
        Err(why) => (None, Some(why)),
    };
    // What came after the end of the boot took its time for other reasons; records end where the boot does.
    let is_log = [a.1, b.1].iter().any(|run| run.is_log());
    let whole = whole.map(|whole| whole.or_recorded([a.1, b.1]));
    let runs = |run: &Run, side: usize| {
        if !is_log {
            return [run.clone()];
        }
        let end = whole.as_ref().and_then(|whole| whole.ends.get(side));
        [end.and_then(|end| run.until(*end))
            .unwrap_or_else(|| run.clone())]
    };
    let comparison = compare((&a.0.file, &runs(a.1, 0)), (&b.0.file, &runs(b.1, 1)))?;
    let (mut slower, mut gained_ns) = (Vec::new(), 0_u64);
    // Before the span that both have, one of them had no clock: what took time there nothing says.
    let begins = whole.as_ref().map_or([0; 2], |whole| whole.begins);
    let early = [gaps_before(&one, begins[0]), gaps_before(&other, begins[1])];
    let mut unclocked = [Vec::new(), Vec::new()];
    let rows = comparison.rows.iter().filter(|_| whole.is_some());
    for row in rows.filter(|row| row.kind == Kind::Phase || row.kind.explains()) {
        let sides = [&row.a, &row.b];
        if let Some(side) = sides.iter().position(|side| side.is_none()) {
            if row.kind == Kind::Phase && [a.1, b.1][side].is_unclocked(&row.name) {
                unclocked[side].push(&*row.name);
                continue;
            }
            if row.kind == Kind::Gap && early[1 - side].contains(&row.name) {
                continue;
            }
        }
        let ns = |side: &Option<crate::compare::Spread>| side.as_ref().map(|spread| spread.min_ns);
        let (a_ns, b_ns) = (ns(&row.a), ns(&row.b).unwrap_or(0));
        let loss = Loss {
            kind: row.kind,
            name: row.name.clone(),
            a_ns,
            b_ns,
        };
        if row.kind == Kind::Gap {
            gained_ns = gained_ns.saturating_add(a_ns.unwrap_or(0).saturating_sub(b_ns));
        }
        if loss.ns() >= LEAST_NS {
            slower.push(loss);
        }
    }
    slower.sort_by_key(|loss| (std::cmp::Reverse(loss.ns()), loss.name.clone()));
    let total_ns = whole.as_ref().map_or([None; 2], |whole| whole.ns.map(Some));
    let mut notes = Vec::new();
    if let Some(unlike) = unlike([a.1, b.1]) {
        notes.push(format!("kernels or machines differ: {unlike}"));
    }
    for diagnosis in [a.0, b.0].iter().filter(|diagnosis| diagnosis.boots > 1) {
        notes.push(format!(
            "{}: the first of {} boots counts",
            diagnosis.file, diagnosis.boots
        ));
    }
    for diagnosis in [a.0, b.0].iter().filter(|diagnosis| diagnosis.emulated) {
        notes.push(format!(
            "{}: an emulator ran it, whose time is no measure of a machine",
            diagnosis.file
        ));
    }
    for (diagnosis, names) in [a.0, b.0].iter().zip(&unclocked) {
        if !names.is_empty() {
            notes.push(format!(
                "{}: its clock does not show all of {}, which stand beside nothing",
                diagnosis.file,
                names.join(", ")
            ));
        }
    }
    Ok(Beside {
        verdict: verdict(total_ns),
        unclear,
        total_ns,
        slower,
        gained_ns,
        only: [only(a.0, b.0), only(b.0, a.0)],
        notes,
        from: whole.as_ref().map(|whole| whole.from.clone()),
        to: whole.map(|whole| whole.to),
    })
}

fn verdict(total_ns: [Option<u64>; 2]) -> Verdict {
    let [Some(a), Some(b)] = total_ns else {
        return Verdict::Unclear;
    };
    #[expect(clippy::cast_precision_loss, reason = "a share of a boot")]
    let felt = a.abs_diff(b) >= LEAST_NS && a.abs_diff(b) as f64 >= EFFECT * a as f64;
    match (felt, b > a) {
        (false, _) => Verdict::Alike,
        (true, true) => Verdict::Slower,
        (true, false) => Verdict::Faster,
    }
}

/// Findings of one log, each once, that the other has not.
fn only(one: &Diagnosis, other: &Diagnosis) -> Vec<&'static str> {
    let mut ids: Vec<&str> = one.findings.iter().map(|finding| finding.id).collect();
    ids.sort_unstable();
    ids.dedup();
    ids.retain(|id| other.findings.iter().all(|finding| finding.id != *id));
    ids
}

/// The lines of a boot that have a time, by their names.
struct Timed {
    /// Names, times and numbers, in order.
    lines: Vec<(String, u64, usize)>,
    /// The first time of each name, and its line.
    first: BTreeMap<String, (u64, usize)>,
}

impl Timed {
    fn of(lines: &[Line<'_>]) -> Self {
        let lines = lines.iter().skip(clock_start(lines));
        let timed = lines.filter_map(|line| {
            let ns = line.stamp_ns.filter(|ns| *ns > 0)?;
            Some((alike(&line.text), ns, line.number))
        });
        let lines: Vec<_> = timed.collect();
        let mut first = BTreeMap::new();
        for (name, ns, number) in &lines {
            first.entry(name.clone()).or_insert((*ns, *number));
        }
        Self { lines, first }
    }
}

/// The span that two boots have in common.
struct Whole {
    from: String,
    to: String,
    ns: [u64; 2],
    /// The first line of each.
    begins: [usize; 2],
    /// The last line of each.
    ends: [usize; 2],
}

impl Whole {
    /// Why there is none, if there is none.
    fn of(a: &[Line<'_>], b: &[Line<'_>]) -> Result<Self, String> {
        let sides = [("A", a), ("B", b)];
        for (name, lines) in sides {
            if disorder(lines).is_some_and(|found| found.hides_time()) {
                return Err(format!(
                    "lines of several logs are mixed in {name}, or not in order"
                ));
            }
        }
        let end = End::common(&[a, b]);
        let cut = |(_, lines): &(&str, &[Line<'_>])| end.is_some_and(|end| end.at(lines).is_none());
        if let Some((name, lines)) = sides.into_iter().find(cut) {
            let last = lines.last().map_or("nothing", |line| &line.text);
            return Err(format!(
                "{name} ends at {last:?}, before the kernel hands over, which the other shows"
            ));
        }
        let timed = [Timed::of(a), Timed::of(b)];
        Self::between(
            &timed,
            end.map(|end| sides.map(|(_, lines)| end.at(lines).and_then(|at| lines.get(at)))),
        )
        .ok_or_else(|| "no two different lines with a time are in both logs".into())
    }

    /// The whole of two records instead, where they count from the same moment.
    fn or_recorded(self, runs: [&Run; 2]) -> Self {
        let [base, other] = runs.map(Run::time_base);
        let alike = base.from == other.from && base.begins_at == other.begins_at;
        let [Some(one), Some(other)] = runs.map(Run::total_ns) else {
            return self;
        };
        if !alike || runs.iter().any(|run| run.is_log()) {
            return self;
        }
        Self {
            from: match base.from {
                From::PowerOn => "power-on".into(),
                From::HostClock => "the kernel's entry".into(),
                From::Clock => base.begins_at.unwrap_or(self.from),
            },
            to: "the end of the last phase".into(),
            ns: [one, other],
            begins: [0; 2],
            ..self
        }
    }

    /// From the first line that both have to the `ends`, else to the last one that both have.
    fn between([a, b]: &[Timed; 2], ends: Option<[Option<&Line<'_>>; 2]>) -> Option<Self> {
        let in_both = |name: &String| Some((*a.first.get(name)?, *b.first.get(name)?));
        let common = |line: &&(String, u64, usize)| in_both(&line.0).is_some();
        // The earlier one of the first that A has, and of the first that B has: whichever is called A.
        let firsts = [a, b].map(|side| side.lines.iter().find(common));
        let sum_ns = |line: &&(String, u64, usize)| {
            in_both(&line.0).map(|(one, other)| one.0.saturating_add(other.0))
        };
        let firsts = firsts.into_iter().flatten();
        let from = &firsts.min_by_key(|line| (sum_ns(line), &line.0))?.0;
        let begins = in_both(from).map(|(one, other)| [one.1, other.1])?;
        let (to, ends) = match ends {
            Some([one, other]) => {
                let place = |line: &Line<'_>| Some((line.stamp_ns?, line.number));
                (alike(&one?.text), [place(one?)?, place(other?)?])
            }
            None => {
                let to = a.lines.iter().rfind(common)?.0.clone();
                let ends = [*a.first.get(&to)?, *b.first.get(&to)?];
                (to, ends)
            }
        };
        let span = |side: &Timed, end_ns: u64| end_ns.checked_sub(side.first.get(from)?.0);
        let [one, other] = ends;
        (*from != to).then_some(Self {
            from: from.clone(),
            ns: [span(a, one.0)?, span(b, other.0)?],
            begins,
            ends: [one.1, other.1],
            to,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::diagnose;

    fn of(a: &str, b: &str) -> Beside {
        let side = |name, text: &str| {
            let run = Run::of_file(name, text.as_bytes()).unwrap();
            (diagnose(name, text.as_bytes()), run)
        };
        let (a, b) = (side("a", a), side("b", b));
        beside((&a.0, &a.1), (&b.0, &b.1)).unwrap()
    }

    /// A boot whose memory map takes so many milliseconds, and that is looked at so much later.
    fn boot(ms: u64, later: u64) -> String {
        format!(
            "[    0.010000] Linux version 5.9.0\n[    0.020000] Normal zone: 1 pages, LIFO batch:63\n\
             [    {}.{:03}000] ACPI: PM-Timer\n[    9.000000] Run /init as init process\n[ {later}.000000] usb 1: new\n",
            ms / 1000,
            ms % 1000
        )
    }

    #[test]
    fn the_whole_boot_ends_where_the_kernel_hands_over() {
        let beside = of(&boot(100, 10), &boot(2100, 9000));
        assert_eq!(beside.total_ns, [Some(8_990_000_000); 2]);
        assert_eq!(beside.verdict, Verdict::Alike);
        assert_eq!(beside.to.as_deref(), Some("Run /init as init process"));
        assert_eq!(beside.only, [vec![], vec!["memmap-eager"]]);
        let losses: Vec<u64> = beside.slower.iter().map(Loss::ns).collect();
        assert_eq!(losses, [2_000_000_000; 2]);
    }

    /// Whose clock begins later shows nothing of what was before, and the order of the two changes no span.
    #[test]
    fn before_a_clock_begins_nothing_is_a_loss() {
        let map = |ns: &str| {
            format!(
                "[    {ns}] Linux version 5.9.0\n[    {ns}] Normal zone: 1 pages, LIFO batch:63\n"
            )
        };
        let rest = |s: u32| {
            format!("[    {s}.000000] ACPI: PM-Timer\n[    {s}.500000] Run /init as init process\n")
        };
        let late = format!("{}{}", map("0.000000"), rest(1));
        let early = format!("{}{}", map("0.010000"), rest(3));
        let both = [of(&late, &early), of(&early, &late)];
        for beside in &both {
            assert_eq!(beside.total_ns, [Some(500_000_000); 2]);
            assert_eq!(beside.slower, []);
            assert!(
                beside
                    .notes
                    .iter()
                    .any(|note| note.contains("memmap early")),
                "{beside:?}"
            );
        }
    }

    #[test]
    fn verdicts_have_both_directions_and_none_where_nothing_is_common() {
        let log = |ms: u32| format!("[    0.500000] a\n[    {ms}.000000] b\n");
        assert_eq!(of(&log(1), &log(2)).verdict, Verdict::Slower);
        assert_eq!(of(&log(2), &log(1)).verdict, Verdict::Faster);
        let slower = of(&log(1), &log(2)).slower;
        assert_eq!(
            (slower.len(), slower[0].kind, slower[0].ns()),
            (1, Kind::Gap, 1_000_000_000)
        );
        let unclear = of(&log(1), "[    0.500000] c\n[    1.000000] d\n");
        assert_eq!(
            (unclear.verdict, unclear.total_ns),
            (Verdict::Unclear, [None; 2])
        );
    }
}
