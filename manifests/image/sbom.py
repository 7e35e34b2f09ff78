"""Print what is installed as SPDX 2.3 JSON: the Python distributions, and Debian's packages.

`python sbom.py NAME` describes the image NAME. It needs the standard library only.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import distributions

UNKNOWN = "NOASSERTION"


def package(kind: str, name: str, version: str) -> dict[str, object]:
    """`kind` is that of a package URL: `pypi`, or `deb/debian`."""
    identifier = re.sub(r"[^A-Za-z0-9.]+", "-", f"{kind}-{name}-{version}")
    return {
        "SPDXID": f"SPDXRef-{identifier}",
        "name": name,
        "versionInfo": version,
        "downloadLocation": UNKNOWN,
        "filesAnalyzed": False,
        "licenseConcluded": UNKNOWN,
        "licenseDeclared": UNKNOWN,
        "copyrightText": UNKNOWN,
        "externalRefs": [
            {
                "referenceCategory": "PACKAGE-MANAGER",
                "referenceType": "purl",
                "referenceLocator": f"pkg:{kind}/{name.lower()}@{version}",
            }
        ],
    }


def debian() -> list[tuple[str, str]]:
    """Name and version of each package; none where there is no dpkg."""
    if shutil.which("dpkg-query") is None:
        return []
    command = ["dpkg-query", "--show", "--showformat", "${Package} ${Version}\n"]
    said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    return [(name, version) for name, version in (line.split() for line in said.splitlines())]


def document(image: str) -> dict[str, object]:
    python = {(each.metadata["Name"], each.version) for each in distributions()}
    packages = [package("pypi", *each) for each in sorted(python)]
    packages += [package("deb/debian", *each) for each in sorted(debian())]
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": image,
        "documentNamespace": f"urn:cockpit:image:{image}",
        "creationInfo": {
            "created": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "creators": ["Tool: cockpit/manifests/image/sbom.py"],
        },
        "packages": packages,
        "relationships": [
            {
                "spdxElementId": "SPDXRef-DOCUMENT",
                "relationshipType": "DESCRIBES",
                "relatedSpdxElement": each["SPDXID"],
            }
            for each in packages
        ],
    }


if __name__ == "__main__":
    json.dump(document(sys.argv[1]), sys.stdout, indent=1)
