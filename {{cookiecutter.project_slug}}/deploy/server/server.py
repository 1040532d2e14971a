"""python server.py --bundle FOLDER: POST an image file, as a form or bare, to /predict for its labels and scores."""

import argparse
import asyncio
import io
import multiprocessing
import os
import signal
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any

import litserve
import numpy as np
from fastapi import Depends, HTTPException, Request
from PIL import Image
from starlette.datastructures import UploadFile
from starlette.requests import ClientDisconnect

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))
from bundle import Bundle

# Name: default and meaning. Given as --name, or as SERVER_NAME in the environment. Beyond what it holds when idle, each
# worker takes up to 20 bytes for a pixel of max_pixels, and NUM_UPLOADS * 2 * max_bytes.
OPTIONS: dict[str, tuple[Any, str]] = {
    "bundle": ("bundle", "folder that `export` wrote"),
    "host": ("127.0.0.1", "address to listen on; 0.0.0.0 means all of this machine's"),
    "port": (8000, "port to listen on"),
    "workers": (1, "processes that compute, and as many that receive and decode"),
    "max_batch_size": (16, "images that are computed together at most"),
    "batch_timeout": (0.002, "seconds to wait for more of them"),
    "max_bytes": (10_000_000, "size of an upload at most"),
    "max_pixels": (25_000_000, "width * height of an image at most"),
    "upload_timeout": (30.0, "seconds until an upload must be complete"),
}
NUM_UPLOADS = 16  # what a process that receives holds at once; others wait unread


async def read_upload(request: Request) -> bytes:
    """The body, or the file in it where it is a form."""
    if not request.headers.get("content-type", "").startswith("multipart/form-data"):
        return await request.body()
    async with request.form(max_files=1, max_fields=1) as form:
        files = [value for value in form.values() if isinstance(value, UploadFile)]
        return await files[0].read() if files else b""


async def read_image(request: Request) -> np.ndarray:
    """The image as the model takes it, uint8 [C, H, W]; what is wrong with an upload is told to its client alone."""
    state = request.app.state
    async with state.uploads:
        try:
            async with asyncio.timeout(state.upload_timeout):
                upload = await read_upload(request)
        except (TimeoutError, ClientDisconnect):
            raise HTTPException(408, f"the upload was not complete after {state.upload_timeout} seconds") from None
        if not upload:
            raise HTTPException(400, "no file came: send one as the body or as a form's file")
        try:
            decode, loop = state.bundle.decode, asyncio.get_running_loop()
            return await loop.run_in_executor(state.decoder, decode, io.BytesIO(upload))
        except ValueError as error:
            raise HTTPException(422, str(error)) from None


class Classifier(litserve.LitAPI):
    """Computes images that are already decoded: in LitServe, an upload that failed here would fail its whole batch."""

    def __init__(self, folder: Path, **options: Any) -> None:
        super().__init__(**options)
        self.folder = folder

    def setup(self, device: str) -> None:
        self.bundle = Bundle(self.folder)

    def decode_request(self, request: Annotated[np.ndarray, Depends(read_image)]) -> np.ndarray:
        return request

    def predict(self, images: np.ndarray) -> np.ndarray:
        # LitServe makes no batch where max_batch_size is 1.
        return self.bundle.scores(images.reshape(-1, *images.shape[-3:]))["probabilities"]

    def encode_response(self, output: np.ndarray) -> dict[str, Any]:
        probabilities = output.ravel()
        scores = dict(zip(self.bundle.classes, probabilities.tolist(), strict=True))
        return {"labels": self.bundle.labels(probabilities), "scores": scores}


def parse(arguments: list[str]) -> argparse.Namespace:
    """Options of the command line, before those of the environment, before the defaults."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    for name, (default, meaning) in OPTIONS.items():
        given = os.environ.get(f"SERVER_{name.upper()}", default)
        parser.add_argument(f"--{name}", type=type(default), default=given, help=meaning)
    return parser.parse_args(arguments)


def build(options: argparse.Namespace) -> litserve.LitServer:
    """A server whose bundle is checked; each of its workers checks it again, as it loads it."""
    if options.batch_timeout <= 0:
        raise ValueError(f"batch_timeout must be above 0, got {options.batch_timeout}: LitServe would never pause.")
    Image.MAX_IMAGE_PIXELS = options.max_pixels
    warnings.simplefilter("error", Image.DecompressionBombWarning)
    api = Classifier(Path(options.bundle), max_batch_size=options.max_batch_size, batch_timeout=options.batch_timeout)
    server = litserve.LitServer(
        api,
        accelerator="cpu",
        workers_per_device=options.workers,
        max_payload_size=options.max_bytes,
        disable_openapi_url=True,
    )
    state = server.app.state
    state.bundle, state.upload_timeout = Bundle(api.folder), options.upload_timeout
    # One image at a time: what decoding takes at most is then known.
    state.uploads, state.decoder = asyncio.Semaphore(NUM_UPLOADS), ThreadPoolExecutor(1)
    return server


def stop(*_: Any) -> None:
    """Have LitServe end its processes, as it does on Ctrl-C; by itself it leaves them behind."""
    raise KeyboardInterrupt if multiprocessing.parent_process() is None else SystemExit


def main() -> None:
    """Serve until SIGTERM or Ctrl-C."""
    options = parse(sys.argv[1:])
    signal.signal(signal.SIGTERM, stop)
    try:
        server = build(options)
        server.run(host=options.host, port=options.port, generate_client_file=False)
    except (OSError, ValueError, LookupError) as error:
        sys.exit(str(error))
    finally:
        for process in multiprocessing.active_children():
            process.terminate()


if __name__ == "__main__":
    main()
