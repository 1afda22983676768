#!/usr/bin/env python3
"""Writes a CycloneDX 1.5 bill of materials of all programs: every crate in them, from cargo's own metadata.

sbom.py VERSION
"""

import itertools
import json
import subprocess
import sys
import tomllib

PROGRAMS = ["firstlight-cli", "firstlight-pool-cli", "firstlight-kubernetes"]
WORKSPACES = [".", "kubernetes/plugin"]
TARGETS = ["x86_64-unknown-linux-musl", "aarch64-unknown-linux-musl"]


def metadata(workspace, target):
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--filter-platform", target]
    command += ["--manifest-path", f"{workspace}/Cargo.toml"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def reached(resolved, roots):
    """Packages that are linked or run while the programs are built, and what each needs."""
    nodes = {node["id"]: node for node in resolved["nodes"]}
    needs, waiting = {}, list(roots)
    while waiting:
        package = waiting.pop()
        if package in needs:
            continue
        edges = [edge for edge in nodes[package]["deps"] if any(kind["kind"] != "dev" for kind in edge["dep_kinds"])]
        needs[package] = sorted(edge["pkg"] for edge in edges)
        waiting.extend(needs[package])
    return needs


def reference(package):
    return f"pkg:cargo/{package['name']}@{package['version']}"


def component(package, checksums):
    seen = {
        "type": "library",
        "bom-ref": reference(package),
        "name": package["name"],
        "version": package["version"],
        "purl": reference(package),
    }
    if package["license"]:
        # An older form has a slash for OR.
        seen["licenses"] = [{"expression": package["license"].replace("/", " OR ").replace("  OR  ", " OR ")}]
    checksum = checksums.get((package["name"], package["version"]))
    if checksum:
        seen["hashes"] = [{"alg": "SHA-256", "content": checksum}]
    return seen


def main():
    version = sys.argv[1]
    checksums = {}
    for workspace in WORKSPACES:
        with open(f"{workspace}/Cargo.lock", "rb") as file:
            locked = tomllib.load(file)["package"]
        checksums.update({(one["name"], one["version"]): one.get("checksum") for one in locked})
    packages, needs = {}, {}
    for workspace, target in itertools.product(WORKSPACES, TARGETS):
        found = metadata(workspace, target)
        packages.update({package["id"]: package for package in found["packages"]})
        roots = [package["id"] for package in found["packages"] if package["name"] in PROGRAMS]
        for package, edges in reached(found["resolve"], roots).items():
            needs[package] = sorted(set(needs.get(package, [])) | set(edges))
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": "firstlight",
                "name": "firstlight",
                "version": version,
                "licenses": [{"expression": "MIT OR Apache-2.0"}],
            }
        },
        "components": sorted(
            (component(packages[package], checksums) for package in needs), key=lambda one: one["bom-ref"]
        ),
        "dependencies": [
            {"ref": "firstlight", "dependsOn": [reference(one) for one in packages.values() if one["name"] in PROGRAMS]}
        ]
        + sorted(
            (
                {"ref": reference(packages[package]), "dependsOn": [reference(packages[one]) for one in edges]}
                for package, edges in needs.items()
            ),
            key=lambda one: one["ref"],
        ),
    }
    json.dump(bill, sys.stdout, indent=1)
    print()


main()
