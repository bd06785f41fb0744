// SPDX-License-Identifier: Apache-2.0
// Field descriptions. A problem lists its members once, each with a role; structure keys, results, images and equality
// are derived from that list. A member without a role does not compile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/memory.hpp"

namespace openmps {

enum class FieldRole : std::uint8_t {
  in,       ///< memory that is read
  out,      ///< memory that is written
  inout,    ///< memory that is read and written
  shape,    ///< part of the structure key: plans depend on it
  weights,  ///< immutable weights; their extents are part of the key
  value,    ///< not part of the key: may change between two runs of one plan
  chunks,   ///< structs with roles of their own
};

template <class P, class M>
struct Field {
  using Owner = P;
  const char* name;
  FieldRole role;
  M P::* member;
};

/// Functions that make a Field, one for each role; for the bodies of fields().
namespace roles {

template <FieldRole kRole>
struct MakeField {
  template <class P, class M>
  constexpr Field<P, M> operator()(const char* name, M P::* member) const {
    return {name, kRole, member};
  }
};
inline constexpr MakeField<FieldRole::in> in;
inline constexpr MakeField<FieldRole::out> out;
inline constexpr MakeField<FieldRole::inout> inout;
inline constexpr MakeField<FieldRole::shape> shape;
inline constexpr MakeField<FieldRole::weights> weights;
inline constexpr MakeField<FieldRole::value> value;
inline constexpr MakeField<FieldRole::chunks> chunks;

}  // namespace roles

/// A struct with `static constexpr auto fields()`, a tuple of Field.
template <class T>
concept Described = requires { T::fields(); };

namespace detail {

struct AnyMember {
  template <class T>
  constexpr operator T() const noexcept;  // NOLINT: never defined, for counting alone
};

template <class T, std::size_t... I>
constexpr bool has_members(std::index_sequence<I...>) {
  return requires { T{(static_cast<void>(I), AnyMember{})...}; };
}

/// Number of members of an aggregate without bases.
template <class T, std::size_t N = 0>
constexpr std::size_t member_count() {
  if constexpr (has_members<T>(std::make_index_sequence<N + 1>{}))
    return member_count<T, N + 1>();
  else
    return N;
}

}  // namespace detail

/// The fields of T; refuses to compile if one of its members is missing.
template <Described T>
constexpr auto field_list() {
  using Fields = decltype(T::fields());
  using Owner = typename std::tuple_element_t<0, Fields>::Owner;  // a base of T, if T adds nothing
  static_assert(sizeof(Owner) == sizeof(T), "a derived struct has members of its own");
  static_assert(std::tuple_size_v<Fields> == detail::member_count<Owner>(), "a member has no role in fields()");
  return T::fields();
}

/// Call visit(field, member) for each field of `object`.
template <class P, class Visit>
constexpr void for_each_field(P& object, const Visit& visit) {
  std::apply([&](const auto&... field) { (visit(field, object.*(field.member)), ...); },
             field_list<std::remove_const_t<P>>());
}

template <Described T>
bool operator==(const T& a, const T& b) {
  return std::apply([&](const auto&... field) { return ((a.*(field.member) == b.*(field.member)) && ...); },
                    field_list<T>());
}

template <class T>
constexpr bool is_vector = false;
template <class T>
constexpr bool is_vector<std::vector<T>> = true;

/// Call visit(view) for each image in `object`, a field or a problem, including views without memory.
template <class T, class Visit>
void for_each_image(T& object, const Visit& visit) {
  using Plain = std::remove_const_t<T>;
  if constexpr (std::is_same_v<Plain, ImageView>) {
    visit(object);
  } else if constexpr (Described<Plain>) {
    for_each_field(object, [&](const auto&, auto& member) { for_each_image(member, visit); });
  } else if constexpr (is_vector<Plain>) {
    for (auto& each : object) for_each_image(each, visit);
  }
}

/// Call visit(memory) for each reference to memory in `object`, null or not.
template <class T, class Visit>
void for_each_memory(T& object, const Visit& visit) {
  using Plain = std::remove_const_t<T>;
  if constexpr (std::is_same_v<Plain, std::shared_ptr<Memory>>) {
    visit(object);
  } else if constexpr (std::is_same_v<Plain, ImageView>) {
    visit(object.memory);
  } else if constexpr (Described<Plain>) {
    for_each_field(object, [&](const auto&, auto& member) { for_each_memory(member, visit); });
  } else if constexpr (is_vector<Plain>) {
    for (auto& each : object) for_each_memory(each, visit);
  }
}

/// Call visit(memory) for each block that `object` writes, null or not.
template <Described T, class Visit>
void for_each_result(const T& object, const Visit& visit) {
  for_each_field(object, [&](const auto& field, const auto& member) {
    if (field.role == FieldRole::out || field.role == FieldRole::inout) {
      for_each_memory(member, visit);
    } else if constexpr (is_vector<std::decay_t<decltype(member)>>) {
      if constexpr (Described<typename std::decay_t<decltype(member)>::value_type>) {
        if (field.role != FieldRole::chunks) return;
        for (const auto& each : member) for_each_result(each, visit);
      }
    }
  });
}

}  // namespace openmps
