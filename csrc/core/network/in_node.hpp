// SPDX-License-Identifier: Apache-2.0
// Prefixes exceptions of a kernel with the node's name.
#pragma once

#include <mpscnn/error.hpp>

#include <string>

namespace mpscnn {

/// Call `f`; rethrow its exceptions as the same type with the node's name. Not for .mm files: it catches.
template <class F>
auto in_node(const std::string& node, const F& f) {
  const auto named = [&](const std::exception& error) { return say("node \"", node, "\": ", error.what()); };
  try {
    return f();
  } catch (const TypeError& error) {
    throw TypeError(named(error));
  } catch (const BufferError& error) {
    throw BufferError(named(error));
  } catch (const NotImplementedError& error) {
    throw NotImplementedError(named(error));
  } catch (const MemoryError& error) {
    throw MemoryError(named(error));
  } catch (const KeyError& error) {
    throw KeyError(named(error));
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(named(error));
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(named(error));
  }
}

}  // namespace mpscnn
