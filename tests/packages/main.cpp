// Calls a package from C++: a network of two products, from vectors.
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "demo.h"

namespace {

struct Matrix {
    std::vector<int64_t> shape;
    float* data;

    Matrix(int64_t rows, int64_t columns, int scale)
        : shape{rows, columns}, data(static_cast<float*>(std::aligned_alloc(256, 16384))) {
        for (int64_t i = 0; i < rows * columns; i++) data[i] = static_cast<float>(i % 11 - 5) / static_cast<float>(scale);
    }
    ~Matrix() { std::free(data); }
    Matrix(const Matrix&) = delete;
    Matrix& operator=(const Matrix&) = delete;

    DLTensor tensor() {
        DLTensor t{};
        t.data = data;
        t.device.device_type = kDLCPU;
        t.ndim = 2;
        t.dtype = {kDLFloat, 32, 1};
        t.shape = shape.data();
        return t;
    }
};

void check(int status, const char* message) {
    if (status != ARGUS_OK) throw std::runtime_error(message);
}

}  // namespace

int main(int count, char** arguments) {
    char message[256];
    argus_package* package = nullptr;
    if (count < 2) return 2;
    check(demo_open(arguments[1], 0, &package, message, sizeof message), message);
    Matrix x(12, 20, 3), w1(20, 24, 7), w2(24, 8, 5), y(12, 8, 1);
    DLTensor a = x.tensor(), b = w1.tensor(), c = w2.tensor(), d = y.tensor();
    size_t bytes = 0;
    check(demo_mlp_workspace(package, &a, &b, &c, &d, &bytes, message, sizeof message), message);
    void* workspace = std::aligned_alloc(256, bytes);
    check(demo_mlp(package, &a, &b, &c, &d, workspace, bytes, nullptr, message, sizeof message), message);
    std::fwrite(y.data, 4, 96, stdout);
    const int status = demo_mlp(package, &a, &c, &b, &d, workspace, bytes, nullptr, message, sizeof message);
    if (status != ARGUS_ARGUMENT || std::string(message).find("shape-mismatch") != 0) return 3;
    std::free(workspace);
    argus_close(package);
    return 0;
}
