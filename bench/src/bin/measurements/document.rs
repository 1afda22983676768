//! The document: text, and between two comments the tables of a record.

use std::error::Error;
use std::fs;
use std::path::Path;

use crate::plan::{PLANS, Plan};
use crate::record::Record;
use crate::{picture, readme};

const END: &str = "<!-- end of measurement -->";

fn begin(name: &str) -> String {
    format!("<!-- measurement: {name} -->")
}

/// What is made of the records, and its path.
const MADE: [&str; 3] = ["docs/measurements.md", readme::PICTURE, "README.md"];

/// Writes all parts, the picture and what the README shows.
pub(crate) fn write(root: &Path) -> Result<(), Box<dyn Error>> {
    for (path, text) in MADE.iter().zip(made(root)?) {
        fs::write(root.join(path), text)?;
    }
    Ok(())
}

/// The texts of [`MADE`], from what they are and the records.
fn made(root: &Path) -> Result<[String; 3], Box<dyn Error>> {
    let read = |path: &str| fs::read_to_string(root.join(path));
    let document = filled(&read("docs/measurements.md")?, PLANS, &|plan| {
        Record::read(plan, root)
    })?;
    let record = |name: &str| {
        let plan = PLANS.iter().find(|plan| plan.name == name);
        let plan = plan.ok_or_else(|| format!("no measurement {name:?}"))?;
        Record::read(plan, root)
    };
    let (linux, pool) = (record("linux")?, record("pool")?);
    let picture = picture::drawn(&linux, &pool)?;
    let words = picture::described(&linux, &pool)?;
    let printed: Vec<String> = pool.texts()?.concat();
    let readme = readme::filled(&read("README.md")?, &words, &printed)?;
    Ok([document, picture, readme])
}

/// The document with every part as its record has it.
pub(crate) fn filled(
    text: &str,
    plans: &[Plan],
    record: &dyn Fn(&Plan) -> Result<Record, String>,
) -> Result<String, String> {
    let mut text = text.to_owned();
    for plan in plans {
        let (head, rest) = text
            .split_once(&begin(plan.name))
            .ok_or_else(|| format!("the document has no {}", begin(plan.name)))?;
        let (_, tail) = rest
            .split_once(END)
            .ok_or_else(|| format!("no {END} after {}", begin(plan.name)))?;
        let record = record(plan)?;
        let tables = (plan.render)(&record)?;
        text = format!(
            "{head}{}\n\n{}\n\n{}\n{END}{tail}",
            begin(plan.name),
            tables.trim_end(),
            record.source()
        );
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root;

    fn document() -> String {
        fs::read_to_string(root().join("docs/measurements.md")).unwrap()
    }

    /// The document without its parts and without code.
    fn prose(document: &str) -> String {
        let mut prose = String::new();
        for part in document.split("<!-- measurement: ") {
            let text = part.split_once(END).map_or(part, |(_, after)| after);
            // Every second piece is code.
            prose.extend(text.split("```").step_by(2));
        }
        prose
    }

    #[test]
    fn document_picture_and_readme_are_what_the_records_say() {
        for (path, text) in MADE.iter().zip(made(&root()).unwrap()) {
            assert!(
                fs::read_to_string(root().join(path)).unwrap() == text,
                "{path} is not what testdata/measurements has: make picture writes it"
            );
        }
    }

    #[test]
    fn counts_are_those_that_are_guarded() {
        let plan = PLANS.iter().find(|plan| plan.name == "counts").unwrap();
        let texts = Record::read(plan, &root()).unwrap().texts().unwrap();
        for (file, lines) in ["bench/counts.txt", "lab/tests/it/boot_counts.txt"]
            .iter()
            .zip(texts)
        {
            let guarded = fs::read_to_string(root().join(file)).unwrap();
            assert!(
                guarded.lines().eq(lines.iter()),
                "{file} is newer than the document: make measurements ONLY=counts"
            );
        }
    }

    /// A number and after it a unit of something measured.
    fn figures(prose: &str) -> Vec<String> {
        const UNITS: [&str; 9] = [
            "ns",
            "us",
            "µs",
            "ms",
            "s",
            "GB/s",
            "instructions",
            "times",
            "%",
        ];
        let words: Vec<&str> = prose.split_whitespace().collect();
        let plain = |word: &str| {
            word.trim_matches(|c: char| ",.;:()|*".contains(c))
                .to_owned()
        };
        let is_number = |word: &str| {
            let word = plain(word).replace([',', '.'], "");
            !word.is_empty() && word.chars().all(|c| c.is_ascii_digit())
        };
        words
            .windows(2)
            .filter(|pair| is_number(pair[0]) && UNITS.contains(&&*plain(pair[1])))
            .map(|pair| pair.join(" "))
            .collect()
    }

    #[test]
    fn a_figure_outside_the_parts_is_no_records() {
        assert_eq!(
            figures("It took 4,617 ns here, 2.3 times more."),
            ["4,617 ns", "2.3 times"]
        );
        assert_eq!(
            figures(&prose(&document())),
            [""; 0],
            "a figure without a record"
        );
    }

    #[test]
    fn a_part_is_replaced_and_nothing_else() {
        let plans = [Plan {
            name: "a",
            commands: &[],
            render: |_| Ok("| new |".into()),
        }];
        let record = |_: &Plan| {
            Ok(Record {
                schema: String::new(),
                name: "a".into(),
                date: "2026-01-02".into(),
                commit: "abc".into(),
                host: "A host".into(),
                load: Some(["1".into(), "2".into()]),
                note: None,
                runs: Vec::new(),
            })
        };
        let text = "before\n<!-- measurement: a -->\nold\n<!-- end of measurement -->\nafter\n";
        let once = filled(text, &plans, &record).unwrap();
        assert!(
            once.starts_with("before\n") && once.ends_with("\nafter\n"),
            "{once}"
        );
        assert!(once.contains("| new |") && !once.contains("old"), "{once}");
        for part in ["A host; load 1 before, 2 after.", "2026-01-02, commit abc."] {
            assert!(once.contains(part), "{once}");
        }
        assert_eq!(filled(&once, &plans, &record).unwrap(), once);
        for (text, part) in [
            ("", "no <!-- measurement: a"),
            ("<!-- measurement: a -->", "no <!-- end"),
        ] {
            assert!(filled(text, &plans, &record).unwrap_err().contains(part));
        }
    }
}
