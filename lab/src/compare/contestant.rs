//! What is compared: [`Contestant`], and the boots of both in turns, [`in_turns`].

use super::{Comparison, Unlike, compare};
use crate::boot::{Clock, Request};
use crate::record::Record;
use crate::run::{NoRecord, Run};

/// Boots of each on the wall clock, where no number is given.
const RUNS: u32 = 5;

/// One side: boots to make, or a run that was made.
#[derive(Clone, Debug)]
pub enum Contestant {
    /// Boots to make.
    Boots(Box<Request>),
    /// A run that was made.
    Run(Box<Run>),
}

impl Contestant {
    /// The name of its clock.
    #[must_use]
    pub fn clock(&self) -> &str {
        match self {
            Self::Boots(request) => request.machine.clock.name(),
            Self::Run(run) => &run.clock,
        }
    }
}

/// Two sides by what was given for each.
pub type Sides<'s> = [(&'s str, Contestant); 2];

/// Boots in turns, first A, B, then B, A, so that neither always comes first, and sets the sides
/// beside each other; `boot` makes one. Without a number of runs: 5, and 1 on the instruction clock.
///
/// # Errors
/// What `boot` says, [`Unlike`], [`NoRecord`].
pub fn in_turns<E>(
    sides: &Sides<'_>,
    runs: Option<u32>,
    boot: &mut dyn FnMut(&Request) -> Result<Record, E>,
) -> Result<[Vec<Run>; 2], E>
where
    E: From<Unlike> + From<NoRecord>,
{
    let clocks = sides.each_ref().map(|(_, side)| side.clock().to_owned());
    // Before anything is booted for nothing.
    if clocks[0] != clocks[1] {
        let [a, b] = clocks;
        return Err(Unlike::Clocks(a, b).into());
    }
    let counted = clocks[0] == Clock::Instructions.name();
    let rounds = runs.unwrap_or(if counted { 1 } else { RUNS });
    let mut all = [Vec::new(), Vec::new()];
    for round in 0..rounds {
        let mut turns: Vec<_> = sides.iter().zip(&mut all).collect();
        if round % 2 == 1 {
            turns.reverse();
        }
        for ((_, side), runs) in turns {
            match side {
                Contestant::Boots(request) => runs.push(Run::of_record(&boot(request)?)?),
                Contestant::Run(run) if runs.is_empty() => runs.push((**run).clone()),
                Contestant::Run(_) => {}
            }
        }
    }
    Ok(all)
}

/// The runs of both sides beside each other.
///
/// # Errors
/// [`Unlike`].
pub fn of_sides(sides: &Sides<'_>, runs: &[Vec<Run>; 2]) -> Result<Comparison, Unlike> {
    let [(a, _), (b, _)] = sides;
    let [of_a, of_b] = runs;
    compare((a, of_a), (b, of_b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boot::Machine;

    #[derive(Debug, PartialEq)]
    struct Why(String);

    impl From<Unlike> for Why {
        fn from(error: Unlike) -> Self {
            Self(error.to_string())
        }
    }

    impl From<NoRecord> for Why {
        fn from(error: NoRecord) -> Self {
            Self(error.to_string())
        }
    }

    fn side(cpus: u32, clock: Clock) -> Contestant {
        let machine = Machine {
            cpus,
            clock,
            ..Machine::default()
        };
        Contestant::Boots(Box::new(Request {
            machine,
            ..Request::default()
        }))
    }

    #[test]
    fn both_sides_come_first_in_turns() {
        let order = |b: Contestant, clock, runs| {
            let mut order = Vec::new();
            let mut boot = |request: &Request| {
                order.push(request.machine.cpus);
                Ok(Record::new("boot", request.machine.clock.name()))
            };
            let made = in_turns::<Why>(&[("a", side(1, clock)), ("b", b)], runs, &mut boot);
            (made.map(|all| all.map(|runs| runs.len())), order)
        };
        let wall = Clock::Wall;
        let (made, turns) = order(side(2, wall), wall, Some(3));
        assert_eq!((made.unwrap(), turns), ([3, 3], vec![1, 2, 2, 1, 1, 2]));
        let (made, turns) = order(side(2, wall), wall, None);
        assert_eq!((made.unwrap(), turns.len()), ([5, 5], 10));
        // A run that was made stays one.
        let run = Run::of_record(&Record::new("boot", "wall")).unwrap();
        let (made, turns) = order(Contestant::Run(Box::new(run)), wall, Some(2));
        assert_eq!((made.unwrap(), turns), ([2, 1], vec![1, 1]));
        let counted = Clock::Instructions;
        let (made, turns) = order(side(2, counted), counted, None);
        assert_eq!((made.unwrap(), turns), ([1, 1], vec![1, 2]));
        let (made, turns) = order(side(2, counted), wall, Some(1));
        assert!(made.unwrap_err().0.contains("expected the same (--clock)"));
        assert_eq!(turns, [0; 0]);
    }
}
