"""What weave must refuse to put in: words of its answer, and a specification of SOURCE (or of another one)."""

import inspect
import re
import tempfile
from pathlib import Path

import weave

SOURCE = """use core::fmt;

impl Thing {
    fn take(&self, at: u32) -> u32 {
        let mut left = at;
        while left > 0 {
            left -= 1;
        }
        let end = change(|word| {
            Some(word)
        });
        left
    }
}

#[cfg(all(test, not(firstlight_loom)))]
mod tests {
}
"""

TAKE = "//@ fn Thing::take\n"
BEFORE = "//@ fn Thing::take, before: let mut\n"
LOOP = "//@ fn Thing::take, loop: while\n"
ITEMS = "//@ items\n"
CLAUSES, COMMA, ITEM = "expected clauses that begin", "expected a comma", "found a block or an item"
MARKS, SHIPS = "expected `//` before a comment", "what ships may not say"
PROOF, FUNCTIONS, ONLY = "expected `let ghost", "expected `spec fn`", "only functions, and structs"

# For each a name, the words of the refusal, and the specification.
CASES = [
    ("code in the place of clauses", CLAUSES, TAKE + "return 0;"),
    ("clauses with a bracket too many", CLAUSES, TAKE + "ensures out == at, }"),
    ("clauses whose bracket stays open", CLAUSES, TAKE + "ensures out == (at,"),
    ("brackets that match in number only", CLAUSES, TAKE + "ensures true, } fn other() {"),
    ("a loop with code in the place of clauses", CLAUSES, LOOP + "break;"),
    ("a closure with code in the place of clauses", CLAUSES, "//@ fn Thing::take, closure: let end\nreturn None;"),
    ("clauses that a block could follow as an expression", COMMA, TAKE + "ensures out == at"),
    ("a comma in a comment", COMMA, TAKE + "ensures out == at // ,"),
    ("a body of its own", ITEM, TAKE + "ensures true, { 0 },"),
    ("a body after the first word", ITEM, TAKE + "requires { true },"),
    ("a body of its own for a constant's contract", ITEM, TAKE + "returns { 0 },"),
    *((f"`{word}` among clauses", ITEM, TAKE + f"ensures true, {word} other,") for word in (
        "fn", "impl", "mod", "struct", "enum", "trait", "static", "macro_rules", "unsafe", "extern")),
    ("an attribute among clauses", ITEM, TAKE + "ensures true, #[verifier::other] other,"),
    ("code before a line", PROOF, BEFORE + "left = 1;"),
    ("code after a proof", PROOF, BEFORE + "proof { } left = 1;"),
    ("code after a line", PROOF, "//@ fn Thing::take, after: let mut\nleft = 1;"),
    ("a variable that is not ghost", PROOF, BEFORE + "let other = 1; proof { }"),
    ("a ghost variable with a block", PROOF, BEFORE + "let ghost other = { left = 1; 1 }; proof { }"),
    ("a proof that closes more than it opened", PROOF, BEFORE + "proof { } }"),
    ("a proof that stays open", "is not closed", BEFORE + "proof { if true {"),
    ("the program's lines made a comment, from one proof to the next", MARKS,
        BEFORE + "proof { /* }\n//@ fn Thing::take, before: while\nproof { */ }"),
    ("code before the end of a comment", MARKS, BEFORE + "proof { */ }"),
    ("a comment among clauses", MARKS, TAKE + "ensures true, /* out == at, */"),
    ("items with a bracket too many", "brackets do not match", ITEMS + "spec fn a() -> bool { true } }"),
    ("items with a bracket that stays open", "brackets do not match", ITEMS + "spec fn a() -> bool { true"),
    ("a function of the program", FUNCTIONS, ITEMS + "fn other() { }"),
    ("a function that the program can call", FUNCTIONS, ITEMS + "pub fn theorem_other() { }"),
    ("a function of the program in an impl", FUNCTIONS, ITEMS + "impl Thing {\n    fn other() { }\n}"),
    *((f"`{word}` as an item", ONLY, ITEMS + f"{word} Other") for word in (
        "const", "static", "mod", "macro", "macro_rules", "trait", "type", "unsafe", "extern", "pub const", "pub(crate) mod")),
    ("clauses below a heading that has none", "nothing may stand below", "//@ fn Thing::take, holds\nensures true,"),
    ("code below a heading that has none", "nothing may stand below", "//@ fn Thing::take, passes: left\nreturn 0;"),
    ("a heading that there is not", "not a heading: fn Thing::take, instead", "//@ fn Thing::take, instead: left\nleft"),
    ("a heading of another kind", "not a heading: struct", "//@ struct Thing\nx"),
    ("a function that there is not", "has no Thing::other", "//@ fn Thing::other\nensures true,"),
    ("a line that there is not", "0 lines of Thing::take begin", "//@ fn Thing::take, before: other\nproof { }"),
    ("several lines that begin so", "4 lines of Thing::take begin", "//@ fn Thing::take, before: le\nproof { }"),
    ("a closure that there is not", "no closure", "//@ fn Thing::take, closure: let mut\nensures true,"),
    ("a loop that there is not", "is no loop", "//@ fn Thing::take, loop: let mut\ndecreases 1,"),
    ("an item that there is not", "has 0 times `struct Other`", "//@ external struct Other"),
]
# Nor where the file itself has what the prover would not read.
OTHERS = [
    ("tests whose end is not seen", "expected `mod tests {`", TAKE + "ensures true,",
        SOURCE.replace("mod tests {\n}", "mod tests;\nfn other() {\n}")),
    ("code after the tests", "code stands after the tests", TAKE + "ensures true,", SOURCE + "\nfn other() {\n}\n"),
    *((f"a file that ships with {line}", SHIPS, TAKE + "ensures true,", SOURCE.replace("    fn take", f"    {line}\n    fn take")) for line in (
        "#[cfg_attr(verus_keep_ghost, verifier::external_body)]", "#[cfg_attr(other, verifier::spinoff_prover)]", "#[cfg(not(verus_keep_ghost))]",
        "const A: char = '\"';\n    #[cfg(verus_keep_ghost)]\n    const B: char = '\"';")),
]
# This is none of them.
TAKEN = [TAKE + "requires at < 5,\nensures out == at,", LOOP + "invariant left <= at,\ndecreases left,",
    BEFORE + "let ghost other = 1;\nproof { assert(true); }", ITEMS + "spec fn a() -> bool { true }\nfn theorem_a() { }"]


class Refused(Exception):
    pass


def answer(text, source, folder):
    """What weave refuses this for, and in which line of it; or nothing."""
    (folder / "source.rs").write_text(source)
    path = folder / "a.spec.rs"
    path.write_text(f"//@ file source.rs\n{text}\n")

    def refuse(where, why):
        raise Refused(why, inspect.currentframe().f_back.f_lineno)

    usual, weave.refuse = weave.refuse, refuse
    try:
        weave.weave(weave.Spec(path), folder)
    except Refused as refused:
        return refused.args
    finally:
        weave.refuse = usual
    return None, None


def wrong():
    """Sentences: of what weave lets pass, and of refusals that no case here is for."""
    seen = set()
    with tempfile.TemporaryDirectory() as folder:
        for name, words, text, *other in [*CASES, *OTHERS]:
            why, line = answer(text, other[0] if other else SOURCE, Path(folder))
            seen.add(line)
            if why is None:
                yield f"proofs/weave.py puts this in: {name}"
            elif words not in why:
                yield f"proofs/weave.py refuses {name}, but says: {why}"
        for text in TAKEN:
            why, _ = answer(text, SOURCE, Path(folder))
            if why is not None:
                yield f"proofs/weave.py refuses what may be put in, {text!r}: {why}"
    for number, line in enumerate(Path(weave.__file__).read_text().splitlines(), 1):
        if re.search(r"(?<!def )\brefuse\(", line) and number not in seen:
            yield f"proofs/weave.py:{number}: no case of proofs/refused.py is refused here"
