// SPDX-License-Identifier: Apache-2.0
// Every encode form of a kernel and of its gradient kernel, compared with the values of a row.
#pragma once

#import "row_images.hh"

/// A policy with the row's result and kernel offset.
@interface RowPadding : NSObject <MPSNNPadding> {
 @public
  const Row *row;
  NSUInteger width, height, channels;
  MPSImageFeatureChannelFormat format;
}
@end

@implementation RowPadding
- (MPSNNPaddingMethod)paddingMethod {
  return MPSNNPaddingMethodCustom;
}
- (MPSImageDescriptor *)destinationImageDescriptorForSourceImages:(NSArray<MPSImage *> *)sources
                                                     sourceStates:(NSArray<MPSState *> *)states
                                                        forKernel:(MPSKernel *)kernel
                                              suggestedDescriptor:(MPSImageDescriptor *)descriptor {
  (void)sources, (void)states;
  set_properties(kernel, *row, "property.");
  [descriptor setWidth:width];
  [descriptor setHeight:height];
  [descriptor setFeatureChannels:channels];
  [descriptor setChannelFormat:format];
  return descriptor;
}
+ (BOOL)supportsSecureCoding {
  return YES;
}
- (void)encodeWithCoder:(NSCoder *)coder {
  (void)coder;
}
- (instancetype)initWithCoder:(NSCoder *)coder {
  (void)coder;
  return [self init];
}
@end

// ------------------------------------------------------------------------------------------------------ encode forms

/// An encode form.
struct Form {
  bool batch = false, given = false, state = false, temporary = false;
  bool views = false;  // the batch is views of one object
  bool twin = false;   // an unarchived copy; gradients after other channels
  std::string name() const {
    return std::string(views   ? ", a batch of views"
                       : batch ? ", a batch"
                               : "") +
           (given ? ", destination given" : ", destination returned") + (state ? ", with state" : "") +
           (temporary ? ", temporary" : "") + (twin ? ", a copy's archive" : "");
  }
  As as() const { return views ? As::views : batch ? As::batch : As::one; }
};

inline void set_up_result(id kernel, const Row &row) {
  RowPadding *padding = [[[RowPadding alloc] init] autorelease];
  const auto shape = integers(row, "destination");
  padding->row = &row;
  padding->height = static_cast<NSUInteger>(shape[1]);
  padding->width = static_cast<NSUInteger>(shape[2]);
  padding->channels = static_cast<NSUInteger>(shape[3]);
  padding->format = format_of(setting(row, "dtype", "float32"));
  if (!flag(row, "own_size")) [kernel setPadding:padding];
  [kernel setDestinationImageAllocator:[MPSImage defaultAllocator]];
}

/// Encode a kernel of one or two sources; return the result. Sets `state` if the form has one.
inline id encode_forward(MPSCNNKernel *kernel, id<MTLCommandBuffer> buffer, const std::vector<id> &sources,
                         const Form &form, id result, id *state) {
  id a = sources[0], b = sources.size() > 1 ? sources[1] : nil;
  auto *two = static_cast<MPSCNNBinaryKernel *>(static_cast<id>(kernel));
  if (form.given && form.state && b == nil) {
    if (form.batch) {
      *state = [kernel resultStateBatchForSourceImage:a sourceStates:nil destinationImage:result];
      [kernel encodeBatchToCommandBuffer:buffer sourceImages:a destinationStates:*state destinationImages:result];
    } else {
      *state = [kernel resultStateForSourceImage:a sourceStates:nil destinationImage:result];
      if (*state != nil)
        [kernel encodeToCommandBuffer:buffer sourceImage:a destinationState:*state destinationImage:result];
      else
        [kernel encodeToCommandBuffer:buffer sourceImage:a destinationImage:result];
    }
    return result;
  }
  if (form.given && form.state && [two isKindOfClass:[MPSCNNArithmetic class]]) {
    auto *arithmetic = static_cast<MPSCNNArithmetic *>(two);
    if (form.batch) {
      *state = [two resultStateBatchForPrimaryImage:a secondaryImage:b sourceStates:nil destinationImage:result];
      [arithmetic encodeBatchToCommandBuffer:buffer
                               primaryImages:a
                             secondaryImages:b
                           destinationStates:*state
                           destinationImages:result];
    } else {
      *state = [two resultStateForPrimaryImage:a secondaryImage:b sourceStates:nil destinationImage:result];
      [arithmetic encodeToCommandBuffer:buffer
                           primaryImage:a
                         secondaryImage:b
                       destinationState:*state
                       destinationImage:result];
    }
    return result;
  }
  if (form.given) {
    if (b == nil && form.batch)
      [kernel encodeBatchToCommandBuffer:buffer sourceImages:a destinationImages:result];
    else if (b == nil)
      [kernel encodeToCommandBuffer:buffer sourceImage:a destinationImage:result];
    else if (form.batch)
      [two encodeBatchToCommandBuffer:buffer primaryImages:a secondaryImages:b destinationImages:result];
    else
      [two encodeToCommandBuffer:buffer primaryImage:a secondaryImage:b destinationImage:result];
    return result;
  }
  if (form.state) {
    const BOOL temporary = form.temporary;
    if (form.batch) {
      MPSStateBatch *states = nil;
      if (b == nil)
        result = [kernel encodeBatchToCommandBuffer:buffer
                                       sourceImages:a
                                  destinationStates:&states
                        destinationStateIsTemporary:temporary];
      else
        result = [two encodeBatchToCommandBuffer:buffer
                                   primaryImages:a
                                 secondaryImages:b
                               destinationStates:&states
                     destinationStateIsTemporary:temporary];
      *state = states;
    } else {
      MPSState *made = nil;
      if (b == nil)
        result = [kernel encodeToCommandBuffer:buffer
                                   sourceImage:a
                              destinationState:&made
                   destinationStateIsTemporary:temporary];
      else
        result = [two encodeToCommandBuffer:buffer
                               primaryImage:a
                             secondaryImage:b
                           destinationState:&made
                destinationStateIsTemporary:temporary];
      *state = made;
    }
    return result;
  }
  if (b == nil)
    return form.batch ? static_cast<id>([kernel encodeBatchToCommandBuffer:buffer sourceImages:a])
                      : [kernel encodeToCommandBuffer:buffer sourceImage:a];
  return form.batch ? static_cast<id>([two encodeBatchToCommandBuffer:buffer primaryImages:a secondaryImages:b])
                    : [two encodeToCommandBuffer:buffer primaryImage:a secondaryImage:b];
}

/// Return a permanent copy of temporary images.
inline id kept(id<MTLCommandBuffer> buffer, id images, const Form &form) {
  MPSNNNeuronDescriptor *same = [MPSNNNeuronDescriptor cnnNeuronDescriptorWithType:MPSCNNNeuronTypeNone];
  MPSCNNNeuron *copy = [[[MPSCNNNeuron alloc] initWithDevice:device neuronDescriptor:same] autorelease];
  [copy setDestinationImageAllocator:[MPSImage defaultAllocator]];
  return encode_forward(copy, buffer, {images}, {.batch = form.batch}, nil, nullptr);
}

inline std::vector<id> sources_of(const Row &row, As as) {
  std::vector<id> sources{source_images(row, "source", as)};
  if (array(row, "second") != nullptr) sources.push_back(source_images(row, "second", as));
  return sources;
}

/// Return the forms that the row's destination allows.
inline std::vector<Form> forms_of(const Row &row, bool states) {
  std::vector<Form> forms;
  for (const bool batch : {false, true})
    for (const bool given : {true, false})
      for (const bool state : {false, true})
        for (const bool temporary : {false, true}) {
          if ((batch && !flag(row, "batches")) || (!given && !flag(row, "returned"))) continue;
          if (temporary && given && !states) continue;
          if (state ? flag(row, "stateless") : states) continue;
          forms.push_back({batch, given, state, temporary});
          if (batch && given) forms.push_back({batch, given, state, temporary, true});
        }
  forms.push_back({.given = true, .state = states, .twin = true});
  return forms;
}

inline void run_forward(const Row &row) {
  const std::string dtype = setting(row, "dtype");
  const Shape shape = integers(row, "destination"), first = integers(row, "first");
  for (const Form &form : forms_of(row, false)) {
    MPSCNNKernel *kernel = make(row);
    if (form.twin) kernel = archived([[kernel copy] autorelease]);
    set_up_result(kernel, row);
    const bool image_is_temporary = form.temporary && !form.state;
    if (image_is_temporary) [kernel setDestinationImageAllocator:[MPSTemporaryImage defaultAllocator]];
    id<MTLCommandBuffer> buffer = command_buffer();
    id state = nil, result = form.given ? filled_images(shape, dtype, form.as()) : nil;
    result = encode_forward(kernel, buffer, sources_of(row, form.as()), form, result, &state);
    if (image_is_temporary) result = kept(buffer, result, form);
    if (form.temporary && form.state && state != nil)
      for (MPSState *one in form.batch ? state : [NSArray arrayWithObject:state]) [one setReadCount:0];
    run(buffer);
    compare(row.name + form.name(), read_images(result, dtype), shape, first, row.arrays.at("expected"),
            row.arrays.at("bound"), dtype);
  }
}

// --------------------------------------------------------------------------------------------------------- gradients

inline id encode_gradient(MPSCNNGradientKernel *kernel, id<MTLCommandBuffer> buffer, id gradient, id source, id state,
                          const Form &form, id result) {
  if (form.batch && form.given)
    [kernel encodeBatchToCommandBuffer:buffer
                       sourceGradients:gradient
                          sourceImages:source
                        gradientStates:state
                  destinationGradients:result];
  else if (form.batch)
    return [kernel encodeBatchToCommandBuffer:buffer sourceGradients:gradient sourceImages:source gradientStates:state];
  else if (form.given)
    [kernel encodeToCommandBuffer:buffer
                   sourceGradient:gradient
                      sourceImage:source
                    gradientState:state
              destinationGradient:result];
  else
    return [kernel encodeToCommandBuffer:buffer sourceGradient:gradient sourceImage:source gradientState:state];
  return result;
}

/// Return a state's gradients of parameters, summed over the states of a batch.
inline std::vector<double> parameters_in(id state, const Form &form, const std::string &key) {
  std::vector<double> sums;
  NSSet *states = form.batch ? [NSSet setWithArray:state] : [NSSet setWithObject:state];
  for (id one in states) {
    id<MTLBuffer> buffer = [one performSelector:NSSelectorFromString(text(key))];
    const float *values = static_cast<const float *>([buffer contents]);
    sums.resize([buffer length] / sizeof(float));
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += static_cast<double>(values[i]);
  }
  return sums;
}

inline void compare_parameters(const Row &row, id state, const Form &form) {
  for (const auto &[key, expected] : row.arrays) {
    if (key.rfind("gradientFor", 0) != 0) continue;
    const auto got = parameters_in(state, form, key);
    double largest = 0.05, worst = got.size() >= static_cast<std::size_t>(expected.size()) ? 0 : INFINITY;
    for (std::size_t i = 0; i < static_cast<std::size_t>(expected.size()) && i < got.size(); ++i) {
      largest = std::max(largest, std::fabs(expected[i]));
      if (!(std::fabs(got[i] - expected[i]) <= worst)) worst = std::fabs(got[i] - expected[i]);
    }
    check(worst <= 2e-5 * largest, row.name + form.name() + ", " + key + ": off by " + std::to_string(worst));
  }
}

/// Encode the forward kernel and its gradient kernel in one command buffer; return the gradient.
inline id encode_both(const Row &row, MPSCNNGradientKernel *kernel, const Form &form, id result, id *state) {
  MPSCNNKernel *forward = make(row);
  set_up_result(forward, row);
  id<MTLCommandBuffer> buffer = command_buffer();
  const std::vector<id> sources = sources_of(row, form.as());
  id y = encode_forward(forward, buffer, sources, {.batch = form.batch, .state = true, .temporary = form.temporary},
                        nil, state);
  const std::string seen = setting(row, "seen");
  id source = seen == "y" ? y : seen == "second" ? sources[1] : sources[0];
  result = encode_gradient(kernel, buffer, source_images(row, "upstream", form.as()), source, *state, form, result);
  if (form.temporary)  // only an optimizer would read the gradients of parameters
    for (MPSState *one in form.batch ? *state : [NSArray arrayWithObject:*state]) [one setReadCount:0];
  run(buffer);
  return result;
}

inline void run_gradient(const Row &row) {
  for (const Form &form : forms_of(row, true)) {
    Shape shape = row.arrays.at("gradient").shape;
    MPSCNNGradientKernel *kernel = make(row, "gradient.");
    if (form.twin) kernel = archived([[kernel copy] autorelease]);
    [kernel setDestinationImageAllocator:[MPSImage defaultAllocator]];
    id state = nil, result = nil;
    // A form with a destination uses the properties as they are; the others set them.
    if (form.given) encode_both(row, kernel, {.batch = form.batch}, nil, &state);
    const long channel = form.twin ? 4 : 0;
    [kernel setDestinationFeatureChannelOffset:static_cast<NSUInteger>(channel)];
    shape[3] += channel;
    if (form.given) result = filled_images(shape, "float32", form.as());
    result = encode_both(row, kernel, form, result, &state);
    compare(row.name + form.name(), read_images(result, "float32"), shape, {0, 0, 0, channel},
            row.arrays.at("gradient"), row.arrays.at("gradient_bound"), "float32");
    if (!form.temporary) compare_parameters(row, state, form);
  }
}
