// SPDX-License-Identifier: Apache-2.0
// Reader of the files that row_file.py writes: test rows with inputs, parameters and expected values.
//
//   row <name>
//   set <key> <value up to the end of the line>
//   array <key> <dtype: float32, float16, uint16, uint8, int32, int64, float64> <extent> ...
//   <bytes of the array, little-endian, C order><newline>
//   end
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace rows {

struct Array {
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;

  std::int64_t size() const {
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) count *= extent;
    return count;
  }
  /// Value `i` in C order; not of float16.
  double operator[](std::size_t i) const {
    if (dtype == "float32") return at<float>(i);
    if (dtype == "float64") return at<double>(i);
    if (dtype == "uint8") return at<std::uint8_t>(i);
    if (dtype == "uint16") return at<std::uint16_t>(i);
    if (dtype == "int32") return at<std::int32_t>(i);
    if (dtype == "int64") return static_cast<double>(at<std::int64_t>(i));
    throw std::runtime_error("an array of " + dtype + " has no values for C++.");
  }

 private:
  template <class T>
  T at(std::size_t i) const {
    T value;
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    return value;
  }
};

struct Row {
  std::string name;
  std::map<std::string, std::string> settings;
  std::map<std::string, Array> arrays;
};

inline std::size_t element_size(const std::string& dtype) {
  if (dtype == "uint8") return 1;
  if (dtype == "float16" || dtype == "uint16") return 2;
  if (dtype == "float32" || dtype == "int32") return 4;
  if (dtype == "float64" || dtype == "int64") return 8;
  throw std::runtime_error("unknown dtype: " + dtype);
}

/// All rows of a file. Throws std::runtime_error for anything but the format above.
inline std::vector<Row> read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  std::vector<Row> all;
  Row row;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string kind, key;
    words >> kind >> key;
    if (kind == "row") {
      row = {};
      row.name = line.substr(4);
    } else if (kind == "set") {
      const std::size_t begin = 5 + key.size();
      row.settings[key] = begin <= line.size() ? line.substr(begin) : "";
    } else if (kind == "array") {
      Array& array = row.arrays[key];
      words >> array.dtype;
      for (std::int64_t extent = 0; words >> extent;) array.shape.push_back(extent);
      array.bytes.resize(static_cast<std::size_t>(array.size()) * element_size(array.dtype));
      file.read(reinterpret_cast<char*>(array.bytes.data()), static_cast<std::streamsize>(array.bytes.size()));
      if (!file || file.get() != '\n') throw std::runtime_error(path + ": " + row.name + ": " + key + " ends early.");
    } else if (kind == "end") {
      all.push_back(std::move(row));
    } else {
      throw std::runtime_error(path + ": unknown line: " + line);
    }
  }
  return all;
}

}  // namespace rows
