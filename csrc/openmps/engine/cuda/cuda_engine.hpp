// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/engine.hpp"

namespace openmps {

namespace cuda {
struct Driver;
}

/// Return the engines of NVIDIA's GPUs, "cuda:0" and so on. Opens the driver on the first call, which takes a tenth of
/// a second; empty without a driver.
std::vector<std::string> cuda_engine_names();

/// Make the engine of a GPU: "cuda" or "cuda:0" the first, "cuda:1" the second, and so on; "cuda-host" one for tests
/// that computes on the host. Return null for other names. Throws std::runtime_error if there is no such GPU, or if
/// this build has no kernels for the host.
std::shared_ptr<Engine> make_cuda_engine(const std::string& name);
/// Make the engine of a driver's first GPU, for tests of failures. It lives as long as the process.
std::shared_ptr<Engine> make_cuda_engine(const std::string& name, const cuda::Driver& driver);

}  // namespace openmps
