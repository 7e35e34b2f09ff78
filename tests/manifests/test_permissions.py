"""The page about security lists exactly the permissions of manifests/kubernetes/base/rbac.yaml."""

from __future__ import annotations

from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]


def test_every_permission_is_in_the_page_about_security() -> None:
    page = (ROOT / "docs" / "security.md").read_text()
    role, listed = "", set()
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and "`" in cells[1] and cells[2].replace(", ", "").isalpha():
            role = cells[0].strip("`") or role
            verbs = tuple(cells[2].split(", "))
            group, _, resources = cells[1].rpartition(": ")
            for resource in resources.partition("`, by name")[0].split(", "):
                listed.add((role, group.strip("`"), resource.strip("`"), verbs))
    rules = {
        (document["metadata"]["name"], group, resource, tuple(rule["verbs"]))
        for document in yaml.safe_load_all(
            (ROOT / "manifests/kubernetes/base/rbac.yaml").read_text()
        )
        for rule in document["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert listed == rules
