# SPDX-License-Identifier: Apache-2.0
"""Which of others' test cases run, what became of them, and a list of those that cannot pass.

A list is a text file of lines "VERB PART -- REASON". PART is a part of a case's name, FILE::TEST[PARAMETERS], as pytest prints it. Blank
lines and lines that begin with # say nothing. VERB is one of
  skip  such cases are not run
  fail  such cases run and fail, or their file does not load; if each of them passes, that is told, and the line is to go
or one of these with :cpu or :gpu, for a run on the CPU or on a GPU alone. A case that fails and has no line makes the runner's exit status
1. These are no failures, and counted apart: refused, quern raises NotImplementedError; taken, quern takes what the test wants refused;
worded, it raises the right error in its own words; slow, the case took longer than it may; late, the run had no time left for it.
"""

import argparse
import collections
import pathlib
import random
import signal
import time

import pytest


class QuernHasNot(NotImplementedError):
    """What the other's op can and quern cannot, said by a runner."""


class List:
    """The lines of a list that are for the device, "cpu" or "gpu": entries (verb, part, reason)."""

    def __init__(self, path, device="cpu"):
        entries = [self._entry(path, n, line) for n, line in enumerate(pathlib.Path(path).read_text().splitlines(), 1)
                   if line.strip() and not line.startswith("#")]
        self.entries = [entry[1:] for entry in entries if entry[0] in ("", device)]

    @staticmethod
    def _entry(path, n, line):
        head, _, reason = line.partition(" -- ")
        verb, _, part = head.partition(" ")
        verb, colon, device = verb.partition(":")
        if verb not in ("skip", "fail") or colon and device not in ("cpu", "gpu") or not part.strip() or not reason.strip():
            raise SystemExit(f"{path}:{n}: found {line!r}; a line is: skip PART -- REASON, or: fail PART -- REASON, "
                             "each verb with :cpu or :gpu if it is for one of them")
        return device, verb, part.strip(), reason.strip()

    def of(self, name, verb):
        return next((entry for entry in self.entries if entry[0] == verb and entry[1] in name), None)


def _refused(excinfo):
    """Whether quern, or a runner for it, raised NotImplementedError, though others may have raised another error because of it."""
    if excinfo.errisinstance(NotImplementedError) and any("/quern/" in str(entry.path) for entry in excinfo.traceback):
        return True
    error = excinfo.value
    while error is not None and not isinstance(error, QuernHasNot):
        error = error.__cause__ or error.__context__
    return error is not None


class _TooSlow(BaseException):
    """Stops a case; not an Exception, which tests might catch."""


class _Late(BaseException):
    """The run has no time left for the case."""


class Plugin:
    """pytest's plug-in that chooses at most so many cases of each test, gives each so many seconds, begins none `within` seconds after the
    first, and counts."""

    def __init__(self, known, most, seconds, within=0):
        self.known, self.most, self.seconds = known, most, seconds
        self.within, self.start = within or float("inf"), None
        self.counts = collections.defaultdict(collections.Counter)
        self.of_entry = collections.defaultdict(collections.Counter)  # fail's entry -> outcomes of its cases
        self.unlisted = []

    # ---- which cases

    @pytest.hookimpl(trylast=True)  # after -k
    def pytest_collection_modifyitems(self, items):
        by_test = collections.defaultdict(list)
        for item in items:
            by_test[item.location[0], getattr(item, "cls", None), getattr(item, "originalname", item.name)].append(item)
        chosen = {}  # a case's name -> its place among those of its test
        for cases in by_test.values():
            chosen |= {item.nodeid: n for n, item in enumerate(self._some([item for item in cases if not self._skipped(item)]))}
        items[:] = [item for item in items if item.nodeid in chosen or self._skipped(item)]
        if self.within < float("inf"):
            items.sort(key=lambda item: chosen.get(item.nodeid, -1))  # the first of each test, the second of each: all have a share

    def _some(self, cases):
        """Returns so many cases as may run, of all over the grid: every n-th one would have the same parameter each time."""
        if not self.most or len(cases) <= self.most:
            return cases
        return random.Random(cases[0].location[2].split("[")[0]).sample(cases, self.most)

    def _skipped(self, item):
        entry = self.known.of(item.nodeid, "skip")
        if entry and not item.get_closest_marker("listed"):
            item.add_marker(pytest.mark.skip(reason=entry[2]))
            item.add_marker("listed")
        return entry

    # ---- how long

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item):
        self.start = self.start or time.monotonic()
        if time.monotonic() > self.start + self.within:
            raise _Late

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item):
        signal.signal(signal.SIGALRM, self._give_up)
        signal.setitimer(signal.ITIMER_REAL, self.seconds, 5)  # again, as what is raised within a finaliser or a callback is lost
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _give_up(self, *_):
        raise _TooSlow

    # ---- what became of them

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item, call):
        report = (yield).get_result()
        kind = self._kind(call.excinfo) if call.excinfo else None
        if kind:
            text = {"slow": f"takes more than {self.seconds} s", "late": "no time left"}.get(kind, f"{kind}: {call.excinfo.value}")
            report.outcome, report.longrepr = "skipped", (str(item.path), 0, text[:300])
        elif report.outcome == "failed" or report.when == "call" and report.outcome == "passed":
            kind = self._listed(item.nodeid, report, item.path)
        if report.when == "call" or report.outcome != "passed":
            self.counts[item.location[0]][kind or report.outcome] += 1

    def _listed(self, name, report, path):
        """Looks a case that failed or passed up. Returns what it counts as."""
        entry = self.known.of(name, "fail")
        if entry:
            self.of_entry[entry][report.outcome] += 1
        if report.outcome != "failed":
            return None
        if entry:
            report.outcome, report.longrepr = "skipped", (str(path), 0, entry[2])
            return "listed"
        self.unlisted.append(name)
        return None

    @pytest.hookimpl(hookwrapper=True)
    def pytest_make_collect_report(self, collector):
        report = (yield).get_result()
        if report.outcome == "failed":
            kind = self._listed(collector.nodeid, report, collector.path)
            self.counts[collector.nodeid][kind or "not loaded"] += 1
        elif report.outcome == "skipped":
            self.counts[collector.nodeid]["files that skip themselves"] += 1

    def _kind(self, excinfo):
        text = str(excinfo.value)
        if excinfo.errisinstance(_TooSlow):
            return "slow"
        if excinfo.errisinstance(_Late):
            return "late"
        if _refused(excinfo):
            return "refused"
        return "taken" if "DID NOT RAISE" in text else "worded" if "Regex pattern did not match" in text else None

    def pytest_sessionfinish(self, session):
        if session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and not self.unlisted and self.counts:
            session.exitstatus = pytest.ExitCode.OK  # each file is listed

    def pytest_terminal_summary(self, terminalreporter):
        write, total = terminalreporter.write_line, collections.Counter()
        for path, count in self.counts.items():
            write(f"{path}: " + ", ".join(f"{n} {what}" for what, n in sorted(count.items())))
            total += count
        write("all: " + ", ".join(f"{n} {what}" for what, n in sorted(total.items())))
        for entry, outcomes in self.of_entry.items():
            if not outcomes["failed"]:
                write(f"passes though listed, {outcomes['passed']} cases: {entry[1]} -- {entry[2]}")
        for name in self.unlisted:
            write(f"failed, and not listed: {name}")


def parser_of(description, name, most=6, seconds=20):
    """Returns a parser of what runners have in common; name: whose checkout it is."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=pathlib.Path, help=f"a checkout of {name}, or its unpacked source package")
    parser.add_argument("files", nargs="*", help="some of its files of tests; else those that the runner knows")
    parser.add_argument("--most", type=int, default=most, help=f"how many cases of a test, the same ones each time; 0: all; else {most}")
    parser.add_argument("--seconds", type=int, default=seconds, help=f"how long a case may take; else {seconds}")
    parser.add_argument("--within", type=int, default=0, help="seconds after the first case in which others may begin; else no end")
    return parser


def plugin_of(options, path, device="cpu"):
    """Returns the plug-in for a parsed command line and the list of this path."""
    return Plugin(List(path, device), options.most, options.seconds, options.within)
