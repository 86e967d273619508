#include "report/page.h"

namespace bie::report {

// Curves and areas: the palette of Okabe and Ito, which colour-blind readers can tell apart, darkened or lightened
// until text in these colours has a contrast of 4.5 to its ground.
const char style_sheet[] = R"css(
:root {
  --page: #f5f6f8; --card: #ffffff; --ink: #1b2026; --quiet: #57616c; --line: #dfe3e8; --frame: #a3adb8;
  --c0: #0069a8; --c1: #b84a00; --c2: #00795a; --c3: #a14a7c; --c4: #8a6100; --c5: #4d5965;
  --right: 0, 105, 168; --wrong: 184, 74, 0; --hover: rgba(27, 32, 38, 0.07);
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --page: #0f1216; --card: #181c22; --ink: #e6e9ed; --quiet: #9ea8b3; --line: #2c333c; --frame: #5b6673;
    --c0: #5cb6f2; --c1: #f59a57; --c2: #3fc79f; --c3: #e29ac3; --c4: #e2b33c; --c5: #aeb8c2;
    --hover: rgba(230, 233, 237, 0.1);
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 -apple-system, 'Segoe UI', Roboto, 'Noto Sans', Ubuntu, Cantarell, 'Helvetica Neue', Arial, sans-serif;
}
main { max-width: 1120px; margin: 0 auto; padding: 32px 20px 48px; display: grid; gap: 20px; }
main *, main { min-width: 0; }
h1 { font-size: 26px; line-height: 1.25; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 18px; line-height: 1.3; margin: 0 0 12px; }
h3 { font-size: 15px; margin: 0; overflow-wrap: anywhere; }
p { margin: 0; }
.remark, figcaption span { color: var(--quiet); font-size: 13px; }
pre, code { font: 13px/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace; }
pre { margin: 12px 0 0; padding: 10px 14px; background: var(--card); border: 1px solid var(--line); border-radius: 8px; }
.notes { margin: 0; padding: 0 0 0 20px; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 18px 20px; }
.results { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; margin: 0; }
.results div { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 12px 16px; }
.results dt { color: var(--quiet); font-size: 13px; }
.results dd { margin: 0; font-size: 22px; line-height: 1.3; font-weight: 600; font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 420px), 1fr)); gap: 24px; }
.scroll + .charts { margin-top: 20px; }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 290px), 1fr)); gap: 16px; margin-top: 18px; }
.layer { border-top: 2px solid var(--line); padding-top: 10px; display: grid; gap: 8px; align-content: start; }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 420px), 1fr)); gap: 20px; align-items: start; }
dl { display: grid; grid-template-columns: minmax(90px, max-content) 1fr; gap: 4px 18px; margin: 0; }
dt { color: var(--quiet); }
dd { margin: 0; font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
figure { margin: 0; }
.chart { max-width: 580px; }
.chart.small { max-width: 340px; }
figcaption b { font-weight: 600; font-size: 14px; }
.small figcaption b { font-weight: 400; font-size: 13px; color: var(--quiet); }
svg { display: block; width: 100%; height: auto; margin-top: 6px; overflow: visible; }
svg text { font-size: 12px; font-variant-numeric: tabular-nums; }
.small svg text { font-size: 10.5px; }
.tick { fill: var(--quiet); }
.grid { stroke: var(--line); fill: none; }
.axis { stroke: var(--frame); fill: none; }
.column { fill: transparent; }
.column:hover { fill: var(--hover); }
.curve, .range { fill: none; stroke-width: 2; stroke-linejoin: round; stroke-linecap: round; pointer-events: none; }
.dots { fill: none; stroke-width: 5; stroke-linecap: round; pointer-events: none; }
.small .curve { stroke-width: 1.6; }
.small .dots { stroke-width: 4; }
.bar { fill: var(--c0); }
.bar:hover { opacity: 0.75; }
.name { font-weight: 600; }
.name.ink { fill: var(--ink); }
.c0 { --c: var(--c0); } .c1 { --c: var(--c1); } .c2 { --c: var(--c2); }
.c3 { --c: var(--c3); } .c4 { --c: var(--c4); } .c5 { --c: var(--c5); }
.curve, .dots, .range { stroke: var(--c); }
.name, .dot { fill: var(--c); }
.scroll { overflow-x: auto; }
.scrolls { display: none; }
table { border-collapse: collapse; font-size: 14px; width: 100%; }
th, td { padding: 5px 12px 5px 0; border-bottom: 1px solid var(--line); text-align: left; white-space: nowrap; vertical-align: top; }
th { font-weight: 600; color: var(--quiet); font-size: 13px; }
td { font-variant-numeric: tabular-nums; }
th.number, td.number { text-align: right; }
th:last-child, td:last-child { padding-right: 0; }
.heat { width: auto; margin-top: 12px; border-collapse: separate; border-spacing: 2px; }
.heat th, .heat td { border: 0; padding: 4px 6px; }
.heat tbody td { min-width: 38px; text-align: center; border-radius: 4px; }
.heat thead th { text-align: center; vertical-align: bottom; }
.heat tbody th { text-align: right; padding-right: 8px; }
.heat td.number { text-align: right; padding-left: 12px; }
.heat .none { color: var(--frame); }
.heat .right { background: rgba(var(--right), var(--depth)); }
.heat .wrong { background: rgba(var(--wrong), var(--depth)); }
.mistakes { display: grid; grid-template-columns: repeat(auto-fill, minmax(100px, 1fr)); gap: 16px 12px; }
.mistakes img { display: block; width: 96px; height: 96px; object-fit: contain; image-rendering: pixelated; background: var(--line); border-radius: 6px; }
.mistakes figcaption { font-size: 13px; line-height: 1.4; margin-top: 6px; overflow-wrap: anywhere; }
details { margin-top: 18px; }
summary { cursor: pointer; color: var(--quiet); font-size: 13px; margin-bottom: 8px; }
@media (max-width: 480px) {
  main { padding: 20px 14px 32px; gap: 14px; }
  h1 { font-size: 22px; }
  .card { padding: 14px; }
  .results { grid-template-columns: repeat(auto-fit, minmax(130px, 1fr)); gap: 8px; }
  .results dd { font-size: 19px; }
  svg text { font-size: 16px; }
  .scrolls { display: block; }
  .heat { font-size: 12px; border-spacing: 1px; }
  .heat th, .heat td { padding: 4px 2px; }
  .heat tbody td { min-width: 30px; }
}
@media print {
  body { background: #ffffff; font-size: 11pt; }
  main { max-width: none; padding: 0; }
  .card, .results div, pre { border-color: #cccccc; }
  .charts, .facts { grid-template-columns: 1fr 1fr; }
  .chart, .layer, .heat, .mistakes figure, tr { break-inside: avoid; }
  h2, h3, .remark { break-after: avoid; }
  svg text { font-size: 15px; }
  .scroll { overflow: visible; }
  pre { white-space: pre-wrap; }
  .heat td, .bar, .mistakes img { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
)css";

}  // namespace bie::report
