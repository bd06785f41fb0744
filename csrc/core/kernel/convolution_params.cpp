// SPDX-License-Identifier: Apache-2.0
#include "core/kernel/convolution_params.hpp"

#include <mpscnn/error.hpp>

#include "core/kernel/params.hpp"

namespace mpscnn {
namespace {

/// Throw if a parameter is given that the data source's descriptor already holds.
void check_no_array_params(const KernelRow& row, const Params& params) {
  static constexpr const char* kDescribed[] = {"bias",       "ranges",      "lookup_table", "kernel_dtype",
                                               "activation", "feature_map", "in_channels"};
  for (const auto* name : kDescribed)
    check(!has(params, name), row.name, ": ", name, " was given together with a data source, which provides it.");
  static constexpr const char* kPairs[] = {"stride", "dilation"};
  for (const auto* name : kPairs)
    check(pair(params, name, {1, 1}) == Pair{1, 1}, row.name, ": ", name,
          " was given together with a data source, whose descriptor holds it.");
  check(integer(params, "groups", 1) == 1 && integer(params, "sub_pixel_scale_factor", 1) == 1, row.name,
        ": groups or sub_pixel_scale_factor was given together with a data source, whose descriptor holds it.");
}

ArrayDataSourceOptions options_of(const Params& params) {
  ArrayDataSourceOptions options;
  options.bias = array(params, "bias");
  options.ranges = array(params, "ranges");
  options.lookup_table = array(params, "lookup_table");
  if (has(params, "kernel_dtype"))
    options.kernel_dtype = text(params, "kernel_dtype", "") == "float32" ? DType::float32 : DType::float16;
  options.label = text(params, "label", "");
  return options;
}

void check_extents(const KernelRow& row, const ArrayView& weight) {
  for (auto extent : weight.shape)
    check(extent >= 1, row.name, ": weight.shape ", as_tuple(weight.shape), " has an extent (", extent,
          ") less than the minimum (1).");
}

void check_rank(const KernelRow& row, const ArrayView& weight, std::size_t rank) {
  check(weight.ndim() == rank, row.name, ": weight.ndim (", weight.ndim(), ") is not ", rank, ".");
  check_extents(row, weight);
}

std::shared_ptr<DataSource> linear_source(const KernelRow& row, const Params& params, ArrayView weight) {
  check_rank(row, weight, 2);
  const auto out = weight.shape[0], in = weight.shape[1];
  const auto found = params.find("feature_map");
  const auto* map = found == params.end() ? nullptr : std::get_if<std::vector<std::int64_t>>(&found->second);
  const Extents chw = map ? *map : Extents{in, 1, 1};
  std::int64_t elements = 1;
  for (auto extent : chw)
    check(!__builtin_mul_overflow(elements, extent, &elements), row.name, ": feature_map ", as_tuple(chw),
          " has more elements than can be counted.");
  check(elements == in, row.name, ": weight.shape ", as_tuple(weight.shape), " has ", in, " inputs, feature_map ",
        as_tuple(chw), " has ", elements, ".");
  // A row of C * H * W inputs is O, I, H, W with the last three axes flattened.
  const auto step = weight.strides[1];
  weight.shape = {out, chw[0], chw[1], chw[2]};
  weight.strides = {weight.strides[0], chw[1] * chw[2] * step, chw[2] * step, step};
  ConvolutionDescriptor descriptor{.kernel_size = {chw[1], chw[2]},
                                   .in_channels = chw[0],
                                   .out_channels = out,
                                   .activation = activation(params, "activation")};
  auto options = options_of(params);
  options.layout = Layout::OIHW;
  check_descriptor(row.name, descriptor);
  return array_data_source(descriptor, weight, options);
}

}  // namespace

void check_descriptor(std::string_view who, const ConvolutionDescriptor& d) {
  // The table's limits, and 2^31 where it has none: products stay within 64 bits.
  const auto within = [&](std::int64_t value, const char* name, std::int64_t most) {
    check(value >= 1, who, ": ", name, " (", value, ") is less than the minimum (1).");
    check(value <= most, who, ": ", name, " (", value, ") is greater than the maximum (", most, ").");
  };
  constexpr std::int64_t kMost = std::int64_t{1} << 31;
  within(d.kernel_size.h, "kernel_size height", kMost);
  within(d.kernel_size.w, "kernel_size width", kMost);
  within(d.in_channels, "in_channels", kMost);
  within(d.out_channels, "out_channels", kMost);
  within(d.stride.h, "stride height", 65535);
  within(d.stride.w, "stride width", 65535);
  within(d.dilation.h, "dilation height", 65535);
  within(d.dilation.w, "dilation width", 65535);
  within(d.groups, "groups", 1 << 20);
  within(d.sub_pixel_scale_factor, "sub_pixel_scale_factor", 256);
  if (d.depthwise) {
    check(d.groups == 1, who, ": groups (", d.groups, ") of a depth-wise descriptor is not 1.");
    check(d.in_channels == d.out_channels, who, ": a depth-wise convolution has as many output channels (",
          d.out_channels, ") as input channels (", d.in_channels, "); MPS knows no other channel multiplier.");
    check(d.sub_pixel_scale_factor == 1, who, ": sub_pixel_scale_factor (", d.sub_pixel_scale_factor,
          ") of a depth-wise convolution is not 1.");
  } else if (d.groups > 1) {
    check(d.in_channels % d.groups == 0 && d.out_channels % d.groups == 0, who, ": groups (", d.groups,
          ") does not divide in_channels (", d.in_channels, ") and out_channels (", d.out_channels, ").");
    check(d.in_channels / d.groups % 4 == 0 && d.out_channels / d.groups % 4 == 0, who, ": groups (", d.groups,
          ") leaves ", d.in_channels / d.groups, " input and ", d.out_channels / d.groups,
          " output channels for each group; MPS needs multiples of 4.");
  }
  const auto r = d.sub_pixel_scale_factor;
  check(d.out_channels % (r * r) == 0, who, ": out_channels (", d.out_channels,
        ") is not a multiple of sub_pixel_scale_factor squared (", r * r, ").");
  check(d.activation.type != 10 || static_cast<std::int64_t>(d.activation.data.size()) == d.out_channels, who,
        ": activation has ", d.activation.data.size(), " PReLU slopes for ", d.out_channels, " output channels.");
}

std::shared_ptr<DataSource> convolution_source(const KernelRow& row, const Params& params) {
  const auto& given = params.find("weight")->second;
  if (const auto* source = std::get_if<std::shared_ptr<DataSource>>(&given)) {
    check_no_array_params(row, params);
    return *source;
  }
  const auto& weight = std::get<ArrayView>(given);
  check<TypeError>(weight.dtype != DType::float64 && weight.dtype != DType::uint32, row.name, ": weight.dtype (",
                   name_of(weight.dtype), ") is not float32, float16, bfloat16 or uint8.");
  const bool is_transpose = row.family == "convolution_transpose";
  const auto layout_name = text(params, "layout",
                                is_transpose                      ? "IOHW"
                                : row.family == "fully_connected" ? "OI"
                                                                  : "OIHW");
  if (layout_name == "OI") return linear_source(row, params, weight);
  check(!has(params, "feature_map"), row.name, ": feature_map is for layout \"OI\" only; layout is \"", layout_name,
        "\".");

  check_rank(row, weight, 4);
  auto options = options_of(params);
  options.layout = layout_from_name(layout_name);
  options.rotate = options.layout == Layout::IOHW;
  const auto groups = integer(params, "groups", 1);
  ConvolutionDescriptor d{.stride = pair(params, "stride", {1, 1}),
                          .dilation = pair(params, "dilation", {1, 1}),
                          .groups = groups,
                          .sub_pixel_scale_factor = integer(params, "sub_pixel_scale_factor", 1),
                          .activation = activation(params, "activation")};
  if (options.layout == Layout::IOHW) {
    check(weight.shape[0] % groups == 0, row.name, ": weight.shape ", as_tuple(weight.shape), " has ", weight.shape[0],
          " input channels, which groups (", groups, ") does not divide.");
    d.in_channels = weight.shape[0];
    d.out_channels = weight.shape[1] * groups;
    d.kernel_size = {weight.shape[2], weight.shape[3]};
  } else {
    check(options.layout != Layout::C1HW || weight.shape[1] == 1, row.name, ": weight.shape ", as_tuple(weight.shape),
          " has ", weight.shape[1], " channels along the second axis of C1HW, which is not 1.");
    const auto ohwi = reordered_shape(weight.shape, options.layout, Layout::OHWI);
    d.out_channels = ohwi[0];
    d.kernel_size = {ohwi[1], ohwi[2]};
    d.in_channels = ohwi[3] * groups;
    const bool depthwise = row.family == "convolution" && ohwi[3] == 1 && groups == d.out_channels && groups > 1;
    if (depthwise || (options.layout == Layout::C1HW && (groups == 1 || groups == d.out_channels))) {
      d.depthwise = true;
      d.groups = 1;
      d.in_channels = d.out_channels;
    }
  }
  check_descriptor(row.name, d);
  return array_data_source(std::move(d), weight, std::move(options));
}

std::shared_ptr<DataSource> binary_source(const KernelRow& row, const Params& params) {
  const auto& given = params.find("weight")->second;
  if (const auto* source = std::get_if<std::shared_ptr<DataSource>>(&given)) {
    check_no_array_params(row, params);
    return *source;
  }
  const auto& weight = std::get<ArrayView>(given);
  check<TypeError>(weight.dtype == DType::uint32, row.name, ": weight.dtype (", name_of(weight.dtype),
                   ") is not uint32, words of 32 weights of one bit; mpscnn.pack_bits() makes them.");
  check_rank(row, weight, 4);
  check(weight.is_contiguous(), row.name, ": weight is not C-contiguous (strides ", as_tuple(weight.strides), ").");
  const auto words = weight.shape[3], most = words * 32;
  const auto channels = integer(params, "in_channels", most);
  check(channels > most - 32 && channels <= most, row.name, ": in_channels (", channels, ") is not in [", most - 31,
        ", ", most, "], what ", words, " words of 32 bits hold.");
  ConvolutionDescriptor d{.kernel_size = {weight.shape[1], weight.shape[2]},
                          .in_channels = channels,
                          .out_channels = weight.shape[0],
                          .stride = pair(params, "stride", {1, 1}),
                          .dilation = pair(params, "dilation", {1, 1}),
                          .activation = activation(params, "activation")};
  check_descriptor(row.name, d);
  auto options = options_of(params);
  options.layout = Layout::OHWI;
  return array_data_source(std::move(d), weight, std::move(options));
}

}  // namespace mpscnn
