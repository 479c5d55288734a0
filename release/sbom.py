# SPDX-License-Identifier: Apache-2.0
"""Prints the bill of materials of a release, SPDX 2.3 as JSON: its files with their sums, and what is linked into them
(release/linked.txt), in the versions that this system has."""

import argparse
import datetime
import hashlib
import json
import pathlib
import subprocess


def debian_version(package: str) -> str:
    return subprocess.run(["dpkg-query", "-W", "-f=${Version}", package], check=True, capture_output=True, text=True).stdout


def linked() -> list[dict]:
    """Packages of Debian's that are linked in."""
    packages = []
    for line in pathlib.Path(__file__).with_name("linked.txt").read_text().splitlines():
        if line.startswith("#"):
            continue
        name, rest = line.split(maxsplit=1)
        licence, holders = rest.split("  ", maxsplit=1)
        version = debian_version(name)
        packages.append({
            "SPDXID": f"SPDXRef-{name.replace('+', 'p')}",
            "name": name,
            "versionInfo": version,
            "downloadLocation": "NOASSERTION",
            "licenseConcluded": licence,
            "licenseDeclared": licence,
            "copyrightText": "NOASSERTION",
            "comment": f"in {holders.strip()}",
            "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                              "referenceLocator": f"pkg:deb/debian/{name.replace('+', '%2B')}@{version}"}],
        })
    return packages


def file_entry(path: pathlib.Path, number: int) -> dict:
    data = path.read_bytes()
    return {
        "SPDXID": f"SPDXRef-File-{number}",
        "fileName": f"./{path.name}",
        "checksums": [{"algorithm": "SHA1", "checksumValue": hashlib.sha1(data).hexdigest()},
                      {"algorithm": "SHA256", "checksumValue": hashlib.sha256(data).hexdigest()}],
        "licenseConcluded": "Apache-2.0",
        "copyrightText": "NOASSERTION",
    }


def document(version: str, folder: pathlib.Path, epoch: int) -> dict:
    packages = linked()
    files = [file_entry(path, i) for i, path in enumerate(sorted(folder.iterdir()))]
    sums = hashlib.sha256("".join(f["checksums"][1]["checksumValue"] for f in files).encode()).hexdigest()
    quern = {"SPDXID": "SPDXRef-quern", "name": "quern", "versionInfo": version, "downloadLocation": "NOASSERTION",
             "licenseConcluded": "Apache-2.0", "licenseDeclared": "Apache-2.0", "copyrightText": "NOASSERTION",
             "filesAnalyzed": False}
    relations = [("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-quern")]
    relations += [("SPDXRef-quern", "GENERATES", f["SPDXID"]) for f in files]
    relations += [("SPDXRef-quern", "STATIC_LINK", p["SPDXID"]) for p in packages]
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"quern-{version}",
        "documentNamespace": f"urn:quern:{version}:{sums}",
        "creationInfo": {"created": datetime.datetime.fromtimestamp(epoch, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
                         "creators": ["Tool: quern release/sbom.py"]},
        "packages": [quern] + [{**p, "filesAnalyzed": False} for p in packages],
        "files": files,
        "relationships": [{"spdxElementId": a, "relationshipType": kind, "relatedSpdxElement": b} for a, kind, b in relations],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", required=True)
    parser.add_argument("--folder", required=True, type=pathlib.Path, help="holds the release's files")
    parser.add_argument("--epoch", required=True, type=int, help="the commit's time, in seconds")
    args = parser.parse_args()
    print(json.dumps(document(args.version, args.folder, args.epoch), indent=1))


if __name__ == "__main__":
    main()
