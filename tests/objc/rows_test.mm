// SPDX-License-Identifier: Apache-2.0
// Runs a file of rows (tests/rows/objc_*.py): their calls, or every encode form of their kernels. Prints "N passed, N
// failed".

#include <algorithm>

#import "row_calls.hh"
#import "row_forms.hh"
#import "row_recurrent.hh"

namespace {

void run_row(const Row &row) {
  NSAutoreleasePool *pool = [[NSAutoreleasePool alloc] init];
  const int before = passed + failed;
  @try {
    if (!setting(row, "recurrent").empty())
      for (const bool twin : {false, true}) run_recurrent(row, twin);
    else if (!setting(row, "call").empty())
      for (int twin = 0; twin < (flag(row, "no_twin") ? 1 : 2); ++twin) run_call(row, twin != 0);
    else if (array(row, "gradient") != nullptr)
      run_gradient(row);
    else
      run_forward(row);
  } @catch (NSException *exception) {
    check(false, row.name + ": " + [[exception reason] UTF8String]);
  }
  check(passed + failed > before, row.name + ": nothing was compared");
  [pool drain];
}

std::vector<Row> all_rows;

void test_rows() {
  for (const Row &row : all_rows) run_row(row);
}

}  // namespace

int main(int count, char **arguments) {
  for (int i = 1; i < count; ++i)
    for (Row &row : rows::read(arguments[i])) all_rows.push_back(std::move(row));
  return run_tests({test_rows});
}
