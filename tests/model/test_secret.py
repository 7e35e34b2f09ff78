from __future__ import annotations

import pytest

from cockpit.model.secret import is_secret, masked
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
    ],
)
def test_a_secret_is_not_reported_and_the_rest_is(said: str) -> None:
    told = masked(said)
    assert SECRET not in told
    assert "***" in told
    assert told.startswith(said[:4])


@pytest.mark.parametrize(
    "token",
    [
        "hf_" + "a1B2" * 8,
        "ghp_" + "x" * 36,
        "AKIA" + "A1" * 8,
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOi.c2ln",
        "eyJhbGciOiJIUzI1",
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
    ],
)
def test_what_is_no_secret_stays(said: str) -> None:
    assert masked(said) == said


def test_a_name_reports_whether_its_value_is_shown() -> None:
    assert is_secret("wandb_api_key")
    assert is_secret("HF_TOKEN")
    assert not is_secret("max_tokens")
    assert not is_secret("lr")


@pytest.mark.parametrize("piece", ["a", "eyJ", "token", "token ", "x=", "://a:", "-"])
def test_a_long_hostile_text_costs_as_much_as_it_is_long(piece: str) -> None:
    assert growth(lambda: masked(piece * 20_000), lambda: masked(piece * 200_000)) < 25
