// classify BUNDLE FILE...: path, label and score of PNG and JPEG files as CSV, once the bundle is checked.
//
// OpenVINO comes with its wheel (python -m pip install openvino), which holds headers, libraries and CMake files:
//   cmake -B build -D OpenVINO_DIR="$(python -c 'import openvino; print(openvino.__path__[0])')/cmake"
//   cmake --build build && build/classify BUNDLE FILE...

#include <openssl/evp.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <openvino/openvino.hpp>
#include <sstream>

#include "image.hpp"

namespace fs = std::filesystem;
using nlohmann::json;
using Pixels = std::vector<std::uint8_t>;
using Scores = std::map<std::string, std::vector<float>>;

const std::map<std::string, std::string> kFiles = {
    {"onnx", "model.onnx"},
    {"openvino", "model.xml"},
};

std::string read(const fs::path& file) {
    std::ifstream stream(file, std::ios::binary);
    std::ostringstream content;
    if (!stream || !(content << stream.rdbuf())) throw std::runtime_error(file.string() + ": can't be read");
    return content.str();
}

std::string sha256(const std::string& bytes) {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int size = 0;
    if (!EVP_Digest(bytes.data(), bytes.size(), digest, &size, EVP_sha256(), nullptr))
        throw std::runtime_error("SHA-256 is not available");
    char text[3];
    std::string hex;
    for (unsigned int i = 0; i < size; ++i) hex.append(text, std::snprintf(text, sizeof text, "%02x", digest[i]));
    return hex;
}

// NumPy's file format, for uint8 arrays of one shape alone.
Pixels read_npy(const fs::path& file, const std::vector<int>& shape) {
    std::string wanted = "'shape': (";
    for (int size : shape) wanted += std::to_string(size) + ", ";
    wanted.replace(wanted.size() - 2, 2, ")");
    const std::string bytes = read(file);
    const std::size_t start = bytes.find('\n') + 1;
    for (const std::string& part : {std::string("\x93NUMPY\x01"), std::string("'|u1', 'fortran_order': False"), wanted})
        if (bytes.substr(0, start).find(part) == std::string::npos)
            throw std::runtime_error(file.string() + ": not a uint8 array with " + wanted);
    return Pixels(bytes.begin() + start, bytes.end());
}

Pixels decode_file(const fs::path& file, const json& policy) {
    const std::string bytes = read(file);
    try {
        return decode(bytes, policy);
    } catch (const std::exception& error) {
        throw std::runtime_error(file.string() + ": " + error.what());
    }
}

// Relative to scores above 1. Never true of NaN.
bool are_close(const std::vector<float>& ours, const std::vector<float>& expected, double tolerance) {
    const auto is_close = [=](float a, float b) { return std::abs(a - b) <= tolerance * std::max(1.0f, std::abs(b)); };
    return std::equal(ours.begin(), ours.end(), expected.begin(), expected.end(), is_close);
}

std::string quoted(const std::string& text) {
    if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
    std::string inside;
    for (char letter : text) inside += letter == '"' ? "\"\"" : std::string(1, letter);
    return '"' + inside + '"';
}

class Model {
  public:
    explicit Model(const fs::path& bundle) : bundle_(bundle), model_(json::parse(read(bundle / "model.json"))) {
        for (const auto& [name, digest] : model_.at("files").items())
            if (sha256(read(bundle / name)) != digest)
                throw std::runtime_error(name + " is not the file that was exported");
        const std::string format = model_.at("format");
        if (!kFiles.count(format)) throw std::runtime_error("this program does not run the format " + format);
        // On CPUs that have bf16 OpenVINO computes in it unless told otherwise: scores change by 0.01 and more.
        const auto precision = ov::hint::inference_precision(ov::element::f32);
        const std::string file = (bundle / kFiles.at(format)).string();
        request_ = ov::Core().compile_model(file, "CPU", precision).create_infer_request();
        check_golden();
    }

    std::string row(const fs::path& file) {
        const auto scores = run(decode_file(file, model_.at("decoding"))).at("probabilities");
        char score[32];
        std::snprintf(score, sizeof score, "%.6f", *std::max_element(scores.begin(), scores.end()));
        return quoted(file.string()) + ',' + quoted(label(scores)) + ',' + score;
    }

  private:
    fs::path bundle_;
    json model_;
    ov::InferRequest request_;

    // uint8 [channels, height, width] to scores; a fixed batch is filled with the same image.
    Scores run(const Pixels& pixels) {
        const json& shape = model_.at("input").at("shape");
        const std::size_t num = shape[0].is_number() ? shape[0].get<std::size_t>() : 1;
        ov::Tensor images(ov::element::u8, {num, shape[1], shape[2], shape[3]});
        if (images.get_size() != num * pixels.size()) throw std::runtime_error("the input has another size");
        for (std::size_t i = 0; i < num; ++i)
            std::copy(pixels.begin(), pixels.end(), images.data<std::uint8_t>() + i * pixels.size());
        request_.set_tensor("images", images);
        request_.infer();
        Scores scores;
        for (const char* name : {"logits", "probabilities"}) {
            const ov::Tensor values = request_.get_tensor(name);
            scores[name].assign(values.data<float>(), values.data<float>() + values.get_size() / num);
        }
        return scores;
    }

    std::string label(const std::vector<float>& scores) const {
        const std::vector<std::string> classes = model_.at("classes");
        if (model_.at("task") == "multiclass")
            return classes.at(std::max_element(scores.begin(), scores.end()) - scores.begin());
        std::string chosen;
        for (std::size_t i = 0; i < scores.size(); ++i)
            if (scores[i] >= 0.5) chosen += (chosen.empty() ? "" : "|") + classes.at(i);
        return chosen;
    }

    void check_golden() {
        const json golden = json::parse(read(bundle_ / "golden" / "golden.json"));
        for (const json& image : golden.at("images")) {
            const std::string problem = "golden image " + image.at("file").get<std::string>() + " gets other scores: ";
            if (!from_pixels(image, golden.at("tolerance")))
                throw std::runtime_error(problem + "from its pixels the model computes something else");
            if (!from_file(image, golden.at("file_tolerance")))
                throw std::runtime_error(problem + "its file is decoded in another way");
        }
    }

    bool from_pixels(const json& image, double tolerance) {
        const json& shape = model_.at("input").at("shape");
        const Pixels pixels = read_npy(bundle_ / "golden" / image.at("pixels"), {shape[1], shape[2], shape[3]});
        const Scores scores = run(pixels);
        return are_close(scores.at("logits"), image.at("logits"), tolerance) &&
               are_close(scores.at("probabilities"), image.at("probabilities"), tolerance);
    }

    bool from_file(const json& image, double tolerance) {
        const fs::path file = bundle_ / "golden" / image.at("file");
        const auto scores = run(decode_file(file, model_.at("decoding"))).at("probabilities");
        const std::vector<float> expected = image.at("probabilities");
        return label(scores) == label(expected) && are_close(scores, expected, tolerance);
    }
};

int main(int argc, char** argv) {
    try {
        if (argc < 3) throw std::runtime_error("the arguments are BUNDLE FILE...");
        Model model(argv[1]);
        std::cout << "path,label,score\n";
        for (int i = 2; i < argc; ++i) std::cout << model.row(argv[i]) << '\n';
    } catch (const std::exception& error) {
        std::cerr << "classify: " << error.what() << '\n';
        return 1;
    }
}
