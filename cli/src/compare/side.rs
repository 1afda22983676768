//! What is compared: [`Contestant`], and the boots of both in turns, [`Runs`].

use crate::boot::{self, Boots};
use crate::failure::Failure;
use crate::file;
use firstlight_lab::boot::{Clock, Request};
use firstlight_lab::run::Run;
use std::path::Path;

/// Boots of each on the wall clock, where nobody says how many.
const RUNS: u32 = 5;

/// One side: boots to make, or a run that was made.
pub(crate) enum Contestant {
    Boots { request: Box<Request>, log: bool },
    Record(Box<Run>),
}

impl Contestant {
    /// Reads what was given for the side called `name`: options begin with a dash,
    /// and none at all are a list, too.
    pub(crate) fn new(name: &str, given: &str) -> Result<Self, Failure> {
        let text = given.trim();
        if !text.is_empty() && !text.starts_with('-') {
            let path = Path::new(text);
            let told = Run::of_file(text, &file::read(path)?);
            let told =
                told.map_err(|error| Failure::machine(&path.display().to_string(), error))?;
            return Ok(Self::Record(Box::new(told)));
        }
        let usage = |why: String| Failure::Usage(format!("{name}, {given:?}: {why}"));
        let words = shlex::split(text).ok_or_else(|| usage("a quote does not end".into()))?;
        let options = boot::Options::of_words(words).map_err(|error| {
            let text = error.to_string();
            let first = text.lines().next().unwrap_or_default();
            usage(first.trim_start_matches("error: ").to_owned())
        })?;
        options.guest().one_machine()?;
        Ok(Self::Boots {
            request: Box::new(options.request()?),
            log: options.prints_log(),
        })
    }

    pub(crate) fn clock(&self) -> &str {
        match self {
            Self::Boots { request, .. } => request.machine.clock.name(),
            Self::Record(told) => &told.clock,
        }
    }
}

/// Makes the runs of two sides.
pub(crate) struct Runs;

impl Runs {
    /// Boots in turns, first A, B, then B, A, so that neither always comes first.
    pub(crate) fn make(
        contestants: [Contestant; 2],
        asked: Option<u32>,
    ) -> Result<[Vec<Run>; 2], Failure> {
        let [a, b] = &contestants;
        // Before anything is booted for nothing.
        if a.clock() != b.clock() {
            return Err(Failure::Usage(format!(
                "A's clock is {:?}, B's {:?}: expected the same (--clock) on both sides",
                a.clock(),
                b.clock()
            )));
        }
        let counted = a.clock() == Clock::Instructions.name();
        let rounds = asked.unwrap_or(if counted { 1 } else { RUNS });
        let log = |side: &Contestant| matches!(side, Contestant::Boots { log: true, .. });
        let boots = Boots::new(log(a) || log(b))?;
        let mut runs = [Vec::new(), Vec::new()];
        for round in 0..rounds {
            let mut turns: Vec<_> = contestants.iter().zip(&mut runs).collect();
            if round % 2 == 1 {
                turns.reverse();
            }
            for (side, runs) in turns {
                match side {
                    Contestant::Boots { request, .. } => {
                        let told = Run::of_record(&boots.run(request)?);
                        runs.push(told.map_err(|error| Failure::Check(error.to_string()))?);
                    }
                    Contestant::Record(told) if runs.is_empty() => runs.push((**told).clone()),
                    Contestant::Record(_) => {}
                }
            }
        }
        Ok(runs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_options_is_read_as_a_shell_would() {
        let given = "--memory 16G --append 'descriptors=eager mem=8G' --qemu-arg=-S";
        let Ok(Contestant::Boots { request, .. }) = Contestant::new("A", given) else {
            panic!("no options: {given}");
        };
        assert_eq!(request.machine.memory_mib, 16 << 10);
        assert_eq!(request.append, "descriptors=eager mem=8G");
        assert_eq!(request.extra, ["-S"]);
        assert!(matches!(
            Contestant::new("A", " "),
            Ok(Contestant::Boots { .. })
        ));
    }

    #[test]
    fn what_is_neither_options_nor_a_record_is_told() {
        for (given, part) in [
            ("--memory 'x", "a quote does not end"),
            ("--memory 1.5G", "whole MiB"),
            ("--help", "unexpected argument"),
            ("--nonsense", "--nonsense"),
            ("/nowhere/at/all", "cannot read"),
        ] {
            let Err(failure) = Contestant::new("B", given) else {
                panic!("{given} was taken");
            };
            let text = failure.to_string();
            assert!(text.contains(part), "{part:?} in {text}");
        }
    }
}
