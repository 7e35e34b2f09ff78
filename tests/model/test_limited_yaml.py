"""YAML of unknown origin is decoded only within the limits, and simple YAML without PyYAML."""

from __future__ import annotations

import subprocess
import sys
from itertools import product
from textwrap import dedent

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from cockpit.model.decoding import block_yaml
from cockpit.model.decoding.limited_json import MAX_DEPTH, LimitError
from cockpit.model.decoding.limited_yaml import InvalidYamlError, dumps, loads

KUBECONFIG = dedent(
    """\
    # Written by kubectl.
    apiVersion: v1
    clusters:
    - cluster:
        certificate-authority-data: LS0tLS1CRUdJTi+/BAg==
        server: https://10.0.0.2:6443
        insecure-skip-tls-verify: false
      name: arn:aws:eks:eu-west-1:1:cluster/ml
    contexts:
      -   context:
            cluster: testbed
            user: admin
          name: 'admin of "ml"'
    current-context: ""
    kind: Config
    preferences: {}
    extensions: []
    users:
    - name: admin
      user:
        exec:
          apiVersion: client.authentication.k8s.io/v1
          args:
          - --region
          - eu-west-1
          command: /usr/bin/aws
          env: null
          installHint: Install it, then log in
          provideClusterInfo: true
        token:
    """
)

KEYS = ("a", "name", "b-c", "yes", "1", "<<", "k8s.io/x", "On", "a b", '"q"', "?", "a:b")
VALUES = (
    *("text", "https://h:1/p", "LS0=+/", "true", "TRUE", "no", "Null", "~", "null", "1", "1e3"),
    *("0x1", "2024-01-01", "-", "--", "---", "--flag", "-flag", "--1", "...", "a: b", "a:", "a #b"),
    *("a#b", "#", "[a]", "[]", "{}", "{a: 1}", '""', "''", '"a b"', "'it''s'", '"\\n"', '"a', "!x"),
    *("&a", "*a", "|", ">", "%", "@x", "`x`", "a, b]", "é", "\ta", "a\tb", "=", "/", "y", "", " "),
    *(".inf", "key: &a v", "- a", "- a: b", "'a': b", '"a" b', "'", "a ", "x\x07", "a\\b", "1:30"),
)
LINES = st.builds(
    lambda indent, items, key, colon, value, end: f"{indent}{items}{key}{colon}{value}{end}",
    st.sampled_from(("", "", "  ", "    ", " ", "\t")),
    st.sampled_from(("", "", "- ", "-   ", "- - ", "-")),
    st.sampled_from(("", *KEYS)),
    st.sampled_from((": ", ":", ":  ", "", " : ")),
    st.sampled_from(VALUES),
    st.sampled_from(("", "", " ", " # comment", "\r")),
)


def test_a_kubeconfig_is_decoded_without_pyyaml() -> None:
    decoded = block_yaml.loads(KUBECONFIG)
    assert decoded == yaml.safe_load(KUBECONFIG)
    assert decoded is not None
    assert list(decoded) == list(yaml.safe_load(KUBECONFIG))
    program = (
        "import sys; from cockpit.model.decoding.limited_yaml import loads; "
        "loads(sys.argv[1]); sys.exit('yaml' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program, KUBECONFIG], check=True)


@settings(max_examples=500, deadline=None)
@given(st.lists(LINES, max_size=6))
def test_what_is_decoded_without_pyyaml_has_the_same_values(lines: list[str]) -> None:
    text = "\n".join(lines)
    decoded = block_yaml.loads(text)
    assert decoded is None or repr(decoded) == repr(yaml.safe_load(text))


@pytest.mark.parametrize("shape", ["{0}: {1}", "x:\n- {0}: {1}\n  z: z", "x:\n  - {1}"])
def test_each_scalar_has_the_same_value(shape: str) -> None:
    decoded = 0
    for key, value in product(KEYS, VALUES):
        text = shape.format(key, value)
        if (document := block_yaml.loads(text)) is not None:
            assert repr(document) == repr(yaml.safe_load(text)), text
            decoded += 1
    assert decoded > len(VALUES)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "- a",
        "a: 1",
        "a: b\n--- \nc: d",
        "a: b\nc",
        "  a: b\nc: d",
        "a:\n  b: c\n d: e",
        "a: b\n  c: d",
        "a:\n- b\n  c: d",
        "a: >\n  b",
        "a: [b,\n  c: d]",
        "<<: &x\n  a: b",
        "a: \u2028",
        "k" * 200 + ": b",
        "a: " + "b" * block_yaml.MAX_CHARACTERS,
        " " * 100 + "a: b",
        "".join(f"{' ' * depth}a:\n" for depth in range(100)),
    ],
)
def test_everything_else_is_left_to_pyyaml(text: str) -> None:
    assert block_yaml.loads(text) is None


def test_a_document_over_the_limits_is_refused() -> None:
    with pytest.raises(LimitError, match="nested more than"):
        loads("[" * (MAX_DEPTH + 1))
    bomb = "a: &a [1,1,1,1,1,1,1,1,1]\n" + "".join(
        f"{'abcdefgh'[i]}: &{'abcdefgh'[i]} [{','.join(['*' + 'abcdefgh'[i - 1]] * 9)}]\n"
        for i in range(1, 8)
    )
    with pytest.raises(LimitError, match="more than 200,000 values"):
        loads(bomb)


@pytest.mark.parametrize(
    ("text", "line"), [("a: b\nc: ]", 2), ("a: 2020-99-99", None), ("a: !x y", 1)]
)
def test_invalid_yaml_has_one_error(text: str, line: int | None) -> None:
    with pytest.raises(InvalidYamlError) as caught:
        loads(text)
    assert caught.value.line == line
    assert str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_was_encoded_is_decoded() -> None:
    value = {"a": ["b", {"c": "yes", "d": "1", "e": None}], "f": "x: y #z", "g": {}}
    assert loads(dumps(value)) == value
