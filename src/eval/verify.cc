#include "eval/verify.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>

#include <fmt/format.h>

#include <tensorsharp/engine.hpp>

#include "base/log.h"
#include "base/quote_text.h"
#include "base/thread_pool.h"
#include "codec/block_check.h"
#include "codec/codec.h"
#include "format/gguf.h"
#include "model/gguf_tokenizer.h"
#include "model/model.h"
#include "text/chat_template.h"

namespace ts {
namespace {

// The reference takes seconds per token and thousand million weights.
constexpr size_t kForwardTokens = 8, kForwardTokensOfLargeModels = 2;
constexpr int64_t kLargeModel = 4'000'000'000;
// Kernels of all instruction sets compute the same bits; anything beyond rounding is a fault.
constexpr double kForwardLimit = 1e-3;
// Bytes of blocks one thread checks between two looks at the cancel flag.
constexpr uint64_t kPieceBytes = uint64_t{1} << 22;
// Level quick reads tensors up to this size: the float ones of recurrent layers and all vectors.
constexpr uint64_t kSmallTensorBytes = uint64_t{1} << 20;

class Verifier {
 public:
  Verifier(const std::filesystem::path& path, const VerifyOptions& options,
           const Progress& progress)
      : path_(path), options_(options), progress_(progress), file_(GgufFile::open(path)) {}

  VerifyReport run() {
    report_.n_tensors = file_->tensors().size();
    for (const std::string& note : file_->notes())
      report_.notes.push_back({{}, {}, note});
    check_tensors();
    check_tokenizer();
    const bool full = options_.level == VerifyLevel::kFull;
    const size_t n_before = report_.problems.size();
    check_blocks_of_all(full ? UINT64_MAX : kSmallTensorBytes);
    values_are_numbers_ = report_.problems.size() == n_before;
    check_architecture();
    // A file already known to be unsound is not run.
    if (full && report_.ok()) check_forward();
    if (!full) report_.n_blocks = 0;
    for (std::string& line : warnings_.take())
      note({}, std::move(line));
    return std::move(report_);
  }

 private:
  /// Runs one check; what it throws about the file becomes a problem.
  template <typename F>
  void guarded(F&& check) {
    try {
      check();
    } catch (const FormatError& e) {
      problem({}, e.what());
    } catch (const Unsupported& e) {
      problem({}, e.what());
    } catch (const InvalidArgument& e) {
      problem({}, e.what());
    } catch (const BackendError& e) {
      problem({}, e.what());
    }
  }

  void problem(std::string tensor, std::string what, std::optional<uint64_t> offset = {}) {
    report_.problems.push_back({std::move(tensor), offset, std::move(what)});
  }
  void note(std::string tensor, std::string what, std::optional<uint64_t> offset = {}) {
    report_.notes.push_back({std::move(tensor), offset, std::move(what)});
  }

  void check_tensors() {
    for (const TensorEntry& tensor : file_->tensors()) {
      if (find_codec(tensor.type) != nullptr) continue;
      const std::string advice = type_advice(tensor.type);
      problem(tensor.name,
              fmt::format("type {} cannot be read by this version{}{}", type_name(tensor.type),
                          advice.empty() ? "" : "; ", advice),
              tensor.file_offset);
    }
  }

  void check_tokenizer() {
    if (!file_->metadata().contains("tokenizer.ggml.model")) {
      note({}, "the file has no tokenizer");
      return;
    }
    guarded([&] {
      for (std::string& line : find_bad_token_ids(file_->metadata()))
        problem({}, std::move(line));
    });
    guarded([&] {
      const auto tokenizer = Tokenizer::create(read_gguf_tokenizer(file_->metadata()));
      check_round_trip(*tokenizer);
      const TokenizerData& data = tokenizer->data();
      if (!data.chat_template.empty()) {
        try {
          (void)ChatTemplate::parse(data.chat_template);
        } catch (const Error& e) {  // not in the subset, or beyond a limit of the engine
          problem({}, fmt::format("the chat template cannot be used: {}", e.what()));
        }
      }
      if (const TensorEntry* table = file_->find("token_embd.weight");
          table != nullptr && table->shape[1] < tokenizer->n_vocab())
        problem(table->name, fmt::format("has {} rows for a vocabulary of {} tokens",
                                         table->shape[1], tokenizer->n_vocab()));
    });
  }

  /// Text must survive encoding and decoding.
  void check_round_trip(const Tokenizer& tokenizer) {
    static constexpr std::string_view kTexts[] = {
        "Hello, world! 12345", "tab\tand\nnewline  two blanks",
        "na\xC3\xAFve \xE4\xBD\xA0\xE5\xA5\xBD \xF0\x9F\x99\x82"};
    for (const std::string_view text : kTexts) {
      const auto ids = tokenizer.encode(text, {.add_special = false, .parse_special = false});
      for (const TokenId id : ids) {
        if (id < 0 || id >= tokenizer.n_vocab()) {
          problem({}, fmt::format("the tokenizer gives id {} for {}; the vocabulary has {} tokens",
                                  id, quote_text(text), tokenizer.n_vocab()));
          return;
        }
      }
      const std::string back = tokenizer.decode(ids, true);
      if (back != text)
        note({}, fmt::format("the tokenizer does not give {} back: {}", quote_text(text),
                             quote_text(back)));
    }
  }

  void check_architecture() {
    guarded([&] {
      report_.architecture = file_->metadata().get_string("general.architecture").value_or("");
      // Values that are no numbers have been reported with their places.
      if (values_are_numbers_) {
        check_model(file_);
      } else {
        (void)load_model(file_, nullptr);
      }
    });
  }

  void check_blocks_of_all(uint64_t max_bytes) {
    ThreadPool pool(std::max(1, options_.n_threads));
    uint64_t total = 0, done = 0;
    const auto is_skipped = [&](const TensorEntry& tensor) {
      return find_codec(tensor.type) == nullptr || tensor.data.empty() || tensor.bytes > max_bytes;
    };
    for (const TensorEntry& tensor : file_->tensors())
      total += is_skipped(tensor) ? 0 : tensor.bytes;
    for (const TensorEntry& tensor : file_->tensors()) {
      if (!is_skipped(tensor)) check_blocks_of(tensor, *find_codec(tensor.type), pool, done, total);
    }
    for (const auto& part : file_->parts())
      part->check_not_truncated();
    progress_("checking blocks", total, total);
  }

  void check_blocks_of(const TensorEntry& tensor, const Codec& codec, ThreadPool& pool,
                       uint64_t& done, uint64_t total) {
    const uint64_t n_blocks = tensor.data.size() / codec.block_bytes;
    const uint64_t piece_blocks = std::max<uint64_t>(1, kPieceBytes / codec.block_bytes);
    const uint64_t n_pieces = (n_blocks + piece_blocks - 1) / piece_blocks;
    std::vector<BlockReport> reports(n_pieces);
    const uint64_t step = static_cast<uint64_t>(pool.n_threads());
    for (uint64_t begin = 0; begin < n_pieces; begin += step) {
      progress_("checking blocks", done, total);
      const uint64_t count = std::min(step, n_pieces - begin);
      pool.parallel_for(static_cast<int64_t>(count), 1, [&](int64_t from, int64_t to) {
        for (int64_t i = from; i < to; ++i) {
          const uint64_t piece = begin + static_cast<uint64_t>(i);
          const uint64_t first = piece * piece_blocks;
          const uint64_t blocks = std::min(piece_blocks, n_blocks - first);
          reports[piece] = check_blocks(
              codec, tensor.data.subspan(first * codec.block_bytes, blocks * codec.block_bytes));
        }
      });
      done += std::min(count * piece_blocks * codec.block_bytes, total - done);
    }
    BlockReport all;
    for (const BlockReport& report : reports)
      all.append(report);
    report_.n_blocks += all.n_blocks;
    for (size_t bit = 0; bit < all.by_bit.size(); ++bit) {
      const FindingCount& count = all.by_bit[bit];
      if (count.n_blocks == 0) continue;
      const auto finding = static_cast<BlockFinding>(1U << bit);
      const uint64_t offset = tensor.file_offset + count.first_block * codec.block_bytes;
      const std::string what =
          fmt::format("{}: {} of {} {} blocks, first in block {}", finding_text(finding),
                      count.n_blocks, all.n_blocks, codec.name, count.first_block);
      if ((finding & kFindingFaults) != 0) {
        problem(tensor.name, what, offset);
      } else {
        note(tensor.name, what, offset);
      }
    }
  }

  /// A few tokens on the chosen kernels and on `ref`.
  void check_forward() {
    guarded([&] {
      size_t n_tokens = 0;
      const auto logits_of = [&](const std::string& isa, std::string_view stage, uint64_t step) {
        progress_(stage, step, 2);
        LoadOptions load;
        load.n_threads = options_.n_threads;
        load.isa = isa;
        load.context = 64;
        load.self_check = false;  // this is the check
        const auto engine = Engine::load(path_.string(), load);
        const auto n_vocab = static_cast<size_t>(engine->info().n_vocab);
        std::vector<int32_t> ids(engine->info().n_parameters >= kLargeModel
                                     ? kForwardTokensOfLargeModels
                                     : kForwardTokens);
        n_tokens = ids.size();
        // Ids spread over the vocabulary, the same for every run.
        for (size_t i = 0; i < ids.size(); ++i)
          ids[i] = static_cast<int32_t>((i * 2654435761ULL + 1) % n_vocab);
        std::vector<float> logits(ids.size() * n_vocab);
        engine->new_session()->eval(ids, logits, true);
        return logits;
      };
      const std::vector<float> chosen = logits_of(options_.isa, "forward pass", 0);
      const std::vector<float> ref = logits_of("ref", "forward pass", 1);
      double sum = 0, sum2 = 0, worst = 0;
      for (size_t i = 0; i < ref.size(); ++i) {
        sum += ref[i];
        sum2 += static_cast<double>(ref[i]) * ref[i];
        worst = std::max(worst, std::fabs(static_cast<double>(chosen[i]) - ref[i]));
      }
      const auto n = static_cast<double>(ref.size());
      const double deviation = std::sqrt(std::max(0.0, sum2 / n - sum / n * (sum / n)));
      report_.forward_checked = true;
      report_.forward_difference = deviation > 0 ? worst / deviation : worst;
      if (!(report_.forward_difference <= kForwardLimit))
        problem({}, fmt::format("the kernels of this machine and the reference disagree: largest "
                                "logit difference {:.3g} standard deviations over {} tokens",
                                report_.forward_difference, n_tokens));
    });
  }

  WarningCollector warnings_;  // whatever a run would warn of is a note here
  std::filesystem::path path_;
  VerifyOptions options_;
  const Progress& progress_;
  std::shared_ptr<const GgufFile> file_;
  VerifyReport report_;
  bool values_are_numbers_ = true;
};

}  // namespace

VerifyReport verify_model(const std::filesystem::path& path, const VerifyOptions& options,
                          const Progress& progress) {
  return Verifier(path, options, progress).run();
}

}  // namespace ts
