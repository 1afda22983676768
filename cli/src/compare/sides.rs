//! Sides of a comparison as they are given: options of `boot`, a record or a log.

use crate::boot::{self, Boots};
use crate::failure::Failure;
use firstlight_lab::compare::{Contestant, Sides};
use firstlight_lab::file;
use firstlight_lab::run::Run;
use std::path::Path;

/// Both sides, and what boots them.
pub(crate) fn sides<'g>(a: &'g str, b: &'g str) -> Result<(Sides<'g>, Boots), Failure> {
    let (of_a, log_a) = contestant("A", a)?;
    let (of_b, log_b) = contestant("B", b)?;
    Ok(([(a, of_a), (b, of_b)], Boots::new(log_a || log_b)?))
}

/// Reads what was given for the side called `name`, and says whether it prints its log: options
/// begin with a dash, and none at all are a list, too.
fn contestant(name: &str, given: &str) -> Result<(Contestant, bool), Failure> {
    let text = given.trim();
    if !text.is_empty() && !text.starts_with('-') {
        let run = Run::of_file(text, &file::read(Path::new(text))?);
        let run = run.map_err(|error| Failure::machine(text, error))?;
        return Ok((Contestant::Run(Box::new(run)), false));
    }
    let usage = |why: String| Failure::Usage(format!("{name}, {given:?}: {why}"));
    let words = shlex::split(text).ok_or_else(|| usage("a quote does not end".into()))?;
    let options = boot::Options::of_words(words).map_err(|error| {
        let text = error.to_string();
        let first = text.lines().next().unwrap_or_default();
        usage(first.trim_start_matches("error: ").to_owned())
    })?;
    let request = Box::new(options.request()?);
    Ok((Contestant::Boots(request), options.prints_log()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_options_is_read_as_a_shell_would() {
        let given = "--memory 16G --append 'descriptors=eager mem=8G' --qemu-arg=-S";
        let Ok((Contestant::Boots(request), false)) = contestant("A", given) else {
            panic!("no options: {given}");
        };
        assert_eq!(request.machine.memory_mib, 16 << 10);
        assert_eq!(request.append, "descriptors=eager mem=8G");
        assert_eq!(request.extra, ["-S"]);
        assert!(matches!(
            contestant("A", " --log"),
            Ok((Contestant::Boots(_), true))
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
            let Err(failure) = contestant("B", given) else {
                panic!("{given} was taken");
            };
            let text = failure.to_string();
            assert!(text.contains(part), "{part:?} in {text}");
        }
    }
}
