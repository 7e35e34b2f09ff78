from __future__ import annotations

import shlex
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cockpit.model import secret
from cockpit.model.secret import is_secret, masked, masked_command, masked_lines
from tests.growth import growth

SECRET = "s3cr3t-V4lue"


@pytest.mark.parametrize(
    "said",
    [
        f"python t.py --api-key {SECRET} --epochs 3",
        f"python t.py --password={SECRET} --epochs 3",
        f"WANDB_API_KEY={SECRET} python t.py",
        f'{{"hf_token": "{SECRET}"}}',
        f"secret: '{SECRET} and more'",
        f"curl -H 'Authorization: Bearer {SECRET}'",
        f"postgres://me:{SECRET}@db/x",
        f"https://:{SECRET}@host",
        f"aws_secret_access_key = {SECRET}",
        f"git+https://{SECRET}@host/repo.git",
        f"https://me:a@b{SECRET}@host",
        f"Authorization: token {SECRET}",
        f"authorization: {SECRET}",
        f"OPENAI_KEY={SECRET}",
        f"MYSQL_PWD={SECRET}",
        f"DB_PASS={SECRET}",
        f"smtp_pass: {SECRET}",
        f"mysql -u me -p{SECRET} db",
        f"mysqldump -p '{SECRET}' db",
        f"docker login -u me -p {SECRET} host",
        f"sshpass -p {SECRET} ssh host",
        f"redis-cli -a {SECRET} ping",
        f"curl -s -u me:{SECRET} host",
        f"SSH_PASSPHRASE={SECRET}",
        f"hf_token => {SECRET}",
        f"the token password={SECRET}",
        f"--max-tokens --token {SECRET}",
        f"train --wandb-key {SECRET}",
        f"train --license-key={SECRET} --x",
        f"train --auth {SECRET}",
        f"train --pw={SECRET}",
        f"train --token \\\n {SECRET}",
        f"GH_PAT={SECRET}",
        f"os.environ['HF_TOKEN']='{SECRET}'",
        f"https://host/blob?sv=1&sig={SECRET}&se=2",
        f"https://bucket/x?X-Amz-Date=1&X-Amz-Signature={SECRET}",
        f"--token --hf-token {SECRET}",
        f"tokens=5,password={SECRET}",
        f"said\n-----BEGIN RSA PRIVATE KEY-----\n{SECRET}\n-----END RSA PRIVATE KEY-----",
        f"said\n-----BEGIN RSA PRIVATE KEY-----\n{SECRET}",
    ],
)
def test_a_secret_is_not_reported_and_the_rest_is(said: str) -> None:
    reported = masked(said)
    assert SECRET not in reported
    assert "***" in reported
    assert reported.startswith(said[:4])


@pytest.mark.parametrize("before", ["", "a b ", "a,", "a;b&", "a'b ", 'a"b ', "'", '"', "a\\'"])
@pytest.mark.parametrize(
    "argv",
    [
        ["t", "--password={}"],
        ["t", "--password", "{}"],
        ["t", "--env=DB_PASSWORD={}"],
        ["env", "DB_PASSWORD={}", "t"],
        ["bash", "-c", "DB_PASSWORD='{}' t"],
        ["sshpass", "-p", "{}", "ssh", "host"],
        ["/usr/bin/mysql", "-p{}", "db"],
    ],
)
def test_no_part_of_a_secret_in_a_command_is_left(argv: list[str], before: str) -> None:
    """Also in the command as a shell has it, whole or cut."""
    if argv[0] == "bash":
        before = before.replace("'", "")
    words = [word.format(f"{before}{SECRET}") for word in argv]
    shown = masked_command(words)
    assert SECRET not in " ".join(shown)
    assert shown[0] == argv[0]
    line = shlex.join(words)
    for text in (line, line[: line.index(SECRET) + len(SECRET)]):
        assert SECRET not in masked(text)
        assert masked(text).startswith(argv[0])


@pytest.mark.parametrize("said", ['{{"hf_token": "{0}"}}', '{{"hf_token": "{0}', "password: '{0}"])
@pytest.mark.parametrize("value", [SECRET, f"a b {SECRET}", f'a\\"b {SECRET}', f"a,{SECRET}"])
def test_no_part_of_a_secret_in_a_document_is_left(said: str, value: str) -> None:
    assert SECRET not in masked(said.format(value))


def test_lines_of_a_private_key_are_one_secret() -> None:
    key = f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----"
    assert masked_lines(f"one\n{key}\ntwo") == "one\n***\ntwo"


@pytest.mark.parametrize(
    "token",
    [
        "hf_" + "a1B2" * 8,
        "ghp_" + "x" * 36,
        "AKIA" + "A1" * 8,
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOi.c2ln",
        "eyJhbGciOiJIUzI1",
        "npm_" + "x" * 36,
        "ASIA" + "A1" * 8,
        "AIza" + "x" * 35,
    ],
)
def test_a_known_form_of_token_is_hidden_wherever_it_stands(token: str) -> None:
    assert token not in masked(f"the server said {token} no")


@pytest.mark.parametrize(
    "said",
    [
        "the token was refused",
        "--max-tokens 4096 --tokenizer=gpt2",
        "tokens_per_s=1200",
        "loss: 0.3 at step 400",
        "http://host:8265/page",
        "http://host:9090?query=a@b",
        "authorization: required",
        "PWD=/home/me --sort-key=name",
        "--path x --authors y --keys z --key-name w",
        "train.py -p 8080 -u me",
        "docker run -p 8080:80 image",
        "mysql --port 3306; train -p 3",
        "first_pass=3, passed: 4, bypass=1",
    ],
)
def test_text_without_secrets_is_unchanged(said: str) -> None:
    assert masked(said) == said


@given(name=st.from_regex(secret._secret_name(), fullmatch=True))
def test_each_secret_name_has_one_of_the_parts_that_are_looked_for_first(name: str) -> None:
    assert is_secret(name)


WORD = r"[\w.'\"@&;,/?-]{0,60}"


@given(text=st.from_regex(rf"{WORD}(?:eyJ|hf_|sk-|AKIA|-p|token)?{WORD}", fullmatch=True))
def test_text_without_a_separator_is_masked_as_if_all_patterns_were_tried(text: str) -> None:
    known = secret._header().sub("", secret._private_key().sub("", text))
    assert known == secret._named().sub("", secret._short().sub("", known))


def test_a_name_reports_whether_its_value_is_shown() -> None:
    assert is_secret("wandb_api_key")
    assert is_secret("HF_TOKEN")
    assert not is_secret("max_tokens")
    assert not is_secret("lr")


@pytest.mark.parametrize(
    "piece",
    [
        "a",
        "eyJ",
        "token",
        "token ",
        "x=",
        "://a:",
        "-",
        "'token=",
        "--token ",
        "https://",
        "token=,",
        "mysql ",
        "mysql -p",
        "login x -p ",
    ],
)
def test_a_long_hostile_text_costs_as_much_as_it_is_long(piece: str) -> None:
    assert growth(lambda: masked(piece * 20_000), lambda: masked(piece * 200_000)) < 25


@pytest.mark.parametrize(
    "text",
    ["token" * 800, "a" * 4_000, "x_key." * 660, "token=" * 660],
    ids=["keywords", "letters", "names", "assignments"],
)
def test_masking_takes_a_few_milliseconds_whatever_the_text(text: str) -> None:
    began_s = time.process_time()
    for _ in range(20):
        masked(text)
    assert (time.process_time() - began_s) / 20 < 0.03


def test_long_text_keeps_its_first_and_last_lines_and_no_part_of_a_secret() -> None:
    key = "-----BEGIN PRIVATE KEY-----\n" + "MIIE\n" * 5_000 + "-----END PRIVATE KEY-----"
    lines = [f"line {n} --token {SECRET}" for n in range(2_000)]
    shown = masked_lines("\n".join([*lines, key, "the end"]), 1_000)
    assert len(shown) <= 1_100
    assert shown.startswith("line 0 --token ***\nline 1 ")
    assert shown.endswith("--token ***\n***\nthe end")
    assert SECRET not in shown
    assert "MIIE" not in shown
    assert masked_lines(f"{'x' * 990} --token {SECRET * 30}", 1_000).count(SECRET[:5]) == 0
    assert masked_lines("short\ntext", 1_000) == "short\ntext"
