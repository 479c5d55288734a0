# SPDX-License-Identifier: Apache-2.0
"""Looks at the site in a browser: site_test.py BROWSER FOLDER, where FOLDER is what site/build.py made with cpu and sim:gfx1201."""
import ast
import collections
import functools
import html.parser
import http.server
import json
import os
import pathlib
import re
import subprocess
import sys
import threading
import urllib.parse

from playwright.sync_api import sync_playwright

BROWSER, FOLDER = sys.argv[1], pathlib.Path(sys.argv[2])
TOP, BUILD = pathlib.Path(os.environ["QUERN_SOURCE_DIR"]), pathlib.Path(os.environ["QUERN_BUILD_DIR"])
WIDTH = 1300


class Page(html.parser.HTMLParser):
    """The ids of a page, and what it refers to: links, and parts that a browser fetches at once."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.parts = set(), set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.ids.add(values.get("id"))
        if tag == "a" and "href" in values:
            self.links.add(values["href"])
        elif tag in ("link", "script", "img"):
            self.parts |= {values[name] for name in ("href", "src") if name in values}


def target_of(name, address):
    """Returns (file, anchor) that an address on a page means."""
    path, _, anchor = address.partition("#")
    path = urllib.parse.unquote(path.partition("?")[0])
    return (os.path.normpath(os.path.join(os.path.dirname(name), path)) if path else name), urllib.parse.unquote(anchor)


def check_links(pages):
    """Tests that every address within the site has a target, that nothing comes from elsewhere, and that the front page leads to
    every page."""
    dead, reached, queue = [], {"index.html"}, ["index.html"]
    for name, page in pages.items():
        dead += [f"{name}: {part} is elsewhere" for part in page.parts if re.match(r"(\w+:)?//", part)]
        for address in page.links | page.parts:
            file, anchor = target_of(name, address)
            if not re.match(r"\w+:", address) and (not (FOLDER / file).is_file() or anchor and file in pages and anchor not in pages[file].ids):
                dead.append(f"{name}: {address}")
    while queue:
        name = queue.pop()
        found = {target_of(name, address)[0] for address in pages[name].links} & pages.keys() - reached
        reached |= found
        queue += found
    assert not dead, "\n".join(sorted(dead))
    assert reached == pages.keys() - {"search.html"}, sorted(pages.keys() - reached)  # the search field leads there


def check_names(pages):
    """Tests that every function that the library exports and every public name of the Python package has its place."""
    exported = subprocess.run(["nm", "-D", "--defined-only", BUILD / "libquern.so.0"], capture_output=True, text=True, check=True).stdout
    functions = set(re.findall(r" T (qn_\w+)", exported))
    ids = set().union(*(page.ids for page in pages.values()))
    public = ast.literal_eval(re.search(r"__all__ = (\[.*?\])", (TOP / "python/quern/__init__.py").read_text(), re.S)[1])
    stub = ast.parse((TOP / "python/quern/torch/__init__.pyi").read_text())
    wanted = {f"c.{name}" for name in functions} | {f"quern.{name}" for name in public if name != "__version__"} | \
        {f"quern.torch.{node.name}" for node in stub.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    assert len(functions) > 50 and not wanted - ids, sorted(wanted - ids)


def check_console(tab, address, pages):
    """Opens every page. Nothing may go to the console, and no page be wider than the window."""
    said = []
    tab.on("console", lambda message: said.append((tab.url, message.text)))
    tab.on("pageerror", lambda error: said.append((tab.url, str(error))))
    tab.goto(f"{address}/index.html")
    tab.evaluate("console.error('seen')")
    assert said and said.pop()[1] == "seen"  # else the checks of the console see nothing
    for name in pages:
        tab.goto(f"{address}/{name}")
        assert tab.evaluate("document.documentElement.scrollWidth") <= WIDTH, name
    assert not said, said
    return said


def check_search(tab, address):
    for word, place in (("qn_rmsnorm", "/c/norm.h.html#c.qn_rmsnorm"), ("quern.fused_moe", "/py/moe.html#quern.fused_moe")):
        tab.goto(f"{address}/index.html")
        tab.fill("input[name=q]", word)
        tab.press("input[name=q]", "Enter")
        tab.locator("#search-results ul.search a").first.click()
        tab.wait_for_url(f"{address}{place}")
        anchor = place.partition("#")[2]
        assert tab.locator(f'[id="{anchor}"]').is_visible(), place


def visible(tab):
    """Returns the texts of the rows of the table of kernels that are to be seen."""
    return tab.evaluate("""[...document.querySelectorAll('.catalogue tbody tr')].filter(row => row.offsetHeight > 0)
        .map(row => [...row.cells].map(cell => cell.textContent))""")


def kernels_for(device, results):
    """Returns the kernels that are for a device, by why the others did not run. A processor without its instructions is a CPU as well."""
    other = ("runs on ",) if device == "cpu" else ("runs on ", "needs ")
    return {r["kernel"] for r in results} - {r["kernel"] for r in results if (r["reason"] or "").startswith(other)}


def check_catalogue(tab, address):
    """Compares what the filters leave with what quern check said."""
    reports = {device: json.loads((BUILD / f"site/{file}.json").read_text())["results"]
               for device, file in (("cpu", "cpu"), ("gfx1201", "sim_gfx1201"))}
    tab.goto(f"{address}/catalogue.html")
    every = visible(tab)
    assert {row[1] for row in every} == {result["kernel"] for result in reports["cpu"]}
    choose = {name: functools.partial(tab.select_option, f"[data-column={name}]") for name in ("op", "device", "dtype", "status")}
    for device, results in reports.items():
        choose["device"](device)
        ran = collections.Counter(result["kernel"] for result in results if result["ran"])
        able = kernels_for(device, results)
        rows = visible(tab)
        assert {row[1] for row in rows} == able and {row[2] for row in rows} == {device}, able ^ {row[1] for row in rows}
        assert {row[1]: row[5] for row in rows if row[5]} == {kernel: f"{n} of {n}" for kernel, n in ran.items()}
        choose["status"]("agrees")
        assert {row[1] for row in visible(tab)} == set(ran)
        choose["op"]("gemm")
        assert {row[1] for row in visible(tab)} == {kernel for kernel in ran if kernel.startswith("gemm.")} != set()
        choose["dtype"]("f16")
        halves = {r["kernel"] for r in results if r["ran"] and r["op"] == "gemm" and re.search(r"\bf16\b", r["problem"])}
        assert {row[1] for row in visible(tab)} == halves != set()
        tab.evaluate("document.querySelector('form.filters').reset()")
    tab.fill("[data-column=kernel]", "wgmma_silu")
    assert {row[2] for row in visible(tab)} == {"sm_90a"} and all("wgmma_silu" in row[1] for row in visible(tab))
    tab.goto(f"{address}/catalogue.html?op=mla&device=gfx1201")
    assert visible(tab) == [row for row in every if (row[0], row[2]) == ("mla", "gfx1201")] != []


def check_plots(tab, address):
    """Compares a plot's bars with its file."""
    results = json.loads((TOP / "bench/results/h200_rows.json").read_text())["results"]
    tab.goto(f"{address}/plots.html")
    bars = tab.evaluate("""[...document.querySelectorAll('#h200-rows-json svg.plot rect')].slice(1)
        .map(bar => bar.getBoundingClientRect().width)""")
    shares = [result["share_of_limit"] for result in results if result["share_of_limit"]]
    assert len(bars) == len(shares) and all(abs(bar / max(bars) - share / max(shares)) < 0.01 for bar, share in zip(bars, shares))


def look(browser, address, pages):
    colours = set()
    for scheme in ("dark", "light"):
        tab = browser.new_context(color_scheme=scheme, viewport={"width": WIDTH, "height": 1000}).new_page()
        tab.goto(f"{address}/index.html")
        colours.add(tab.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(colours) == 2, colours
    said = check_console(tab, address, pages)
    for check in (check_search, check_catalogue, check_plots):
        check(tab, address)
    assert not said, said


class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def main():
    pages = {str(path.relative_to(FOLDER)): Page(path.read_text()) for path in sorted(FOLDER.rglob("*.html")) if "_static" not in path.parts}
    check_links(pages)
    check_names(pages)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=FOLDER))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        look(browser, f"http://127.0.0.1:{server.server_port}", pages)
        browser.close()


main()
