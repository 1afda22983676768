#!/usr/bin/env bash
# Has Prometheus's own checker read the alert rules, and every query of the dashboard as a rule.
# Needs promtool and jq.
set -euo pipefail
cd "$(dirname "$0")"

promtool check rules firstlight-pool.rules.yml
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Grafana puts values in the place of its variables first.
jq '{groups: [{name: "dashboard", rules: [.panels[].targets[].expr
    | gsub("\\$__(rate_)?interval"; "5m") | gsub("\\$instance"; ".*")]
    | to_entries | map({record: "query:\(.key)", expr: .value})}]}
    | if .groups[0].rules == [] then error("the dashboard has no query") else . end' \
    firstlight-pool.grafana.json >"$work/dashboard.json"
promtool check rules "$work/dashboard.json"
