//! What the README shows of the records: its picture and one command's output, [`filled`].

/// Where the picture is, from the README.
pub(crate) const PICTURE: &str = "docs/picture.svg";
/// What `bench pool` prints first.
const POOL: &str = "firstlight bench pool:";
/// And in the last line that is shown of it.
const LAST: &str = "faster by";

/// The README with the picture's words, and the table that `bench pool` printed.
pub(crate) fn filled(text: &str, words: &str, pool: &[String]) -> Result<String, String> {
    let end = format!("]({PICTURE})");
    let text = between(text, "![", &end, words)?;
    let last = pool
        .iter()
        .position(|line| line.trim_start().starts_with(LAST));
    let last = last.ok_or_else(|| format!("the record pool has no line {LAST:?}"))?;
    let table = pool[..=last]
        .join("\n")
        .strip_prefix(POOL)
        .ok_or_else(|| format!("the record pool does not begin with {POOL:?}"))?
        .to_owned();
    between(&text, POOL, "\n```", &table)
}

/// `text` with `new` between the first `begin` and the first `end` after it.
fn between(text: &str, begin: &str, end: &str, new: &str) -> Result<String, String> {
    let parts = text.split_once(begin);
    let parts = parts.and_then(|(head, rest)| Some((head, rest.split_once(end)?.1)));
    let (head, tail) =
        parts.ok_or_else(|| format!("README.md has no {begin:?} with {end:?} after it"))?;
    Ok(format!("{head}{begin}{new}{end}{tail}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_table_are_replaced_and_nothing_else() {
        let text = "a ![old](docs/picture.svg) b\n```text\nfirstlight bench pool: old\n```\nc";
        let lines = ["firstlight bench pool: new", "  1", "  faster by 2", "  3"];
        let lines = lines.map(String::from);
        let once = filled(text, "new words", &lines).unwrap();
        assert_eq!(
            once,
            "a ![new words](docs/picture.svg) b\n```text\nfirstlight bench pool: new\n  1\n  faster by 2\n```\nc"
        );
        assert_eq!(filled(&once, "new words", &lines).unwrap(), once);
        assert!(filled("", "", &lines).unwrap_err().contains("no \"![\""));
        let error = filled(text, "", &[]).unwrap_err();
        assert!(error.contains("no line \"faster by\""), "{error}");
        let error = filled(text, "", &lines[1..]).unwrap_err();
        assert!(error.contains("does not begin"), "{error}");
    }
}
