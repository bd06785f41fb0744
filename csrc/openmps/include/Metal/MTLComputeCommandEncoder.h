// SPDX-License-Identifier: Apache-2.0
// Generated from tools/api by tools/gen_headers.py; do not edit.

#pragma once

#import <Metal/OpenMPSSupport.h>
#import <Metal/MTLCommandBuffer.h>
#import <Metal/MTLCommandEncoder.h>
#import <Metal/MTLTypes.h>

NS_ASSUME_NONNULL_BEGIN

@protocol MTLBuffer, MTLComputePipelineState, MTLFence, MTLHeap, MTLResource, MTLSamplerState, MTLTexture;

typedef struct {
    uint32_t threadgroupsPerGrid[3];
} MTLDispatchThreadgroupsIndirectArguments;

@protocol MTLComputeCommandEncoder <MTLCommandEncoder>  // macOS 10.11

@property (readonly) MTLDispatchType dispatchType;  // macOS 10.14

- (void)setComputePipelineState:(id<MTLComputePipelineState>)state;
- (void)setBytes:(const void *)bytes length:(NSUInteger)length atIndex:(NSUInteger)index;
- (void)setBuffer:(nullable id<MTLBuffer>)buffer offset:(NSUInteger)offset atIndex:(NSUInteger)index;
- (void)setBufferOffset:(NSUInteger)offset atIndex:(NSUInteger)index;
- (void)setBuffers:(const id<MTLBuffer> _Nullable *_Nonnull)buffers
           offsets:(const NSUInteger *)offsets
         withRange:(NSRange)range;
- (void)setTexture:(nullable id<MTLTexture>)texture atIndex:(NSUInteger)index;
- (void)setTextures:(const id<MTLTexture> _Nullable *_Nonnull)textures withRange:(NSRange)range;
- (void)setSamplerState:(nullable id<MTLSamplerState>)sampler atIndex:(NSUInteger)index;
- (void)setSamplerStates:(const id<MTLSamplerState> _Nullable *_Nonnull)samplers withRange:(NSRange)range;
- (void)setSamplerState:(nullable id<MTLSamplerState>)sampler
            lodMinClamp:(float)lodMinClamp
            lodMaxClamp:(float)lodMaxClamp
                atIndex:(NSUInteger)index;
- (void)setSamplerStates:(const id<MTLSamplerState> _Nullable *_Nonnull)samplers
            lodMinClamps:(const float *)lodMinClamps
            lodMaxClamps:(const float *)lodMaxClamps
               withRange:(NSRange)range;
- (void)setThreadgroupMemoryLength:(NSUInteger)length atIndex:(NSUInteger)index;
- (void)dispatchThreadgroups:(MTLSize)threadgroupsPerGrid
       threadsPerThreadgroup:(MTLSize)threadsPerThreadgroup;
- (void)dispatchThreads:(MTLSize)threadsPerGrid threadsPerThreadgroup:(MTLSize)threadsPerThreadgroup;  // macOS 10.13
- (void)updateFence:(id<MTLFence>)fence;  // macOS 10.13
- (void)waitForFence:(id<MTLFence>)fence;  // macOS 10.13
- (void)useResource:(id<MTLResource>)resource usage:(MTLResourceUsage)usage;  // macOS 10.13
- (void)useResources:(const id<MTLResource> _Nullable *_Nonnull)resources
               count:(NSUInteger)count
               usage:(MTLResourceUsage)usage;  // macOS 10.13
- (void)useHeap:(id<MTLHeap>)heap;  // macOS 10.13
- (void)useHeaps:(const id<MTLHeap> _Nullable *_Nonnull)heaps count:(NSUInteger)count;  // macOS 10.13
- (void)memoryBarrierWithScope:(MTLBarrierScope)scope;  // macOS 10.14
- (void)memoryBarrierWithResources:(const id<MTLResource> _Nullable *_Nonnull)resources
                             count:(NSUInteger)count;  // macOS 10.14

@end

NS_ASSUME_NONNULL_END
