// SPDX-License-Identifier: Apache-2.0
#include <mpscnn/network_call.hpp>

#include <algorithm>

#include <mpscnn/boundary.hpp>
#include <mpscnn/error.hpp>
#include <mpscnn/pool_scope.hpp>
#include <mpscnn/profile.hpp>

namespace mpscnn {

NetworkCall::NetworkCall(std::shared_ptr<Network> network, std::vector<ArrayView> inputs)
    : network_(std::move(network)), inputs_(std::move(inputs)), n_(inputs_[0].shape[0]) {
  const auto& specs = network_->parts().inputs;
  std::vector<ImageShape> one;  // one image of each input: gives the shapes of results for an empty batch too
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    one.push_back(shape_of(inputs_[i]));
    check(one[i].n == n_, "input \"", specs[i].name, "\" has ", one[i].n, " images; \"", specs[0].name, "\" has ", n_,
          ".");
    one[i].n = 1;
    for (const auto extent : one[i].nhwc())
      check(extent > 0, "input \"", specs[i].name, "\": an extent (0) is less than the minimum (1).");
  }
  plan_ = network_->plan(one);
  result_shapes_ = Network::result_shapes(*plan_);
  for (auto& shape : result_shapes_) shape.n = n_;
  max_ = Network::chunk_images(*plan_);
  if (max_ == 0) max_ = std::max<std::int64_t>(n_, 1);
}

std::int64_t NetworkCall::chunk_count() const { return (n_ + max_ - 1) / max_; }

void NetworkCall::run() {
  queue_ = network_->queue();
  for (std::int64_t chunk = 0; chunk < chunk_count(); ++chunk) {
    const PoolScope pool;
    encode(chunk);
    chunks_.back().buffer->run();
    chunks_.back().arrays->finish();
    chunks_.pop_back();
  }
  queue_ = nullptr;
}

void NetworkCall::commit(const std::function<void()>& handler) {
  const auto count = chunk_count();
  queue_ = network_->queue();
  for (std::int64_t chunk = 0; chunk < count; ++chunk) {
    const PoolScope pool;
    encode(chunk);
    const auto buffer = chunks_.back().buffer;
    const auto arrays = chunks_.back().arrays;
    if (handler && arrays->has_copies())
      buffer->add_completed_handler([arrays] {
        try {
          arrays->finish();
        } catch (...) {  // rethrown by wait()
        }
      });
    if (handler && chunk + 1 == count) buffer->add_completed_handler(handler);
    buffer->commit();
  }
  queue_ = nullptr;  // the command buffers are its users
  if (handler && count == 0) handler();
}

void NetworkCall::wait() {
  const std::scoped_lock lock(mutex_);
  // After an error, later chunks are not copied, and the next wait() throws it again.
  while (!chunks_.empty()) {
    chunks_.front().buffer->wait();
    chunks_.front().arrays->finish();
    chunks_.erase(chunks_.begin());
  }
}

bool NetworkCall::is_done() {
  const std::scoped_lock lock(mutex_);
  return std::all_of(chunks_.begin(), chunks_.end(),
                     [](const Chunk& chunk) { return chunk.buffer->status() >= CommandBufferStatus::completed; });
}

void NetworkCall::encode(std::int64_t chunk) {
  // Divide into chunks of about equal size.
  const auto chunks = chunk_count();
  const auto first = n_ * chunk / chunks, count = n_ * (chunk + 1) / chunks - first;
  const auto& device = network_->device();
  auto& [buffer, arrays] = chunks_.emplace_back();
  arrays = std::make_shared<Arrays>(device, network_->image_pool());
  std::vector<std::shared_ptr<Image>> sources, results;
  for (const auto& input : inputs_) sources.push_back(arrays->source(images_of(input, first, count)));
  for (const auto& result : results_) results.push_back(arrays->result(images_of(result, first, count)));
  if (const auto profile = Profile::current(); profile && profile->per_kernel()) {
    buffer = network_->encode_apart(*plan_, sources, results, queue_);
  } else {
    buffer = CommandBuffer::make(device, "Network", {}, /*in_parts=*/true, queue_);
    network_->encode(*buffer, plan_, sources, results);
  }
}

}  // namespace mpscnn
