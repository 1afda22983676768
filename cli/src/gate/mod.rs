//! `firstlight gate`: whether B is slower than A, and in what; the verdict is the
//! [lab's](firstlight_lab::gate), here are the options, the runs and the [report](render).

mod render;

use crate::compare::sides::sides;
use crate::failure::Failure;
use crate::output::Output;
use clap::{Args, ValueEnum};
use firstlight_lab::compare::Comparison;
use firstlight_lab::export::{self, VerdictFormat};
use firstlight_lab::gate::{Bounds, Case, Figures, Outcome, Rules, Verdict, booted, judge};
use firstlight_lab::records;
use std::fs;
use std::path::{Path, PathBuf};

/// Judge whether B is slower than A; exit code 7 if it is, 11 if that is unclear
///
/// A and B are folders of records, or quoted options of `boot`, records or logs as for
/// `compare`; A alone is what `compare --json` printed. The whole boot decides where it has
/// moved, else its parts do; gaps and services explain. On the instruction clock one run each is
/// exact. On the wall clock a figure has moved if p < 0.01, by 5 % or more, and if other runs say so
/// too: boots made again, or the other half of 20 runs a side. What is missing, failed, left out
/// or not confirmed is named and is no pass.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// A folder of records, options of boot in quotes, a record, or a comparison
    #[arg(value_name = "A", allow_hyphen_values = true)]
    a: String,
    /// What is judged
    #[arg(value_name = "B", allow_hyphen_values = true, required_unless_present_any = ["itself", "a"])]
    b: Option<String>,
    /// Judge A against itself: the noise floor
    #[arg(long = "self", conflicts_with = "b")]
    itself: bool,
    /// Boots of each; else 10 to 200, as the spread wants it, and 1 on the instruction clock
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: Option<u32>,
    /// Only these figures decide: a name (`total`), a kind (`phase`), or both (`phase:SMP`); * is any text
    #[arg(long, value_name = "FIGURE")]
    only: Vec<String>,
    /// These figures do not
    #[arg(long, value_name = "FIGURE")]
    ignore: Vec<String>,
    /// Least change that counts, such as 3%; else 5 %, and 0.1 % on the instruction clock
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    threshold: Option<f64>,
    /// Least change that counts, such as 500us or 2ms; else 1ms, and 1ns on the instruction clock
    #[arg(long, value_name = "TIME", value_parser = nanoseconds)]
    least: Option<u64>,
    /// Exit code 0 where the verdict is unclear
    #[arg(long)]
    allow_unclear: bool,
    /// Write the verdict as junit, markdown, ktap, kcidb or github (annotations), too; may be given
    /// several times
    #[arg(long, value_name = "FORMAT=FILE", value_parser = exported)]
    export: Vec<(Form, PathBuf)>,
    /// Show every figure
    #[arg(long)]
    full: bool,
}

/// In which form a verdict is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    Junit,
    Markdown,
    Ktap,
    Kcidb,
    Github,
}

const EXAMPLES: &str = "\
Examples:
  firstlight gate before/ after/                                two folders of records
  firstlight gate before/ after/ --export junit=gate.xml        for continuous integration
  firstlight gate before/ after/ --only total --threshold 3%    the whole boot alone
  firstlight gate \"--clock instructions --kernel old\" \"--clock instructions --kernel new\"
  firstlight compare A B --runs 20 --json > c.json; firstlight gate c.json
  firstlight gate --self \"--memory 1G\"                         how much this host differs from itself

Exit codes: 7 if B is slower or does not boot, 11 if that is unclear, else see firstlight --help";

/// `3%`, `0.5 %` or `3`.
fn percent(text: &str) -> Result<f64, String> {
    let number = text.trim().trim_end_matches('%').trim();
    let parsed: Option<f64> = number.parse().ok();
    let parsed = parsed.filter(|percent| percent.is_finite() && *percent >= 0.0);
    parsed.ok_or_else(|| "expected a share such as 3%".to_owned())
}

/// `1ms`, `500us`, `1.5s`, `20ns`.
fn nanoseconds(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let scale = match unit.trim() {
        "ns" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return Err("expected a time such as 1ms: ns, us, ms or s".into()),
    };
    let number = text.get(..text.len() - unit.len()).unwrap_or_default();
    let parsed: Option<f64> = number.parse().ok();
    let ns = parsed.map(|number| number * scale);
    let ns = ns.filter(|ns| (0.0..1e18).contains(ns));
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "within bounds"
    )]
    ns.map(|ns| ns.round() as u64)
        .ok_or_else(|| "expected a time such as 1ms".to_owned())
}

/// `junit=gate.xml`.
fn exported(text: &str) -> Result<(Form, PathBuf), String> {
    let (form, file) = text
        .split_once('=')
        .ok_or("expected FORMAT=FILE, such as junit=gate.xml")?;
    Ok((Form::from_str(form, false)?, PathBuf::from(file)))
}

/// Runs the subcommand.
pub(crate) fn run(options: &Options, output: &mut Output) -> Result<(), Failure> {
    let rules = Rules {
        figures: Figures {
            only: options.only.clone(),
            ignore: options.ignore.clone(),
        },
        bounds: Bounds {
            percent: options.threshold,
            least_ns: options.least,
        },
        itself: options.itself,
    };
    let verdict = judge(&case(options, &rules)?, &rules);
    for (form, path) in &options.export {
        write(&verdict, *form, path)?;
    }
    output.print::<_, Failure>(&verdict, |verdict| render::report(verdict, options.full))?;
    let first = |of: &[String]| {
        let more = match of.len().saturating_sub(1) {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        format!("{}{more}", of.first().map_or("", String::as_str))
    };
    match verdict.verdict {
        Outcome::Pass => Ok(()),
        Outcome::Regressed => Err(Failure::Regressed(format!(
            "B is slower: {}",
            first(&verdict.moved)
        ))),
        Outcome::Unclear if options.allow_unclear => Ok(()),
        Outcome::Unclear => Err(Failure::Unclear(format!(
            "unclear: {}",
            first(&verdict.unclear)
        ))),
    }
}

fn write(verdict: &Verdict, form: Form, path: &Path) -> Result<(), Failure> {
    let format = match form {
        Form::Junit => VerdictFormat::Junit,
        Form::Markdown => VerdictFormat::Markdown,
        Form::Ktap => VerdictFormat::Ktap,
        Form::Kcidb => VerdictFormat::Kcidb,
        Form::Github => VerdictFormat::Github,
    };
    let text = export::verdict(verdict, format);
    let text = text.map_err(|error| Failure::Io(error.to_string()))?;
    fs::write(path, text).map_err(|error| {
        Failure::Io(format!(
            "cannot write {}: {error}; expected a file in a folder of yours",
            path.display()
        ))
    })
}

fn case(options: &Options, rules: &Rules) -> Result<Case, Failure> {
    let a = Path::new(options.a.trim());
    let folder = |path: &Path| path.is_dir() || path.extension().is_some_and(|end| end == "jsonl");
    let read = |path: &str| {
        let folder = records::read(Path::new(path.trim()));
        folder.map_err(|error| Failure::records(&error))
    };
    match &options.b {
        _ if options.itself && folder(a) => {
            Case::of_itself(&options.a, &read(&options.a)?).map_err(Failure::from)
        }
        Some(b) if folder(a) || folder(Path::new(b.trim())) => {
            Case::of_folders((&options.a, &read(&options.a)?), (b, &read(b)?))
                .map_err(Failure::from)
        }
        None if !options.itself => Ok(Case::of_comparison(&options.a, comparison(a)?)),
        b => {
            let (sides, boots) = sides(&options.a, b.as_deref().unwrap_or(&options.a))?;
            booted(&sides, options.runs, rules, &mut |request| {
                boots.run(request)
            })
        }
    }
}

fn comparison(path: &Path) -> Result<Comparison, Failure> {
    let wanted = "expected what `firstlight compare --json` prints, or B beside A";
    let value = records::document(path).map_err(|error| Failure::records(&error))?;
    let value = value.ok_or_else(|| Failure::Usage(format!("{}: {wanted}", path.display())))?;
    let schema = value["schema"].as_str().unwrap_or_default().to_owned();
    if schema != firstlight_lab::compare::SCHEMA {
        let text = format!("{}: its schema is {schema:?}; {wanted}", path.display());
        return Err(Failure::Machine(text));
    }
    serde_json::from_value(value)
        .map_err(|error| Failure::machine(&path.display().to_string(), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_read_with_their_units() {
        assert_eq!(percent("3%"), Ok(3.0));
        assert_eq!(percent("0.5 %"), Ok(0.5));
        assert!(percent("-1%").is_err() && percent("NaN").is_err() && percent("").is_err());
        for (text, ns) in [
            ("1ms", 1_000_000),
            ("1.5 s", 1_500_000_000),
            ("20ns", 20),
            ("7us", 7000),
        ] {
            assert_eq!(nanoseconds(text), Ok(ns), "{text}");
        }
        for text in ["1", "ms", "1 h", "-1ms", "1e9s", ""] {
            assert!(nanoseconds(text).is_err(), "{text}");
        }
        assert!(exported("junit").is_err() && exported("sun=x").is_err());
    }
}
