import numpy as np
import pytest
from PIL import Image

from {{cookiecutter.package_name}}.data import decoding

RED, WHITE = [255, 0, 0], [255, 255, 255]


def decode(source, **options):
    return decoding.Decoding(**{"image_size": (4, 4)} | options).decode(source)


def save(path, image, **options):
    image.save(path, **options)
    return path


@pytest.mark.parametrize("name", ["ramp.png", "ramp.tif", "ramp.pgm"])
def test_16_bit_grey_is_scaled_and_not_clipped(name, tmp_path):
    ramp = save(tmp_path / name, Image.fromarray(np.array([[0, 257, 5_000, 65_535]], dtype=np.uint16)))
    assert decode(ramp, image_size=(1, 4), channels=1).tolist() == [[[0, 1, 19, 255]]]


def test_exif_orientation_is_followed_unless_it_is_turned_off(tmp_path):
    image, exif = Image.new("RGB", (8, 4), "white"), Image.Exif()
    image.paste("red", (0, 0, 8, 2))
    exif[0x0112] = 6  # the camera was turned: the first row is the right-hand side
    file = save(tmp_path / "turned.png", image, exif=exif)
    assert decode(file, image_size=(8, 4))[1].tolist() == [[255, 255, 0, 0]] * 8
    assert decode(file, image_size=(4, 8), rotate=False)[1].tolist() == [[0] * 8] * 2 + [[255] * 8] * 2


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "RGB"])
def test_transparent_pixels_show_the_background(mode, channels, tmp_path):
    clear = {"P": 0, "RGB": (0, 0, 0)}.get(mode)
    image = Image.new(mode, (4, 4), 0)
    file = save(tmp_path / "clear.png", image, **({} if clear is None else {"transparency": clear}))
    assert decode(file, background=200, channels=channels).unique().tolist() == [200]


@pytest.mark.parametrize(
    ("mode", "name", "expected"), [("CMYK", "a.tif", RED), ("P", "a.gif", RED), ("1", "a.png", WHITE)]
)
def test_other_modes_become_rgb(mode, name, expected, tmp_path):
    image = Image.new(mode, (4, 4), (0, 255, 255, 0) if mode == "CMYK" else 1)
    if mode == "P":
        image.putpalette([0, 0, 0, *RED])
    assert decode(save(tmp_path / name, image))[:, 0, 0].tolist() == expected


def test_long_images_are_squashed_cropped_or_padded_as_asked():
    columns = np.tile(np.arange(7, dtype=np.uint8) * 40, (4, 1))
    assert decode(columns, resize="crop", channels=1)[0].tolist() == [[40, 80, 120, 160]] * 4
    strip = np.array([[0] * 4 + [255] * 4] * 2, np.uint8)
    assert decode(strip, resize="squash", channels=1)[0][:, [0, 3]].tolist() == [[0, 255]] * 4
    padded = decode(strip, resize="pad", channels=1, background=7)[0]
    assert padded[:, [0, 3]].tolist() == [[7, 7], [0, 255], [7, 7], [7, 7]]


def test_fine_stripes_are_averaged_and_not_sampled():
    stripes = np.tile(np.array([0, 255], np.uint8), (64, 32))
    assert ((decode(stripes, channels=1) - 128.0).abs() < 8).all()


def test_extreme_ratios_are_refused(tmp_path):
    assert decode(save(tmp_path / "long.png", Image.new("L", (2_000, 20)))).shape == (3, 4, 4)
    with pytest.raises(decoding.BrokenImageError, match=r"wide\.png .* 2000 x 4 pixels exceed max_aspect_ratio"):
        decode(save(tmp_path / "wide.png", Image.new("L", (2_000, 4))))


def test_bands_are_kept_and_another_number_of_them_is_refused(tmp_path):
    np.save(tmp_path / "bands.npy", np.full((6, 8, 5), [0, 257, 514, 771, 1028], np.uint16))
    assert decode(tmp_path / "bands.npy", channels=5)[:, 0, 0].tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(decoding.BrokenImageError, match=r"bands\.npy .* expected 3 channels, got 5"):
        decode(tmp_path / "bands.npy")


@pytest.mark.parametrize("axis", [0, 2])
def test_bands_of_a_tiff_may_come_first_or_last(axis, tmp_path):
    tifffile = pytest.importorskip("tifffile", reason="the extra 'tiff' is not installed")
    bands = np.moveaxis(np.full((6, 8, 5), range(5), np.uint8), 2, axis)
    planes = "contig" if axis == 2 else "separate"
    tifffile.imwrite(tmp_path / "a.tif", bands, photometric="minisblack", planarconfig=planes)
    assert decode(tmp_path / "a.tif", channels=5)[:, 0, 0].tolist() == [0, 1, 2, 3, 4]


def test_a_missing_tiff_reader_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setattr(decoding, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match="install the extra 'tiff'"):
        decode(tmp_path / "a.tif", channels=5)


@pytest.mark.parametrize("name", ["a.png", "a.jpeg", "a.gif", "a.bmp", "a.webp", "a.tiff", "a.ppm"])
def test_a_truncated_file_is_named(name, tmp_path):
    file = save(tmp_path / name, Image.effect_noise((64, 64), 50))
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(ValueError, match=f"{name} can't be decoded"):
        decode(file)


def test_files_without_a_usable_image_are_named(tmp_path, monkeypatch):
    (tmp_path / "empty.png").touch()
    (tmp_path / "text.npy").write_text("no array")
    save(tmp_path / "float.tif", Image.new("F", (4, 4)))
    save(tmp_path / "deep.tif", Image.fromarray(np.full((4, 4), 70_000, np.int32)))
    save(tmp_path / "bomb.png", Image.new("L", (100, 100)))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1_000)
    for name in ("empty.png", "text.npy", "float.tif", "deep.tif", "bomb.png", "missing.png"):
        with pytest.raises(ValueError, match=f"{name} can't be decoded"):
            decode(tmp_path / name)


@pytest.mark.parametrize("wrong", [{"image_size": (0, 4)}, {"channels": 0}, {"background": 256}])
def test_impossible_options_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        decode(np.zeros((4, 4), np.uint8), **wrong)
