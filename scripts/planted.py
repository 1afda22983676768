#!/usr/bin/env python3
"""Plants mistakes in the pool's machine, one after the other, each in a copy of the sources, and
says how long the simulation takes to find each.

    scripts/planted.py [NAME...]    those of these names, else all

Fails where one is not found. Each mistake is a file, words that are in it once, and what
stands there instead.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SECONDS = 60
ROOT = Path(__file__).resolve().parent.parent
MACHINE = "pool/src/machine/"

MISTAKES = {
    "a charge is credited before a clean slab has taken the place": (
        MACHINE + "returns.rs",
        "self.out_of_reach(core, key, whose, Owed { charge, lease }, true);\n        core.forget(slab, whose);",
        "let _ = key;\n        core.settle([Owed { charge, lease }]);\n        core.forget(slab, whose);",
    ),
    "pages of a lease whose memory was not found count as back": (
        MACHINE + "returns.rs",
        "self.came_back_before(core, lease.key, lease.whose, owed, false);",
        "self.came_back_before(core, lease.key, lease.whose, owed, true);",
    ),
    "an inode is marked after it was sent": (
        MACHINE + "action.rs",
        "[Step; 6] = [\n        Step::Mark,\n        Step::UnkeepClean,\n        Step::KeepLease,\n        Step::MakePipe,\n"
        "        Step::Record,\n        Step::Send,",
        "[Step; 6] = [\n        Step::UnkeepClean,\n        Step::KeepLease,\n        Step::MakePipe,\n"
        "        Step::Record,\n        Step::Send,\n        Step::Mark,",
    ),
    "a lease is written down after it was sent": (
        MACHINE + "action.rs",
        "        Step::Record,\n        Step::Send,\n    ];",
        "        Step::Send,\n        Step::Record,\n    ];",
    ),
    "a slab that became clean replaces nothing": (
        MACHINE + "mod.rs",
        "self.returns.became_clean(core, key, whose, had_pages);",
        "let _ = whose;",
    ),
    "a lease that was given back is not written down as revoked": (
        MACHINE + "returns.rs",
        "core.act(Action::RecordRevoked(serial));",
        "let _ = serial;",
    ),
    "a lease that is over is not written down": (
        MACHINE + "core.rs",
        "                self.act(Action::RecordOver(serial));",
        "                let _ = serial;",
    ),
    "any process of the same user ends a lease": (
        MACHINE + "leases.rs",
        "            Self::User { connection, .. } | Self::Grant { connection, .. } => {\n                lease.connection == Some(connection)\n            }",
        "            Self::User { uid, .. } => lease.uid == uid,\n            Self::Grant { connection, .. } => lease.connection == Some(connection),",
    ),
    "a slab that could not grow stays charged": (
        MACHINE + "take.rs",
        "                core.credit([waiting.charge]);\n                if matches!",
        "                if matches!",
    ),
    "a slab that could not grow counts as allocated": (
        MACHINE + "slabs.rs",
        "class.allocated.retain(|(allocated, _)| *allocated != id);\n        let is_kept",
        "let is_kept",
    ),
    "what is pinned is forgotten": (
        MACHINE + "returns.rs",
        "if is_alone && used_bytes == 0 {",
        "if is_alone {",
    ),
    "what is reserved when none has it any more stays charged": (
        MACHINE + "returns.rs",
        "if reach.holds_pages || is_last {",
        "if reach.holds_pages {",
    ),
    "a slab that is in use is closed": (
        MACHINE + "returns.rs",
        "} else if reach.is_alone && reach.used_bytes == 0 {",
        "} else if reach.is_alone {",
    ),
    "what a revoked client drew is taken away once only": (
        MACHINE + "returns.rs",
        "revoked.under_way = false;\n",
        "",
    ),
    "a client that hung up has memory zeroed all the same": (
        MACHINE + "take.rs",
        "if waiting.connection == connection {",
        "if waiting.connection == connection && false {",
    ),
    "leases of an earlier daemon are not charged": (
        MACHINE + "restart.rs",
        "core.ledger.book(&record.charge);",
        "",
    ),
    "a slab that is not wanted any more becomes clean": (
        MACHINE + "slabs.rs",
        "one.is_wanted) && !draining;",
        "one.is_wanted || true);",
    ),
    "a slab is topped up before it is charged in full": (
        MACHINE + "take.rs",
        "core.ledger.charge(&core.rules, &peer, pick.bytes)",
        "core.ledger.charge(&core.rules, &peer, take.bytes)",
    ),
    "of several limits one is charged": (
        "pool/src/lease/quota.rs",
        "let accounts: Vec<_> = limits.into_iter().map(",
        "let accounts: Vec<_> = limits.into_iter().take(1).map(",
    ),
    "a subordinate user counts for itself": (
        "pool/src/lease/quota.rs",
        "account: Account::Member(peer.user),",
        "account: Account::Member(peer.uid),",
    ),
    "slabs below the floor go while memory is short": (
        MACHINE + "slabs.rs",
        "(class.clean.len() > floor)",
        "(class.clean.len() >= floor)",
    ),
    "a stopped daemon leaves nothing": (
        MACHINE + "mod.rs",
        "            if keep {\n",
        "            if keep && false {\n",
    ),
    "one node is filled at a time": (
        MACHINE + "mod.rs",
        "if self.fills.is_busy(node) {",
        "if (0..2).chain([u32::MAX]).any(|n| self.fills.is_busy(Some(n).filter(|n| *n < 2))) {",
    ),
    "one user's slabs are filled before all others": (
        MACHINE + "fills.rs",
        ".min_by_key(|next| filled(&next.turn))?",
        ".min_by_key(|next| next.turn)?",
    ),
    "a slab that was filled for one user is another's replacement": (
        MACHINE + "returns.rs",
        "self.replacements.became_clean(key, whose, had_pages);",
        "self.replacements.became_clean(key, match whose {\n            Whose::User(user) => Whose::User(user ^ 1),\n            other => other,\n        }, had_pages);",
    ),
    "what is lacking is filled with pages that others gave back": (
        MACHINE + "mod.rs",
        "has_pages: next.has_pages,",
        "has_pages: true,",
    ),
    "one whose pages are back waits for what has none": (
        MACHINE + "fills.rs",
        "if has_pages || lacking.may_take_any {",
        "if lacking.may_take_any {",
    ),
    "a client gets another node's memory": (
        MACHINE + "choose.rs",
        "(wanted, here) => wanted == here,",
        "_ => true,",
    ),
    "what a slab is owed for is not written down": (
        MACHINE + "returns.rs",
        ".for_each(|serial| core.act(Action::RecordOwed { serial, has_pages })),",
        ".for_each(|_| ()),",
    ),
    "what an earlier daemon owed is credited at once": (
        MACHINE + "restart.rs",
        "        core.ledger.book(&record.charge);",
        "        if has_memory || has_pipe {\n            core.ledger.book(&record.charge);\n        }",
    ),
    "a grant is for as many slabs as are there": (
        MACHINE + "take.rs",
        "let Ok(charge) = core.ledger.charge_grant(grant) else {",
        "let unbounded = Grant {\n            uses: u32::MAX,\n            ..grant.clone()\n        };\n"
        "        let Ok(charge) = core.ledger.charge_grant(&unbounded) else {",
    ),
    "a grant that ended is served": (
        MACHINE + "grants.rs",
        "if self.grants.live.remove(&id).is_some() {",
        "if self.grants.live.contains_key(&id) {",
    ),
    "a grant's client ends any lease": (
        MACHINE + "leases.rs",
        "            Self::User { connection, .. } | Self::Grant { connection, .. } => {\n                lease.connection == Some(connection)\n            }",
        "            Self::User { connection, .. } => lease.connection == Some(connection),\n            Self::Grant { .. } => true,",
    ),
    "a restart forgets grants": (
        MACHINE + "grants.rs",
        "        self.grants.live.insert(grant.id, grant);\n    }",
        "        let _ = grant;\n    }",
    ),
    "a status names leases that its reader may not end": (
        MACHINE + "leases.rs",
        "let name = reads_names.then(|| self.id(serial));",
        "let name = Some(self.id(serial));",
    ),
}


def found(tree, target):
    """Whether the simulation fails, in how many seconds of its own, and what it says."""
    env = dict(os.environ, FIRSTLIGHT_SIMULATE_SECONDS=str(SECONDS), CARGO_TARGET_DIR=target)
    command = ["cargo", "test", "--quiet", "-p", "firstlight-pool", "--lib"]
    built = subprocess.run(command + ["--no-run"], cwd=tree, env=env, capture_output=True, text=True)
    if built.returncode:
        sys.exit(f"it cannot be built:\n{built.stderr}")
    begin = time.monotonic()
    played = subprocess.run(
        command + ["machine::simulation", "--", "--nocapture"], cwd=tree, env=env, capture_output=True, text=True
    )
    spent = time.monotonic() - begin
    said = re.search(r"FIRSTLIGHT_SEED=\d+, found in ([\d.]+)(\w+): (.*)", played.stdout + played.stderr)
    return played.returncode != 0, spent, said


def main():
    names = sys.argv[1:] or list(MISTAKES)
    missed = []
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        ignored = shutil.ignore_patterns("target", ".git")
        shutil.copytree(ROOT, tree, ignore=ignored, symlinks=True)
        target = os.environ.get("CARGO_TARGET_DIR", str(ROOT / "target")) + "/planted"
        for name in names:
            path, right, wrong = MISTAKES[name]
            file = tree / path
            text = file.read_text()
            if text.count(right) != 1:
                sys.exit(f"{path}: the words of {name!r} are there {text.count(right)} times")
            file.write_text(text.replace(right, wrong))
            fails, spent, said = found(tree, target)
            file.write_text(text)
            why = f"{said[1]} {said[2]}: {said[3][:90]}" if said else f"{spent:.1f} s"
            print(f"{'found' if fails else 'MISSED'}  {name}: {why}", flush=True)
            if not fails:
                missed.append(name)
    if missed:
        sys.exit(f"not found: {missed}")


if __name__ == "__main__":
    main()
