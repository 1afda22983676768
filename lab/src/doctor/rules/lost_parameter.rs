//! Memory that the command line takes away.

use super::shared::{Case, E820Kind, E820Row, Hit, Rule, size};

pub(super) const RULE: Rule = Rule {
    id: "memory-lost-parameter",
    why: "the command line limits or reserves memory (mem=, memmap=), and the kernel uses no more than that",
    cure: "leave mem= or memmap= out, if it is not meant",
    fixed_in: None,
    keys: &["Memory limited to"],
    find,
};

/// Less is rounding.
const LEAST_BYTES: u64 = 16 << 20;

fn find(case: &Case<'_>) -> Vec<Hit> {
    if let Some(entry) = case.any_of(RULE.keys) {
        return vec![Hit::at(entry, "")];
    }
    let words: Vec<&str> = case.words().filter(|word| takes_memory(word)).collect();
    let (firmware, user) = (&case.log.e820, &case.log.user_map);
    let lost = match case.value("mem").and_then(size) {
        // Without the map that came of it: what lies above the limit.
        Some(limit) if !firmware.is_empty() && user.is_empty() => usable_from(firmware, limit),
        // Machines without a map from firmware print what is left.
        Some(limit) if user.is_empty() => return limited(case, limit),
        // Without it, what each word names.
        _ if user.is_empty() => {
            let named = words.iter().filter_map(|word| named(word));
            named.fold(0, u64::saturating_add)
        }
        _ => usable_from(firmware, 0).saturating_sub(usable_from(user, 0)),
    };
    if words.is_empty() || lost < LEAST_BYTES {
        return Vec::new();
    }
    // The end of what is left, or the word itself.
    let rows = user.iter().filter(|row| row.kind == E820Kind::Usable);
    let last = rows.max_by_key(|row| row.span.last).map(|row| row.line);
    let row = last.and_then(|line| case.entry_at(line));
    let detail = format!("{} takes {} MiB", words.join(" "), lost >> 20);
    let entry = row.or(case.command_line());
    entry
        .map(|entry| Hit::at(entry, detail))
        .into_iter()
        .collect()
}

/// All memory there is, where that is what `mem=` allows.
fn limited(case: &Case<'_>, limit: u64) -> Vec<Hit> {
    let near = |bytes: &u64| *bytes <= limit && limit - bytes < LEAST_BYTES;
    let (Some(all), Some(entry)) = (case.memory_bytes.filter(near), case.command_line()) else {
        return Vec::new();
    };
    let detail = format!("mem= ends memory at the {} MiB there are", all >> 20);
    vec![Hit::at(entry, detail)]
}

/// Bytes that `memmap=N$N` or `memmap=N!N` takes.
fn named(word: &str) -> Option<u64> {
    let value = word.strip_prefix("memmap=")?;
    let (bytes, _) = value.split_once(['$', '!'])?;
    size(bytes.trim_end_matches('\\'))
}

fn takes_memory(word: &str) -> bool {
    let limit = word.strip_prefix("mem=").and_then(size);
    let map = word
        .strip_prefix("memmap=")
        .is_some_and(|value| value.contains(['$', '!', '%']) || value.starts_with("exactmap"));
    limit.is_some() || map
}

/// Usable bytes from address `start` on.
fn usable_from(rows: &[E820Row], start: u64) -> u64 {
    let rows = rows.iter().filter(|row| row.kind == E820Kind::Usable);
    let bytes = rows.map(|row| row.span.last.saturating_sub(row.span.start.max(start)));
    bytes.fold(0, u64::saturating_add)
}
