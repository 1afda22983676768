//! One figure, judged: [`judge`].

use serde::Serialize;

use super::method::Method;
use super::method::floats;
use crate::compare::{Kind, Row, Side, Spread};
use firstlight_figures::rank_sum::{interval, mann_whitney};
use firstlight_figures::spread::median;

/// What became of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// No change that chance does not explain, or a small one.
    Same,
    /// Slower.
    Regressed,
    /// Faster.
    Improved,
    /// Moved, and there are no other runs to say so too.
    Unconfirmed,
    /// Moved in the first runs and not in the others.
    Refuted,
}

impl State {
    /// In a word; none where nothing has moved.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Same => "",
            Self::Regressed => "slower",
            Self::Improved => "faster",
            Self::Unconfirmed => "unconfirmed",
            Self::Refuted => "not confirmed",
        }
    }
}

/// A figure of both sides.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Judged {
    /// What kind of figure.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// Median of A.
    pub a_ns: f64,
    /// Median of B.
    pub b_ns: f64,
    /// B over A.
    pub ratio: Option<f64>,
    /// Where 99 of 100 such ratios lie; on the wall clock only.
    pub interval: Option<(f64, f64)>,
    /// How probable the difference is by chance; on the wall clock only.
    pub p: Option<f64>,
    /// What became of it.
    pub state: State,
    /// Whether the verdict follows from it.
    pub decides: bool,
}

impl Judged {
    /// Nanoseconds that B takes more.
    pub(super) fn lost_ns(&self) -> f64 {
        self.b_ns - self.a_ns
    }

    /// `phase "memmap early"`.
    pub(crate) fn title(&self) -> String {
        title(self.kind, &self.name)
    }

    /// `phase "memmap early": 26.8 -> 2,001.6 ms`.
    pub(crate) fn words(&self) -> String {
        let (a, b) = (self.a_ns / 1e6, self.b_ns / 1e6);
        let percent = self.ratio.map_or(String::new(), |ratio| {
            format!(" ({:+.1} %)", (ratio - 1.0) * 100.0)
        });
        format!("{}: {a:.3} -> {b:.3} ms{percent}", self.title())
    }
}

/// The figure of `row`; `again` is the same from other runs, where there are any. `None` if a
/// side does not tell it.
pub(super) fn judge(row: &Row, again: Option<Option<&Row>>, method: &Method) -> Option<Judged> {
    let (a, b) = sides(row)?;
    let exact = method.alpha >= 1.0;
    let (figures_a, figures_b) = (floats(&a.ns), floats(&b.ns));
    let moved = moved(row, method, method.alpha);
    let state = match (moved, again) {
        (None, _) => State::Same,
        (Some(state), _) if exact => state,
        // Moved in one direction both times, and far enough.
        (Some(state), Some(Some(again)))
            if self::moved(again, method, method.confirm_alpha) == Some(state) =>
        {
            state
        }
        (Some(_), None | Some(None)) => State::Unconfirmed,
        (Some(_), Some(Some(_))) => State::Refuted,
    };
    Some(Judged {
        kind: row.kind,
        name: row.name.clone(),
        a_ns: a.median_ns,
        b_ns: b.median_ns,
        ratio: row.ratio,
        interval: interval(&figures_a, &figures_b).filter(|_| !exact),
        p: (!exact).then(|| mann_whitney(&figures_a, &figures_b)),
        state,
        decides: !row.kind.explains(),
    })
}

/// What is between two stamps in whole microseconds moves by this at least: each may be one off.
pub(super) const LEAST_STAMPED_NS: u64 = 2000;

/// Which way a figure has moved, if it has.
fn moved(row: &Row, method: &Method, alpha: f64) -> Option<State> {
    let (a, b) = sides(row)?;
    let mut method = *method;
    if row.kind.explains() {
        method.least_ns = method.least_ns.max(LEAST_STAMPED_NS);
    }
    differs(&a.ns, &b.ns, &method, alpha)
}

/// Which way the figures of B have moved from those of A, with less than `alpha` for a
/// chance; `None` if they have not.
#[must_use]
pub fn differs(a: &[u64], b: &[u64], method: &Method, alpha: f64) -> Option<State> {
    if a.len().min(b.len()) < method.least_runs {
        return None;
    }
    let (a, b) = (floats(a), floats(b));
    let middle = median(&mut a.clone())?;
    let change = median(&mut b.clone())? - middle;
    #[expect(clippy::cast_precision_loss, reason = "a least difference")]
    let least = (middle * method.effect_percent / 100.0).max(method.least_ns as f64);
    let far = change.abs() >= least && change != 0.0;
    if !far || (alpha < 1.0 && mann_whitney(&a, &b) >= alpha) {
        return None;
    }
    Some(if change > 0.0 {
        State::Regressed
    } else {
        State::Improved
    })
}

/// How many runs of A and of B have a figure; `None` if all of both have it.
pub(super) fn lacks(row: &Row, sides: &[Side; 2]) -> Option<String> {
    let have = |spread: &Option<Spread>| spread.as_ref().map_or(0, |spread| spread.ns.len());
    let (a, b) = (have(&row.a), have(&row.b));
    let [of_a, of_b] = sides.each_ref().map(|side| side.runs);
    (a < of_a || b < of_b).then(|| {
        let title = title(row.kind, &row.name);
        format!("{title}: {a} of {of_a} runs of A and {b} of {of_b} of B have it; expected all")
    })
}

/// `phase "memmap early"`.
fn title(kind: Kind, name: &str) -> String {
    match kind {
        Kind::Total => name.to_owned(),
        kind => format!("{} {name:?}", kind.name()),
    }
}

/// Both sides' figures.
fn sides(row: &Row) -> Option<(&Spread, &Spread)> {
    Some((row.a.as_ref()?, row.b.as_ref()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(a: &[u64], b: &[u64]) -> Row {
        Row::new(Kind::Phase, "p".into(), Spread::of(a), Spread::of(b))
    }

    fn ms(from: u64, count: u64) -> Vec<u64> {
        (0..count).map(|n| (from + n) * 1_000_000).collect()
    }

    fn state(first: &Row, again: Option<Option<&Row>>, method: &Method) -> State {
        judge(first, again, method).unwrap().state
    }

    #[test]
    fn on_the_wall_clock_a_change_must_be_far_improbable_and_confirmed() {
        let slower = row(&ms(100, 10), &ms(120, 10));
        let wall = &Method::WALL;
        assert_eq!(state(&slower, Some(Some(&slower)), wall), State::Regressed);
        assert_eq!(state(&slower, None, wall), State::Unconfirmed);
        assert_eq!(state(&slower, Some(None), wall), State::Unconfirmed);
        let same = row(&ms(100, 10), &ms(100, 10));
        assert_eq!(state(&slower, Some(Some(&same)), wall), State::Refuted);
        let faster = row(&ms(120, 10), &ms(100, 10));
        assert_eq!(state(&faster, Some(Some(&faster)), wall), State::Improved);
        assert_eq!(state(&slower, Some(Some(&faster)), wall), State::Refuted);
        // Too near, too short, too few.
        let near = row(&ms(1000, 10), &ms(1012, 10));
        let short = row(&[100; 10], &[200; 10]);
        let few = row(&ms(100, 9), &ms(200, 9));
        for row in [near, short, few] {
            assert_eq!(state(&row, Some(Some(&row)), wall), State::Same);
        }
    }

    #[test]
    fn on_the_instruction_clock_a_thousandth_is_enough() {
        let exact = &Method::INSTRUCTIONS;
        assert_eq!(state(&row(&[1000], &[1010]), None, exact), State::Regressed);
        assert_eq!(state(&row(&[10_000], &[10_009]), None, exact), State::Same);
        assert_eq!(state(&row(&[1000], &[900]), None, exact), State::Improved);
        assert_eq!(state(&row(&[0], &[5]), None, exact), State::Regressed);
        // Only B has it.
        let gap = Row::new(Kind::Gap, "g".into(), None, Spread::of(&[7]));
        assert_eq!(judge(&gap, None, exact), None);
        // What stamps in microseconds can't show is no change.
        let gap = |b| {
            let both = [3000, b].map(|ns| Spread::of(&[ns]));
            let [a, b] = both;
            state(&Row::new(Kind::Gap, "g".into(), a, b), None, exact)
        };
        assert_eq!([gap(4000), gap(5000)], [State::Same, State::Regressed]);
        let judged = judge(&row(&[1000], &[1000]), None, exact).unwrap();
        assert_eq!((judged.state, judged.p), (State::Same, None));
    }
}
