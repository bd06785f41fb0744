// SPDX-License-Identifier: Apache-2.0
// Local response normalization and its gradient. Sums and powers are in double, so that the only error is that of
// storing the result.
#pragma once

#include "engine/cuda/kernels/windows.hpp"
#include "engine/problem/normalize.hpp"

namespace openmps::cuda::lrn {

inline constexpr const char* kFile = "engine/cuda/kernels/lrn.hpp";

/// Return base ^ exponent. Multiples of 1/4, which networks use, take roots and products, much faster than a power.
MPSCNN_HOST_DEVICE double raised(double base, double exponent) {
  const double quarters = 4 * (exponent < 0 ? -exponent : exponent);
  if (!(quarters <= 32) || quarters != static_cast<int>(quarters)) return ::pow(base, exponent);
  const auto count = static_cast<int>(quarters);
  double result = 1;
  if (count % 4 != 0) {
    const double root = ::sqrt(base);
    if (count % 4 >= 2) result = root;
    if (count % 2 == 1) result *= ::sqrt(root);
  }
  for (int i = 0; i < count / 4; ++i) result *= base;
  return exponent < 0 ? 1 / result : result;
}

/// Formula of both directions: result = pm + ps * (x - p0 * mean) * (delta + alpha * spread) ^ exponent.
struct Formula {
  LRNType type;
  double alpha, exponent, delta, p0, pm, ps;
  double per_tap;     ///< 1 / the number of taps, or of channels
  i64 before, after;  ///< channels: neighbours of a value
};

/// Along an axis: the windows, and as windows of one tap, their centres.
struct Axis {
  WindowAxis windows, centres;
};

struct LRNArgs {
  View src, dst;  ///< dst: of the forward kernel; gradients read the gradient of the result there
  Formula formula;
  Axis rows, columns;
};

/// Return the value under a window's centre.
MPSCNN_HOST_DEVICE float centre_of(const LRNArgs& args, const Place& at, i64 k) {
  const WindowTaps rows = args.rows.centres.taps(at.y), columns = args.columns.centres.taps(at.x);
  return rows.count() > 0 && columns.count() > 0 ? load(args.src, at.n, rows.at(0), columns.at(0), k) : 0.0f;
}

/// Return delta + alpha * (the sum of the squares of the channel's neighbours in pixel (y, x) of the source) / size.
MPSCNN_HOST_DEVICE double base_of_channel(const LRNArgs& args, i64 n, i64 y, i64 x, i64 k) {
  const Formula& f = args.formula;
  const i64 first = k > f.before ? k - f.before : 0, last = k + f.after < args.src.c ? k + f.after : args.src.c - 1;
  double sum = 0;
  for (i64 i = first; i <= last; ++i) {
    const double value = load(args.src, n, y, x, i);
    sum += value * value;
  }
  return f.delta + f.alpha * f.per_tap * sum;
}

MPSCNN_VALUE_KERNEL(lrn_channels, LRNArgs) {
  const Formula& f = args.formula;
  const Place at = place_of(index, args.dst);
  const WindowTaps rows = args.rows.centres.taps(at.y), columns = args.columns.centres.taps(at.x);
  if (rows.count() == 0 || columns.count() == 0)  // a zero, as are its neighbours
    return store(args.dst, at, static_cast<float>(0 * raised(f.delta, f.exponent)));
  const i64 y = rows.at(0), x = columns.at(0);
  const double base = base_of_channel(args, at.n, y, x, at.k);
  store(args.dst, at, static_cast<float>(load(args.src, at.n, y, x, at.k) * raised(base, f.exponent)));
}

/// Mean of a window (0 unless contrast), and delta + alpha * V.
struct Response {
  double mean, base;
};
MPSCNN_HOST_DEVICE Response response_of(const LRNArgs& args, const Place& at) {
  const Formula& f = args.formula;
  const WindowTaps rows = args.rows.windows.taps(at.y), columns = args.columns.windows.taps(at.x);
  double sum = 0, squares = 0;
  for (i64 j = 0; j < rows.count(); ++j) {
    const i64 y = rows.at(j);
    double row_sum = 0, row_squares = 0;
    for (i64 i = 0; i < columns.count(); ++i) {
      const double value = load(args.src, at.n, y, columns.at(i), at.k);
      const double product = static_cast<double>(columns.times(i)) * value;
      row_sum += product;
      row_squares += product * value;
    }
    const auto times = static_cast<double>(rows.times(j));
    sum += times * row_sum;
    squares += times * row_squares;
  }
  const double mean = f.type == LRNType::contrast ? sum * f.per_tap : 0.0;
  const double variance = squares * f.per_tap - mean * mean;
  return {mean, f.delta + f.alpha * (variance < 0 ? 0.0 : variance)};  // negative only by rounding
}

MPSCNN_VALUE_KERNEL(lrn_windows, LRNArgs) {
  const Formula& f = args.formula;
  const Place at = place_of(index, args.dst);
  const Response response = response_of(args, at);
  const double distance = centre_of(args, at, at.k) - f.p0 * response.mean;
  store(args.dst, at, static_cast<float>(f.pm + f.ps * distance * raised(response.base, f.exponent)));
}

// ----------------------------------------------------------------------------------------------------------- gradient

struct LRNGradientArgs {
  LRNArgs forward;
  View diff_src;
  i64 start_h, start_w;
  /// Three arrays of doubles, each as large as diff_src (channels, two of them) or the gradient of the result.
  Pointer<double> own, slope, shared;
};

/// With L = delta + alpha * V and g the sum of the gradients of the results that read the pixel: own = g * L^exponent
/// and slope = g * x * L^(exponent - 1).
MPSCNN_VALUE_KERNEL(lrn_gradient_channel_terms, LRNGradientArgs) {
  const LRNArgs& forward = args.forward;
  const Place at = place_of(index, args.diff_src);
  const i64 y = args.start_h + at.y, x = args.start_w + at.x;
  args.own[index] = args.slope[index] = 0;
  if (y < 0 || y >= forward.src.h || x < 0 || x >= forward.src.w) return;
  i64 first_row, last_row, first_column, last_column;
  forward.rows.centres.find_readers(y, first_row, last_row);
  forward.columns.centres.find_readers(x, first_column, last_column);
  double gradient = 0;
  for (i64 v = first_row; v <= last_row; ++v)
    for (i64 u = first_column; u <= last_column; ++u) gradient += load(forward.dst, at.n, v, u, at.k);
  const double base = base_of_channel(forward, at.n, y, x, at.k);
  const double own = gradient * raised(base, forward.formula.exponent);
  args.own[index] = own;
  args.slope[index] = own * load(forward.src, at.n, y, x, at.k) / base;
}
/// A value gets its own term, and a share from the channels whose neighbour it is.
MPSCNN_VALUE_KERNEL(lrn_gradient_channels, LRNGradientArgs) {
  const LRNArgs& forward = args.forward;
  const Formula& f = forward.formula;
  const Place at = place_of(index, args.diff_src);
  const i64 y = args.start_h + at.y, x = args.start_w + at.x;
  if (y < 0 || y >= forward.src.h || x < 0 || x >= forward.src.w) return store(args.diff_src, at, 0.0f);
  const i64 c = args.diff_src.c, pixel = index - at.k;
  const i64 first = at.k > f.after ? at.k - f.after : 0, last = at.k + f.before < c ? at.k + f.before : c - 1;
  double sum = 0;
  for (i64 i = first; i <= last; ++i) sum += args.slope[pixel + i];
  const double factor = 2 * f.alpha * f.exponent * f.per_tap * load(forward.src, at.n, y, x, at.k);
  store(args.diff_src, at, static_cast<float>(args.own[index] + factor * sum));
}

/// Terms that each window adds to the source: diff_src = ps * (own + shared + x * slope); `own` applies to the window's
/// centre, the others to all of its taps.
MPSCNN_VALUE_KERNEL(lrn_gradient_window_terms, LRNGradientArgs) {
  const LRNArgs& forward = args.forward;
  const Formula& f = forward.formula;
  const Place at = place_of(index, forward.dst);
  const Response response = response_of(forward, at);
  const double own = load(forward.dst, at) * raised(response.base, f.exponent);
  const double distance = centre_of(forward, at, at.k) - f.p0 * response.mean;
  const double twice = 2 * f.alpha * f.exponent * f.per_tap;
  const double slope = twice == 0 ? 0.0 : twice * own * distance / response.base;
  args.own[index] = own;
  args.slope[index] = slope;
  if (f.type == LRNType::contrast) args.shared[index] = -f.p0 * f.per_tap * own - slope * response.mean;
}
MPSCNN_VALUE_KERNEL(lrn_gradient_windows, LRNGradientArgs) {
  const LRNArgs& forward = args.forward;
  const Place at = place_of(index, args.diff_src);
  const i64 y = args.start_h + at.y, x = args.start_w + at.x;
  if (y < 0 || y >= forward.src.h || x < 0 || x >= forward.src.w) return store(args.diff_src, at, 0.0f);
  const auto term = [&](i64 v, i64 u) {
    return ((at.n * forward.dst.h + v) * forward.dst.w + u) * forward.dst.c + at.k;
  };
  i64 first_row, last_row, first_column, last_column;
  forward.rows.centres.find_readers(y, first_row, last_row);
  forward.columns.centres.find_readers(x, first_column, last_column);
  double sum = 0, slope = 0;
  for (i64 v = first_row; v <= last_row; ++v)
    for (i64 u = first_column; u <= last_column; ++u) sum += args.own[term(v, u)];
  const WindowAxis &rows = forward.rows.windows, &columns = forward.columns.windows;
  const bool has_mean = forward.formula.type == LRNType::contrast;
  rows.find_readers(y, first_row, last_row);
  columns.find_readers(x, first_column, last_column);
  for (i64 v = first_row; v <= last_row; ++v) {
    double row_sum = 0, row_slope = 0;
    for (i64 u = first_column; u <= last_column; ++u) {
      const auto times = static_cast<double>(columns.times(u, x));
      row_slope += times * args.slope[term(v, u)];
      if (has_mean) row_sum += times * args.shared[term(v, u)];
    }
    const auto times = static_cast<double>(rows.times(v, y));
    slope += times * row_slope;
    sum += times * row_sum;
  }
  const double value = load(forward.src, at.n, y, x, at.k);
  store(args.diff_src, at, static_cast<float>(forward.formula.ps * (sum + value * slope)));
}

}  // namespace openmps::cuda::lrn
