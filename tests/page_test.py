# SPDX-License-Identifier: Apache-2.0
"""Looks at a profile's page in a browser: page_test.py BROWSER FOLDER, where FOLDER has page.html and profile.json."""
import html
import json
import math
import pathlib
import re
import subprocess
import sys

BROWSER, FOLDER = sys.argv[1], pathlib.Path(sys.argv[2])
PAGE = (FOLDER / "page.html").read_text()
(KERNEL,) = json.loads((FOLDER / "profile.json").read_text())["kernels"]
CLOCK, CHIP = KERNEL["clock"], KERNEL["chip"]
LOOK = """
const all = (of, what) => [...of.querySelectorAll(what)];
const text = of => of.textContent;
const number = (of, name) => Number(of.getAttribute(name));
const kernel = document.querySelector(".kernel"), table = kernel.querySelector(".listing");
const search = kernel.querySelector("input"), choice = kernel.querySelector("select");
const heads = all(table, "thead th");
const visible = () => all(table, "tbody tr:not(.function)").filter(row => row.offsetHeight > 0).map(row => text(row.cells[0]));
const steps = {};
const found = {
  title: document.title, heading: text(document.querySelector("body > header")), name: text(kernel.querySelector("h2")),
  background: getComputedStyle(document.body).backgroundColor,
  tiles: Object.fromEntries(all(kernel, ".tiles > div").map(tile => [...tile.children].slice(0, 2).map(text))),
  stalls: all(kernel, ".stalls dt").map(kind => [text(kind), text(kind.nextElementSibling.nextElementSibling),
    kind.nextElementSibling.querySelector("i").getBoundingClientRect().width]),
  stack: all(kernel, ".stalls .stack i").map(part => part.getBoundingClientRect().width),
  levels: all(kernel, ".levels tbody tr").map(row => [...row.cells].map(text)),
  ticks: all(kernel, ".roofline svg > text:not([class])").map(tick => [text(tick), number(tick, "x"), number(tick, "y")]),
  roofs: all(kernel, ".roof").map(roof => Number(roof.dataset.rate)),
  peaks: all(kernel, "line.peak").map(peak => Number(peak.dataset.peak)),
  points: all(kernel, ".point").map(point => [point.parentNode.getAttribute("class"), Number(point.dataset.x),
    Number(point.dataset.y), number(point, "cx"), number(point, "cy")]),
  lines: all(kernel, ".lines tr").map(row => [...row.cells].map(text)),
  rows: all(table, "tbody tr:not(.function)").map(row => [...row.cells].map(text)),
  bars: all(table, "tbody tr:not(.function) .bar").map(bar => all(bar, "i").map(part => part.getBoundingClientRect().width)),
  controls: getComputedStyle(kernel.querySelector(".controls")).display, wide: document.documentElement.scrollWidth,
};
const set = (of, value, event) => { of.value = value; of.dispatchEvent(new Event(event)); };
set(search, "atomic", "input"); steps.filter = visible();
set(search, "", "input"); set(choice, "ran", "change"); steps.ran = visible();
set(choice, "dearest", "change"); steps.costly = visible();
set(choice, "all", "change"); heads.find(head => head.dataset.by === "cycles").click(); steps.dearest = visible();
heads.find(head => head.dataset.by === "at").click(); steps.at = visible();
all(kernel, ".lines tr")[0].click(); steps.line = visible();
const result = document.createElement("pre");
result.id = "found"; result.textContent = JSON.stringify({...found, steps});
document.body.append(result);
"""


def browse(page, *options):
    """Opens a page. Gives its document after its scripts have run, and what they wrote to the console."""
    path = FOLDER / "open.html"
    path.write_text(page)
    done = subprocess.run([BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--window-size=1300,1700",
                           *options, "--dump-dom", path.as_uri()], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def look(*options, page=PAGE):
    """Gives what a page shows, of which nothing may have gone to the console."""
    document, console = browse(page.replace("</body>", f"<script>{LOOK}</script></body>"), *options)
    assert console == [], console
    return json.loads(html.unescape(re.search('<pre id="found">(.*?)</pre>', document, re.S)[1]))


def near(a, b, part=0.01):
    return abs(a - b) <= part * abs(b)


def check_texts(found):
    assert found["name"] == KERNEL["name"] and "modelled" in found["heading"]
    assert "<script>console.error('not escaped')</script>" in found["heading"]
    assert found["tiles"]["Clock"] == f"{CLOCK['mhz']} MHz" and "Modelled time" in found["tiles"]
    each = CLOCK["ns"] / KERNEL["launches"] / 1000
    assert float(found["tiles"]["Modelled time"].split()[0]) == float(f"{each:.3g}"), (found["tiles"], each)
    assert not re.search(r"""(?:src|href|url)\s*[=(]\s*["']?(?:[a-z]+:)?//""", PAGE)  # nothing from elsewhere


def check_stalls(found):
    cycles = CLOCK["simd_cycles"]
    every = sum(cycles.values())
    wanted = sorted(((n, c) for n, c in cycles.items() if c), key=lambda kind: -kind[1])
    assert [s[:2] for s in found["stalls"]] == [[n, f"{100 * c / every:.1f} %"] for n, c in wanted]
    for widths in ([s[2] for s in found["stalls"]], found["stack"]):
        assert all(abs(w / widths[0] - c / wanted[0][1]) < 0.02 for w, (_, c) in zip(widths, wanted))


def check_levels(found):
    m = CLOCK["memory"]
    assert [row[0] for row in found["levels"]] == ["LDS", "L1", "L2", "memory-side cache", "HBM"]
    hits = {"L1": ("l1_hits", "l1_lines"), "L2": ("l2_hits", "l2_lines"), "memory-side cache": ("mall_hits", "fabric_lines")}
    for name, _, hit, *_ in found["levels"]:
        assert hit == (f"{100 * m[hits[name][0]] / m[hits[name][1]]:.1f} %" if name in hits and m[hits[name][1]] else "-")


def check_roofline(found):
    """Compares the points with the counters, and their places with the axes' numbers."""
    units = {"k": 1e-6, "M": 1e-3, "G": 1, "T": 1e3, "P": 1e6}
    across = [(math.log10(float(t)), x) for t, x, _ in found["ticks"] if re.fullmatch(r"[\d.e+-]+", t)]
    up = [(math.log10(float(t.split()[0]) * units[t.split()[1]]), y) for t, _, y in found["ticks"] if re.fullmatch(r"\d+ [kMGTP]", t)]
    assert len(across) >= 3 and len(up) >= 4

    def place(ticks, value):
        (a, pa), (b, pb) = ticks[0], ticks[-1]
        return pa + (math.log10(value) - a) * (pb - pa) / (b - a)

    operations, m = KERNEL["counters"]["valu_active_lanes"], CLOCK["memory"]
    speed = operations / CLOCK["ns"]
    lines = {"hbm": "hbm_lines", "fabric": "fabric_lines", "l2": "l2_lines"}
    assert {point[0] for point in found["points"]} == {level for level in lines if m[lines[level]]} and len(found["points"]) >= 2
    for level, x, y, px, py in found["points"]:
        assert near(x, operations / (128 * m[lines[level]])) and near(y, speed)
        assert abs(px - place(across, x)) < 1 and abs(py - place(up, y) + 4) < 1.5  # labels stand 4 below their lines
    assert found["roofs"] == [CHIP["mb_per_s"][level] / 1000 for level in lines]
    assert near(found["peaks"][0], CHIP["lane_mops_per_s"] / 1000)


def check_code(found):
    listed = CLOCK["instructions"]
    source = [f"{pathlib.Path(i['source']['file']).name}:{i['source']['line']}" if "source" in i else "" for i in listed]
    assert [row[1] for row in found["rows"]] == [i["text"] for i in listed]
    assert [int(row[2]) for row in found["rows"]] == [i["issues"] for i in listed]
    assert [row[6] for row in found["rows"]] == source and any(s.startswith('a<b>&"c.hip:') for s in source)
    cost = [sum(i["simd_cycles"].values()) for i in listed]
    most = max(sum(bar) for bar in found["bars"])
    assert all(abs(sum(bar) / most - c / max(cost)) < 0.03 for bar, c in zip(found["bars"], cost))
    assert [row[0] for row in found["lines"]] == [f"{line['file']}:{line['line']}" for line in CLOCK["lines"]]
    places, steps = [row[0] for row in found["rows"]], found["steps"]
    assert steps["filter"] == [p for p, i in zip(places, listed) if "atomic" in i["text"]] != []
    assert steps["ran"] == [p for p, i in zip(places, listed) if i["issues"]] != places
    costly = sorted((-c, at) for at, c in enumerate(cost) if c)[:50]
    assert steps["costly"] == [p for at, p in enumerate(places) if at in {at for _, at in costly}] != places
    assert steps["dearest"] == [p for _, _, p in sorted((-c, at, p) for at, (c, p) in enumerate(zip(cost, places)))]
    assert steps["at"] == places
    first = f"{pathlib.Path(CLOCK['lines'][0]['file']).name}:{CLOCK['lines'][0]['line']}"
    assert steps["line"] == [p for p, s in zip(places, source) if s == first] != []


def check_without_script():
    """Tests that without its script the page shows the same, without the controls that need it."""
    plain = re.sub("<script>.*</script>", "", PAGE, flags=re.S)
    document, console = browse(plain)
    assert "<script" not in plain and console == [] and document.count("data-issues=") == len(CLOCK["instructions"])
    assert "display: none" in re.search(r"^[.]controls {.*}$", PAGE, re.M)[0]


def main():
    _, console = browse("<script>console.error('seen')</script>")
    assert any("seen" in line for line in console)  # else the checks of the console see nothing
    light, dark = look("--blink-settings=preferredColorScheme=1"), look("--blink-settings=preferredColorScheme=0")
    assert light["background"] != dark["background"]
    assert light["controls"] == "flex" and light["wide"] <= 1300
    for check in (check_texts, check_stalls, check_levels, check_roofline, check_code):
        check(light)
    check_without_script()
    picture = FOLDER / "page.png"
    (FOLDER / "open.html").write_text(PAGE)
    subprocess.run([BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1300,1700", f"--screenshot={picture}",
                    (FOLDER / "open.html").as_uri()], capture_output=True, timeout=60, check=True)
    assert picture.read_bytes().startswith(b"\x89PNG") and picture.stat().st_size > 50000


main()
