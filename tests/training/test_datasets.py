"""The data sets: complete, or refused with an error; augmented by seed, epoch and index only."""

from __future__ import annotations

import hashlib
import io
import math
import pickle
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor
from torchvision.datasets import CIFAR10, CIFAR100
from torchvision.transforms import functional

from training.data import cifar, load, synthetic, tokens
from training.data.augment import boxes, mirror, normalized, shift
from training.data.example_random import Draws
from training.data.examples import Data, NoData
from training.data.pictures import crops
from training.data.settings import DataSettings
from training.data.token_files import token_files

ALL = np.arange(6)


def assert_drawn_by_seed_epoch_and_number(data: Data) -> None:
    whole, labels = data.train.batch(ALL, Draws(1, 2))
    for part in ([4, 1], [5], [0, 5, 2]):
        images, own = data.train.batch(np.array(part), Draws(1, 2))
        assert torch.equal(images, whole[part])
        assert torch.equal(own, labels[part])
    for other in (Draws(1, 3), Draws(2, 2), None):
        assert not torch.equal(whole, data.train.batch(ALL, other)[0])
    assert whole.shape == (len(ALL), *data.shape)
    assert whole.dtype == torch.float32
    assert whole.is_contiguous()


@dataclass
class Archive:
    """As CIFAR's is, with a few pictures in each of its files."""

    url: str
    content: bytes
    fetched: int = 0
    answer: int = 200


EACH = 4


@pytest.fixture
def archive(monkeypatch: pytest.MonkeyPatch) -> Iterator[Archive]:
    """CIFAR-10's files and sums are these; a server has them."""
    generator = np.random.default_rng(0)
    names = [name for name, _ in CIFAR10.train_list + CIFAR10.test_list]
    images = generator.integers(0, 256, (len(names) * EACH, 3, 32, 32), dtype=np.uint8)
    labels = generator.integers(0, 10, len(images)).tolist()
    files = {
        name: pickle.dumps(
            {
                "data": images[at : at + EACH].reshape(EACH, -1),
                "labels": labels[at : at + EACH],
            }
        )
        for name, at in zip(names, range(0, len(images), EACH), strict=True)
    }
    files["batches.meta"] = pickle.dumps({"label_names": [str(label) for label in range(10)]})
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(f"{CIFAR10.base_folder}/{name}")
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))

    def sums(listed: list[list[str]]) -> list[list[str]]:
        return [[name, hashlib.md5(files[name]).hexdigest()] for name, _ in listed]

    class Server(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.headers["Method"] != "HEAD":  # torchvision follows redirects with this request
                made.fetched += 1
            self.send_response(made.answer)
            self.send_header("Content-Length", str(len(made.content)))
            self.end_headers()
            self.wfile.write(made.content)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    made = Archive(f"http://127.0.0.1:{server.server_port}/a.tar.gz", packed.getvalue())
    monkeypatch.setattr(CIFAR10, "url", made.url)
    monkeypatch.setattr(CIFAR10, "tgz_md5", hashlib.md5(made.content).hexdigest())
    monkeypatch.setattr(CIFAR10, "train_list", sums(CIFAR10.train_list))
    monkeypatch.setattr(CIFAR10, "test_list", sums(CIFAR10.test_list))
    meta = CIFAR10.meta | {"md5": hashlib.md5(files["batches.meta"]).hexdigest()}
    monkeypatch.setattr(CIFAR10, "meta", meta)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    server.shutdown()
    thread.join()
    server.server_close()


def test_cifar_is_fetched_once_and_read_as_torchvision_does(
    archive: Archive, tmp_path: Path
) -> None:
    settings = DataSettings(data="cifar10", data_path=str(tmp_path), download=True)
    ranks: list[Data] = []
    threads = [threading.Thread(target=lambda: ranks.append(load(settings))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert archive.fetched == 1
    assert len(ranks) == 4
    data = load(DataSettings(data="cifar10", data_path=str(tmp_path)))
    assert (len(data.train), len(data.held_out)) == (5 * EACH, EACH)
    assert (data.shape, data.classes) == ((3, 32, 32), 10)
    original = CIFAR10(tmp_path, train=True)
    kind = cifar.KINDS["cifar10"]
    images, labels = data.train.batch(ALL, None)
    for image, label, (picture, answer) in zip(images, labels, original, strict=False):
        expected = functional.normalize(
            functional.to_tensor(picture), list(kind.mean), list(kind.deviation)
        )
        torch.testing.assert_close(image, expected)
        assert int(label) == answer
    left = {item.name for item in tmp_path.iterdir()}
    assert left == {CIFAR10.base_folder, ".cifar10.lock"}


def test_cifar_is_augmented_by_seed_epoch_and_number(archive: Archive, tmp_path: Path) -> None:
    data = load(DataSettings(data="cifar10", data_path=str(tmp_path), download=True))
    assert_drawn_by_seed_epoch_and_number(data)


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_cifar_that_is_absent_names_the_path_and_what_to_do(name: str, tmp_path: Path) -> None:
    with pytest.raises(NoData) as raised:
        load(DataSettings(data=name, data_path=str(tmp_path)))
    folder = {"cifar10": CIFAR10, "cifar100": CIFAR100}[name].base_folder
    text = str(raised.value)
    assert text.startswith(f"{name}: {tmp_path / folder} is not there; set data_path to")
    assert "download=true" in text


def test_cifar_that_is_half_there_or_damaged_names_its_files(
    archive: Archive, tmp_path: Path
) -> None:
    settings = DataSettings(data="cifar10", data_path=str(tmp_path))
    load(DataSettings(data="cifar10", data_path=str(tmp_path), download=True))
    damaged = tmp_path / CIFAR10.base_folder / "data_batch_3"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    with pytest.raises(NoData, match=r"is damaged: the MD5 of data_batch_3 differs; "):
        load(settings)
    damaged.unlink()
    with pytest.raises(NoData, match=r"is half there: data_batch_3 missing; "):
        load(settings)
    mended = load(DataSettings(data="cifar10", data_path=str(tmp_path), download=True))
    assert len(mended.train) == 5 * EACH
    assert archive.fetched == 2


def test_an_archive_that_was_put_there_by_hand_is_unpacked(
    archive: Archive, tmp_path: Path
) -> None:
    (tmp_path / CIFAR10.filename).write_bytes(archive.content)
    load(DataSettings(data="cifar10", data_path=str(tmp_path), download=True))
    assert archive.fetched == 0


def test_cifar_that_cannot_be_fetched_reports_from_where_and_leaves_nothing(
    archive: Archive, tmp_path: Path
) -> None:
    archive.answer = 503
    settings = DataSettings(data="cifar10", data_path=str(tmp_path), download=True)
    with pytest.raises(NoData, match=rf"not be fetched from {archive.url} to {tmp_path}: .*503"):
        load(settings)
    archive.answer = 200
    archive.content = archive.content[:-9]
    with pytest.raises(NoData, match=r"could not be fetched .* corrupted"):
        load(settings)
    assert [item.name for item in tmp_path.iterdir()] == [".cifar10.lock"]


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Of 40×30, a red and a blue one a class; each is darker to the left."""
    for part in ("train", "val"):
        for label, name in enumerate(("cat", "dog", "owl")):
            (tmp_path / part / name).mkdir(parents=True)
            for number, ending in enumerate(("png", "JPEG")):
                pixels = np.zeros((30, 40, 3), dtype=np.uint8)
                pixels[..., 2 * number] = np.linspace(50 * label, 50 * label + 100, 40)
                Image.fromarray(pixels).save(tmp_path / part / name / f"{number}.{ending}")
    return tmp_path


def of_pictures(folder: Path, shape: str = "3x16x16") -> Data:
    return load(DataSettings(data="imagenet", data_path=str(folder), shape=shape))


def test_pictures_in_folders_are_labelled_by_their_folder(pictures: Path) -> None:
    data = of_pictures(pictures)
    assert (len(data.train), len(data.held_out), data.classes) == (6, 6, 3)
    images, labels = data.held_out.batch(ALL, None)
    assert labels.tolist() == [0, 0, 1, 1, 2, 2]
    assert images.shape == (6, 3, 16, 16)
    assert_drawn_by_seed_epoch_and_number(data)


def test_pictures_are_evaluated_on_their_middle_as_torchvision_cuts_it(pictures: Path) -> None:
    """To 4 of 255: torchvision shrinks to 21×16 pixels, and then cuts; here it is one step."""
    images, _ = of_pictures(pictures, "3x14x14").held_out.batch(np.array([0]), None)
    picture = Image.open(pictures / "val" / "cat" / "0.png")
    whole = functional.to_tensor(functional.center_crop(functional.resize(picture, [16]), [14]))
    expected = functional.normalize(whole, list(crops.MEAN), list(crops.DEVIATION))
    torch.testing.assert_close(images[0], expected, atol=4 / 255 / 0.22, rtol=0)


def test_a_random_part_is_what_torchvision_would_cut_at_the_same_place(pictures: Path) -> None:
    draws = Draws(3, 4)
    images, _ = of_pictures(pictures).train.batch(np.array([2]), draws)
    picture = Image.open(pictures / "train" / "dog" / "0.png").convert("RGB")
    ((left, top, right, bottom),) = boxes(np.array([2]), np.array([[40, 30]]), draws, 0)
    cut = functional.resized_crop(picture, top, left, bottom - top, right - left, [16, 16])
    if draws.uniform(np.array([2]), 3)[0] < 0.5:
        cut = functional.hflip(cut)
    expected = functional.normalize(
        functional.to_tensor(cut), list(crops.MEAN), list(crops.DEVIATION)
    )
    torch.testing.assert_close(images[0], expected, atol=1 / 255 / 0.22, rtol=0)


def test_a_picture_that_cannot_be_read_is_named(pictures: Path) -> None:
    data = of_pictures(pictures)
    cut_off = pictures / "train" / "owl" / "1.JPEG"
    cut_off.write_bytes(cut_off.read_bytes()[:-100])
    with pytest.raises(NoData, match=rf"^{cut_off} cannot be read as a picture: (?i:.*truncated)"):
        data.train.batch(ALL, None)
    (pictures / "train" / "owl" / "0.png").write_bytes(b"no picture")
    with pytest.raises(NoData, match=r"0\.png cannot be read as a picture: cannot identify"):
        data.train.batch(np.array([4]), None)


def test_folders_that_are_not_whole_are_refused_with_what_is_missing(pictures: Path) -> None:
    for picture in (pictures / "val" / "dog").iterdir():
        picture.unlink()
    with pytest.raises(NoData, match=r"val is half there: class dog without a picture"):
        of_pictures(pictures)
    (pictures / "val" / "dog").rmdir()
    with pytest.raises(NoData, match=r"half there: class dog in train and not in val"):
        of_pictures(pictures)
    for name in ("cat", "owl"):
        for picture in (pictures / "val" / name).iterdir():
            picture.rename(pictures / "val" / f"{name}-{picture.name}")
        (pictures / "val" / name).rmdir()
    with pytest.raises(NoData, match=r"val has no folders of classes, and 4 pictures lie in it"):
        of_pictures(pictures)
    with pytest.raises(NoData, match=r"nowhere/train is not there: data_path is a folder with"):
        of_pictures(pictures / "nowhere")
    with pytest.raises(NoData, match="pictures have 3 channels, and shape asks for 1"):
        of_pictures(pictures, "1x16x16")


def test_a_shifted_picture_is_the_same_picture_elsewhere() -> None:
    images = np.arange(2 * 3 * 5 * 4, dtype=np.uint8).reshape(2, 3, 5, 4)
    moved = shift(images, np.array([2, 0]), np.array([2, 3]), border=2)
    assert (moved[0] == images[0]).all()
    assert (moved[1, :, 2:, :3] == images[1, :, :3, 1:]).all()
    assert (moved[1, :, :2] == 0).all()
    assert (moved[1, :, :, 3:] == 0).all()


def test_mirrored_are_those_that_should_be() -> None:
    images = np.arange(2 * 3 * 2 * 4, dtype=np.uint8).reshape(2, 3, 2, 4)
    mirrored = mirror(images, np.array([True, False]))
    assert (mirrored[0] == images[0, :, :, ::-1]).all()
    assert (mirrored[1] == images[1]).all()


@pytest.mark.parametrize("size", [(500, 375), (375, 500), (1, 1), (2000, 10), (10, 2000)])
def test_random_parts_lie_within_the_picture_and_are_as_large_as_they_may_be(
    size: tuple[int, int],
) -> None:
    width, height = size
    found = np.array(boxes(np.arange(500), np.tile([width, height], (500, 1)), Draws(0, 0), 0))
    left, top, right, bottom = found.T
    assert (left >= 0).all()
    assert (top >= 0).all()
    assert (right <= width).all()
    assert (bottom <= height).all()
    assert (right > left).all()
    assert (bottom > top).all()
    if min(size) > 100:
        shares = (right - left) * (bottom - top) / (width * height)
        assert 0.07 < shares.min() < 0.15
        assert 0.8 < shares.max() <= 1
        ratios = (right - left) / (bottom - top)
        assert 0.74 < ratios.min() < 0.8
        assert 1.25 < ratios.max() < 1.35


def test_normalized_pixels_have_mean_0_and_deviation_1() -> None:
    images = np.random.default_rng(0).integers(0, 256, (50, 2, 8, 8), dtype=np.uint8)
    shares = images / 255
    mean = tuple(shares.mean(axis=(0, 2, 3)).tolist())
    deviation = tuple(shares.std(axis=(0, 2, 3)).tolist())
    scaled = normalized(images, mean, deviation)
    assert scaled.dtype == np.float32
    np.testing.assert_allclose(scaled.mean(axis=(0, 2, 3)), 0, atol=1e-5)
    np.testing.assert_allclose(scaled.std(axis=(0, 2, 3)), 1, atol=1e-5)


def of_tokens(file: Path, **settings: Any) -> Data:
    asked = {"sequence_length": 4} | settings
    return load(DataSettings(data="tokens", data_path=str(file), **asked))


def test_a_text_becomes_a_file_of_its_bytes_and_sequences_of_them(tmp_path: Path) -> None:
    text, file = tmp_path / "text", tmp_path / "deep" / "text.bin"
    text.write_bytes("Größe und Maß\n".encode() * 20)
    written = subprocess.run(
        [sys.executable, "-m", "training.data.tokens", str(text), "-o", str(file)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert written.stderr == ""
    assert written.stdout == (f"340 tokens: --data tokens --data-path {file} --vocabulary 256\n")
    assert [item.name for item in file.parent.iterdir()] == ["text.bin"]
    assert (np.fromfile(file, np.uint16) == list(text.read_bytes())).all()
    data = of_tokens(file)
    assert (data.shape, data.classes, data.is_tokens) == ((4,), 256, True)
    inputs, targets = data.train.batch(np.arange(len(data.train)), None)
    assert bytes(inputs.flatten().tolist()) == text.read_bytes()[: inputs.numel()]
    assert bytes(targets.flatten().tolist()) == text.read_bytes()[1 : 1 + inputs.numel()]
    assert len(data.train) == (306 - 1) // 4
    held_out, _ = data.held_out.batch(np.array([0]), None)
    assert bytes(held_out[0].tolist()) == text.read_bytes()[306:310], "the last tenth"


def test_a_text_that_is_not_there_is_reported_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing, file = tmp_path / "no", tmp_path / "x.bin"
    monkeypatch.setattr(sys, "argv", ["tokens", str(missing), "-o", str(file)])
    with pytest.raises(SystemExit, match=rf"^{missing}: No such file or directory$"):
        tokens.main()
    assert list(tmp_path.iterdir()) == []


def test_tokens_may_have_a_file_of_their_own_to_evaluate_on(tmp_path: Path) -> None:
    train, val = tmp_path / "train.bin", tmp_path / "val.bin"
    np.arange(41, dtype=np.uint32).tofile(train)
    np.arange(41, 50, dtype=np.uint32).tofile(val)
    data = of_tokens(train, held_out_path=str(val), token_type="uint32")
    assert (len(data.train), len(data.held_out)) == (10, 2)
    inputs, targets = data.held_out.batch(np.array([1]), None)
    assert (inputs.tolist(), targets.tolist()) == ([[45, 46, 47, 48]], [[46, 47, 48, 49]])


def test_a_token_that_is_none_of_the_vocabulary_is_refused_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "t.bin"
    text = np.full(100, 7, dtype=np.uint16)
    text[[50, 66]] = 256, 300
    text.tofile(file)
    data = of_tokens(file)
    data.train.batch(np.arange(10), None)
    with pytest.raises(NoData, match=r"t\.bin: the token at 50 is 256, and there are 256: "):
        data.train.batch(np.array([20, 16, 3]), None)


def test_a_file_that_cannot_be_one_of_tokens_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "t.bin"
    with pytest.raises(NoData, match=rf"^{file} is not there: a file of uint16 tokens"):
        of_tokens(file)
    with pytest.raises(NoData, match="needs data_path"):
        load(DataSettings(data="tokens"))
    file.write_bytes(b"abc")
    with pytest.raises(NoData, match="has 3 bytes, which is no whole number of uint16"):
        of_tokens(file)
    np.arange(30, dtype=np.uint16).tofile(file)
    with pytest.raises(NoData, match="has 3 tokens held out, too few for a sequence of 4"):
        of_tokens(file)
    np.arange(1000, dtype=np.uint32).tofile(file)
    with pytest.raises(NoData, match="holds uint32, not uint16, by its look: set token_type="):
        of_tokens(file)
    assert of_tokens(file, token_type="uint32", vocabulary=1000).classes == 1000
    assert len(token_files(str(file), "uint32")) == 1000


@pytest.mark.parametrize("shape", ["3x32x32", "1x7x9", "2x1x1"])
def test_synthetic_images_are_the_same_each_time_and_show_their_class(shape: str) -> None:
    data = load(DataSettings(data="synthetic", shape=shape, classes=5, examples=400))
    images, labels = data.train.batch(np.arange(400), Draws(0, 0))
    again, _ = load(
        DataSettings(data="synthetic", shape=shape, classes=5, examples=400)
    ).train.batch(np.array([7, 3]), Draws(9, 9))
    assert torch.equal(again, images[[7, 3]])
    assert images.shape == (400, *data.shape)
    assert set(labels.tolist()) == set(range(5))
    held_out, _ = data.held_out.batch(np.arange(len(data.held_out)), None)
    assert len(held_out) == 50
    assert not any(torch.equal(held_out[0], image) for image in images)
    if shape == "3x32x32":
        means = torch.stack([images[labels == label].mean(dim=0) for label in range(5)])
        nearest = torch.cdist(images.flatten(1), means.flatten(1)).argmin(dim=1)
        assert float((nearest == labels).double().mean()) > 0.99


def test_synthetic_tokens_follow_a_chain_whose_entropy_is_the_floor() -> None:
    data = synthetic.tokens(length=200, vocabulary=11, examples=300)
    inputs, targets = data.train.batch(np.arange(300), None)
    assert torch.equal(inputs[:, 1:], targets[:, :-1])
    pairs = torch.zeros(11, 11, dtype=torch.float64)
    pairs.index_put_((inputs.flatten(), targets.flatten()), pairs.new_ones(()), accumulate=True)
    assert ((pairs > 0).sum(dim=1) == 4).all()
    likely = pairs / pairs.sum(dim=1, keepdim=True)
    seen = float(-(pairs * torch.where(pairs > 0, likely, 1).log()).sum() / pairs.sum())
    assert seen == pytest.approx(synthetic.FLOOR, rel=0.005)
    assert pytest.approx(1.75 * math.log(2)) == synthetic.FLOOR
    frequent: Tensor = pairs.sum(dim=1) / pairs.sum()
    assert float(frequent.min()) > 0.08, "each token is as frequent as any other"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"data": "synthetic", "shape": "3x224"}, "shape is '3x224': give channels x height x"),
        ({"data": "synthetic", "shape": "3x0x4"}, "shape is '3x0x4': give channels x height x"),
        ({"data": "synthetic", "examples": 0}, "0 synthetic examples of 1000 classes: give 1"),
        ({"data": "synthetic-tokens", "vocabulary": 4}, "a vocabulary of more than 4"),
    ],
)
def test_synthetic_examples_that_cannot_be_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(NoData, match=said):
        load(DataSettings(**settings))
