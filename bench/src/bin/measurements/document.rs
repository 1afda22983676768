//! The pages: text, and between two comments the tables of a record.

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

/// The pages with measurements.
const PAGES: [&str; 4] = [
    "docs/measurements.md",
    "docs/measurements-bring-up.md",
    "docs/measurements-allocator.md",
    "docs/measurements-linux.md",
];

/// What is made of the records: paths and texts.
type Made = Vec<(&'static str, String)>;

/// Writes all parts, the picture and what the README shows.
pub(crate) fn write(root: &Path) -> Result<(), Box<dyn Error>> {
    for (path, text) in made(root)? {
        fs::write(root.join(path), text)?;
    }
    Ok(())
}

/// What is made, from what it is and the records.
fn made(root: &Path) -> Result<Made, Box<dyn Error>> {
    let read = |path: &str| fs::read_to_string(root.join(path));
    let pages: Vec<_> = PAGES.into_iter().map(read).collect::<Result<_, _>>()?;
    let pages = filled(&pages, PLANS, &|plan| Record::read(plan, root))?;
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
    let mut made: Made = PAGES.into_iter().zip(pages).collect();
    made.extend([(readme::PICTURE, picture), ("README.md", readme)]);
    Ok(made)
}

/// The pages with every part as its record has it.
pub(crate) fn filled(
    pages: &[String],
    plans: &[Plan],
    record: &dyn Fn(&Plan) -> Result<Record, String>,
) -> Result<Vec<String>, String> {
    let mut pages = pages.to_vec();
    for plan in plans {
        let begin = begin(plan.name);
        let page = pages.iter_mut().find(|page| page.contains(&begin));
        let page = page.ok_or_else(|| format!("no page has {begin}"))?;
        let (head, rest) = page.split_once(&begin).unwrap_or_default();
        let (_, tail) = rest
            .split_once(END)
            .ok_or_else(|| format!("no {END} after {begin}"))?;
        let record = record(plan)?;
        let tables = (plan.render)(&record)?;
        *page = format!(
            "{head}{begin}\n\n{}\n\n{}\n{END}{tail}",
            tables.trim_end(),
            record.source()
        );
    }
    Ok(pages)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root;

    fn pages() -> String {
        let read = |path: &str| fs::read_to_string(root().join(path)).unwrap();
        PAGES.map(read).concat()
    }

    /// The pages without its parts and without code.
    fn prose(pages: &str) -> String {
        let mut prose = String::new();
        for part in pages.split("<!-- measurement: ") {
            let text = part.split_once(END).map_or(part, |(_, after)| after);
            // Every second piece is code.
            prose.extend(text.split("```").step_by(2));
        }
        prose
    }

    #[test]
    fn pages_picture_and_readme_are_what_the_records_say() {
        for (path, text) in made(&root()).unwrap() {
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
                "{file} is newer than the pages: make measurements ONLY=counts"
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
            figures(&prose(&pages())),
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
        let fill = |text: &str| filled(&["# A".into(), text.into()], &plans, &record);
        let filled = fill(text).unwrap();
        assert_eq!(filled[0], "# A");
        let once = &filled[1];
        assert!(
            once.starts_with("before\n") && once.ends_with("\nafter\n"),
            "{once}"
        );
        assert!(once.contains("| new |") && !once.contains("old"), "{once}");
        for part in ["A host; load 1 before, 2 after.", "2026-01-02, commit abc."] {
            assert!(once.contains(part), "{once}");
        }
        assert_eq!(fill(once).unwrap(), filled);
        for (text, part) in [
            ("", "no page has <!-- measurement: a"),
            ("<!-- measurement: a -->", "no <!-- end"),
        ] {
            assert!(fill(text).unwrap_err().contains(part));
        }
    }
}
