#!/usr/bin/env python3
"""Proves what is said of the engine's files, and keeps what was proven.

    proofs/verify.py prove       runs the prover, prints the theorems, writes verified.txt
    proofs/verify.py check       without the prover: fails where a proven file has changed since, or weave puts in what it must refuse
    proofs/verify.py planted     plants mistakes in copies, each of which the prover must refuse
"""

import datetime
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import planted
import refused
from weave import AS_IT_SHIPS, CRATE, TRUSTED, Spec, weave_all

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
VERIFIED = HERE / "verified.txt"
PAGE = ROOT / "docs/proofs.md"
STEPS = ROOT / "docs/proofs-steps.md"
# All of it is proven but this, which has nothing to prove.
WORDS, UNPROVEN = ROOT / "engine/frames/src/frames/word", {"engine/frames/src/frames/word/mod.rs"}
# The default ones.
FEATURES = ["content", "hotplug", "movable"]


def specs():
    return [Spec(path) for path in sorted((HERE / "specs").glob("*.spec.rs"))]


def fail(why):
    sys.exit(f"firstlight: {why}")


def run(verus, woven, *more):
    """The prover's verdict of a woven tree: numbers verified and refused, and what it printed."""
    command = [verus, "--crate-type=lib", "--crate-name", "firstlight", "--edition", "2024"]
    for feature in FEATURES:
        command += ["--cfg", f'feature="{feature}"']
    command += [str(woven / CRATE / "lib.rs"), "--num-threads", "2", *more]
    z3 = Path(verus).parent / "z3"
    environment = {**os.environ, **({"VERUS_Z3_PATH": str(z3)} if z3.exists() else {})}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=woven)
    told = re.search(r"verification results:: (\d+) verified, (\d+) errors", done.stdout)
    numbers = (int(told[1]), int(told[2])) if told else None
    return done.returncode == 0 and numbers is not None and numbers[1] == 0, numbers, done.stdout + done.stderr


def prover():
    path = subprocess.run([HERE / "prover.sh"], stdout=subprocess.PIPE, text=True)
    if path.returncode != 0:
        sys.exit(1)
    return path.stdout.strip()


def hashes():
    """Of each proven file with its specification, as the prover reads them: without the file's tests."""
    with tempfile.TemporaryDirectory() as folder:
        kinds = weave_all(Path(folder), ROOT)
        found = {}
        for spec in specs():
            text = (Path(folder) / spec.out()).read_text().split("\n} // verus!\n")[0]
            found[spec.title()] = hashlib.sha256(text.encode()).hexdigest()
        scripts = [f"proofs/{path.name}" for path in HERE.iterdir() if path.suffix in (".rs", ".py", ".sh")]
        for name in [*scripts, *AS_IT_SHIPS]:
            found[name] = hashlib.sha256((ROOT / name).read_bytes()).hexdigest()
        return found, kinds


def theorems():
    """Functions named so, with the first sentence of what stands above."""
    for path in [*sorted((HERE / "specs").glob("*.spec.rs")), *sorted(HERE.glob("*.rs"))]:
        above = []
        for line in path.read_text().splitlines():
            if line.startswith("/// "):
                above.append(line[4:])
                continue
            name = re.match(r"(?:pub )?(?:broadcast )?(?:proof )?fn theorem_(\w+)", line)
            if name:
                yield path.name.split(".")[0], name[1].replace("_", " "), " ".join(above)
            above = []


def trusted():
    """Uses of words that take something on trust, which docs/proofs.md does not name; and functions that are not proven."""
    page = PAGE.read_text()
    for path in [*sorted(HERE.glob("*.rs")), *sorted((HERE / "specs").glob("*.rs"))]:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            code = line.split("//")[0]
            if TRUSTED.search(code) and f"`{code.strip()}`" not in page:
                yield f"{path.relative_to(ROOT)}:{number}: `{code.strip()}` takes something on trust, and docs/proofs.md does not say why"
    for spec in specs():
        for name in spec.external:
            if f"`{name}`" not in STEPS.read_text():
                yield f"{spec.path.relative_to(ROOT)}: `{name}` is not proven, and docs/proofs-steps.md does not say so"


def unknown(folder):
    """Files among those that are proven, of which nothing is."""
    known = UNPROVEN | {spec.file for spec in specs()}
    for path in sorted(folder.rglob("*.rs")):
        if str(path.relative_to(ROOT)) not in known:
            yield f"{path.relative_to(ROOT)} has no specification in proofs/specs/, and is not among what proofs/verify.py knows is not proven"


def table(kinds):
    width = max(len(name) for name in kinds)
    print(f"{'file':{width}}  contract  as it stands  not proven")
    for name, of in kinds.items():
        counts = [sum(kind == wanted for kind in of.values()) for wanted in ("contract", "plain", "external")]
        print(f"{name:{width}}  {counts[0]:8}  {counts[1]:12}  {counts[2]:10}")
    print()
    for file, name, says in theorems():
        print(f"{file}: {name}")
        print(f"    {says}")


def prove():
    for wrong in trusted():
        fail(wrong)
    verus = prover()
    version = subprocess.run([verus, "--version"], capture_output=True, text=True).stdout
    version = (re.search(r"Version: *(\S+)", version) or re.search(r"(\S+)", version))[1]
    with tempfile.TemporaryDirectory() as folder:
        weave_all(Path(folder), ROOT)
        start = time.monotonic()
        proven, numbers, said = run(verus, Path(folder), "--expand-errors")
        seconds = time.monotonic() - start
    if not proven:
        print(said)
        fail("not proven")
    found, kinds = hashes()
    table(kinds)
    print(f"\nproven: {numbers[0]} functions and constants, none refused, {seconds:.0f} s (Verus {version})")
    lines = [
        "# What was proven last, as the prover read it. `make verify` writes this; `make check` fails where a file has",
        "# changed since.",
        f"prover Verus {version}",
        f"date {datetime.date.today()}",
        *(f"{digest}  {name}" for name, digest in sorted(found.items())),
    ]
    VERIFIED.write_text("\n".join(lines) + "\n")


def check():
    wrong = [*trusted(), *refused.wrong()]
    if f"\ndefault = {json.dumps(FEATURES)}\n" not in (ROOT / "engine/frames/Cargo.toml").read_text():
        wrong.append(f"engine/frames/Cargo.toml has other default features than {FEATURES}, of which all is proven: name them in proofs/verify.py")
    wrong += unknown(WORDS)
    was = dict(reversed(line.split("  ")) for line in VERIFIED.read_text().splitlines() if "  " in line)
    now, _ = hashes()
    for name in sorted(now.keys() | was.keys()):
        if name not in now:
            wrong.append(f"{name} was proven, and has no specification now: prove again (make verify)")
        elif now[name] != was.get(name):
            wrong.append(f"{name}, or what is said of it, has changed since it was proven: prove again (make verify)")
    for line in wrong:
        print(f"firstlight: {line}", file=sys.stderr)
    sys.exit(1 if wrong else 0)


def plant():
    verus, missed = prover(), 0
    for what, (name, old, new) in planted.MISTAKES.items():
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / "sources"
            for spec in specs():
                to = copy / spec.file
                to.parent.mkdir(parents=True, exist_ok=True)
                to.write_bytes((ROOT / spec.file).read_bytes())
            text = (copy / name).read_text()
            if text.count(old) != 1:
                fail(f"{what}: {name} has {text.count(old)} times the words that are to be changed")
            (copy / name).write_text(text.replace(old, new))
            woven = Path(folder) / "woven"
            weave_all(woven, copy)
            # What is said of that file must do: no other is proven again.
            modules = ["::".join(Path(spec.out()).with_suffix("").parts[3:]) for spec in specs() if spec.file == name]
            chosen = [word for module in modules for word in ("--verify-module", module)]
            proven, numbers, said = run(verus, woven, *chosen)
        if proven or numbers is None:
            missed += 1
            print(f"MISSED   {what}" + ("" if proven else f"\n{said}"))
            continue
        error = re.search(r"error: (.*)\n +--> [^\n]*/(\w+\.rs):\d+:\d+\n +\|\n *\d+ \|[ /]*(.*)", said)
        print(f"refused  {what}\n         {error[1]}, {error[2]}: {error[3]}" if error else f"refused  {what}")
    print(f"\n{len(planted.MISTAKES) - missed} of {len(planted.MISTAKES)} mistakes are refused")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    actions = {"prove": prove, "check": check, "planted": plant}
    if len(sys.argv) != 2 or sys.argv[1] not in actions:
        sys.exit(__doc__)
    actions[sys.argv[1]]()
