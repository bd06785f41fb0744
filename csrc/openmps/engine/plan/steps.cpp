// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/steps.hpp"

#include <chrono>
#include <cstdio>
#include <utility>

#include "engine/engine.hpp"
#include "engine/failure.hpp"
#include "engine/plan/fusion.hpp"
#include "engine/plan/masks.hpp"
#include "engine/plan/quantization.hpp"
#include "engine/plan/staging.hpp"
#include "engine/plan/unread.hpp"
#include "engine/problem/print.hpp"
#include "engine/shared/env.hpp"
#include "engine/shared/implementations.hpp"
#include "engine/shared/team.hpp"

namespace openmps {
bool traces_steps() {
  static const bool value = env::has_word(env::Variable::trace, "steps");
  return value;
}

Steps::Steps(const std::vector<Command>& commands, const Plan& plan, const Structure& structure)
    : commands_(commands), plan_(plan), narrowed_(plan, structure) {}

namespace {

/// Return the problem of a step: its command's, or `made`, which is set to it.
const Problem* problem_of(const std::vector<Command>& commands, const Plan::Step& step, Problem& made) {
  const Problem* problem = &commands[step.commands.front()].problem;
  const auto replace = [&](Problem by) { problem = &(made = std::move(by)); };
  if (!step.dequantizations.empty())
    replace(quantized_problem(commands, step));
  else if (step.commands.size() > 1)
    replace(fused_problem(commands, step));
  if (step.drops_bias_gradient) replace(without_bias_gradient(*problem));
  if (step.drops_mask) replace(without_mask(*problem));
  if (step.masking != Plan::Step::kNone) replace(with_mask(*problem, commands[step.masking].problem));
  if (step.has_packed_mask) replace(with_packed_mask(*problem));
  return problem;
}

}  // namespace

Problem planned_problem(const std::vector<Command>& commands, const Plan::Step& step) {
  Problem made;
  return *problem_of(commands, step, made);
}

const Problem& Steps::problem(std::size_t step) {
  current_ = step;
  if (is_repeated_ && step < made_.size() && made_[step]) return *made_[step];
  const Problem* problem = problem_of(commands_, plan_.steps[step], planned_);
  const auto replace = [&](Problem by) { problem = &(planned_ = std::move(by)); };
  if (narrowed_.is_used_by(*problem)) replace(narrowed_.apply_to(*problem));
  if (!is_repeated_ || problem != &planned_) return *problem;
  if (made_.empty()) made_.resize(size());
  made_[step] = std::make_unique<const Problem>(std::exchange(planned_, Problem()));
  return *made_[step];
}

std::span<const Problem* const> Steps::group_problems(std::size_t first) {
  of_group_.clear(), copies_.clear();
  for (std::size_t step = first; step < first + group(first); ++step) {
    const Problem* each = &problem(step);
    if (each == &planned_) each = &copies_.emplace_back(std::exchange(planned_, Problem()));
    of_group_.push_back(each);
  }
  current_ = first;
  return of_group_;
}

std::string Steps::labels(std::size_t step) const {
  std::string text;
  for (const std::uint32_t command : plan_.steps[step].commands)
    text += (text.empty() ? "" : " + ") + commands_[command].label;
  return text;
}

void run_problem(Engine& engine, const Problem& problem) {
  if (const auto* task = std::get_if<HostTask>(&problem)) {
    const TeamSharePause pause;  // it may wait for another queue's list
    if (task->run_on && task->run_on(engine)) return;
    engine.synchronize();  // the host may read earlier results
    if (task->run) task->run();
    return;
  }
  trace_problem(problem);
  if (engine.try_run(problem)) return;
  if (!engine.falls_back())
    throw EngineError(FailureCode::internal, std::string(engine.name()) + " has no kernel for " + describe(problem) +
                                                 "; MPSCNN_CUDA_FALLBACK=0 does not let the CPU compute it.");
  if (dispatch().traces) std::fprintf(stderr, "mpscnn dispatch: %s declines: cpu\n", engine.name());
  engine.synchronize();
  run_on_processor(problem);
}

std::unique_ptr<Run> Engine::start(Steps& steps, std::shared_ptr<void>&) {
  const TeamShare share;
  const bool traces = traces_steps();
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const auto begin = std::chrono::steady_clock::now();
    std::size_t count = steps.group(i);
    if (count == 1 || !try_run_group(steps.group_problems(i))) {
      count = 1;
      run_problem(*this, steps.problem(i));
    }
    if (traces) {
      synchronize();
      const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - begin;
      std::string labels = steps.labels(i);
      for (std::size_t next = i + 1; next < i + count; ++next) labels += " + " + steps.labels(next);
      std::fprintf(stderr, "mpscnn steps: %8.1f us %s\n", time.count(), labels.c_str());
      for (std::size_t of = i; of < i + count; ++of)
        std::fprintf(stderr, "mpscnn steps: %11s %s\n", "", describe(steps.problem(of)).c_str());
    }
    i += count - 1;
  }
  synchronize();
  return nullptr;
}

std::shared_ptr<std::byte> Engine::arena(std::size_t bytes, std::shared_ptr<void>&) {
  const Storage storage = image_storage();
  return {allocate(bytes, storage), [this, bytes, storage](std::byte* data) { deallocate(data, bytes, storage); }};
}

void Engine::download(void*, const std::byte*, std::size_t) {
  throw EngineError(FailureCode::internal, std::string(name()) + " has no memory of its own.");
}

void Engine::upload(std::byte*, const void*, std::size_t) {
  throw EngineError(FailureCode::internal, std::string(name()) + " has no memory of its own.");
}

void Engine::clear(std::byte*, std::size_t) {
  throw EngineError(FailureCode::internal, std::string(name()) + " has no memory of its own.");
}

bool Engine::fuses(const ConvProblem& conv, const Problem& next) const {
  if (conv.dst.format != Format::float32 || std::holds_alternative<PoolProblem>(next)) return false;
  const auto* const sum = std::get_if<BinaryProblem>(&next);
  const auto is_dense_float = [](const ImageView& view) { return view.format == Format::float32 && view.is_dense(); };
  return !sum || (is_dense_float(sum->src0.view) && is_dense_float(sum->src1.view));
}

}  // namespace openmps
