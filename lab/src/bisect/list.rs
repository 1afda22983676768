//! Kernel images in order, the first good, the last bad: [`List`].

use super::{Candidates, Mark, Next};

/// Images in order.
#[derive(Clone, Debug)]
pub struct List {
    names: Vec<String>,
    skipped: Vec<bool>,
    /// The last one known to be good, the first one known to be bad.
    good: usize,
    bad: usize,
    tried: usize,
}

impl List {
    /// Of `names`; `None` for fewer than two.
    ///
    /// ```
    /// use firstlight_lab::bisect::List;
    /// assert!(List::new(vec!["a".into()]).is_none());
    /// ```
    #[must_use]
    pub fn new(names: Vec<String>) -> Option<Self> {
        let bad = names.len().checked_sub(1).filter(|bad| *bad > 0)?;
        Some(Self {
            skipped: vec![false; names.len()],
            names,
            good: 0,
            bad,
            tried: 0,
        })
    }

    fn name(&self, at: usize) -> String {
        self.names.get(at).cloned().unwrap_or_default()
    }
}

impl Candidates for List {
    fn next(&mut self, mark: Option<Mark>) -> Result<Next, String> {
        match mark {
            Some(Mark::Good) => self.good = self.tried,
            Some(Mark::Bad) => self.bad = self.tried,
            Some(Mark::Skip) => {
                if let Some(slot) = self.skipped.get_mut(self.tried) {
                    *slot = true;
                }
            }
            None => {}
        }
        let middle = usize::midpoint(self.good, self.bad);
        let between = self.good + 1..self.bad;
        let open = between.filter(|at| self.skipped.get(*at) == Some(&false));
        match open.min_by_key(|at| at.abs_diff(middle)) {
            Some(at) => {
                self.tried = at;
                Ok(Next::Try(self.name(at)))
            }
            None if self.good + 1 == self.bad => Ok(Next::Found(self.name(self.bad))),
            None => Ok(Next::OneOf(
                (self.good + 1..=self.bad).map(|at| self.name(at)).collect(),
            )),
        }
    }

    fn take(&mut self, name: &str) -> Result<String, String> {
        Ok(name.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{NoAnswer, search};
    use super::*;
    use crate::run::Run;
    use serde_json::json;

    /// Images 0 to `count`, of which those from `bad` on are slower and `broken` do not boot.
    fn answer(
        count: usize,
        bad: usize,
        broken: &[usize],
    ) -> Result<super::super::Answer, NoAnswer> {
        by(count, bad, broken, None)
    }

    /// [`answer`] where a figure is named.
    fn by(
        count: usize,
        bad: usize,
        broken: &[usize],
        figure: Option<&str>,
    ) -> Result<super::super::Answer, NoAnswer> {
        let names: Vec<String> = (0..count).map(|at| at.to_string()).collect();
        let mut list = List::new(names.clone()).unwrap();
        let mut measure = |name: &str| {
            let at: usize = name.parse().unwrap();
            if broken.contains(&at) {
                return Err("it hangs".to_owned());
            }
            let end_ns = if at >= bad {
                2_000_000
            } else {
                1_000_000 + at % 2
            };
            let record = json!({
                "schema": "firstlight.run/1", "kind": "boot", "clock": "instructions",
                "source": {"kind": "linux"}, "machine": {}, "milestones": {},
                "phases": [
                    {"name": "memmap", "start_ns": 0, "end_ns": end_ns},
                    {"name": "kernel", "start_ns": 0, "end_ns": 7000},
                    {"name": "SMP", "start_ns": 0, "end_ns": if figure.is_some() && at >= 2 { 900_000 } else { 300_000 }},
                ],
            });
            Ok(vec![Run::of(record).unwrap()])
        };
        search(
            &mut list,
            (&names[0], &names[count - 1]),
            figure,
            &mut measure,
        )
    }

    #[test]
    fn the_first_slow_image_is_found_wherever_it_is() {
        for count in 2..12 {
            for bad in 1..count {
                let answer = answer(count, bad, &[]).unwrap();
                assert_eq!(answer.first_bad, Some(bad.to_string()), "{count}");
                assert_eq!(answer.figure.name, "memmap");
                assert!(answer.steps.len() <= 2 + 4, "{count}: {:?}", answer.steps);
            }
        }
    }

    #[test]
    fn the_figure_that_is_named_decides() {
        let first = |figure| by(9, 5, &[], Some(figure)).unwrap().first_bad;
        assert_eq!(first("phase:SMP").as_deref(), Some("2"));
        assert_eq!(first("total").as_deref(), Some("5"));
        assert_eq!(by(9, 5, &[], Some("kernel")), Err(NoAnswer::NotSlower));
        let why = by(9, 5, &[], Some("memap")).unwrap_err().to_string();
        assert!(
            why.contains("\"memap\"") && why.contains("phase \"memmap\""),
            "{why}"
        );
    }

    #[test]
    fn what_does_not_boot_is_passed_over() {
        let one = answer(9, 3, &[4]).unwrap();
        assert_eq!(one.first_bad.as_deref(), Some("3"));
        assert!(
            one.steps
                .iter()
                .any(|step| step.mark == Mark::Skip && step.why.is_some())
        );
        let unclear = answer(9, 5, &[4, 5]).unwrap();
        assert_eq!(
            (unclear.first_bad, unclear.candidates),
            (None, vec!["4".into(), "5".into(), "6".into()])
        );
    }

    #[test]
    fn ends_are_verified_first() {
        assert_eq!(answer(5, 9, &[]).map(|_| ()), Err(NoAnswer::NotSlower));
        let end = answer(5, 2, &[0]).unwrap_err();
        assert_eq!(end, NoAnswer::End("0".into(), "it hangs".into()));
    }
}
