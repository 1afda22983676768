//! Fewer huge pages than the command line wants.

use super::shared::{Case, Entry, Hit, Rule, number_after};

pub(super) const RULE: Rule = Rule {
    id: "hugepages-short",
    why: "there was not enough memory left for all huge pages of the command line: descriptors that are freed in batches, tables and nodes need some at the same time",
    cure: "less than 95 % of memory, or pages of 1 GiB, which are taken first; hugepages=NODE:N places them",
    fixed_in: None,
    keys: &["nly allocated"],
    find,
};

fn find(case: &Case<'_>) -> Vec<Hit> {
    const WORDS: [&str; 3] = ["HugeTLB", "hugepages", "page size"];
    let short = case
        .marked()
        .filter(|entry| entry.has("nly allocated") && WORDS.iter().any(|word| entry.has(word)));
    let hit = |entry: Entry<'_>| {
        let wanted = number_after(entry.text, "allocating");
        let got = number_after(entry.text, "nly allocated");
        let detail = match (wanted, got) {
            (Some(wanted), Some(got)) => format!("{got} of {wanted} pages"),
            _ => String::new(),
        };
        Hit::at(entry, detail)
    };
    short.take(8).map(hit).collect()
}
