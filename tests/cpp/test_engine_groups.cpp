// SPDX-License-Identifier: Apache-2.0
// Packed masks, and steps that the CUDA engine solves together: each list is run by its plan and by a plan without
// fusion.
//
//   test_engine_groups [seed offset]      prints "N passed, N failed"
#include <array>
#include <cstring>
#include <functional>
#include <limits>

#include "engine/cuda/driver.hpp"
#include "engine_test.hpp"

namespace {

struct Extents {
  i64 n = 2, h = 5, w = 7, c = 64;
};

/// On a GPU, launches are not counted.
const std::shared_ptr<Engine>& cuda() {
  static const std::string name = engine_names().front();
  static const std::shared_ptr<Engine> engine = engine_of(name.starts_with("cuda:") ? name : "cuda-host");
  return engine;
}
bool counts_launches() { return cuda() == engine_of("cuda-host"); }

ImageView image(const Extents& e, Format format = Format::float16) {
  ImageView view;
  view.format = format;
  view.n = e.n, view.h = e.h, view.w = e.w, view.c = e.c;
  view.w_stride = e.c, view.h_stride = e.w * e.c, view.n_stride = e.h * e.w * e.c;
  view.memory = Memory::lazy(cuda(), static_cast<std::size_t>(view.size()) * size_of(format), cuda()->image_storage());
  return view;
}
/// Return an image of multiples of 1/4: many are equal, and their sums are exact.
ImageView filled(Random& random, const Extents& e, Format format) {
  const ImageView view = image(e, format);
  const HostAccess access(view.memory, HostAccess::Mode::write);
  for (i64 i = 0; i < view.size(); ++i) {
    const float value = std::floor(random.real(-8, 8)) / 4;
    if (format == Format::float16)
      reinterpret_cast<std::uint16_t*>(access.data())[i] = float_to_half(value);
    else
      reinterpret_cast<float*>(access.data())[i] = value;
  }
  return view;
}
ChannelValues channels(Random& random, i64 count, float low, float high) {
  const auto memory = Memory::lazy(cuda(), static_cast<std::size_t>(count) * sizeof(float), cuda()->buffer_storage());
  const HostAccess access(memory, HostAccess::Mode::write);
  for (i64 i = 0; i < count; ++i) reinterpret_cast<float*>(access.data())[i] = random.real(low, high);
  return {memory, 0};
}
ChannelValues constants(i64 count, float value) {
  Random random(0);
  return channels(random, count, value, value);
}
std::vector<float> floats_of(const ChannelValues& values) {
  const HostAccess access(values.memory, HostAccess::Mode::read);
  const auto* const first = reinterpret_cast<const float*>(access.data());
  return {first, first + values.memory->size() / sizeof(float)};
}
std::vector<float> values_of(const ImageView& view) {
  if (view.format == Format::float32) return floats_of({view.memory, 0});
  const HostAccess access(view.memory, HostAccess::Mode::read);
  std::vector<float> values;
  for (i64 i = 0; i < view.size(); ++i)
    values.push_back(half_to_float(reinterpret_cast<const std::uint16_t*>(access.data())[i]));
  return values;
}

/// The results of a list, and the number of runs of a kernel.
struct Found {
  std::vector<std::vector<float>> results;
  std::int64_t launches = 0;
  bool has_packed_mask = false;
};

Found found_by(const std::vector<Command>& list, bool fused, const char* kernel,
               const std::function<std::vector<std::vector<float>>()>& results) {
  Found found;
  const auto launches = [&] {
    std::int64_t count = 0;
    for (const auto& [name, times] : cuda::host_kernel_launches())
      if (name.starts_with(kernel)) count += times;
    return count;
  };
  const std::int64_t before = launches();
  const auto plan = make_plan(*cuda(), list, fused);
  for (const auto& step : plan->steps) found.has_packed_mask = found.has_packed_mask || step.has_packed_mask;
  const std::string error = execute(*cuda(), list, plan).sentence;
  report(error.empty(), "%s: %s", kernel, error.c_str());
  found.results = results();
  found.launches = launches() - before;
  return found;
}

void compare(const char* what, const Found& one, const Found& other, float relative) {
  for (std::size_t i = 0; i < one.results.size(); ++i) {
    float worst = 0, most = 0;
    for (std::size_t j = 0; j < one.results[i].size(); ++j) {
      worst = std::fmax(worst, std::fabs(one.results[i][j] - other.results[i][j]));
      most = std::fmax(most, std::fabs(other.results[i][j]));
    }
    report(most > 0 && worst <= relative * most, "%s: result %zu is off by %g of %g", what, i, double{worst},
           double{most});
  }
}

// --------------------------------------------------------------- masks of normalizations with sums, for their gradients

struct Masked {
  NormalizeProblem normalize;
  BinaryProblem forward, sum;
  BinaryGradientProblem masked;
  BatchMomentsGradientProblem moments;
  std::vector<Command> between;
  std::vector<std::shared_ptr<Memory>> held;
};

void expect_masked(const char* what, const Extents& extents, Format format, const std::function<void(Masked&)>& change,
                   bool is_packed) {
  Found found[2];
  for (const bool fused : {false, true}) {
    Random random(12);
    Masked list;
    auto& [normalize, forward, sum, masked, moments, between, held] = list;
    normalize.src.view = filled(random, extents, format), normalize.dst = image(extents, format);
    // Sums that no format rounds, so that a mask does not depend on it.
    normalize.gamma = constants(extents.c, 1), normalize.beta = constants(extents.c, 0);
    normalize.mean = constants(extents.c, 0), normalize.variance = constants(extents.c, 1);
    forward.src0.view = normalize.dst, forward.src1.view = filled(random, extents, format);
    forward.dst = image(extents, format);
    forward.function.min = 0, forward.function.max = std::numeric_limits<float>::infinity();
    forward.mask = image(extents, Format::unorm8);
    sum.src0.view = filled(random, extents, format), sum.src1.view = filled(random, extents, format);
    sum.dst = image(extents, format);
    masked.diff_dst.view = sum.dst, masked.mask.view = forward.mask, masked.diff_src = image(extents, format);
    masked.scale = 0.5f;
    moments.diff_dst = masked.diff_src, moments.src = normalize.src, moments.epsilon = 1e-3f;
    moments.gamma = normalize.gamma, moments.beta = normalize.beta;
    moments.mean = channels(random, extents.c, -1, 1), moments.variance = channels(random, extents.c, 1, 2);
    moments.diff_gamma = channels(random, extents.c, -1, 1), moments.diff_beta = channels(random, extents.c, -1, 1);
    change(list);
    const ImageView result = image(extents, format);
    const std::array values{moments.diff_gamma, moments.diff_beta};
    std::vector<Command> commands = {{normalize, "normalize"}, {forward, "forward"}};
    commands.insert(commands.end(), between.begin(), between.end());
    for (const Command& each : {Command{sum, "sum"}, {masked, "masked"}, {moments, "moments"}}) commands.push_back(each);
    // Memory that the test knows may be a view of the same bytes as another one.
    commands.push_back({CopyProblem{masked.diff_src, result}, "copy"});
    const auto kept = held;
    list = {};  // only the list of commands refers to the images
    found[fused] = found_by(commands, fused, "sum_masked_gradients", [&] {
      std::vector<std::vector<float>> results{values_of(result)};
      for (const ChannelValues& each : values) results.push_back(floats_of(each));
      return results;
    });
  }
  report(found[1].has_packed_mask == is_packed, "%s: the mask is %s", what, found[1].has_packed_mask ? "packed" : "not");
  report(!found[0].has_packed_mask, "%s: a packed mask without fusion", what);
  compare(what, found[1], found[0], format == Format::float16 ? 0x1p-10f : 0x1p-20f);
}

void test_masks() {
  const auto nothing = [](Masked&) {};
  for (const Format format : {Format::float16, Format::float32}) {
    expect_masked("64 channels", {2, 5, 7, 64}, format, nothing, true);
    expect_masked("256 channels", {3, 9, 11, 256}, format, nothing, true);
    expect_masked("192 channels", {1, 31, 29, 192}, format, nothing, true);
  }
  expect_masked("32 channels", {2, 5, 7, 32}, Format::float16, nothing, false);
  expect_masked("32 channels of float32", {2, 5, 7, 32}, Format::float32, nothing, true);
  expect_masked("16 channels of float32", {2, 5, 7, 16}, Format::float32, nothing, false);
  expect_masked("sums that are added to", {2, 5, 7, 64}, Format::float16, [](Masked& m) { m.moments.adds = true; },
                true);
  expect_masked("a mask that others know", {2, 5, 7, 64}, Format::float16,
                [](Masked& m) { m.held.push_back(m.forward.mask.memory); }, false);
  expect_masked("a reader without sums", {2, 5, 7, 64}, Format::float16,
                [](Masked& m) { m.moments.diff_dst = m.sum.src0.view; }, false);
  expect_masked("a mask without a normalization", {2, 5, 7, 64}, Format::float16,
                [](Masked& m) { m.forward.src0.view = m.sum.src0.view; }, false);
}

/// The CPU engine takes packed masks from other engines.
void test_masks_on_the_processor() {
  for (const Format format : {Format::float16, Format::float32}) {
    Random random(14);
    const Extents extents{2, 5, 7, 64};
    const auto on_host = [&](const ImageView& view, bool is_source) {
      ImageView copy = view;
      copy.memory = Memory::lazy(engine_of("cpu"), view.memory->size(), Storage::host);
      if (!is_source) return copy;
      const HostAccess access(view.memory, HostAccess::Mode::read);
      std::memcpy(copy.memory->data(), access.data(), view.memory->size());
      return copy;
    };
    NormalizeAddProblem add;
    add.src.view = filled(random, extents, format), add.addend.view = filled(random, extents, format);
    add.dst = image(extents, format), add.min = 0;
    add.gamma = constants(extents.c, 1), add.beta = constants(extents.c, 0);
    add.mean = constants(extents.c, 0), add.variance = constants(extents.c, 1);
    add.mask = image({2, 5, 7, format == Format::float16 ? 8 : 16}, Format::unorm8);
    MaskedSumMomentsProblem sum;
    sum.src0.view = filled(random, extents, format), sum.src1.view = filled(random, extents, format);
    sum.mask.view = add.mask, sum.dst = image(extents, format), sum.src = add.src;
    sum.gamma = add.gamma, sum.beta = add.beta, sum.mean = add.mean, sum.variance = add.variance;
    sum.diff_gamma = constants(extents.c, 0), sum.diff_beta = constants(extents.c, 0);
    NormalizeAddProblem own_add = add;
    MaskedSumMomentsProblem own_sum = sum;
    for (ImageView* const view : {&own_add.src.view, &own_add.addend.view, &own_sum.src0.view, &own_sum.src1.view,
                                  &own_sum.src.view})
      *view = on_host(*view, true);
    for (ImageView* const view : {&own_add.dst, &own_add.mask, &own_sum.dst}) *view = on_host(*view, false);
    own_sum.mask.view = own_add.mask;
    const auto own = [&](ChannelValues& values) {
      const auto memory = Memory::lazy(engine_of("cpu"), values.memory->size(), Storage::host);
      const HostAccess access(values.memory, HostAccess::Mode::read);
      std::memcpy(memory->data(), access.data(), values.memory->size());
      values.memory = memory;
    };
    for (ChannelValues* const each : {&own_add.gamma, &own_add.beta, &own_add.mean, &own_add.variance, &own_sum.gamma,
                                      &own_sum.beta, &own_sum.mean, &own_sum.variance, &own_sum.diff_gamma,
                                      &own_sum.diff_beta})
      own(*each);
    for (const auto& problem : {Problem(add), Problem(sum)}) cuda()->try_run(problem);
    cuda()->synchronize();
    for (const auto& problem : {Problem(own_add), Problem(own_sum)}) cpu_engine().try_run(problem);
    const auto bytes_of = [](const ImageView& view) {
      const HostAccess access(view.memory, HostAccess::Mode::read);
      return std::vector(access.data(), access.data() + view.size());
    };
    report(bytes_of(add.mask) == bytes_of(own_add.mask), "the masks of two engines differ");
    report(values_of(sum.dst) == values_of(own_sum.dst), "the sums of two engines differ");
  }
}

// -------------------------------------------------------------- max pooling of a normalized image, and the gradients

struct Pooled {
  NormalizeProblem normalize;
  PoolProblem pool;
  PoolGradientProblem gradient;
  BatchMomentsGradientProblem moments;
  NormalizeGradientProblem last;
  std::vector<std::shared_ptr<Memory>> held;
};

void expect_pooled(const char* what, Format format, const std::function<void(Pooled&)>& change, bool has_forward,
                   bool has_gradients) {
  constexpr i64 kSide = 68, kResults = 34, kPooledChannels = 72, kImages = 2;  // more than 1 MB
  const Extents from{kImages, kSide, kSide, kPooledChannels}, to{kImages, kResults, kResults, kPooledChannels};
  Found found[2];
  std::int64_t gradients[2] = {};
  for (const bool fused : {false, true}) {
    Random random(13);
    Pooled list;
    auto& [normalize, pool, gradient, moments, last, held] = list;
    normalize.src.view = filled(random, from, format), normalize.dst = image(from, format), normalize.neuron.type = NeuronType::relu;
    normalize.gamma = channels(random, kPooledChannels, -2, 2);
    normalize.beta = channels(random, kPooledChannels, -1, 1), normalize.epsilon = 1e-3f;
    normalize.mean = channels(random, kPooledChannels, -1, 1);
    normalize.variance = channels(random, kPooledChannels, 1, 2);
    pool.src = normalize.dst, pool.dst = image(to, format);
    pool.window = {.kernel_h = 3, .kernel_w = 3, .stride_h = 2, .stride_w = 2, .start_h = -1, .start_w = -1};
    gradient.diff_dst = filled(random, to, format), gradient.src = normalize.dst, gradient.diff_src = image(from, format);
    gradient.window = pool.window;
    moments.diff_dst = gradient.diff_src, moments.src = normalize.src, last.diff_dst.view = gradient.diff_src;
    last.src = normalize.src, last.diff_src = image(from, format), last.count = kImages * kSide * kSide;
    moments.diff_gamma = channels(random, kPooledChannels, -1, 1);
    moments.diff_beta = channels(random, kPooledChannels, -1, 1);
    last.diff_gamma = moments.diff_gamma, last.diff_beta = moments.diff_beta;
    const auto copy_parameters = [&](auto& p) {
      p.gamma = normalize.gamma, p.beta = normalize.beta, p.mean = normalize.mean, p.variance = normalize.variance;
      p.epsilon = normalize.epsilon, p.neuron = normalize.neuron;
    };
    copy_parameters(moments), copy_parameters(last);
    change(list);
    const ImageView pooled = image(to, format), result = image(from, format);
    std::vector<Command> commands = {{normalize, "normalize"}, {pool, "pool"}, {CopyProblem{pool.dst, pooled}, "copy"}};
    for (int i = 0; i < 12; ++i) commands.push_back({CopyProblem{pool.dst, image(to, format)}, "copy"});
    for (const Command& each :
         {Command{gradient, "gradient"}, {moments, "moments"}, {last, "last"}, {CopyProblem{last.diff_src, result}, ""}})
      commands.push_back(each);
    const std::array sums{moments.diff_gamma, moments.diff_beta};
    const auto kept = held;
    list = {};
    const auto launches = [] { return cuda::host_kernel_launches().at("pooled_gradients_3x3"); };
    const std::int64_t before = launches();
    found[fused] = found_by(commands, fused, "pool_normalized", [&] {
      return std::vector{values_of(pooled), values_of(result), floats_of(sums[0]), floats_of(sums[1])};
    });
    gradients[fused] = launches() - before;
  }
  report(!counts_launches() || found[1].launches == (has_forward ? 1 : 0), "%s: %lld launches", what,
         static_cast<long long>(found[1].launches));
  report(!counts_launches() || gradients[1] == (has_gradients ? 1 : 0), "%s: %lld launches of gradients", what,
         static_cast<long long>(gradients[1]));
  report(found[0].launches + gradients[0] == 0, "%s: launches without fusion", what);
  compare(what, found[1], found[0], format == Format::float16 ? 0x1p-9f : 0x1p-20f);
}

void test_pooled() {
  const auto nothing = [](Pooled&) {};
  expect_pooled("float16", Format::float16, nothing, true, true);
  expect_pooled("float32", Format::float32, nothing, true, true);
  expect_pooled("sums that are added to", Format::float16, [](Pooled& p) { p.moments.adds = true; }, true, true);
  expect_pooled("an image that others know", Format::float16,
                [](Pooled& p) { p.held.push_back(p.normalize.dst.memory); }, false, false);
  expect_pooled("a gradient that others know", Format::float16,
                [](Pooled& p) { p.held.push_back(p.gradient.diff_src.memory); }, true, false);
  expect_pooled("a slope", Format::float16,
                [](Pooled& p) { p.normalize.neuron.a = p.moments.neuron.a = p.last.neuron.a = 0.25f; }, false, false);
  expect_pooled("a mean", Format::float16, [](Pooled& p) { p.pool.type = PoolType::average; }, false, true);
  expect_pooled("another window", Format::float16,
                [](Pooled& p) { p.pool.window.kernel_h = p.gradient.window.kernel_h = 2; }, false, false);
  expect_pooled("another epsilon", Format::float16, [](Pooled& p) { p.last.epsilon = 2e-3f; }, true, false);
}

// ------------------------------------------------------------------------------------- sums of two normalized images

struct BothNormalized {
  NormalizeProblem first, second;
  std::vector<Command> between;
  BinaryProblem sum;
  std::vector<std::shared_ptr<Memory>> held;
};

void expect_both(const char* what, Format format, const std::function<void(BothNormalized&)>& change, bool is_together) {
  const Extents extents{3, 9, 11, 64};
  Found found[2];
  for (const bool fused : {false, true}) {
    Random random(16);
    BothNormalized list;
    auto& [first, second, between, sum, held] = list;
    for (NormalizeProblem* const each : {&first, &second}) {
      each->src.view = filled(random, extents, format), each->dst = image(extents, format);
      each->gamma = channels(random, extents.c, -2, 2), each->beta = channels(random, extents.c, -1, 1);
      each->mean = channels(random, extents.c, -1, 1), each->variance = channels(random, extents.c, 1, 2);
    }
    between = {{CopyProblem{filled(random, extents, format), image(extents, format)}, "copy"}};
    sum.src0.view = second.dst, sum.src1.view = first.dst, sum.dst = image(extents, format);
    sum.function.min = 0, sum.function.max = std::numeric_limits<float>::infinity();
    sum.mask = image(extents, Format::unorm8);
    change(list);
    const ImageView result = image(extents, format), mask = image(extents, Format::unorm8);
    std::vector<Command> commands = {{first, "first"}};
    commands.insert(commands.end(), between.begin(), between.end());
    for (const Command& each : {Command{second, "second"}, {sum, "sum"}, {CopyProblem{sum.dst, result}, "copy"},
                                {CopyProblem{sum.mask, mask}, "mask"}})
      commands.push_back(each);
    const auto kept = held;
    list = {};
    found[fused] = found_by(commands, fused, "normalize_both_add", [&] {
      const HostAccess access(mask.memory, HostAccess::Mode::read);
      std::vector<float> bytes;
      for (i64 i = 0; i < mask.size(); ++i) bytes.push_back(static_cast<float>(std::to_integer<int>(access.data()[i])));
      return std::vector{values_of(result), bytes};
    });
  }
  report(!counts_launches() || found[1].launches == (is_together ? 1 : 0), "%s: %lld launches", what,
         static_cast<long long>(found[1].launches));
  report(found[0].launches == 0, "%s: launches without fusion", what);
  compare(what, {{found[1].results[0]}}, {{found[0].results[0]}}, format == Format::float16 ? 0x1p-10f : 0x1p-20f);
  i64 others = 0;  // masks of sums that are rounded to 0
  for (std::size_t i = 0; i < found[0].results[1].size(); ++i) others += found[0].results[1][i] != found[1].results[1][i];
  report(others <= 4, "%s: %lld values of the mask differ", what, static_cast<long long>(others));
}

void test_both_normalized() {
  const auto nothing = [](BothNormalized&) {};
  expect_both("float16", Format::float16, nothing, true);
  expect_both("float32", Format::float32, nothing, true);
  expect_both("nothing between", Format::float16, [](BothNormalized& b) { b.between.clear(); }, true);
  expect_both("the addend is the other one", Format::float16,
              [](BothNormalized& b) { std::swap(b.sum.src0, b.sum.src1); }, true);
  expect_both("a result that others know", Format::float16,
              [](BothNormalized& b) { b.held.push_back(b.first.dst.memory); }, false);
  expect_both("a result that is read again", Format::float16,
              [](BothNormalized& b) { b.between.push_back({CopyProblem{b.first.dst, image({3, 9, 11, 64})}, "copy"}); },
              false);
  expect_both("a source that changes meanwhile", Format::float16,
              [](BothNormalized& b) {
                b.between.push_back({CopyProblem{b.second.src.view, b.first.src.view}, "copy"});
              },
              false);
  expect_both("an activation", Format::float16, [](BothNormalized& b) { b.first.neuron.type = NeuronType::relu; },
              false);
}

// ------------------------------------------------- gradients of convolutions that read some pixels, and sums with them

struct Sampled {
  ConvGradientProblem gradient;
  std::vector<Command> between;
  BinaryProblem sum;
  BinaryGradientProblem masked;
  BatchMomentsGradientProblem moments;
  std::vector<std::shared_ptr<Memory>> held;
};

void expect_sampled(const char* what, Format format, const std::function<void(Sampled&)>& change, bool is_together,
                    i64 stride_h = 2, i64 stride_w = 2) {
  const Extents all{3, 9, 12, 64};
  const Extents some{all.n, (all.h - 1) / stride_h + 1, (all.w - 1) / stride_w + 1, 32};
  Found found[2];
  for (const bool fused : {false, true}) {
    Random random(18);
    Sampled list;
    auto& [gradient, between, sum, masked, moments, held] = list;
    gradient.weights = random_weights(random, some.c, 1, 1, all.c, 1, false);
    gradient.diff_dst = filled(random, some, format), gradient.src = filled(random, all, format);
    gradient.diff_src = image(all, format);
    gradient.window = {.stride_h = stride_h, .stride_w = stride_w};
    gradient.diff_weights = constants(some.c * all.c, 0);
    between = {{CopyProblem{filled(random, all, format), image(all, format)}, "copy"}};
    sum.src0.view = filled(random, all, format), sum.src1.view = gradient.diff_src, sum.dst = image(all, format);
    masked.diff_dst.view = sum.dst, masked.mask.view = filled(random, all, format);
    masked.diff_src = image(all, format), masked.scale = 0.5f;
    moments.diff_dst = masked.diff_src, moments.src.view = filled(random, all, format), moments.epsilon = 1e-3f;
    moments.gamma = channels(random, all.c, -2, 2), moments.beta = channels(random, all.c, -1, 1);
    moments.mean = channels(random, all.c, -1, 1), moments.variance = channels(random, all.c, 1, 2);
    moments.diff_gamma = constants(all.c, 0), moments.diff_beta = constants(all.c, 0);
    change(list);
    const ImageView result = image(all, format);
    const std::array values{gradient.diff_weights, moments.diff_gamma, moments.diff_beta};
    std::vector<Command> commands = {{gradient, "gradient"}};
    commands.insert(commands.end(), between.begin(), between.end());
    for (const Command& each : {Command{sum, "sum"}, {masked, "masked"}, {moments, "moments"},
                                {CopyProblem{masked.diff_src, result}, "copy"}})
      commands.push_back(each);
    const auto kept = held;
    list = {};
    found[fused] = found_by(commands, fused, "sum_sampled_gradients", [&] {
      std::vector<std::vector<float>> results{values_of(result)};
      for (const ChannelValues& each : values)
        if (each.memory) results.push_back(floats_of(each));
      return results;
    });
  }
  report(!counts_launches() || found[1].launches == (is_together ? 1 : 0), "%s: %lld launches", what,
         static_cast<long long>(found[1].launches));
  report(found[0].launches == 0, "%s: launches without fusion", what);
  compare(what, found[1], found[0], format == Format::float16 ? 0x1p-10f : 0x1p-18f);
}

void test_sampled() {
  const auto nothing = [](Sampled&) {};
  const auto copy_to = [](const ImageView& view) {
    Random random(19);
    return Command{CopyProblem{filled(random, {view.n, view.h, view.w, view.c}, view.format), view}, "copy"};
  };
  for (const Format format : {Format::float16, Format::float32}) {
    expect_sampled("float16 or float32", format, nothing, true);
    expect_sampled("strides of 3 and 2", format, nothing, true, 3, 2);
    expect_sampled("strides of 2 and 5", format, nothing, true, 2, 5);
  }
  expect_sampled("nothing between", Format::float16, [](Sampled& s) { s.between.clear(); }, true);
  expect_sampled("the other operand", Format::float16, [](Sampled& s) { std::swap(s.sum.src0, s.sum.src1); }, true);
  expect_sampled("no gradient of the weights", Format::float16,
                 [](Sampled& s) { s.gradient.src = {}, s.gradient.diff_weights = {}; }, true);
  expect_sampled("one stride", Format::float16, nothing, false, 2, 1);
  expect_sampled("no strides", Format::float16, nothing, false, 1, 1);
  expect_sampled("a gradient that others know", Format::float16,
                 [](Sampled& s) { s.held.push_back(s.gradient.diff_src.memory); }, false);
  expect_sampled("a gradient that is read again", Format::float16,
                 [](Sampled& s) { s.between.push_back({CopyProblem{s.gradient.diff_src, image({3, 9, 12, 64})}, ""}); },
                 false);
  expect_sampled("a source that changes meanwhile", Format::float16,
                 [&](Sampled& s) { s.between.push_back(copy_to(s.gradient.src)); }, false);
  expect_sampled("weights that are loaded meanwhile", Format::float16,
                 [](Sampled& s) {
                   LoadWeightsProblem load;
                   Random random(20);
                   const auto weights = random_weights(random, 8, 1, 1, 8, 1, false);
                   weights->values = Floats::await(64);
                   load.weights = weights;
                   load.values = channels(random, 64, -1, 1);
                   s.between.push_back({load, "load"});
                 },
                 false);
  expect_sampled("sums of weights that are read meanwhile", Format::float16,
                 [](Sampled& s) {
                   BufferCopyProblem copy;
                   copy.src = s.gradient.diff_weights.memory, copy.dst = constants(8, 0).memory;
                   copy.bytes = 32;
                   s.between.push_back({copy, "read"});
                 },
                 false);
}

// --------------------------------------------------------------------------- convolutions and moments of their results

/// With the libraries of fake_cudnn.cpp, cuDNN sums the values.
void test_conv_moments() {
  for (const float offset : {0.0f, 40.0f}) {  // whose squares lose the variance
    Found found[2];
    for (const bool fused : {false, true}) {
      Random random(17);
      const Extents extents{8, 14, 14, 96};
      ConvProblem conv;
      auto weights = std::make_shared<ConvWeights>();
      weights->out_channels = extents.c, weights->in_channels_per_group = extents.c;
      weights->kernel_h = weights->kernel_w = 1;
      std::vector<float> values(static_cast<std::size_t>(extents.c * extents.c));
      for (i64 i = 0; i < extents.c; ++i)
        for (i64 j = 0; j < extents.c; ++j)
          values[static_cast<std::size_t>(i * extents.c + j)] = i == j ? 1.0f : j == 0 ? offset / 2 : 0.0f;
      weights->values = std::move(values);
      conv.src = image(extents), conv.dst = image(extents);
      {
        const HostAccess access(conv.src.memory, HostAccess::Mode::write);
        for (i64 i = 0; i < conv.src.size(); ++i)
          reinterpret_cast<std::uint16_t*>(access.data())[i] =
              float_to_half(i % extents.c == 0 ? 2 : std::floor(random.real(-8, 8)) / 4);
      }
      conv.weights = weights, conv.reduced_precision = true;
      BatchMomentsProblem moments;
      moments.src = conv.dst;
      moments.mean = channels(random, extents.c, -1, 1), moments.variance = channels(random, extents.c, 1, 2);
      const ImageView result = image(extents);
      const std::array statistics{moments.mean, moments.variance};
      std::vector<Command> commands = {
          {conv, "convolution"}, {moments, "moments"}, {CopyProblem{conv.dst, result}, "copy"}};
      conv = {}, moments = {};
      found[fused] = found_by(commands, fused, "moments_of_sums", [&] {
        return std::vector{values_of(result), floats_of(statistics[0]), floats_of(statistics[1])};
      });
    }
    compare("a convolution and its moments", found[1], found[0], 0x1p-10f);
  }
}

// ------------------------------------------------------------------------------------------ results for late readers

/// Return how many results are computed again: of a normalization of 32 MB times `factor`, and of one of some of its 512
/// rows.
std::size_t computed_again(i64 rows, i64 factor = 1) {
  Random random(15);
  std::vector<Command> commands, readers;
  for (const i64 height : {i64{512}, rows}) {
    const Extents extents{1, height, 512 * factor, 64};
    NormalizeProblem normalize;
    normalize.src.view = image(extents), normalize.dst = image(extents);
    normalize.gamma = normalize.variance = constants(extents.c, 1);
    normalize.beta = normalize.mean = constants(extents.c, 0);
    commands.push_back({normalize, "normalize"});
    commands.push_back({CopyProblem{normalize.dst, image(extents)}, "early"});
    readers.push_back({CopyProblem{normalize.dst, image(extents)}, "late"});
  }
  const ImageView from = image({}), to = image({});
  for (int i = 0; i < 12; ++i) commands.push_back({CopyProblem{from, to}, "between"});
  commands.insert(commands.end(), readers.begin(), readers.end());
  // Their sources stay until then.
  for (const std::size_t i : {std::size_t{0}, std::size_t{2}})
    commands.push_back({CopyProblem{std::get<NormalizeProblem>(commands[i].problem).src.view, to}, "source"});
  readers.clear();
  std::size_t count = 0;
  const auto plan = make_plan(*cuda(), commands, true);
  for (const auto& step : plan->steps) count += step.is_again ? 1 : 0;
  return count;
}

void test_late_readers() {
  report(computed_again(32) == 1, "a result of 1/16 of the largest one is computed again");
  report(computed_again(64) == 2, "a result of 1/8 of the largest one is kept");
  report(computed_again(248, 8) == 1, "a result of less than half of 256 MB is computed again");
  report(computed_again(256, 8) == 2, "a result of 128 MB is kept");
}

}  // namespace

int main(int argc, char** argv) { return run_tests(argc, argv, {test_masks, test_masks_on_the_processor, test_pooled, test_both_normalized, test_sampled, test_conv_moments, test_late_readers}); }
