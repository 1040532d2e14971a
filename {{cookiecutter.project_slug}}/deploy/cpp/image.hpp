// From the bytes of a PNG or JPEG file to uint8 pixels, as the decoding policy in model.json says.
#pragma once

#include <libexif/exif-data.h>
#include <zlib.h>

#include <algorithm>
#include <climits>
#include <cmath>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#define STB_IMAGE_IMPLEMENTATION
#define STB_IMAGE_STATIC
#define STBI_ONLY_JPEG
#define STBI_ONLY_PNG
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#include <stb/stb_image.h>
#pragma GCC diagnostic pop

struct Image {
    int height, width, channels;
    std::vector<std::uint8_t> pixels;  // [height, width, channels]

    Image(int height, int width, int channels, std::uint8_t level = 0)
        : height(height), width(width), channels(channels), pixels(std::size_t(height) * width * channels, level) {}

    std::uint8_t& at(int y, int x, int channel) { return pixels[(std::size_t(y) * width + x) * channels + channel]; }
    std::uint8_t at(int y, int x, int channel) const { return const_cast<Image*>(this)->at(y, x, channel); }
};

// Grey of 16 bits without alpha; nothing for every other kind of file.
inline std::optional<Image> decode_grey16(const stbi_uc* data, int size) {
    int width, height, channels, loaded;
    if (!stbi_is_16_bit_from_memory(data, size)) return {};
    if (!stbi_info_from_memory(data, size, &width, &height, &channels) || channels != 1) return {};
    const std::unique_ptr<stbi_us, decltype(&std::free)> levels(
        stbi_load_16_from_memory(data, size, &width, &height, &loaded, 0), std::free);
    if (!levels) throw std::runtime_error(stbi_failure_reason());
    if (loaded != 1) throw std::runtime_error("16 bits with a transparent level are not supported");
    Image image(height, width, 3);
    for (std::size_t i = 0; i < image.pixels.size(); ++i) image.pixels[i] = levels.get()[i / 3] / 257;
    return image;
}

inline Image decode_rgb(const stbi_uc* data, int size, int background) {
    if (const auto grey = decode_grey16(data, size)) return *grey;
    int width, height, channels;
    const std::unique_ptr<stbi_uc, decltype(&std::free)> rgba(
        stbi_load_from_memory(data, size, &width, &height, &channels, 4), std::free);
    if (!rgba) throw std::runtime_error(std::string("can't be decoded as PNG or JPEG: ") + stbi_failure_reason());
    Image image(height, width, 3);
    for (std::size_t i = 0; i < image.pixels.size(); ++i) {
        const stbi_uc* pixel = rgba.get() + i / 3 * 4;
        image.pixels[i] = (pixel[i % 3] * pixel[3] + background * (255 - pixel[3]) + 127) / 255;
    }
    return image;
}

inline std::uint32_t big_endian(const std::string& bytes, std::size_t at) {
    const auto byte = [&](std::size_t i) { return std::uint32_t(std::uint8_t(bytes.at(at + i))); };
    return byte(0) << 24 | byte(1) << 16 | byte(2) << 8 | byte(3);
}

// The chunk eXIf of a PNG file, as it would stand in JPEG; stb_image does not compare the check sums of chunks.
inline std::string read_png(const std::string& bytes) {
    std::string exif;
    for (std::size_t at = 8, length; at < bytes.size(); at += 12 + length) {
        length = big_endian(bytes, at);
        const std::string chunk = bytes.substr(at + 4, 4 + length);
        const auto* data = reinterpret_cast<const Bytef*>(chunk.data());
        if (crc32(0, data, uInt(chunk.size())) != big_endian(bytes, at + 8 + length))
            throw std::runtime_error("can't be decoded: a part of this PNG is damaged");
        if (chunk.compare(0, 4, "eXIf") == 0) exif = std::string("Exif\0\0", 6) + chunk.substr(4);
        if (chunk == "IEND") break;
    }
    return exif;
}

// As the camera noted it in EXIF, 1 to 8.
inline int read_orientation(const std::string& bytes) {
    const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
    const std::unique_ptr<ExifData, decltype(&exif_data_unref)> exif(exif_data_new_from_data(data, bytes.size()),
                                                                     exif_data_unref);
    const ExifEntry* entry = exif ? exif_data_get_entry(exif.get(), EXIF_TAG_ORIENTATION) : nullptr;
    const int noted = entry && entry->size >= 2 ? exif_get_short(entry->data, exif_data_get_byte_order(exif.get())) : 1;
    return 1 <= noted && noted <= 8 ? noted : 1;
}

inline Image rotate(const Image& image, int orientation) {
    const std::string code = std::to_string(orientation);
    const bool swap = orientation >= 5;
    const bool right_to_left = std::string("2378").find(code) != std::string::npos;
    const bool bottom_up = std::string("3467").find(code) != std::string::npos;
    Image turned(swap ? image.width : image.height, swap ? image.height : image.width, image.channels);
    for (int y = 0; y < image.height; ++y)
        for (int x = 0; x < image.width; ++x) {
            const int v = bottom_up ? image.height - 1 - y : y, u = right_to_left ? image.width - 1 - x : x;
            for (int c = 0; c < image.channels; ++c) turned.at(swap ? u : v, swap ? v : u, c) = image.at(y, x, c);
        }
    return turned;
}

inline Image to_grey(const Image& image) {
    Image grey(image.height, image.width, 1);
    for (std::size_t i = 0; i < grey.pixels.size(); ++i) {
        const std::uint8_t* rgb = &image.pixels[3 * i];
        grey.pixels[i] = (rgb[0] * 19595 + rgb[1] * 38470 + rgb[2] * 7471 + 0x8000) >> 16;
    }
    return grey;
}

// Pillow's BILINEAR along the rows, to the level: a triangle as wide as the reduction, with weights of 22 bits.
// The result is transposed, so that two calls resize an image. stb_image_resize treats the borders in another way.
inline Image resize_rows(const Image& image, int size) {
    Image resized(size, image.height, image.channels);
    const double scale = double(image.width) / size, support = std::max(scale, 1.0);
    for (int out = 0; out < size; ++out) {
        const double center = (out + 0.5) * scale;
        const int first = std::max(0, int(center - support + 0.5));
        std::vector<double> weights(std::min(image.width, int(center + support + 0.5)) - first);
        for (std::size_t i = 0; i < weights.size(); ++i)
            weights[i] = std::max(0.0, 1 - std::abs(first + int(i) + 0.5 - center) / support);
        const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
        for (double& weight : weights) weight = std::floor(weight / sum * (1 << 22) + 0.5);
        for (int y = 0; y < image.height; ++y)
            for (int c = 0; c < image.channels; ++c) {
                double value = 1 << 21;
                for (std::size_t i = 0; i < weights.size(); ++i) value += weights[i] * image.at(y, first + int(i), c);
                resized.at(out, y, c) = std::min(255, int(value / (1 << 22)));
            }
    }
    return resized;
}

inline Image fit(const Image& image, const nlohmann::json& policy) {
    const int height = policy.at("image_size").at(0), width = policy.at("image_size").at(1);
    const std::string rule = policy.at("resize");
    int scaled_height = height, scaled_width = width;
    if (rule == "crop" || rule == "pad") {
        const double y = double(height) / image.height, x = double(width) / image.width;
        const double scale = rule == "crop" ? std::max(y, x) : std::min(y, x);
        scaled_height = std::max(1, int(image.height * scale + 0.5));
        scaled_width = std::max(1, int(image.width * scale + 0.5));
    } else if (rule != "squash") {
        throw std::runtime_error("resize rule " + rule + " is not known here");
    }
    const Image scaled = resize_rows(resize_rows(image, scaled_width), scaled_height);
    Image canvas(height, width, image.channels, policy.at("background").get<int>());
    const int top = (height - scaled_height) / 2, left = (width - scaled_width) / 2;
    for (int y = std::max(0, top); y < std::min(height, top + scaled_height); ++y)
        for (int x = std::max(0, left); x < std::min(width, left + scaled_width); ++x)
            for (int c = 0; c < image.channels; ++c) canvas.at(y, x, c) = scaled.at(y - top, x - left, c);
    return canvas;
}

// Pixels [channels, height, width] of an image file.
inline std::vector<std::uint8_t> decode(const std::string& bytes, const nlohmann::json& policy) {
    const int channels = policy.at("channels");
    if (channels != 1 && channels != 3) throw std::runtime_error("this program decodes grey and colour images only");
    if (bytes.size() > INT_MAX) throw std::runtime_error("larger than 2 GiB");
    const auto data = reinterpret_cast<const stbi_uc*>(bytes.data());
    Image image = decode_rgb(data, int(bytes.size()), policy.at("background"));
    const bool is_png = bytes.compare(1, 3, "PNG") == 0;
    const std::string& noted = is_png ? read_png(bytes) : bytes;
    if (policy.at("rotate")) image = rotate(image, read_orientation(noted));
    const auto [shorter, longer] = std::minmax(image.height, image.width);
    if (longer > policy.at("max_aspect_ratio").get<double>() * shorter)
        throw std::runtime_error("the sides exceed max_aspect_ratio");
    image = fit(channels == 1 ? to_grey(image) : image, policy);
    std::vector<std::uint8_t> planes;
    for (int c = 0; c < channels; ++c)
        for (std::size_t i = c; i < image.pixels.size(); i += channels) planes.push_back(image.pixels[i]);
    return planes;
}
