"""The style of the HTML report: light, dark by the reader's preference, and for paper."""

from __future__ import annotations

STYLE = """
:root{--bg:#fff;--fg:#1b1f24;--quiet:#59636e;--line:#d5dae0;--soft:#f4f6f8;--good:#116932;--bad:#b3261e;
--warn:#8a5a00;--accent:#0b57b0;--band:#0b57b022;--add:#e3f6e8;--del:#fdeaea;--cause:#fff1c2;--on:#fff}
@media (prefers-color-scheme:dark){:root{--bg:#0f1318;--fg:#e3e7ec;--quiet:#9aa5b1;--line:#313943;--soft:#181e25;
--good:#5fcf86;--bad:#ff8a80;--warn:#e5b454;--accent:#7db4ff;--band:#7db4ff26;--add:#11301d;--del:#3a1a1c;
--cause:#4a3b0d;--on:#0f1318}}*{box-sizing:border-box}body{margin:0;background:var(--bg);color:var(--fg);
font:15px/1.5 system-ui,"Segoe UI","DejaVu Sans",sans-serif}main{max-width:1100px;margin:0 auto;padding:1.5rem}
h1{margin:0;font-size:1.9rem}h2{margin:2.4rem 0 .6rem;border-bottom:1px solid var(--line);padding-bottom:.2rem}
h3{margin:1.4rem 0 .3rem;font-size:1.05rem}h4{margin:1rem 0 .2rem;font-size:.95rem}p{margin:.3rem 0}
a{color:var(--accent)}.quiet{color:var(--quiet)}.good{color:var(--good)}.bad{color:var(--bad);font-weight:600}
.note{border-left:4px solid var(--warn);padding:.3rem .8rem;background:var(--soft)}.figures{display:flex;
flex-wrap:wrap;gap:.6rem 2rem;margin:.8rem 0}.figures b{display:block;font-size:1.5rem;line-height:1.2}
.figures span{color:var(--quiet)}.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:.87rem;
margin:.5rem 0}th,td{text-align:left;vertical-align:top;padding:.3rem .55rem;border-bottom:1px solid var(--line)}
th{color:var(--quiet);font-weight:600;white-space:nowrap}td{overflow-wrap:break-word;max-width:26rem}
.badge{display:inline-block;border:1px solid currentColor;border-radius:.7rem;padding:0 .5rem;font-size:.78rem;
font-weight:600;white-space:nowrap}code,pre{font:12.5px/1.45 ui-monospace,"DejaVu Sans Mono",Menlo,Consolas,
monospace}code{background:var(--soft);padding:.05rem .25rem;border-radius:3px;overflow-wrap:anywhere}
pre{background:var(--soft);border:1px solid var(--line);border-radius:4px;padding:.5rem;overflow-x:auto;
margin:.4rem 0}pre.wrap{white-space:pre-wrap;overflow-wrap:anywhere}pre.diff span{display:inline-block;
min-width:100%}.added{background:var(--add)}.removed{background:var(--del)}.hunk{color:var(--accent)}
.cause{background:var(--cause);font-weight:700;display:inline-block;min-width:100%}
article{border:1px solid var(--line);border-radius:6px;padding:.2rem 1rem .8rem;margin:1rem 0}
details{margin:.4rem 0}summary{cursor:pointer;color:var(--accent)}ul{margin:.3rem 0;padding-left:1.3rem}
svg{display:block;width:100%;max-width:900px;height:auto;margin:.5rem 0;font:12px system-ui,"DejaVu Sans",
sans-serif}svg text{fill:var(--fg)}svg .small{font-size:11px;fill:var(--quiet)}svg a text{fill:var(--accent)}
svg .on{fill:var(--on)}svg .grid{stroke:var(--line)}svg .zero{stroke:var(--fg)}svg .mean{stroke:var(--quiet);
stroke-dasharray:5 4}svg .band{fill:var(--band)}svg .idle{fill:var(--soft)}svg .trend{fill:none;
stroke:var(--accent);stroke-width:1.5}svg .dot,svg .s-treatment{fill:var(--accent)}svg .s-baseline{fill:none;
stroke:var(--fg);stroke-width:1.5}svg .whisker{stroke-width:2.5}svg .span{stroke:var(--bg);stroke-width:1}
svg .lost{fill:url(#hatch)}svg .hatch{fill:var(--bg)}.v-improved,.v-clean,.v-measured{color:var(--good)}
.v-regressed,.v-crashed,.v-hung,.v-exited,.v-timeout,.v-wrong_output,.v-quarantined,
.v-generation_failed{color:var(--bad)}.v-invalid,.v-not_effective,.v-inconclusive,.v-aborted,.v-running,
.v-lost{color:var(--warn)}.v-no_effect,.v-not_applicable,.v-baseline,.v-done,.v-skipped{color:var(--quiet)}
.v-open{color:var(--accent)}svg .v-improved{fill:var(--good);stroke:var(--good)}svg .v-regressed,svg .v-crashed,
svg .v-hung,svg .v-wrong_output,svg .v-quarantined{fill:var(--bad);stroke:var(--bad)}svg .v-invalid,
svg .v-not_effective,svg .v-inconclusive,svg .v-aborted,svg .v-running{fill:var(--warn);stroke:var(--warn)}
svg .v-no_effect,svg .v-not_applicable,svg .v-baseline,svg .v-done{fill:var(--quiet);stroke:var(--quiet)}
svg text[class^=v-]{stroke:none}svg .span{stroke:var(--bg)}@media print{:root{--bg:#fff;--fg:#000;--quiet:#444;
--line:#bbb;--soft:#f6f6f6;--good:#0b5427;--bad:#9b1c15;--warn:#6d4700;--accent:#0b3f80;--band:#00000018;
--add:#e9f5ec;--del:#faecec;--cause:#fff1c2;--on:#fff}*{print-color-adjust:exact;-webkit-print-color-adjust:exact}
body{font-size:10pt}main{max-width:none;padding:0}a{color:inherit;text-decoration:none}
details:not([open]){display:none}
pre{white-space:pre-wrap;overflow-wrap:anywhere}.scroll{overflow:visible}h2,h3,h4,summary{break-after:avoid}tr,svg,
.figures{break-inside:avoid}table{font-size:8pt}td,th{padding:.2rem .3rem}td{overflow-wrap:anywhere}@page{margin:14mm}}
""".strip()
