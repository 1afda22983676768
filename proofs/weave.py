#!/usr/bin/env python3
"""Puts specifications into sources of the engine, for the prover: proofs/weave.py OUT [ROOT]

For each FILE named in specs/*.spec.rs, `OUT/FILE` is the file as it ships, line by line, and
between its lines what the specification says. What is put in is ghost: clauses of a contract or
a loop, `proof { }` blocks, specification and proof functions; what the prover finds in ghost code
may change no variable of the program. What is easily written by mistake instead is refused here. A
specification that means to fool this can: whoever has read it knows that what is proven of the
woven file holds for the one that ships.

A specification is Rust with headings:

    //@ file engine/frames/src/frames/word/giant.rs    what it belongs to
    //@ fn Giant::free                          clauses of the contract
    //@ fn Giant::free, before: let x           `proof { }` before the line that begins so
    //@ fn Giant::free, loop: while x           clauses of that loop
    //@ fn find_block, turns: for _             likewise, with a name for how many turns there were
    //@ fn Bitmap::give, closure: let x         clauses of the closure that the line begins
    //@ fn Bitmap::give, holds                  it is given what its caller holds, which is ghost,
    //@ fn Bitmap::give, passes: let x          and passes it on in the call that ends with that line
    //@ fn update_u64, looks: let mut old       likewise, of a `load`
    //@ fn giant, sees: let bits                likewise, where what it learns stays so
    //@ fn update_u64, of: Protocol             it takes words of each protocol of proofs/model.rs, or of this one
    //@ fn Bitmap::take, waits                  that its loops end is not proven
    //@ fn mask, shared                         it can be called from the file that is woven once more
    //@ atomics                                 those of the prover, proofs/model.rs, in the place of the processor's
    //@ const FREE                              clauses of a constant
    //@ external fn Giant::fmt                  not proven, nor used by what is
    //@ again bitmap_told                       the file is proven once more, as this module, of other words: functions
                                                that this specification has no contract of are left out
    //@ items                                   specification and proof functions
"""

import re
import shutil
import sys
from pathlib import Path

# Without a specification, for the types that the others name.
AS_IT_SHIPS = ["engine/memory/src/addr.rs"]
# Whose files those are that have one.
CRATE = "engine/frames/src"
# The prover's own.
OWN = ["lib.rs", "model.rs", "bits.rs", "told.rs", "tokens.rs", "huges.rs", "owners.rs", "machine.rs"]
HERE = Path(__file__).resolve().parent
# What would make a proof worth nothing: each use in proofs/ stands in docs/proofs.md, with its reason.
TRUSTED = re.compile(r"\b(assume\w*|admit|external\w*|axiom|uninterp)\b")
CLAUSES = ("requires", "ensures", "returns", "invariant", "invariant_except_break", "decreases", "no_unwind")
ITEM = re.compile(r"^(?P<indent> *)(pub(\([a-z]+\))? )?(const )?fn (?P<name>[a-z_0-9]+)")
CONST = re.compile(r"^ *(pub(\([a-z]+\))? )?const (?P<name>[A-Z_0-9]+): ")
TYPE = re.compile(r"^impl(<[^>]*>)? (?:(?P<trait>[\w:]+(?:<[^>]*>)?) for )?(?P<name>\w+)")


def refuse(where, why):
    sys.exit(f"weave: {where}: {why}")


def plain(text):
    """Without comments, character and string literals, which may hold anything."""
    return re.sub(r'//[^\n]*|"(\\.|[^"\\])*"' + r"|'(\\u\{\w+\}|\\.|[^'\\])'", "", text)


def balanced(text):
    """Whether all brackets close, and none that is not open."""
    depth = 0
    for char in plain(text):
        depth += (char in "([{") - (char in ")]}")
        if depth < 0:
            return False
    return depth == 0


def check_clauses(where, text):
    words = plain(text).split()
    if not words or words[0].rstrip(",") not in CLAUSES or not balanced(text):
        refuse(where, f"expected clauses that begin with one of {', '.join(CLAUSES)}")
    # A clause ends with a comma: what follows is the program's own block.
    if not plain(text).rstrip().endswith(","):
        refuse(where, "expected a comma after the last clause")
    # Nor does a block of its own stand there, with an item after it that the program's block would become.
    item = re.search(r"\b(fn|impl|mod|struct|enum|trait|static|macro_rules|unsafe|extern)\b|#\[(?!trigger)", plain(text))
    if item or re.search(r"(,|^\s*(%s))\s*\{" % "|".join(CLAUSES), plain(text)):
        refuse(where, "expected clauses, found a block or an item")


def check_proof(where, text):
    rest = plain(text).strip()
    rest = re.sub(r"^(let ghost \w+ = [^;{]*;\s*)*", "", rest)
    while rest:
        if not rest.startswith("proof {"):
            refuse(where, "expected `let ghost x = ...;`, then `proof { ... }` and nothing else")
        depth, end = 0, None
        for at, char in enumerate(rest):
            depth += (char == "{") - (char == "}")
            if char == "}" and depth == 0:
                end = at + 1
                break
        if end is None:
            refuse(where, "a `proof {` is not closed")
        rest = rest[end:].strip()


def check_items(where, text):
    bare = plain(text)
    if not balanced(text):
        refuse(where, "brackets do not match")
    for line in bare.splitlines():
        if re.search(r"\bfn\b", line) and not re.match(
            r" *(pub(\(crate\))? )?((open|closed|broadcast) )?(spec|proof) fn |fn theorem_", line
        ):
            refuse(where, f"expected `spec fn`, `proof fn` or `fn theorem_...`: {line.strip()}")
        if re.match(r"\s*(pub(\([a-z]+\))? )?(const|static|mod|macro|macro_rules|trait|type|unsafe|extern)\b", line):
            refuse(where, f"only functions, and structs of ghost values, may be added: {line.strip()}")


def check_ships(where, text):
    """A file that ships says nothing to the prover."""
    found = re.search(TRUSTED.pattern + r"|\bverus\w*|\bverifier\b", plain(text))
    if found:
        refuse(where, f"what ships may not say `{found[0]}` to the prover")


class Spec:
    def __init__(self, path):
        self.path, self.file, self.atomics, self.again = path, None, False, None
        self.contracts, self.inside, self.external, self.items = {}, [], set(), []
        self.kinds = {}
        head, body, line = None, [], 0
        for number, text in enumerate(path.read_text().splitlines() + ["//@ end"], 1):
            if text.startswith("//@ "):
                self.section(head, "\n".join(body).strip("\n"), line)
                head, body, line = text[4:].strip(), [], number
            elif head is not None:
                body.append(text)

    def section(self, head, body, line):
        where = f"{self.path}:{line}"
        if head is None or head == "end":
            return
        # `plain` knows only comments that end with their line.
        if "/*" in body or "*/" in body:
            refuse(where, "expected `//` before a comment, found `/*` or `*/`")
        words = head.split()
        if words[0] == "file":
            self.file = words[1]
        elif words[0] == "items":
            check_items(where, body)
            self.items.append(body)
        elif words[0] == "atomics":
            self.atomics = True
        elif words[0] == "again" and len(words) == 2:
            self.again = words[1]
        elif words[0] == "external":
            self.external.add(" ".join(words[1:]))
        elif words[0] in ("fn", "const") and "," in head:
            name, _, rest = head[len(words[0]) + 1 :].partition(", ")
            kind, _, anchor = rest.partition(": ")
            if kind in ("loop", "turns", "closure"):
                check_clauses(where, body)
            elif kind in ("holds", "waits", "shared", "passes", "looks", "sees", "of"):
                if body.strip():
                    refuse(where, f"nothing may stand below `{kind}`")
            elif kind in ("before", "after"):
                check_proof(where, body)
            else:
                refuse(where, f"not a heading: {head}")
            self.inside.append((name, kind, anchor, body, where))
        elif words[0] in ("fn", "const") and len(words) == 2:
            if body:
                check_clauses(where, body)
            self.contracts[words[1]] = (body, where)
        else:
            refuse(where, f"not a heading: {head}")


    def out(self):
        """Where the woven file stands."""
        return str(Path(self.file).with_stem(self.again)) if self.again else self.file

    def title(self):
        return f"{self.file} ({self.again})" if self.again else self.file


def functions(lines):
    """Name, first line, line with the bracket that opens the body, last line, and head of the `impl`; of constants too."""
    found, owner, head = {}, "", ""
    at = 0
    while at < len(lines):
        line = lines[at]
        impl = TYPE.match(line)
        if impl:
            owner, head = impl["name"] + "::", line
        elif line.startswith("}"):
            owner = head = ""
        item, const = ITEM.match(line), CONST.match(line)
        if item:
            opens = next(row for row in range(at, len(lines)) if lines[row].endswith("{"))
            close = item["indent"] + "}"
            ends = next(row for row in range(opens, len(lines)) if lines[row] == close)
            found[owner + item["name"]] = (at, opens, ends, head)
            at = opens
        elif const:
            ends = next(row for row in range(at, len(lines)) if lines[row].endswith(";"))
            found[owner + const["name"]] = (at, at, ends, head)
            at = ends
        at += 1
    return found


def weave(spec, root):
    """The woven text, and for each function whether it is proven, with a contract or as it stands."""
    lines = (root / spec.file).read_text().splitlines()
    end = next((row for row, line in enumerate(lines) if line.startswith("#[cfg(all(test")), len(lines))
    tests, lines = lines[end:], lines[:end]
    if tests and not re.fullmatch(r"(pub\(\w+\) )?mod tests \{", tests[1] if tests[1:] else ""):
        refuse(spec.file, "expected `mod tests {` below the attribute of the tests, so that it is seen where they end")
    closed = next((row for row, line in enumerate(tests) if line == "}"), len(tests))
    if any(line.strip() for line in tests[closed + 1 :]):
        refuse(spec.file, "code stands after the tests, where nothing is proven: put it before them")
    check_ships(spec.file, "\n".join(lines))
    known = functions(lines)
    before, after, instead = {}, {}, {}

    def item_of(name, where):
        if name not in known:
            refuse(where, f"{spec.file} has no {name}")
        return known[name]

    for name, (clauses, where) in spec.contracts.items():
        first, opens, last, _ = item_of(name, where)
        if not clauses:
            continue
        indent = re.match(" *", lines[first])[0]
        if CONST.match(lines[first]):
            text = "\n".join(lines[first : last + 1])
            head, _, value = text.partition(" = ")
            head = head.replace("const ", "exec const ", 1)
            proofs = [text for other, _, _, text, _ in spec.inside if other == name]
            value = "\n".join([*proofs, value.rstrip(";")])
            instead[first] = f"{head}\n{clauses}\n{indent}{{\n{value}\n{indent}}}"
            for row in range(first + 1, last + 1):
                instead[row] = None
            continue
        head = re.sub(r" ?\{$", "", lines[opens])
        head = re.sub(r"-> (.*)$", r"-> (out: \1)", head)
        instead[opens] = f"{head}\n{clauses}\n{indent}{{"
    for name, kind, anchor, text, where in spec.inside:
        if kind in ("holds", "waits", "shared", "of"):
            first, opens, last, _ = item_of(name, where)
            if kind == "shared":
                instead[first] = re.sub(r"^(const )?fn ", r"pub(crate) \1fn ", instead.get(first, lines[first]), count=1)
                continue
            if kind == "of":
                # A parameter of types that are no more either.
                name, held = ("P", "P::Held") if anchor == "Protocol" else (anchor, "Rights")
                for row in range(first, opens + 1):
                    line = instead.get(row, lines[row]).replace("&AtomicU64", f"&AtomicU64<{name}>")
                    line = line.replace("Tracked<&mut Held>", f"Tracked<&mut {held}>")
                    if anchor == "Protocol":
                        line = re.sub(r"(\bfn \w+)\(", r"\1<P: Protocol>(", line)
                    instead[row] = line
                continue
            if kind == "waits":
                before.setdefault(first, []).append("#[verifier::exec_allows_no_decreases_clause]")
                continue
            # A parameter that is no more when ghost code is erased.
            row, head = next((row, instead.get(row, lines[row])) for row in (opens,))
            comma = "" if lines[row - 1].endswith(",") and lines[row].startswith(")") else ", "
            at = head.index(") ->") if ") ->" in head else head.partition("\n")[0].rindex(")")
            instead[row] = f"{head[:at]}{comma}Tracked(held): Tracked<&mut Held>{head[at:]}"
            continue
        first, opens, last, _ = item_of(name, where)
        if CONST.match(lines[first]):
            continue
        rows = [row for row in range(opens, last + 1) if lines[row].strip().startswith(anchor)]
        if len(rows) != 1:
            refuse(where, f"{len(rows)} lines of {name} begin with `{anchor}`, expected one")
        row = rows[0]
        if kind == "before":
            before.setdefault(row, []).append(text)
        elif kind == "after":
            after.setdefault(row, []).append(text)
        elif kind in ("passes", "looks", "sees"):
            line = instead.get(row, lines[row])
            if kind == "looks":
                line = line.replace(".load(", ".load_by(")
            elif kind == "sees":
                line = line.replace(".load(", ".load_seeing(")
            at = line.rindex(")")
            instead[row] = f"{line[:at]}, Tracked(&mut *held){line[at:]}"
        elif kind == "closure":
            head, found, rest = lines[row].partition("|word| {")
            if not found or rest:
                refuse(where, f"no closure `|word| {{` begins with `{anchor}`")
            instead[row] = f"{head}|word: u64| -> (out: Option<u64>)\n{text}\n{{"
        else:
            if not lines[row].endswith(" {"):
                refuse(where, f"`{anchor}` is no loop")
            indent = re.match(" *", lines[row])[0]
            line = instead.get(row, lines[row])
            if kind == "turns":
                line = line.replace(" in ", " in turns: ", 1)
            instead[row] = f"{line[:-2]}\n{text}\n{indent}{{"
    for name in spec.external:
        word, _, rest = name.partition(" ")
        if word == "fn" or word == "const" and rest != "_: ()":
            rows = [item_of(rest, spec.path)[0]]
        else:
            rows = [row for row, line in enumerate(lines) if re.match(r"(pub(\([a-z]+\))? )?" + re.escape(name), line)]
        if len(rows) != 1:
            refuse(spec.path, f"{spec.file} has {len(rows)} times `{name}`, expected one")
        before.setdefault(rows[0], []).append("#[verifier::external]")

    left_out = set()
    for name, (first, _, last, _) in known.items():
        if spec.again and name not in spec.contracts and not CONST.match(lines[first]):
            while re.match(r" *(///|#\[)", lines[first - 1]):
                first -= 1
            left_out.update(range(first, last + 1))
    start = next(row for row, line in enumerate(lines) if re.match("(use|pub|const|/// |#\\[)", line))
    out = []
    for row, line in enumerate(lines):
        if row == start:
            out += ["use vstd::prelude::*;", "verus! {"]
        if row in left_out:
            continue
        out += before.get(row, [])
        line = instead.get(row, line)
        if spec.atomics and line and line.startswith("pub(crate) use core::sync::atomic::"):
            line = line.replace("core::sync::atomic::", "crate::model::")
        if spec.again and line and line.startswith("use crate::sync::{AtomicU64, "):
            # Those of the specification.
            line = line.replace("AtomicU64, ", "")
        if line is not None:
            out.append(line)
        out += after.get(row, [])
    out += spec.items + ["} // verus!"] + tests
    kinds = {}
    for name, (first, _, _, head) in known.items():
        if first in left_out:
            continue
        outside = any(head.startswith(what) for what in spec.external if what.startswith("impl "))
        if outside or f"fn {name}" in spec.external or f"const {name}" in spec.external:
            kinds[name] = "external"
        else:
            kinds[name] = "contract" if name in spec.contracts and spec.contracts[name][0] else "plain"
    return "\n".join(out) + "\n", kinds


def weave_all(out, root):
    """Writes the woven tree; the functions of each file, and whether they are proven."""
    kinds = {}
    for path in sorted((HERE / "specs").glob("*.spec.rs")):
        spec = Spec(path)
        text, kinds[spec.title()] = weave(spec, root)
        to = out / spec.out()
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_text(text)
    for name in AS_IT_SHIPS:
        check_ships(name, (HERE.parent / name).read_text())
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(HERE.parent / name, out / name)
    for name in OWN:
        shutil.copyfile(HERE / name, out / CRATE / name)
    return kinds


if __name__ == "__main__":
    weave_all(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else HERE.parent)
