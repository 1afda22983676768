//! How the page looks: light and dark by the reader's setting, and on paper.

/// Colours of phases, distinct also with common colour blindness.
pub(super) const COLOURS: usize = 12;

/// The page's style.
pub(super) const CSS: &str = "
:root{--bg:#fff;--fg:#1c2024;--faint:#667078;--line:#d5dade;--card:#f5f7f8;--bad:#b3261e;--good:#1b7a3d;
--c0:#4477aa;--c1:#ee8866;--c2:#228833;--c3:#ccbb44;--c4:#66ccee;--c5:#aa3377;--c6:#999933;--c7:#44bb99;
--c8:#882255;--c9:#ddaa33;--c10:#5566bb;--c11:#bbbbbb}
@media (prefers-color-scheme:dark){:root{--bg:#15181b;--fg:#e6e9eb;--faint:#98a2aa;--line:#363c41;--card:#1d2125;
--bad:#ff8a80;--good:#7fd49b;--c0:#77aadd;--c2:#66bb6a;--c5:#dd77aa;--c8:#cc6688;--c10:#8899ee;--c11:#777777}}
*{box-sizing:border-box;print-color-adjust:exact;-webkit-print-color-adjust:exact}
body{margin:0 auto;padding:1.5rem;max-width:72rem;background:var(--bg);color:var(--fg);
font:15px/1.5 system-ui,sans-serif}
h1{font-size:1.5rem;margin:0 0 .25rem}h2{font-size:1.15rem;margin:2.2rem 0 .6rem}
h3{font-size:1rem;margin:1.2rem 0 .3rem}
p{margin:.3rem 0}.faint{color:var(--faint)}.bad{color:var(--bad)}.good{color:var(--good)}
a{color:inherit}.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{padding:.25rem .6rem;border-bottom:1px solid var(--line);text-align:right;vertical-align:top}
th{font-weight:600;color:var(--faint)}th:first-child,td:first-child,.l{text-align:left}
code{font:13px/1.4 ui-monospace,monospace;overflow-wrap:anywhere}
svg{display:block;width:100%;height:auto;margin:.3rem 0}
svg text{fill:var(--fg);font:12px system-ui,sans-serif}svg .f{fill:var(--faint)}
svg .g{stroke:var(--line);stroke-width:1}svg .k{stroke:var(--bad);stroke-dasharray:3 3}
.legend{display:flex;flex-wrap:wrap;gap:.2rem 1rem}.legend span::before{content:'';display:inline-block;
width:.8em;height:.8em;margin-right:.4em;border-radius:2px;background:var(--c)}
.card{background:var(--card);border:1px solid var(--line);border-radius:6px;padding:.6rem .9rem;margin:.6rem 0}
@media print{:root{--bg:#fff;--fg:#000;--faint:#444;--line:#bbb;--card:#fff;--bad:#900;--good:#060}
body{max-width:none;padding:0;font-size:11px}h2{break-after:avoid}svg,.card,tr{break-inside:avoid}}
";
