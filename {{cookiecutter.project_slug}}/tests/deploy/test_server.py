"""deploy/server/server.py answers with the scores of the bundle, and says what is wrong with an upload."""

import asyncio
import io
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("litserve", reason="needs the extra 'server'")
pytest.importorskip("python_multipart", reason="needs the extra 'server'")
from starlette.exceptions import HTTPException
from starlette.requests import Request

FORM = "multipart/form-data; boundary=B"


@pytest.fixture
def server(make_bundle, consumer, monkeypatch: pytest.MonkeyPatch):
    """The program, and a server with its own options, whose processes are not started."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)  # put back afterwards
    program = consumer("server")
    return program, program.build(program.parse([f"--bundle={make_bundle()[1]}", "--max_pixels=10000"]))


def png(size: tuple[int, int] = (40, 30), kind: str = "PNG") -> bytes:
    stream, pixels = io.BytesIO(), np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), np.uint8)
    Image.fromarray(pixels).save(stream, kind)
    return stream.getvalue()


def form(content: bytes) -> bytes:
    head = b'--B\r\nContent-Disposition: form-data; name="file"; filename="image.png"\r\n\r\n'
    return head + content + b"\r\n--B--\r\n"


def upload(server, body: bytes, content_type: str = "image/png") -> np.ndarray:
    program, built = server

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": body, "more_body": False}

    scope = {"type": "http", "app": built.app, "headers": [(b"content-type", content_type.encode())]}
    return asyncio.run(program.read_image(Request(scope, receive)))


@pytest.mark.parametrize("batch", [1, 2])
def test_a_form_and_a_plain_body_get_the_scores_of_the_bundle(batch, server) -> None:
    image, api = png(), server[1].lit_api
    api.setup("cpu")
    images = np.stack([upload(server, image), upload(server, form(image), FORM)])
    outputs = api.predict(images) if batch > 1 else [api.predict(each) for each in images]
    expected = api.bundle.scores(api.bundle.decode(io.BytesIO(image))[None])["probabilities"][0]
    for answer in map(api.encode_response, outputs):
        assert answer["labels"] == api.bundle.labels(expected)
        assert list(answer["scores"]) == api.bundle.classes
        assert list(answer["scores"].values()) == pytest.approx(expected.tolist(), abs=1e-6)


REFUSED = {
    "truncated": (lambda: png()[:-100], 422, "truncated"),
    "no image": (lambda: b"text", 422, "is not one of AVIF"),
    "other format": (partial(png, kind="EPS"), 422, "is not one of AVIF"),
    "many pixels": (partial(png, (101, 100)), 422, "exceeds limit of 10000 pixels"),
    "long side": (partial(png, (1000, 4)), 422, "exceed max_aspect_ratio"),
    "empty": (bytes, 400, "no file came"),
    "form without a file": (lambda: form(png()).replace(b"; filename", b"; no"), 400, "no file came"),
    "form without an end": (lambda: form(png())[:-20], 400, "no file came"),
    "two files": (lambda: form(png())[:-6] + b"\r\n" + form(png()), 400, "Too many files"),
}


@pytest.mark.parametrize(("body", "status", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_is_wrong_with_an_upload_is_said_in_one_line(body, status, reason, server) -> None:
    content = body()
    with pytest.raises(HTTPException, match=reason) as refused:
        upload(server, content, FORM if content.startswith(b"--B") else "image/png")
    assert refused.value.status_code == status
    assert len(refused.value.detail.splitlines()) == 1


def test_an_upload_must_be_complete_in_time(server) -> None:
    program, built = server
    built.app.state.upload_timeout = 0.01
    request = Request({"type": "http", "app": built.app, "headers": []}, asyncio.Event().wait)
    with pytest.raises(HTTPException) as refused:
        asyncio.run(program.read_image(request))
    assert refused.value.status_code == 408


def test_options_come_from_the_command_line_then_the_environment(consumer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVER_PORT", "9000")
    monkeypatch.setenv("SERVER_WORKERS", "2")
    options = consumer("server").parse(["--port", "9001"])
    assert (options.port, options.workers, options.host) == (9001, 2, "127.0.0.1")


def test_a_server_without_its_bundle_is_not_built(server, tmp_path: Path) -> None:
    program, built = server
    (built.lit_api.folder / "labels.txt").write_text("other\n", "utf-8")
    for options, reason in ([["--batch_timeout=0"], "above 0"], [[], "labels.txt is not the file"]):
        with pytest.raises(ValueError, match=reason):
            program.build(program.parse([f"--bundle={built.lit_api.folder}", *options]))
