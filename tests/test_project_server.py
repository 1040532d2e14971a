"""The server in processes of its own: many clients get the answers of `predict`, and hostile ones harm nobody."""

import hashlib
import http
import io
import json
import shutil
import struct
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from PIL import Image, PngImagePlugin
from projects import SHORT, Project, bake_project, draw_folder, draw_image, read_rows
from serving import SECONDS, Answer, Body, Headers, Server, kill, members, start, wait_for

TOLERANCE = 1e-4
NUM_CLIENTS = 8
# The server's defaults, and what they may cost: an image as read, rotated, on its background and as RGB, and uploads
# that are held, each once more while it is put together.
MAX_BYTES, MAX_PIXELS, NUM_UPLOADS = 10_000_000, 25_000_000, 16
MAX_GROWTH = 20 * MAX_PIXELS + 2 * NUM_UPLOADS * MAX_BYTES

FORM = {"Content-Type": "multipart/form-data; boundary=B"}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return bake_project(tmp_path_factory.mktemp("server"))


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """25 images, no two alike."""
    folder = draw_folder(tmp_path_factory.mktemp("images") / "drawn", images_per_class=8)
    draw_image(99, 0, size=(50, 31)).save(folder / "other.jpg", quality=95)
    return sorted(file for file in folder.rglob("*") if file.is_file())


@pytest.fixture(scope="module")
def bundle(project: Project) -> Path:
    checkpoint = project.fit(*SHORT) / "checkpoints" / "last.ckpt"
    project.run("export", "--ckpt_path", checkpoint, "--output", "bundle")
    return project.folder / "bundle"


@pytest.fixture(scope="module")
def expected(project: Project, bundle: Path, images: list[Path]) -> dict[Path, tuple[str, float]]:
    """Label and score of each image, by `predict`."""
    (checkpoint,) = project.folder.rglob("last.ckpt")
    project.run("predict", *images, "--ckpt_path", checkpoint, "--output", bundle.parent / "predictions.csv")
    rows = read_rows(bundle.parent / "predictions.csv")
    return {Path(row["path"]): (row["label"], float(row["score"])) for row in rows}


@pytest.fixture(scope="module")
def server(project: Project, bundle: Path) -> Iterator[Server]:
    server = start(project, bundle)
    try:
        wait_for(server.is_healthy)
        yield server
    finally:
        kill(server)


@pytest.fixture(scope="module")
def idle(server: Server) -> int:
    """Bytes that the server holds before the first upload."""
    return server.memory("VmRSS")


def form(content: bytes, name: str = "image.png") -> bytes:
    head = f'--B\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
    return head.encode() + content + b"\r\n--B--\r\n"


def check_answer(answer: Answer, expected: tuple[str, float]) -> None:
    status, content = answer
    assert status == http.HTTPStatus.OK, content
    found = json.loads(content)
    (label,) = found["labels"]
    assert label == expected[0] == max(found["scores"], key=found["scores"].__getitem__)
    assert found["scores"][label] == pytest.approx(expected[1], abs=TOLERANCE)


def test_many_clients_at_once_get_the_answers_of_predict(
    server: Server, idle: int, images: list[Path], expected: dict[Path, tuple[str, float]]
) -> None:
    def ask(number: int, file: Path) -> tuple[Answer, Answer]:
        content = file.read_bytes()
        broken = server.classify(content[:-40])  # must not spoil the batch of others
        return broken, server.classify(form(content), FORM) if number % 2 else server.classify(content)

    jobs = [(number, file) for number in range(NUM_CLIENTS) for file in images]
    with ThreadPoolExecutor(NUM_CLIENTS) as clients:
        answers = list(clients.map(ask, *zip(*jobs, strict=True)))
    for (_, file), (broken, answer) in zip(jobs, answers, strict=True):
        assert broken[0] == http.HTTPStatus.UNPROCESSABLE_ENTITY
        check_answer(answer, expected[file])


def encoded(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def small(kind: str = "PNG", **options: object) -> bytes:
    return encoded(draw_image(1, 1), kind, **options)


def declared(side: int) -> bytes:
    """A small PNG whose header, checksum included, declares another size."""
    content = small()
    header = b"IHDR" + struct.pack(">II", side, side) + content[24:29]
    return content[:12] + header + struct.pack(">I", zlib.crc32(header)) + content[33:]


def patched(kind: str, offset: int, layout: str, *values: int, **options: object) -> bytes:
    """A small file of another kind whose header declares another size."""
    content, size = small(kind, **options), struct.pack(layout, *values)
    return content[:offset] + size + content[offset + len(size) :]


def long_text() -> bytes:
    """A small PNG with a comment that is a thousand times larger than the file."""
    info = PngImagePlugin.PngInfo()
    info.add_text("comment", "a" * 60_000_000, zip=True)
    return small(pnginfo=info)


def chunks(size: int) -> Iterator[bytes]:
    """A body whose length is not told before, so that it goes out in chunks."""
    yield from (bytes(1_000_000) for _ in range(size // 1_000_000))


BIG = 100_000_000
HOSTILE: dict[str, tuple[Callable[[], Body], Headers, int]] = {
    "truncated PNG": (lambda: small()[:-40], {}, 422),
    "truncated JPEG": (lambda: small("JPEG")[:300], {}, 422),
    "PNG that declares 3.6 billion pixels": (partial(declared, 60_000), {}, 422),
    "PNG that declares more than its kind can": (partial(declared, 2**31), {}, 422),
    "PNG of 100 million pixels": (lambda: encoded(Image.new("L", (10_000, 10_000))), {}, 422),
    "PNG with a comment of 60 MB": (long_text, {}, 422),
    "GIF that declares 4 billion pixels": (partial(patched, "GIF", 6, "<HH", 65535, 65535), {}, 422),
    "BMP that declares 900 million pixels": (partial(patched, "BMP", 18, "<ii", 30000, 30000), {}, 422),
    "WebP that declares 268 million pixels": (partial(patched, "WEBP", 21, "<I", 2**28 - 1, lossless=True), {}, 422),
    "image of one line": (lambda: encoded(Image.new("L", (60_000, 1))), {}, 422),
    "text named as an image": (lambda: form(b"text"), FORM, 422),
    "JSON": (lambda: b'{"image": 1}', {"Content-Type": "application/json"}, 422),
    "EPS": (partial(small, "EPS"), {}, 422),
    "nothing": (bytes, {}, 400),
    "form without boundary": (lambda: form(small()), {"Content-Type": "multipart/form-data"}, 400),
    "form that is none": (lambda: b"no form\r\n\r\n" * 9, FORM, 400),
    "form without end": (lambda: form(small())[:-30], FORM, 400),
    "form with two files": (lambda: form(small())[:-8] + b"\r\n" + form(small()), FORM, 400),
    "form with a part of endless headers": (lambda: b"--B\r\n" + b"X: y\r\n" * 1_000_000, FORM, 400),
    "100 MB": (partial(bytes, BIG), {}, 413),
    "100 MB in a form": (lambda: form(bytes(BIG)), FORM, 413),
    "100 MB in chunks": (partial(chunks, BIG), {}, 413),
}


@pytest.mark.parametrize(("body", "headers", "status"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_upload_is_refused_in_one_line_and_the_next_is_served(
    body: Callable[[], Body],
    headers: Headers,
    status: int,
    server: Server,
    expected: dict[Path, tuple[str, float]],
) -> None:
    found, content = server.classify(body(), headers)
    assert found == status, content
    assert json.loads(content)["detail"].count("\n") == 0 < len(json.loads(content)["detail"])
    file = next(iter(expected))
    check_answer(server.classify(file.read_bytes()), expected[file])


def test_other_methods_and_paths_are_refused(server: Server) -> None:
    assert server.ask("GET", "/predict")[0] == http.HTTPStatus.METHOD_NOT_ALLOWED
    assert server.ask("PUT", "/predict", small())[0] == http.HTTPStatus.METHOD_NOT_ALLOWED
    assert server.ask("POST", "/nothing", small())[0] == http.HTTPStatus.NOT_FOUND
    assert server.is_healthy()


@pytest.mark.parametrize("rest", [b"Content-Length: 1000000\r\n\r\npart", b"Transfer-Encoding: chunked\r\n\r\n5\r\npa"])
def test_a_client_that_leaves_in_the_middle_harms_nobody(
    rest: bytes, server: Server, expected: dict[Path, tuple[str, float]]
) -> None:
    for _ in range(2 * NUM_UPLOADS):  # more than are held at once
        server.speak(b"POST /predict HTTP/1.1\r\nHost: here\r\n" + rest)
    file = next(iter(expected))
    check_answer(server.classify(file.read_bytes()), expected[file])


def test_what_is_no_http_is_refused(server: Server) -> None:
    assert b" 400 " in server.speak(b"\x16\x03\x01 no HTTP\r\n\r\n")
    assert server.is_healthy()


def test_memory_stays_bounded(server: Server, idle: int) -> None:
    largest = encoded(Image.new("RGBA", (5_000, MAX_PIXELS // 5_000), (10, 20, 30, 40)))
    bodies = [largest, bytes(BIG), form(bytes(BIG)), bytes(MAX_BYTES)] * 4
    with ThreadPoolExecutor(len(bodies)) as clients:
        answers = list(clients.map(server.classify, bodies, [{}, {}, FORM, {}] * 4))
    assert [status for status, _ in answers] == [200, 413, 413, 422] * 4
    growth = server.memory("VmHWM") - idle
    print(f"idle {idle / 1e6:.0f} MB, at most {growth / 1e6:.0f} MB more; allowed are {MAX_GROWTH / 1e6:.0f}")
    assert growth <= MAX_GROWTH


@pytest.mark.parametrize("name", ["golden/golden.json", "golden/rgb.png", "labels.txt", "model.onnx"])
def test_a_bundle_with_one_other_byte_is_not_served(name: str, project: Project, bundle: Path, tmp_path: Path) -> None:
    copied = shutil.copytree(bundle, tmp_path / "copied")
    content = bytearray((copied / name).read_bytes())
    content[len(content) // 2] ^= 1
    (copied / name).write_bytes(content)
    check_refused(project, copied, f"{name} is not the file that was exported\n")


def test_a_bundle_that_scores_in_another_way_is_not_served(project: Project, bundle: Path, tmp_path: Path) -> None:
    copied = shutil.copytree(bundle, tmp_path / "copied")
    golden, model = copied / "golden" / "golden.json", copied / "model.json"
    content, description = (json.loads(file.read_text("utf-8")) for file in (golden, model))
    content["images"][0]["probabilities"][0] += 0.01
    golden.write_text(json.dumps(content), "utf-8")
    description["files"]["golden/golden.json"] = hashlib.sha256(golden.read_bytes()).hexdigest()
    model.write_text(json.dumps(description), "utf-8")
    check_refused(project, copied, "gets other scores: this machine computes in another way\n")


def check_refused(project: Project, bundle: Path, reason: str) -> None:
    """It says so in one line and ends, and nothing of it stays."""
    server = start(project, bundle)
    try:
        assert server.process.wait(SECONDS) == 1
        assert not list(members(server.process.pid))
    finally:
        kill(server)
    said = bundle.with_suffix(".log").read_text("utf-8")
    assert said.endswith(reason) and said.count("\n") == 1


@pytest.mark.parametrize("options", [(), ("--workers=2", "--max_batch_size=1")], ids=" ".join)
def test_sigterm_ends_all_of_its_processes(
    options: tuple[str, ...], project: Project, bundle: Path, expected: dict[Path, tuple[str, float]]
) -> None:
    server = start(project, bundle, *options)
    try:
        wait_for(server.is_healthy)
        for file in expected:
            check_answer(server.classify(file.read_bytes()), expected[file])
        server.process.terminate()
        assert server.process.wait(SECONDS) == 0
        wait_for(lambda: not list(members(server.process.pid)))
    finally:
        kill(server)
